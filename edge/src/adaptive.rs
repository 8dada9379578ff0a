//! Re-choosing the cut within a client: what its requests tell goes to the estimate and the
//! chooser of [`crate::adapt`], and their choices come back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seamline_net::{PathStats, Reply};
use seamline_plan::{CodecSpec, Costs, Cut, CutOption, LinkState, Manifest};

use crate::adapt::{Chooser, LinkEstimate, Outcome, PathSample, Transfer, Uploads};
use crate::client::in_service;
use crate::device::{Device, Encoded};

/// An answer is waited for so many times as long as expected, and this much longer, before the
/// device goes on alone.
const PATIENCE: (u32, Duration) = (4, Duration::from_secs(1));

/// The cut and codec of one request.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Index of the cut in the manifest.
    pub(crate) cut: usize,
    /// The codec of every value that allows it; the contract's first for others, and without it.
    pub(crate) codec: Option<String>,
    /// Index of the option in the costs, where the client adapts.
    pub(crate) option: Option<usize>,
}

/// What an adaptive client believes and does at the moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Adaptation {
    /// The link as the choice sees it; losses are in its rates.
    pub link: LinkState,
    /// The share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// Nothing was measured for some seconds, or ever: the estimate is a memory, or the plan's.
    pub is_stale: bool,
    /// The last word of the service was a failure.
    pub is_failing: bool,
    /// The id of the cut that is chosen now.
    pub cut: String,
    /// Its codec; `None` where nothing crosses.
    pub codec: Option<String>,
    /// What a request is expected to take.
    pub expected: Duration,
    /// How often the choice has changed.
    pub changes: u64,
}

/// The adaptation of one client, shared by its handles.
pub(crate) struct Adaptive {
    costs: Costs,
    /// Each option's cut in the manifest.
    cuts: Vec<usize>,
    state: Mutex<State>,
}

#[derive(Clone)]
struct State {
    link: LinkEstimate,
    chooser: Chooser,
    uploads: Uploads,
    /// Datagrams that had come when the service failed; other connections have other numbers.
    heard: Option<u64>,
    is_retrying: bool,
}

impl Adaptive {
    /// Adapts among the costs' options that `device` can run, with `codec` only where it is given.
    /// `None` where no option is left.
    pub(crate) fn new(costs: Costs, device: &Device, codec: Option<&str>) -> Option<Adaptive> {
        let manifest = device.bundle().manifest();
        let cut_of = |option: &CutOption| manifest.cut(&option.cut);
        let is_usable = |option: &CutOption| {
            let given =
                codec.is_none() || option.codec.is_none() || option.codec.as_deref() == codec;
            let spec = option.codec.as_deref().and_then(CodecSpec::from_name);
            // A build without the feature `webp` does not choose it.
            let encodes = spec.is_none_or(|spec| seamline_codec::can_encode(&spec));
            given && encodes && cut_of(option).is_some_and(|(_, cut)| device.holds(cut))
        };
        let now = Instant::now();
        let state = State {
            link: LinkEstimate::new(now, &costs.link),
            chooser: Chooser::new(&costs, is_usable)?,
            uploads: Uploads::default(),
            heard: None,
            is_retrying: false,
        };
        let options = costs.options.iter();
        // Valid costs name cuts that there are.
        let cuts = options.map(|option| cut_of(option).map_or(0, |(index, _)| index));
        Some(Adaptive {
            cuts: cuts.collect(),
            costs,
            state: Mutex::new(state),
        })
    }

    /// The same with what was learnt so far, for another connection.
    pub(crate) fn again(&self) -> Adaptive {
        let mut state = self.state.lock().clone();
        state.uploads = Uploads::default();
        state.is_retrying = false;
        state.chooser.probe_ended();
        Adaptive {
            costs: self.costs.clone(),
            cuts: self.cuts.clone(),
            state: Mutex::new(state),
        }
    }

