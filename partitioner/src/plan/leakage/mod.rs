//! How much of the input an attacker recovers from what is sent, measured.
//!
//! The attacker knows the model and has inputs like the user's: it learns by ridge regression to
//! get from what is sent (after the codec) back to the input, on two thirds of the calibration
//! requests, and is tried on the others. Where what is sent has places (feature maps, patches,
//! tokens) it learns from each place and its neighbours, so that a few pictures are thousands of
//! rows; otherwise from all values at once. Its strength is chosen by cross-validation. Inverting
//! features by regression: Dosovitskiy and Brox, Inverting Visual Representations with
//! Convolutional Networks, 2016, of which this is the linear form.
//!
//! A weak attacker makes a cut look private. The same attacker must therefore recover the input from
//! the input itself ([`MIN_AT_INPUT`]), or no figure is given.

mod field;
mod global;
mod local;
mod subject;
mod target;
#[cfg(test)]
mod tests;
mod tokens;

use seamline_ort::Runtime;
use seamline_plan::Tensor;
use thiserror::Error;

use super::calibration::Calibration;
use super::evaluate::EvaluateError;
use super::record::{AttackRecord, Leakage};
use super::sessions::SeamSessions;
use crate::model::Model;
use field::{Field, elements};
use local::Pair;
use target::Target;

/// What every figure of leakage comes with.
pub const SPLITTING_IS_NOT_PRIVACY: &str = "Splitting is not privacy. A figure of leakage is what \
    one attacker, a linear regression, recovered of the input from what is sent: a stronger \
    attacker recovers at least as much, however low the figure. Treat what is sent as you would \
    treat the input.";

/// The share of the input that an attacker must recover from the input itself.
pub const MIN_AT_INPUT: f64 = 0.95;

/// The fewest requests: four to learn from, two to try on.
const MIN_SAMPLES: usize = 6;

/// No figure of leakage, and why.
#[derive(Debug, Error)]
pub enum LeakageError {
    /// No attack of ours would say anything.
    #[error("no figure of leakage: {0}")]
    NoFigure(String),
    /// What is sent cannot be had.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
}

fn no_figure<T>(why: impl Into<String>) -> Result<T, LeakageError> {
    Err(LeakageError::NoFigure(why.into()))
}

/// How the input is attacked.
#[derive(Clone, Debug)]
pub struct LeakageOptions {
    /// The input or inner value to recover. Without it the main input; of a model with `--image`,
    /// what the net sees: the picture resized and cropped.
    pub target: Option<String>,
    /// Draws which requests are learnt from.
    pub seed: u64,
}

impl Default for LeakageOptions {
    fn default() -> LeakageOptions {
        LeakageOptions {
            target: None,
            seed: 1,
        }
    }
}

/// Requests to learn from and to try on, by index.
struct Split {
    train: Vec<usize>,
    test: Vec<usize>,
    seed: u64,
}

impl Split {
    fn new(samples: usize, seed: u64) -> Split {
        let mut train: Vec<usize> = (0..samples).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut train);
        let test = train.split_off(samples * 2 / 3);
        Split { train, test, seed }
    }
}

/// What an attack gave on requests that it did not learn from.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// Σ|target − recovered|².
    error: f64,
    /// The same of guesses without looking: the mean at the place, and the mean anywhere.
    guesses: [f64; 2],
    elements: f64,
    /// Mean squared error in cross-validation: what an attacker chooses by.
    validation: f64,
}

impl Outcome {
    fn add(&mut self, truth: &[f64], got: &[f64], at_place: &[f64], anywhere: &[f64]) {
        let error = |guess: &[f64]| {
            truth
                .iter()
                .zip(guess)
                .map(|(truth, guess)| (truth - guess).powi(2))
                .sum::<f64>()
        };
        self.error += error(got);
        self.guesses[0] += error(at_place);
        self.guesses[1] += error(anywhere);
        self.elements += truth.len() as f64;
    }

