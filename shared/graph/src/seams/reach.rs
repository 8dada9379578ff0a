//! What is decided before a minimum cut: which nodes of a cell lie before a pivot and which after
//! it, for as many pivots at once as a word has bits.

use super::pivot::{Pivot, PivotCell};

/// For each node of a cell, one bit a pivot.
pub(super) struct Reach {
    /// The maker of the pivot depends on the node.
    head: Vec<u64>,
    /// The node depends on a reader of the pivot.
    tail: Vec<u64>,
    /// The node is in neither, or is a cheap one of the head that the tail may want.
    open: Vec<u64>,
}

impl Reach {
    /// Pivots at once.
    pub(super) const WIDTH: usize = u64::BITS as usize;

    /// Takes at most [`Reach::WIDTH`] pivots; each has the bit of its position.
    pub(super) fn new(cell: &PivotCell<'_>, pivots: &[&Pivot]) -> Reach {
        let count = cell.is_cheap.len();
        let all = u64::MAX >> (Reach::WIDTH - pivots.len().clamp(1, Reach::WIDTH));
        let mut reach = Reach {
            head: vec![0; count],
            tail: vec![0; count],
            open: vec![0; count],
        };
        for (lane, pivot) in pivots.iter().enumerate() {
            for &place in pivot.maker.iter() {
                reach.head[place] |= 1 << lane;
            }
            for &place in &pivot.after {
                reach.tail[place] |= 1 << lane;
            }
        }
        for place in 0..count {
            let behind = cell.makers[place]
                .iter()
                .fold(0, |mask, &maker| mask | reach.tail[maker]);
            reach.tail[place] |= behind;
        }
        for place in (0..count).rev() {
            let readers = || cell.readers[place].iter();
            let before = readers().fold(0, |mask, &reader| mask | reach.head[reader]);
            reach.head[place] |= before;
            let mut open = all & !reach.head[place] & !reach.tail[place];
            if cell.is_cheap[place] {
                let wanted = readers().fold(0, |mask, &reader| {
                    mask | reach.tail[reader] | reach.open[reader]
                });
                open |= wanted & reach.head[place];
            }
            reach.open[place] = open;
        }
        reach
    }

    pub(super) fn is_head(&self, place: usize, lane: usize) -> bool {
        self.head[place] >> lane & 1 == 1
    }

    pub(super) fn is_tail(&self, place: usize, lane: usize) -> bool {
        self.tail[place] >> lane & 1 == 1
    }

    /// The nodes that are not decided, by pivot, ascending.
    pub(super) fn open(&self) -> Vec<Vec<usize>> {
        by_lane(self.open.iter().copied())
    }

    /// Indices of the values from a decided head to a decided tail, by pivot.
    pub(super) fn certain(&self, cell: &PivotCell<'_>) -> Vec<Vec<usize>> {
        by_lane(cell.values.iter().map(|value| {
            let from = value
                .maker
                .map_or(u64::MAX, |maker| self.head[maker] & !self.open[maker]);
            let to = value
                .readers
                .iter()
                .fold(0, |mask, &reader| mask | self.tail[reader]);
            from & to
        }))
    }
}

/// The positions whose masks have a bit, for each bit.
fn by_lane(masks: impl Iterator<Item = u64>) -> Vec<Vec<usize>> {
    let mut lanes = vec![Vec::new(); Reach::WIDTH];
    for (position, mut mask) in masks.enumerate() {
        while mask != 0 {
            lanes[mask.trailing_zeros() as usize].push(position);
            mask &= mask - 1;
        }
    }
    lanes
}
