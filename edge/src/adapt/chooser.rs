//! Which of the plan's options the next request takes.

use std::time::{Duration, Instant};

use seamline_plan::{Costs, CutOption, LinkModel, LinkState, Load, Rate, Spread};

use super::correction::{Corrected, Outcome};
use super::link::LinkEstimate;

/// Between two changes of the choice, at least. Away from a service that fails there is no wait.
pub const MIN_DWELL: Duration = Duration::from_secs(2);

/// What a change must gain, relative to what the present choice costs.
pub const MIN_GAIN: f64 = 0.03;

/// Between two probes, at least: this time and so many requests.
pub const PROBE_EVERY: (Duration, u32) = (Duration::from_secs(1), 10);

/// So long before the choice may change again a probe may go: one that is answered earlier would be
/// out of date by then.
const PROBE_AHEAD: Duration = Duration::from_millis(300);

/// A probe has at least so many payload bytes, where an option has: fewer tell little about a rate.
const PROBE_BYTES: u64 = 16 << 10;

/// After a failure the service is asked again after this time, doubled with each further failure.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How much the latest word on the service's load counts at least.
const LOAD_GAIN: f64 = 0.3;

/// What was known of the service's load is worth e times less after so long.
const LOAD_KEEPS: Duration = Duration::from_secs(2);

/// What a request is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The option, an index into the costs' options.
    pub option: usize,
    /// Another option, whose payload is sent aside to learn about the link while the device answers
    /// alone; its answer is not waited for.
    pub probe: Option<usize>,
}

/// Chooses among measured options by the live estimate of the link, the service's load and what
/// was learnt of the costs. Nothing is loaded or measured for it: the stages are there already.
///
/// It changes its mind only for a gain of [`MIN_GAIN`], at most once in [`MIN_DWELL`], and not while
/// the last request leaves it open whether the link has changed. A service that fails is left at
/// once where the device can answer alone. While it does, nothing tells about the link and the
/// service; so where a better link or a service that is idle would change the choice, now and then
/// ([`PROBE_EVERY`]) a request also sends the payload of another cut, which the head makes on its
/// way. That costs its encoding, its bytes and the service's work, and no waiting.
#[derive(Clone, Debug)]
pub struct Chooser {
    costs: Costs,
    /// Where each option of `corrected` stands in the costs that were given.
    places: Vec<usize>,
    corrected: Corrected,
    load: Load,
    load_known_at: Option<Instant>,
    current: usize,
    changed_at: Option<Instant>,
    changes: u64,
    failing: Option<Failing>,
    probes: Probes,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Instant,
    times: u32,
    /// The service has been heard again; a probe will tell.
    heard: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Probes {
    last: Option<Instant>,
    requests_since: u32,
    in_flight: bool,
}

impl Chooser {
    /// Chooses among those of the options that `is_usable` admits and that have a price: an option
    /// of which the plan's objective makes no number on the plan's link is left out. `None` where
    /// none is left. The first is the choice to begin with.
    pub fn new(costs: &Costs, is_usable: impl Fn(&CutOption) -> bool) -> Option<Chooser> {
        let usable = costs.options.iter().enumerate();
        let usable = usable.filter(|(_, option)| is_usable(option) && has_price(costs, option));
        let (places, options): (Vec<usize>, Vec<CutOption>) = usable
            .map(|(place, option)| (place, option.clone()))
            .unzip();
        if options.is_empty() {
            return None;
        }
        Some(Chooser {
            costs: costs.clone(),
            places,
            corrected: Corrected::new(options),
            load: Load::default(),
            load_known_at: None,
            current: 0,
            changed_at: None,
            changes: 0,
            failing: None,
            probes: Probes::default(),
        })
    }

    /// What the next request is to do.
    pub fn choose(&mut self, now: Instant, link: &LinkEstimate) -> Decision {
        self.probes.requests_since = self.probes.requests_since.saturating_add(1);
        let local = self.local();
        if self.failing.is_some()
            && let Some(local) = local
        {
            self.change_to(now, local);
        } else {
            self.reconsider(now, link);
        }
        let probe = match local {
            Some(local) if local == self.current => self.probe(now, link),
            _ => None,
        };
        Decision {
            option: self.places[self.current],
            probe: probe.map(|probe| self.places[probe]),
        }
    }