    fn choice(&self, option: usize) -> Choice {
        Choice {
            cut: self.cuts[option],
            codec: self.costs.options[option].codec.clone(),
            option: Some(option),
        }
    }

    /// What the next request is to do, and what it sends aside.
    pub(crate) fn decide(
        self: &Arc<Self>,
        path: Option<PathStats>,
    ) -> (Choice, Option<(Choice, ProbeGuard)>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(path) = path {
            state.link.learn_path(now, &sample(&path));
            let spoke = state
                .heard
                .is_some_and(|then| then != path.received_datagrams);
            if spoke && state.chooser.wants_retry(now) {
                state.chooser.heard();
            }
        }
        let State { chooser, link, .. } = &mut *state;
        let before = chooser.changes();
        let decision = chooser.choose(now, link);
        if chooser.changes() > before {
            let option = &self.costs.options[decision.option];
            tracing::debug!(
                cut = option.cut,
                codec = option.codec,
                up_mbps = link.state().up_bps / 1e6,
                round_trip_ms = link.state().round_trip_us / 1e3,
                failing = chooser.is_failing(),
                "changed the cut"
            );
        }
        let probe = decision
            .probe
            .map(|probe| (self.choice(probe), ProbeGuard(Arc::clone(self))));
        (self.choice(decision.option), probe)
    }

    /// The present choice, for a session that keeps it.
    pub(crate) fn current(&self) -> Choice {
        self.choice(self.state.lock().chooser.current())
    }

    pub(crate) fn status(&self) -> Adaptation {
        let now = Instant::now();
        let State { link, chooser, .. } = &*self.state.lock();
        let option = &self.costs.options[chooser.current()];
        Adaptation {
            link: link.state(),
            loss: link.loss(),
            is_stale: link.is_stale(now),
            is_failing: chooser.is_failing(),
            cut: option.cut.clone(),
            codec: option.codec.clone(),
            expected: chooser
                .predict(chooser.current(), &link.state())
                .unwrap_or_default(),
            changes: chooser.changes(),
        }
    }

    /// The costs with what was learnt of them.
    pub(crate) fn learned_costs(&self) -> Costs {
        self.state.lock().chooser.learned_costs()
    }

    /// A request begins to be sent.
    pub(crate) fn begin(self: &Arc<Self>, bytes: u64) -> Upload {
        let number = self.state.lock().uploads.begin(Instant::now(), bytes);
        Upload {
            adaptive: Arc::clone(self),
            number,
        }
    }

    /// The device answered alone.
    pub(crate) fn answered_here(&self, option: usize, encoded: &Encoded) {
        let outcome = Outcome {
            device_us: micros(encoded.run + encoded.encode),
            ..Outcome::default()
        };
        let now = Instant::now();
        self.state.lock().chooser.answered(now, option, &outcome);
    }

    /// The service did not answer in time, or could not be reached.
    pub(crate) fn failed(&self, path: Option<PathStats>) {
        let mut state = self.state.lock();
        state.chooser.failed(Instant::now());
        // Without a connection, the first datagram of the next one is news.
        state.heard = Some(path.map_or(0, |path| path.received_datagrams));
    }

    /// Whether the caller is to try to connect now; it then says how that ended.
    pub(crate) fn begins_retry(&self) -> bool {
        let mut state = self.state.lock();
        let begins = !state.is_retrying && state.chooser.wants_retry(Instant::now());
        state.is_retrying |= begins;
        begins
    }

    /// An attempt to connect ended.
    pub(crate) fn retried(&self, path: Option<PathStats>, connected: bool) {
        {
            let mut state = self.state.lock();
            state.is_retrying = false;
            let datagrams = path.map(|path| path.received_datagrams);
            if connected {
                if datagrams != state.heard {
                    state.chooser.heard();
                }
                return;
            }
        }
        self.failed(path);
    }

    /// Whether the device can answer alone.
    pub(crate) fn can_go_alone(&self) -> bool {
        self.state.lock().chooser.alone().is_some()
    }

