//! From a profile to the time of any head or tail: measured where it was measured whole, otherwise
//! between the nearest that were, by the work of its nodes. (Times of single nodes do not add up
//! after fusion, so their sums only say how far along a seam lies.)

use std::collections::BTreeMap;

use seamline_plan::{PartTime, Profile, Spread, TailTime, WHOLE};

/// Times of one side of a machine.
pub(crate) struct SideTimes<'p> {
    profile: &'p Profile,
    threads: usize,
    /// Time of a node by its index, in microseconds, nothing fused.
    pub(crate) node_us: Vec<f64>,
    /// By rows that ran together: sums of node times, rising, and what was measured there.
    curves: BTreeMap<u64, Vec<(f64, Spread)>>,
    /// By codec: raw bytes and what encoding or decoding took.
    codecs: BTreeMap<String, Vec<(f64, Spread)>>,
}

/// The time of a head or tail, and whether it was measured whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PartEstimate {
    pub(crate) time: Spread,
    pub(crate) measured: bool,
}

impl<'p> SideTimes<'p> {
    /// Times with `threads` threads, or else the number of threads that ran the whole model
    /// fastest. `work` gives the sum of node times and the raw bytes of what crosses for the values
    /// of a part; `None` for one that this model does not have.
    pub(crate) fn new(
        profile: &'p Profile,
        nodes: usize,
        threads: Option<usize>,
        mut work: impl FnMut(&[String], &[f64]) -> Option<(f64, f64)>,
    ) -> Result<SideTimes<'p>, String> {
        let mut node_us = vec![0.0; nodes];
        for node in &profile.nodes {
            *node_us.get_mut(node.node).ok_or_else(|| {
                format!("it has times of node {}, the model has {nodes}", node.node)
            })? = node.us;
        }
        if node_us.iter().all(|&us| us == 0.0) {
            return Err("it has no time of any node".into());
        }
        let threads = match threads {
            Some(threads) => threads,
            None => fastest_threads(profile)?,
        };
        let mut side = SideTimes {
            profile,
            threads,
            node_us,
            curves: BTreeMap::new(),
            codecs: BTreeMap::new(),
        };
        let parts = profile.parts.iter().filter(|part| part.threads == threads);
        for part in parts {
            let total = side.node_us.iter().sum();
            let (at, raw_bytes) = match part.seam.as_str() {
                WHOLE => (
                    total,
                    work(&part.values, &side.node_us).map_or(0.0, |(_, raw)| raw),
                ),
                _ => match work(&part.values, &side.node_us) {
                    Some(found) => found,
                    None => continue,
                },
            };
            side.curves
                .entry(part.batch)
                .or_default()
                .push((at, part.time));
            if part.batch == 1 {
                for codec in &part.codecs {
                    let entry = side.codecs.entry(codec.codec.clone()).or_default();
                    entry.push((raw_bytes, codec.time));
                }
            }
        }
        for curve in side.curves.values_mut().chain(side.codecs.values_mut()) {
            curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        if !side.curves.contains_key(&1) {
            return Err(format!(
                "it has no times of one row with {threads} threads; it has {}",
                list_threads(profile)
            ));
        }
        Ok(side)
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The measurement of one row of the part with these values.
    pub(crate) fn part(&self, values: &[String], whole: bool) -> Option<&'p PartTime> {
        let is_it = |part: &&PartTime| {
            let is_whole = part.seam == WHOLE;
            part.threads == self.threads
                && part.batch == 1
                && is_whole == whole
                && (whole || part.values == values)
        };
        self.profile.parts.iter().find(is_it)
    }

    /// One row of the part with these values, whose nodes sum up to `work_us`.
    pub(crate) fn time(&self, values: &[String], whole: bool, work_us: f64) -> PartEstimate {
        if let Some(part) = self.part(values, whole) {
            return PartEstimate {
                time: part.time,
                measured: true,
            };
        }
        let curve = self.curves.get(&1).map(Vec::as_slice).unwrap_or_default();
        PartEstimate {
            time: along(curve, work_us),
            measured: false,
        }
    }