    /// A request at `option`, one of [`Decision`]'s, was answered.
    pub fn answered(&mut self, now: Instant, option: usize, outcome: &Outcome) {
        let Some(option) = self.index(option) else {
            return;
        };
        self.corrected.learn(option, outcome);
        if self.corrected.options()[option].is_local() {
            return;
        }
        self.failing = None;
        let silence = self
            .load_known_at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.load_known_at = Some(now);
        let kept = (-silence.as_secs_f64() / LOAD_KEEPS.as_secs_f64()).exp();
        let gain = 1.0 - (1.0 - LOAD_GAIN) * kept;
        let queue = 0.5 * (outcome.queue_us + outcome.next_queue_us);
        self.load.queue_us += gain * (queue - self.load.queue_us);
        self.load.batch += gain * (outcome.batch - self.load.batch);
    }

    /// The service did not answer in time, or could not be reached.
    pub fn failed(&mut self, now: Instant) {
        let times = self.failing.map_or(0, |failing| failing.times);
        // Requests that were in flight together fail together, and once.
        let again = self
            .failing
            .is_none_or(|failing| failing.heard || now >= failing.since + retry(failing.times));
        if again {
            self.failing = Some(Failing {
                since: now,
                times: times.saturating_add(1),
                heard: false,
            });
        }
    }

    /// Whether the service fails, and it is time to find out whether it still does.
    pub fn wants_retry(&self, now: Instant) -> bool {
        self.failing
            .is_some_and(|failing| !failing.heard && now >= failing.since + retry(failing.times))
    }

    /// The service, which failed, was heard again, or a connection to it made: a probe may go.
    pub fn heard(&mut self) {
        if let Some(failing) = &mut self.failing {
            failing.heard = true;
        }
    }

    /// A probe is over, answered or not.
    pub fn probe_ended(&mut self) {
        self.probes.in_flight = false;
    }

    /// Whether the last word of the service was a failure.
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// The present choice, an index into the costs' options.
    pub fn current(&self) -> usize {
        self.places[self.current]
    }

    /// How often the choice changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What a request at `option` is expected to take; `None` where the option is not usable.
    pub fn predict(&self, option: usize, link: &LinkState) -> Option<Duration> {
        let option = &self.corrected.options()[self.index(option)?];
        let us = option.latency(link, &self.load).total_us();
        Duration::try_from_secs_f64(us / 1e6).ok()
    }

    /// The costs with what was learnt of them: times of the device and of the service, and sizes.
    /// Options that are not usable here get what all have in common. The link is the plan's, and
    /// the service's load is left out: both are of the moment.
    pub fn learned_costs(&self) -> Costs {
        let options = self.costs.options.iter().enumerate();
        let options = options.map(|(place, plan)| match self.index(place) {
            Some(index) => self.corrected.options()[index].clone(),
            None => self.corrected.other(plan),
        });
        Costs {
            options: options.collect(),
            ..self.costs.clone()
        }
    }

    /// What the device would still need to answer alone after the head of `option`; `None` where it
    /// does not hold all of the model.
    pub fn rest_here(&self, option: usize) -> Option<Duration> {
        let options = self.corrected.options();
        let whole = options[self.local()?].head.p50_us;
        let head = options[self.index(option)?].head.p50_us;
        Duration::try_from_secs_f64((whole - head).max(0.0) / 1e6).ok()
    }

    /// The option with which the device answers alone, an index into the costs' options.
    pub fn alone(&self) -> Option<usize> {
        self.local().map(|local| self.places[local])
    }

    fn index(&self, option: usize) -> Option<usize> {
        self.places.iter().position(|&place| place == option)
    }

    fn local(&self) -> Option<usize> {
        let mut options = self.corrected.options().iter();
        options.position(CutOption::is_local)
    }

    fn reconsider(&mut self, now: Instant, link: &LinkEstimate) {
        let dwelt = self
            .changed_at
            .is_none_or(|at| now.saturating_duration_since(at) >= MIN_DWELL);
        if !dwelt || link.is_in_doubt(now) {
            return;
        }
        let state = link.state();
        let best = self.best(&state);
        if self.score(best, &state) < self.score(self.current, &state) * (1.0 - MIN_GAIN) {
            self.change_to(now, best);
        }
    }

