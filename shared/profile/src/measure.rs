//! The whole measurement: every step once, in passes, each kept as soon as it is done.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use seamline_ort::{Provider, Runtime};
use seamline_plan::{
    CodecTime, KIT_FILE, Kit, KitError, NodeTime, PROFILE_FORMAT, PartTime, Profile, Side, Spread,
    write_atomic,
};

use crate::error::MeasureError;
use crate::machine::describe;
use crate::nodes::nodes;
use crate::options::MeasureOptions;
use crate::partial::{Partial, key};
use crate::timing::median;
use crate::visit::{Values, Visitor, Which, part_name};

pub use crate::partial::partial_path;

/// More samples than this only take memory: their crossing values are held together.
const MAX_SAMPLES: usize = 8;

/// How far a measurement is; given before each step, and once more at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What comes next: `head of s12, 2 threads`.
    pub what: String,
    /// Steps that are done, those of an earlier run included.
    pub done: usize,
    /// All steps.
    pub total: usize,
}

/// A finished measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The profile, as it stands in the file.
    pub profile: Profile,
    /// Steps that an earlier run had done already.
    pub resumed: usize,
    /// Which nodes ran where, seam by seam.
    pub ran_on: Vec<RanOn>,
}

/// Nodes of one optimised head or tail by the provider that ran them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RanOn {
    /// The seam's id, or [`seamline_plan::WHOLE`].
    pub seam: String,
    /// Names of nodes, fused ones once, by the runtime's name of the provider.
    pub nodes: BTreeMap<String, Vec<String>>,
}

impl RanOn {
    /// Nodes that the CPU ran although another provider was asked first.
    pub fn handed_back(&self, providers: &[Provider]) -> &[String] {
        let asked_other = providers
            .first()
            .is_some_and(|first| *first != Provider::Cpu);
        let on_cpu = self.nodes.get("CPUExecutionProvider");
        on_cpu.filter(|_| asked_other).map_or(&[], Vec::as_slice)
    }
}

#[derive(Clone, Copy)]
enum Step {
    Nodes { pass: u32 },
    Visit(Which),
}

