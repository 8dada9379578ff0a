//! A binary min-heap over slot numbers that can change and remove any of its members.

use super::queue::{NONE, at};

/// Slots ordered by a priority `P`; the smallest is at the front. Each slot is a member at most
/// once. All operations are O(log n), and none allocates once the heap has reached its size.
#[derive(Debug)]
pub(super) struct Heap<P> {
    nodes: Vec<(P, u32)>,
    /// For each slot its place in `nodes`, or `NONE`.
    places: Vec<u32>,
}

impl<P: Copy + Ord> Heap<P> {
    pub(super) fn new() -> Heap<P> {
        Heap {
            nodes: Vec::new(),
            places: Vec::new(),
        }
    }

    /// The smallest priority and its slot.
    pub(super) fn front(&self) -> Option<(P, u32)> {
        self.nodes.first().copied()
    }

    /// Adds `slot`, or moves it to its new priority.
    pub(super) fn set(&mut self, slot: u32, priority: P) {
        if self.places.len() <= at(slot) {
            self.places.resize(at(slot) + 1, NONE);
        }
        let place = self.places[at(slot)];
        if place == NONE {
            self.nodes.push((priority, slot));
            self.rise(self.nodes.len() - 1);
        } else {
            self.nodes[at(place)].0 = priority;
            self.settle(at(place));
        }
    }

    /// Removes `slot`; says whether it was a member.
    pub(super) fn remove(&mut self, slot: u32) -> bool {
        let place = self.places.get(at(slot)).copied().unwrap_or(NONE);
        if place == NONE {
            return false;
        }
        self.places[at(slot)] = NONE;
        self.nodes.swap_remove(at(place));
        if at(place) < self.nodes.len() {
            self.settle(at(place));
        }
        true
    }

    /// Restores the order around a node whose priority changed either way.
    fn settle(&mut self, place: usize) {
        let place = self.rise(place);
        self.sink(place);
    }

    fn rise(&mut self, mut place: usize) -> usize {
        let node = self.nodes[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.nodes[parent].0 <= node.0 {
                break;
            }
            self.put(place, self.nodes[parent]);
            place = parent;
        }
        self.put(place, node);
        place
    }

    fn sink(&mut self, mut place: usize) {
        let node = self.nodes[place];
        loop {
            let mut child = 2 * place + 1;
            if child >= self.nodes.len() {
                break;
            }
            if child + 1 < self.nodes.len() && self.nodes[child + 1].0 < self.nodes[child].0 {
                child += 1;
            }
            if node.0 <= self.nodes[child].0 {
                break;
            }
            self.put(place, self.nodes[child]);
            place = child;
        }
        self.put(place, node);
    }

    fn put(&mut self, place: usize, node: (P, u32)) {
        self.nodes[place] = node;
        // Places never exceed the number of slots, which is a u32.
        self.places[at(node.1)] = u32::try_from(place).unwrap_or(NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Any sequence of set and remove keeps the front equal to that of an ordered set.
        #[test]
        fn agrees_with_an_ordered_set(ops in prop::collection::vec((0u32..24, prop::option::of(0u8..50)), 0..200)) {
            let mut heap = Heap::new();
            let mut set: BTreeSet<(u8, u32)> = BTreeSet::new();
            for (slot, op) in ops {
                let present = set.iter().find(|(_, s)| *s == slot).copied();
                if let Some(member) = present {
                    set.remove(&member);
                }
                match op {
                    Some(priority) => {
                        set.insert((priority, slot));
                        heap.set(slot, priority);
                    }
                    None => prop_assert_eq!(heap.remove(slot), present.is_some()),
                }
                prop_assert_eq!(heap.front().map(|f| f.0), set.first().map(|f| f.0));
            }
            while let Some((priority, slot)) = heap.front() {
                prop_assert!(set.remove(&(priority, slot)));
                prop_assert!(set.first().is_none_or(|f| f.0 >= priority));
                heap.remove(slot);
            }
            prop_assert!(set.is_empty());
        }
    }
}