    /// The share of variance beyond the best guess, 0 to 1.
    fn recovered(&self) -> f64 {
        let guess = self.guesses[0].min(self.guesses[1]);
        if guess > 0.0 {
            (1.0 - self.error / guess).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Peak signal-to-noise ratio in decibels, at most 100, of values that span `range`.
    fn psnr_db(&self, range: f64) -> f64 {
        const MOST: f64 = 100.0;
        let mean = self.error / self.elements.max(1.0);
        (10.0 * (range * range / mean.max(f64::MIN_POSITIVE)).log10()).min(MOST)
    }
}

/// An attacker of one model's input.
pub struct Attacker {
    target: Target,
    split: Split,
    /// What each attack recovers from the input itself.
    local_at_input: Option<f64>,
    global_at_input: Option<f64>,
}

impl Attacker {
    /// Takes the inputs to recover from `calibration`, and tries both attacks on the input itself.
    ///
    /// # Errors
    /// [`LeakageError::NoFigure`] where there are too few requests, or nothing can be recovered
    /// even from the input itself.
    pub fn new(
        runtime: &Runtime,
        model: &Model,
        calibration: &Calibration,
        options: &LeakageOptions,
    ) -> Result<Attacker, LeakageError> {
        Attacker::of(
            Target::new(runtime, model, calibration, options)?,
            options.seed,
        )
    }

    fn of(target: Target, seed: u64) -> Result<Attacker, LeakageError> {
        let samples = target.fields.len();
        if samples < MIN_SAMPLES {
            return no_figure(format!(
                "{samples} calibration requests; an attacker needs {MIN_SAMPLES}, of which it \
                 learns from two thirds"
            ));
        }
        let first = &target.fields[0];
        if target.fields.iter().all(|field| field == first) {
            return no_figure(format!(
                "{} is the same in all {samples} requests: there is nothing to recover; give \
                 requests that differ",
                target.about
            ));
        }
        let mut attacker = Attacker {
            split: Split::new(samples, seed),
            local_at_input: None,
            global_at_input: None,
            target,
        };
        let itself: Vec<Vec<Field>> = attacker
            .target
            .whole()
            .iter()
            .map(|field| vec![field.clone()])
            .collect();
        attacker.local_at_input = attacker.local(itself).map(|(leakage, _)| leakage.recovered);
        let flat: Vec<Vec<f32>> = attacker
            .target
            .whole()
            .iter()
            .map(|f| f.values.clone())
            .collect();
        attacker.global_at_input = attacker.global(&flat).map(|(leakage, _)| leakage.recovered);
        let best = attacker.at_input();
        if best >= MIN_AT_INPUT {
            return Ok(attacker);
        }
        no_figure(format!(
            "from the input itself the attacker recovers {best:.2} of it, and {MIN_AT_INPUT} is \
             asked for: with {} requests to learn from it is too weak to say anything; give more",
            attacker.split.train.len()
        ))
    }

    /// What the better of the attacks recovers from the input itself.
    fn at_input(&self) -> f64 {
        let both = [self.local_at_input, self.global_at_input];
        both.into_iter().flatten().fold(0.0, f64::max)
    }

    /// The attacker as `plan.json` has it.
    pub fn record(&self) -> AttackRecord {
        AttackRecord {
            name: format!("ridge regression to {}", self.target.about),
            at_input: self.at_input(),
            trained_on: self.split.train.len(),
            tried_on: self.split.test.len(),
        }
    }

    /// What is recovered from `sent`: for each calibration request, in their order, the values
    /// called `names` as the service decodes them.
    ///
    /// # Errors
    /// [`LeakageError::NoFigure`] where no attack that passes at the input itself fits what is sent.
    pub fn attack(&self, names: &[&str], sent: &[Vec<Tensor>]) -> Result<Leakage, LeakageError> {
        if let Some(at) = names.iter().position(|name| *name == self.target.input) {
            let inputs: Vec<&Tensor> = sent.iter().filter_map(|values| values.get(at)).collect();
            return Ok(self.target.compare(&inputs, &self.split));
        }
        let strong = |at_input: Option<f64>| at_input.is_some_and(|share| share >= MIN_AT_INPUT);
        let mut found: Vec<(Leakage, f64)> = Vec::new();
        let grid = |values: &Vec<Tensor>, target: &Field| -> Vec<Field> {
            let [height, width] = target_grid(target, self.target.reduction);
            let fields = values
                .iter()
                .filter_map(|value| Field::of_sent(value, height, width));
            fields.map(|field| limited(field, target)).collect()
        };
        if strong(self.local_at_input) {
            let fields = sent
                .iter()
                .zip(&self.target.fields)
                .map(|(v, t)| grid(v, t))
                .collect();
            found.extend(self.local(fields));
        }
        // With places, all at once adds nothing but time, unless there is little.
        if strong(self.global_at_input) {
            let flat: Option<Vec<Vec<f32>>> = sent.iter().map(|values| flat(values)).collect();
            found.extend(flat.and_then(|flat| self.global(&flat)));
        }
        let best = found.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
        match best {
            Some((leakage, _)) => Ok(leakage),
            None => no_figure(self.why_none()),
        }
    }

    fn why_none(&self) -> String {
        match self.global_at_input {
            Some(share) if share < MIN_AT_INPUT => format!(
                "what is sent has no places in common with the input, and the attack that fits it, \
                 on all values at once, recovers only {share:.2} from the input itself; give more \
                 calibration requests than the {} that it learns from",
                self.split.train.len()
            ),
            _ => {
                "what is sent has no places in common with the input, and its size or the input's \
                  changes between requests; give inputs of one size"
                    .into()
            }
        }
    }

    /// The attack place by place, and its error in cross-validation.
    fn local(&self, sent: Vec<Vec<Field>>) -> Option<(Leakage, f64)> {
        let pairs: Vec<Pair<'_>> = sent
            .into_iter()
            .zip(&self.target.fields)
            .map(|(sent, target)| Pair { sent, target })
            .collect();
        let mut guesses = Vec::new();
        let keeps = self.target.tokens.is_some();
        let visit = |truth: &[f64], got: &[f64]| {
            if keeps {
                guesses.push((truth.to_vec(), got.to_vec()));
            }
        };
        let outcome = local::attack(&pairs, &self.split, visit)?;
        let recovered = match &self.target.tokens {
            Some(tokens) => tokens.recovered(&guesses, &self.split),
            None => outcome.recovered(),
        };
        Some((self.leakage(recovered, &outcome), outcome.validation))
    }

    /// The attack on all values at once, and its error in cross-validation. Tokens are recovered
    /// place by place only.
    fn global(&self, sent: &[Vec<f32>]) -> Option<(Leakage, f64)> {
        if self.target.tokens.is_some() {
            return None;
        }
        let targets: Vec<Vec<f32>> = self
            .target
            .fields
            .iter()
            .map(|f| f.values.clone())
            .collect();
        let outcome = global::attack(sent, &targets, &self.split)?;
        Some((
            self.leakage(outcome.recovered(), &outcome),
            outcome.validation,
        ))
    }

    fn leakage(&self, recovered: f64, outcome: &Outcome) -> Leakage {
        Leakage {
            recovered,
            psnr_db: self.target.range.map(|range| outcome.psnr_db(range)),
        }
    }
}

/// The leakage of a cut: what `attacker` recovers when its values cross by `codec`.
///
/// # Errors
/// [`LeakageError`].
pub fn leakage(
    attacker: &Attacker,
    sessions: &mut SeamSessions,
    calibration: &Calibration,
    codec: &str,
) -> Result<Leakage, LeakageError> {
    let specs = sessions.codecs(codec);
    let mut sent = Vec::with_capacity(calibration.samples.len());
    for (index, sample) in calibration.samples.iter().enumerate() {
        sent.push(sessions.sent(index, sample, &specs)?.values);
    }
    // A picture that is sent before it is cropped: the service makes of it what is looked for.
    if let Some(inner) = &attacker.target.inner {
        let values = sessions.inside_tail(&calibration.samples, &sent, inner)?;
        let compared = values.and_then(|v| attacker.target.compare_inner(&v, &attacker.split));
        if let Some(leakage) = compared {
            return Ok(leakage);
        }
    }
    let names = sessions
        .crossing()
        .iter()
        .map(|crossing| crossing.spec.name.as_str());
    attacker.attack(&names.collect::<Vec<_>>(), &sent)
}

/// The size of the target before it was reduced, or nearly.
fn target_grid(target: &Field, reduction: usize) -> [usize; 2] {
    let full = |places: usize| if places == 1 { 1 } else { places * reduction };
    [full(target.height), full(target.width)]
}

/// `field`, no finer than the target.
fn limited(field: Field, target: &Field) -> Field {
    let factor = |own: usize, wanted: usize| (own / wanted.max(1)).max(1);
    let (tall, wide) = (
        factor(field.height, target.height),
        factor(field.width, target.width),
    );
    field.pooled(tall, wide)
}

fn flat(values: &[Tensor]) -> Option<Vec<f32>> {
    let parts: Option<Vec<Vec<f32>>> = values.iter().map(elements).collect();
    Some(parts?.concat())
}