/// Measures this machine on the kit in `folder` and writes its profile to `out`. Figures of finished
/// steps are in a file beside it ([`partial_path`]) until then; where that is of the same kit,
/// machine and settings, the measurement goes on from it. `progress` is told of each step before it
/// is taken, and may stop.
///
/// # Errors
/// [`MeasureError`]; [`MeasureError::Stopped`] where `progress` said so.
pub fn measure(
    runtime: &Runtime,
    folder: &Path,
    out: &Path,
    options: &MeasureOptions,
    mut progress: impl FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Measured, MeasureError> {
    let options = &checked(options)?;
    let kit = Kit::read(folder)?;
    let samples = samples(&kit, folder)?;
    let machine = describe(runtime, options.name.as_deref(), &options.providers);
    let partial_at = partial_path(out);
    let key = key(&kit.to_json(), &machine, options);
    let mut partial = Partial::read(&partial_at, key).unwrap_or_else(|| Partial::new(key));
    // Where nothing can be written, that is said before anything is measured.
    partial.write(&partial_at)?;

    let visitor = Visitor {
        runtime,
        folder,
        options,
        samples: &samples,
    };
    let all = steps(&kit, options);
    let resumed = all.iter().filter(|step| is_done(&partial, **step)).count();
    let mut done = resumed;
    let mut tell = |done: usize, what: String| {
        let total = all.len();
        match progress(&Progress { what, done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MeasureError::Stopped {
                done,
                total,
                partial: partial_at.clone(),
            }),
        }
    };
    for &step in &all {
        if is_done(&partial, step) {
            continue;
        }
        tell(done, describe_step(step, &kit, options.side))?;
        match step {
            Step::Nodes { .. } => {
                let model = folder.join(&kit.nodes);
                let times = nodes(runtime, &model, options, &samples[0])?;
                partial.nodes.push(times);
            }
            Step::Visit(which) => {
                let visit = visitor.visit(which, &kit.seams[which.seam])?;
                partial.visits.push(visit);
            }
        }
        partial.write(&partial_at)?;
        done += 1;
    }
    let profile = Profile {
        format: PROFILE_FORMAT,
        side: options.side,
        model: kit.model.clone(),
        machine,
        slowdown: 1.0,
        corrected: 1.0,
        nodes: node_times(&partial),
        parts: part_times(&kit, &partial, options),
    };
    write_atomic(out, &profile.to_json()).map_err(|error| MeasureError::Io {
        path: out.to_owned(),
        error,
    })?;
    // The profile stands; what is left behind would only be measured from again.
    let _ = std::fs::remove_file(&partial_at);
    // Nothing is left to stop.
    let _ = tell(done, "done".into());
    Ok(Measured {
        profile,
        resumed,
        ran_on: ran_on(&kit, &partial),
    })
}

/// The options, each count once and in order, a head's batches none but one.
fn checked(options: &MeasureOptions) -> Result<MeasureOptions, MeasureError> {
    let wrong = |text: &str| Err(MeasureError::Options(text.to_owned()));
    let mut options = options.clone();
    if options.threads.is_empty() || options.threads.contains(&0) {
        return wrong("give at least one number of threads, each 1 or more");
    }
    if options.side == Side::Edge {
        options.batches = vec![1];
    }
    if options.batches.is_empty() || options.batches.contains(&0) {
        return wrong("give at least one batch size, each 1 row or more");
    }
    if options.providers.is_empty() {
        options.providers = vec![Provider::Cpu];
    }
    options.threads.sort_unstable();
    options.threads.dedup();
    options.batches.sort_unstable();
    options.batches.dedup();
    Ok(options)
}

fn samples(kit: &Kit, folder: &Path) -> Result<Vec<Values>, MeasureError> {
    if kit.samples.is_empty() || kit.seams.is_empty() {
        let (list, what) = if kit.seams.is_empty() {
            ("seams", "no head or tail to measure")
        } else {
            ("samples", "nothing to run on")
        };
        return Err(MeasureError::Content {
            kit: folder.join(KIT_FILE),
            problem: format!("`{list}` is empty: there is {what}"),
        });
    }
    let read = |sample: &Vec<seamline_plan::KitTensor>| {
        let values = sample.iter();
        values
            .map(|tensor| Ok((tensor.name.clone(), tensor.read(folder)?)))
            .collect::<Result<Values, KitError>>()
    };
    let samples = kit.samples.iter().take(MAX_SAMPLES).map(read);
    Ok(samples.collect::<Result<_, _>>()?)
}

/// Every part once in each pass, so that a machine that drifts does so over all of them.
fn steps(kit: &Kit, options: &MeasureOptions) -> Vec<Step> {
    let mut steps = Vec::new();
    for pass in 0..options.effort.passes.max(1) {
        steps.push(Step::Nodes { pass });
        for seam in 0..kit.seams.len() {
            for &threads in &options.threads {
                steps.push(Step::Visit(Which {
                    pass,
                    seam,
                    threads,
                }));
            }
        }
    }
    steps
}

fn is_done(partial: &Partial, step: Step) -> bool {
    match step {
        Step::Nodes { pass } => partial.nodes.len() > pass as usize,
        Step::Visit(which) => partial.has(which.pass, which.seam, which.threads),
    }
}

fn describe_step(step: Step, kit: &Kit, side: Side) -> String {
    match step {
        Step::Nodes { .. } => "node by node".to_owned(),
        Step::Visit(which) => {
            let plural = if which.threads == 1 { "" } else { "s" };
            let part = part_name(side, &kit.seams[which.seam]);
            format!("{part}, {} thread{plural}", which.threads)
        }
    }
}

/// The median over passes of each node.
fn node_times(partial: &Partial) -> Vec<NodeTime> {
    let mut times: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for time in partial.nodes.iter().flatten() {
        times.entry(time.node).or_default().push(time.us);
    }
    let times = times.into_iter();
    times
        .map(|(node, times)| NodeTime {
            node,
            us: median(times),
        })
        .collect()
}

fn part_times(kit: &Kit, partial: &Partial, options: &MeasureOptions) -> Vec<PartTime> {
    let mut parts = Vec::new();
    for (index, seam) in kit.seams.iter().enumerate() {
        let of_seam = || {
            partial
                .visits
                .iter()
                .filter(move |visit| visit.seam == index)
        };
        let codecs = pooled_codecs(of_seam().flat_map(|visit| &visit.codecs));
        let mut placement = BTreeMap::new();
        for (provider, nodes) in of_seam().flat_map(|visit| &visit.ran_on) {
            placement.insert(provider.clone(), nodes.len());
        }
        let values = if seam.seam == seamline_plan::WHOLE {
            Vec::new()
        } else {
            let names = seam.crossing.iter();
            names.map(|crossing| crossing.spec.name.clone()).collect()
        };
        for &threads in &options.threads {
            for &batch in &options.batches {
                let of_part = || {
                    let visits = of_seam().filter(|visit| visit.threads == threads);
                    visits
                        .flat_map(|visit| &visit.batches)
                        .filter(|times| times.rows == batch)
                };
                let us: Vec<f64> = of_part().flat_map(|times| &times.us).copied().collect();
                if us.is_empty() {
                    continue;
                }
                parts.push(PartTime {
                    values: values.clone(),
                    seam: seam.seam.clone(),
                    batch,
                    threads,
                    time: Spread::of(&us),
                    resident_bytes: of_part()
                        .map(|times| times.resident_bytes)
                        .max()
                        .unwrap_or(0),
                    placement: placement.clone(),
                    codecs: codecs.clone(),
                });
            }
        }
    }
    parts
}

/// Codecs in their order, the samples of all passes together.
fn pooled_codecs<'a>(
    times: impl Iterator<Item = &'a crate::partial::CodecTimes>,
) -> Vec<CodecTime> {
    let mut pooled: Vec<(&str, Vec<f64>, u64)> = Vec::new();
    for codec in times {
        match pooled.iter_mut().find(|(name, ..)| *name == codec.codec) {
            Some((_, us, _)) => us.extend(&codec.us),
            None => pooled.push((&codec.codec, codec.us.clone(), codec.bytes)),
        }
    }
    let pooled = pooled.into_iter();
    pooled
        .map(|(codec, us, bytes)| CodecTime {
            codec: codec.to_owned(),
            time: Spread::of(&us),
            bytes,
        })
        .collect()
}

fn ran_on(kit: &Kit, partial: &Partial) -> Vec<RanOn> {
    let visits = partial
        .visits
        .iter()
        .filter(|visit| !visit.ran_on.is_empty());
    visits
        .filter_map(|visit| {
            Some(RanOn {
                seam: kit.seams.get(visit.seam)?.seam.clone(),
                nodes: visit.ran_on.clone(),
            })
        })
        .collect()
}
