//! Maximum flow by Dinic's algorithm (E. A. Dinic, 1970), without recursion.

/// A capacity that no sum of values reaches.
pub(crate) const INFINITE: u128 = 1 << 120;

/// The source of every network.
pub(crate) const SOURCE: usize = 0;

/// The sink of every network.
pub(crate) const SINK: usize = 1;

#[derive(Clone, Copy)]
struct Edge {
    to: usize,
    /// What may still flow; the edge's reverse is its index with the lowest bit flipped.
    residual: u128,
}

/// A directed network with capacities.
#[derive(Default)]
pub(crate) struct Network {
    edges: Vec<Edge>,
    leaving: Vec<Vec<usize>>,
}

impl Network {
    /// A network of source and sink.
    pub(crate) fn new() -> Network {
        Network {
            edges: Vec::new(),
            leaving: vec![Vec::new(); 2],
        }
    }

    /// Adds a point.
    pub(crate) fn point(&mut self) -> usize {
        self.leaving.push(Vec::new());
        self.leaving.len() - 1
    }

    /// Adds an edge.
    pub(crate) fn edge(&mut self, from: usize, to: usize, capacity: u128) {
        for (from, to, residual) in [(from, to, capacity), (to, from, 0)] {
            self.leaving[from].push(self.edges.len());
            self.edges.push(Edge { to, residual });
        }
    }

    /// The greatest flow from source to sink, or `None` where it is infinite, and then the points
    /// on the source's side of the smallest such cut.
    pub(crate) fn min_cut(&mut self) -> Option<(u128, Vec<bool>)> {
        let mut flow = 0u128;
        loop {
            let levels = self.levels();
            if levels[SINK].is_none() {
                return Some((flow, levels.iter().map(Option::is_some).collect()));
            }
            let mut next = vec![0; self.leaving.len()];
            while let Some(pushed) = self.augment(&levels, &mut next) {
                flow = flow.saturating_add(pushed);
                if flow >= INFINITE {
                    return None;
                }
            }
        }
    }

    fn levels(&self) -> Vec<Option<u32>> {
        let mut levels = vec![None; self.leaving.len()];
        levels[SOURCE] = Some(0u32);
        let mut queue = vec![SOURCE];
        let mut head = 0;
        while let Some(&at) = queue.get(head) {
            head += 1;
            let level = levels[at].map(|level| level + 1);
            for &edge in &self.leaving[at] {
                let Edge { to, residual } = self.edges[edge];
                if residual > 0 && levels[to].is_none() {
                    levels[to] = level;
                    queue.push(to);
                }
            }
        }
        levels
    }

    /// Finds one path through rising levels and fills it; `next` remembers which edges of each
    /// point have been tried in this phase.
    fn augment(&mut self, levels: &[Option<u32>], next: &mut [usize]) -> Option<u128> {
        let mut path: Vec<usize> = Vec::new();
        let mut at = SOURCE;
        while at != SINK {
            if let Some(&edge) = self.leaving[at].get(next[at]) {
                let Edge { to, residual } = self.edges[edge];
                if residual > 0 && levels[to] > levels[at] {
                    path.push(edge);
                    at = to;
                } else {
                    next[at] += 1;
                }
            } else {
                let dead_end = path.pop()?;
                at = self.edges[dead_end ^ 1].to;
                next[at] += 1;
            }
        }
        let pushed = path.iter().map(|&edge| self.edges[edge].residual).min()?;
        for edge in path {
            self.edges[edge].residual -= pushed;
            let back = &mut self.edges[edge ^ 1].residual;
            *back = back.saturating_add(pushed);
        }
        Some(pushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_is_the_smallest_and_nearest_the_source() {
        let mut network = Network::new();
        let (a, b) = (network.point(), network.point());
        network.edge(SOURCE, a, 3);
        network.edge(SOURCE, b, 2);
        network.edge(a, b, 1);
        network.edge(a, SINK, 1);
        network.edge(b, SINK, 4);
        let (flow, side) = network.min_cut().unwrap();
        assert_eq!(flow, 4);
        assert_eq!(side, [true, false, true, false]);
    }

    #[test]
    fn an_infinite_path_is_no_cut() {
        let mut network = Network::new();
        let a = network.point();
        network.edge(SOURCE, a, INFINITE);
        network.edge(a, SINK, INFINITE);
        assert!(network.min_cut().is_none());
    }
}