    fn change_to(&mut self, now: Instant, option: usize) {
        if option != self.current {
            self.current = option;
            self.changed_at = Some(now);
            self.changes += 1;
        }
    }

    /// The probe that this request is to send, if any.
    fn probe(&mut self, now: Instant, link: &LinkEstimate) -> Option<usize> {
        let due = self.failing.map_or(self.is_probe_due(now), |it| it.heard);
        if !due || self.probes.in_flight {
            return None;
        }
        // Where neither link nor service could change the choice there is nothing to learn.
        if self.best_at_best(&link.best()) == self.current {
            return None;
        }
        let options = self.corrected.options().iter().enumerate();
        let remote = options.filter(|(_, option)| !option.is_local());
        // The smallest that tells enough, or else the largest.
        let (probe, _) = remote.min_by_key(|(_, option)| match option.up_bytes {
            bytes if bytes >= PROBE_BYTES => (false, bytes),
            bytes => (true, u64::MAX - bytes),
        })?;
        self.probes = Probes {
            last: Some(now),
            requests_since: 0,
            in_flight: true,
        };
        Some(probe)
    }

    fn is_probe_due(&self, now: Instant) -> bool {
        if self
            .changed_at
            .is_some_and(|at| now.saturating_duration_since(at) + PROBE_AHEAD < MIN_DWELL)
        {
            return false;
        }
        let (time, requests) = PROBE_EVERY;
        let Some(last) = self.probes.last else {
            return true;
        };
        now.saturating_duration_since(last) >= time && self.probes.requests_since >= requests
    }

    fn best(&self, link: &LinkState) -> usize {
        let options = self.corrected.options().iter();
        self.least(options.map(|option| self.score_of(option, link, &self.load)))
    }

    /// The best on `link` at a service that is idle.
    fn best_at_best(&self, link: &LinkState) -> usize {
        let options = (0..self.places.len()).map(|index| self.corrected.at_best(index));
        self.least(options.map(|option| self.score_of(&option, link, &Load::default())))
    }

    fn least(&self, scores: impl Iterator<Item = f64>) -> usize {
        let best = scores.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(self.current, |(option, _)| option)
    }

    fn score(&self, option: usize, link: &LinkState) -> f64 {
        self.score_of(&self.corrected.options()[option], link, &self.load)
    }

    fn score_of(&self, option: &CutOption, link: &LinkState, load: &Load) -> f64 {
        let Costs {
            objective,
            prices,
            executors,
            ..
        } = &self.costs;
        let link = live(&self.costs.link, link);
        option.score(*objective, &link, load, prices, *executors)
    }
}

/// Costs that were read from a file are numbers; those that a program made may be anything.
fn has_price(costs: &Costs, option: &CutOption) -> bool {
    let load = Load::default();
    let score = option.score(
        costs.objective,
        &costs.link,
        &load,
        &costs.prices,
        costs.executors,
    );
    let total = option.latency(&costs.link.usual(), &load).total_us();
    [score, total].iter().all(|it| it.is_finite() && *it >= 0.0)
}

fn retry(times: u32) -> Duration {
    let (first, longest) = RETRY;
    let doubled = first.saturating_mul(1 << times.saturating_sub(1).min(10));
    doubled.min(longest)
}

/// The plan's link as it is at the moment: it wanders about the live figures as it did about the
/// plan's.
fn live(plan: &LinkModel, now: &LinkState) -> LinkModel {
    let rate = |plan: &Rate, bps: f64| Rate {
        p50_bps: bps,
        p5_bps: bps * plan.p5_bps / plan.p50_bps,
    };
    let spread = match plan.round_trip {
        Spread { p50_us, p95_us, .. } if p50_us > 0.0 => p95_us / p50_us,
        _ => 1.0,
    };
    LinkModel {
        name: String::new(),
        source: plan.source,
        up: rate(&plan.up, now.up_bps),
        down: rate(&plan.down, now.down_bps),
        round_trip: Spread {
            p50_us: now.round_trip_us,
            p95_us: now.round_trip_us * spread,
            samples: 0,
        },
        loss: now.loss,
        radio: plan.radio,
    }
}