    /// The cut behind the last stage, where the device holds everything.
    pub(crate) fn alone<'a>(&self, manifest: &'a Manifest) -> Option<&'a Cut> {
        let alone = self.state.lock().chooser.alone()?;
        manifest.cuts.get(self.cuts[alone])
    }

    /// Until when the service's answer to a request at `choice` is waited for, before the device goes
    /// on alone; `None` where it cannot.
    pub(crate) fn patience(&self, choice: &Choice, deadline: Instant) -> Option<Instant> {
        let option = choice.option?;
        let state = self.state.lock();
        let expected = state.chooser.predict(option, &state.link.state())?;
        let (times, more) = PATIENCE;
        let patience = expected.saturating_mul(times).saturating_add(more);
        let now = Instant::now();
        let patient = now.checked_add(patience).unwrap_or(deadline);
        // Twice, since a device that falls behind its deadline is rarely at its best. Where that
        // leaves no time for the service, the service has all of it: it is the better way.
        let rest = state.chooser.rest_here(option)?.saturating_mul(2);
        let in_time = deadline.checked_sub(rest);
        let in_time = in_time.filter(|at| at.saturating_duration_since(now) >= expected);
        Some(patient.min(in_time.unwrap_or(deadline)))
    }
}

fn sample(path: &PathStats) -> PathSample {
    PathSample {
        round_trip: path.rtt,
        min_round_trip: path.min_rtt,
        sent_packets: path.sent_packets,
        lost_packets: path.lost_packets,
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A request on its way up; dropped where it is not answered.
pub(crate) struct Upload {
    adaptive: Arc<Adaptive>,
    number: u64,
}

impl Upload {
    /// The answer came.
    pub(crate) fn answered(
        self,
        option: usize,
        encoded: &Encoded,
        reply: &Reply,
        path: Option<PathStats>,
    ) {
        let now = Instant::now();
        let Adaptive { costs, state, .. } = &*self.adaptive;
        let mut state = state.lock();
        let server = &reply.timings;
        let overhead = costs.options[option].overhead.p50_us / 1e6;
        let to_answer = (reply.times.send + reply.times.wait)
            .saturating_sub(in_service(server))
            .saturating_sub(Duration::try_from_secs_f64(overhead).unwrap_or_default());
        // When the last byte went up: the way there and back is not the link's being busy.
        let way = Duration::try_from_secs_f64(state.link.state().round_trip_us / 1e6);
        let sending = to_answer.saturating_sub(way.unwrap_or_default());
        let began = now.checked_sub(reply.times.total()).unwrap_or(now);
        let other_bytes = state.uploads.end(self.number, began + sending);
        let down_bytes = reply.payloads.iter().map(|it| it.len() as u64).sum();
        let transfer = Transfer {
            up_bytes: encoded.bytes(),
            other_bytes,
            to_answer,
            down_bytes,
            receive: reply.times.receive,
        };
        state.link.learn_transfer(now, &transfer);
        if let Some(path) = path {
            state.link.learn_path(now, &sample(&path));
        }
        let outcome = Outcome {
            device_us: micros(encoded.run + encoded.encode),
            service_us: (micros(in_service(server)) - server.queue_us as f64).max(0.0),
            queue_us: server.queue_us as f64,
            next_queue_us: f64::from(reply.load.queue_us),
            batch: f64::from(server.batch_size),
            up_bytes: transfer.up_bytes,
            down_bytes,
        };
        state.chooser.answered(now, option, &outcome);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Nothing is left of it where it was answered.
        self.adaptive.state.lock().uploads.abandon(self.number);
    }
}

/// Lets the next probe go, however this one ends.
pub(crate) struct ProbeGuard(Arc<Adaptive>);

impl Drop for ProbeGuard {
    fn drop(&mut self) {
        self.0.state.lock().chooser.probe_ended();
    }
}