    /// The part by rows that run together.
    pub(crate) fn by_batch(&self, values: &[String], whole: bool, work_us: f64) -> Vec<TailTime> {
        let one = self.time(values, whole, work_us).time;
        let curves = self.curves.iter().map(|(&batch, curve)| {
            let measured = self.profile.parts.iter().find(|part| {
                part.threads == self.threads
                    && part.batch == batch
                    && (part.seam == WHOLE) == whole
                    && (whole || part.values == values)
            });
            let time = match measured {
                Some(part) => part.time,
                None => along(curve, work_us),
            };
            TailTime { batch, time }
        });
        let mut times: Vec<TailTime> = curves.filter(|tail| tail.batch > 1).collect();
        times.insert(
            0,
            TailTime {
                batch: 1,
                time: one,
            },
        );
        times
    }

    /// Encoding or decoding by the codec called `name` of what has `raw_bytes` at the seam with
    /// these values, and the bytes where only a measurement tells them.
    pub(crate) fn codec(
        &self,
        name: &str,
        values: &[String],
        whole: bool,
        raw_bytes: f64,
    ) -> Option<(Spread, Option<u64>)> {
        let part = self.part(values, whole);
        let measured = part.and_then(|part| part.codecs.iter().find(|codec| codec.codec == name));
        if let Some(codec) = measured {
            return Some((codec.time, Some(codec.bytes)));
        }
        let curve = self.codecs.get(name)?;
        Some((along(curve, raw_bytes), None))
    }

    /// What the head of these values adds to a process's memory.
    pub(crate) fn resident_bytes(&self, values: &[String], whole: bool) -> Option<u64> {
        let bytes = self.part(values, whole)?.resident_bytes;
        (bytes > 0).then_some(bytes)
    }
}

fn list_threads(profile: &Profile) -> String {
    let mut threads: Vec<usize> = profile.parts.iter().map(|part| part.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let threads: Vec<String> = threads.iter().map(ToString::to_string).collect();
    threads.join(", ")
}

fn fastest_threads(profile: &Profile) -> Result<usize, String> {
    let whole = profile
        .parts
        .iter()
        .filter(|part| part.seam == WHOLE && part.batch == 1)
        .min_by(|a, b| a.time.p50_us.total_cmp(&b.time.p50_us));
    whole
        .map(|part| part.threads)
        .ok_or_else(|| "it has no time of the whole model".into())
}

/// The value at `x` of the line through the points, which rise, and through the origin; beyond the
/// last by its slope from the origin.
fn along(points: &[(f64, Spread)], x: f64) -> Spread {
    let mut low = (0.0, Spread::default());
    for &(at, spread) in points {
        if x <= at {
            let share = if at > low.0 {
                (x - low.0) / (at - low.0)
            } else {
                1.0
            };
            let between = |a: f64, b: f64| (a + (b - a) * share).max(0.0);
            let p50_us = between(low.1.p50_us, spread.p50_us);
            return Spread {
                p50_us,
                p95_us: between(low.1.p95_us, spread.p95_us).max(p50_us),
                samples: 0,
            };
        }
        low = (at, spread);
    }
    if low.0 > 0.0 {
        Spread {
            samples: 0,
            ..low.1.scaled(x / low.0)
        }
    } else {
        low.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_measurements_the_line_beyond_them_its_slope() {
        let points = [(10.0, Spread::exactly(20.0)), (30.0, Spread::exactly(30.0))];
        for (x, us) in [
            (0.0, 0.0),
            (5.0, 10.0),
            (10.0, 20.0),
            (20.0, 25.0),
            (60.0, 60.0),
        ] {
            assert_eq!(along(&points, x).p50_us, us, "{x}");
        }
        assert_eq!(along(&[], 5.0), Spread::default());
    }
}
