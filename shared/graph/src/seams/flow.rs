//! Maximum flow by pushing from the highest label (A. V. Goldberg and R. E. Tarjan, "A new approach to
//! the maximum-flow problem", JACM 1988), with the gap rule (U. Derigs and W. Meier, 1989). Networks of
//! neural networks are long: shortest augmenting paths need as many phases as there are layers.

/// A capacity that no sum of values reaches.
pub(crate) const INFINITE: u128 = 1 << 110;

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
    /// What the preflow has brought to each point and not on from there.
    excess: Vec<u128>,
}

impl Network {
    /// A network of source and sink.
    pub(crate) fn new() -> Network {
        Network {
            edges: Vec::new(),
            leaving: vec![Vec::new(); 2],
            excess: vec![0; 2],
        }
    }

    /// Adds a point.
    pub(crate) fn point(&mut self) -> usize {
        self.leaving.push(Vec::new());
        self.excess.push(0);
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
    /// on the source's side of the smallest such cut. Edges and points may be added afterwards, and
    /// the cut asked for again.
    pub(crate) fn min_cut(&mut self) -> Option<(u128, Vec<bool>)> {
        Preflow::new(self).run();
        let flow = self.excess[SOURCE];
        let is_reached = |level: &Option<u32>| level.is_some();
        (flow < INFINITE).then(|| (flow, self.levels().iter().map(is_reached).collect()))
    }

    /// The number of edges from the source to each point over those that are not full; none where
    /// there is no way.
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
}

/// A preflow from the sink against the edges towards the source. What cannot get there stays where
/// it is stuck: that tells the cut, if not the flow through each edge.
struct Preflow<'n> {
    network: &'n mut Network,
    /// At most the distance to the source; the number of points for those that are cut off from it.
    label: Vec<usize>,
    /// The points that have a label, and others that had it.
    with_label: Vec<Vec<usize>>,
    /// How many points have it.
    count: Vec<usize>,
    /// The points of each label with something to push on, and others that had.
    active: Vec<Vec<usize>>,
    highest: usize,
    /// The edge of each point to try next.
    next: Vec<usize>,
}

impl<'n> Preflow<'n> {
    fn new(network: &'n mut Network) -> Preflow<'n> {
        let points = network.leaving.len();
        let levels = network.levels();
        let mut preflow = Preflow {
            network,
            label: vec![points; points],
            with_label: vec![Vec::new(); points],
            count: vec![0; points],
            active: vec![Vec::new(); points],
            highest: 0,
            next: vec![0; points],
        };
        for (point, level) in levels.into_iter().enumerate() {
            if let Some(level) = level.filter(|_| point != SINK) {
                preflow.set_label(point, level as usize);
            }
        }
        for point in (0..points).filter(|&point| point != SOURCE) {
            preflow.activate(point);
        }
        preflow
    }

    fn set_label(&mut self, point: usize, label: usize) {
        self.label[point] = label;
        self.with_label[label].push(point);
        self.count[label] += 1;
    }

    /// Notes that `point` has something to push on.
    fn activate(&mut self, point: usize) {
        let label = self.label[point];
        if self.network.excess[point] > 0 && label < self.label.len() {
            self.active[label].push(point);
            self.highest = self.highest.max(label);
        }
    }

    fn run(&mut self) {
        for index in 0..self.network.leaving[SINK].len() {
            let edge = self.network.leaving[SINK][index];
            let amount = self.network.edges[edge ^ 1].residual;
            self.push(edge, amount);
        }
        loop {
            let Some(point) = self.active[self.highest].pop() else {
                if self.highest == 0 {
                    return;
                }
                self.highest -= 1;
                continue;
            };
            if self.label[point] == self.highest {
                self.discharge(point);
            }
        }
    }

    /// Sends `amount` against the reverse of `edge`, to where it leads.
    fn push(&mut self, edge: usize, amount: u128) {
        let Network { edges, excess, .. } = &mut *self.network;
        if amount == 0 {
            return;
        }
        let to = edges[edge].to;
        edges[edge ^ 1].residual -= amount;
        edges[edge].residual = edges[edge].residual.saturating_add(amount);
        let was_empty = excess[to] == 0;
        excess[to] = excess[to].saturating_add(amount);
        if was_empty && to != SOURCE && to != SINK {
            self.activate(to);
        }
    }

    fn discharge(&mut self, point: usize) {
        while self.network.excess[point] > 0 {
            let Some(&edge) = self.network.leaving[point].get(self.next[point]) else {
                if !self.raise(point) {
                    return;
                }
                continue;
            };
            let to = self.network.edges[edge].to;
            let room = self.network.edges[edge ^ 1].residual;
            if room > 0 && self.label[point] == self.label[to] + 1 {
                let amount = room.min(self.network.excess[point]);
                self.network.excess[point] -= amount;
                self.push(edge, amount);
            } else {
                self.next[point] += 1;
            }
        }
    }

    /// Lifts a point above the lowest that it can push to; false where it is cut off.
    fn raise(&mut self, point: usize) -> bool {
        self.next[point] = 0;
        let points = self.label.len();
        let old = self.label[point];
        let edges = &self.network.edges;
        let open = self.network.leaving[point]
            .iter()
            .filter(|&&edge| edges[edge ^ 1].residual > 0);
        let lowest = open.map(|&edge| self.label[edges[edge].to]).min();
        let new = lowest.map_or(points, |label| (label + 1).min(points));
        self.count[old] -= 1;
        self.label[point] = points;
        if self.count[old] == 0 {
            // No way leads over a label that nobody has: all above are cut off.
            for label in old + 1..points {
                if self.with_label[label].is_empty() && self.count[label] == 0 {
                    break;
                }
                for above in std::mem::take(&mut self.with_label[label]) {
                    if self.label[above] == label {
                        self.label[above] = points;
                    }
                }
                self.count[label] = 0;
            }
            return false;
        }
        if new == points {
            return false;
        }
        self.set_label(point, new);
        self.highest = self.highest.max(new);
        true
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
