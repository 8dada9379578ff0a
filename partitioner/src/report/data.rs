//! The plan's figures as the page's script takes them: a JSON document that is short, since a
//! large model has thousands of candidates, and that cannot end the element it stands in.

use std::collections::HashMap;

use seamline_plan::LinkModel;
use serde_json::{Value, json};

use crate::plan::{AttackRecord, Candidate, MetricRecord, Placement, PlanRecord};

/// The most characters of a name or a sentence; longer ones are cut off with an ellipsis.
const MAX_TEXT: usize = 200;

/// The most sentences of a kind.
const MAX_SENTENCES: usize = 50;

/// The most values of a cut that are named.
const MAX_VALUES: usize = 8;

/// Significant digits of a figure.
const DIGITS: i32 = 6;

/// The document, as the text of a `script` element.
pub(super) fn json(record: &PlanRecord) -> String {
    let mut texts = Texts::default();
    let mut cuts = Texts::default();
    let mut cut_rows: Vec<Value> = Vec::new();
    let mut rows: Vec<Value> = Vec::with_capacity(record.candidates.len());
    for candidate in &record.candidates {
        let cut = cuts.index(&candidate.cut);
        if cut == cut_rows.len() {
            cut_rows.push(cut_row(candidate));
        }
        rows.push(row(candidate, cut, &mut texts));
    }
    let chosen = record.candidates.iter();
    let chosen = chosen
        .clone()
        .position(|candidate| candidate.id == record.chosen);
    let metric = record.metric.as_ref().map(|metric| MetricRecord {
        name: clipped(&metric.name),
        ..metric.clone()
    });
    let attack = record.attack.as_ref().map(|attack| AttackRecord {
        name: clipped(&attack.name),
        ..attack.clone()
    });
    let document = json!({
        "model": clipped(&record.model),
        "graph": record.graph_hash.short(),
        "shapes": record.shapes.iter().map(|(name, size)| json!([clipped(name), size])).collect::<Vec<_>>(),
        "objective": record.objective,
        "constraints": record.constraints,
        "link": link(&record.link),
        "device": machine(&record.device),
        "cloud": machine(&record.cloud),
        "prices": record.prices,
        "arrivals_per_s": record.arrivals_per_s,
        "metric": metric,
        "attack": attack,
        "reason": sentences(&record.reason),
        "notes": sentences(&record.notes),
        "chosen": chosen,
        "baselines": {
            "device": baseline(record, Placement::Device),
            "cloud_raw": baseline(record, Placement::CloudRaw),
            "cloud_compressed": baseline(record, Placement::CloudCompressed),
        },
        "cuts": cut_rows,
        "texts": texts.all,
        "columns": COLUMNS,
        "candidates": rows,
    });
    in_script(&document.to_string())
}

/// Strings that recur, by index.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    known: HashMap<String, usize>,
}

impl Texts {
    fn index(&mut self, text: &str) -> usize {
        if let Some(&index) = self.known.get(text) {
            return index;
        }
        let index = self.all.len();
        self.all.push(clipped(text));
        self.known.insert(text.to_owned(), index);
        index
    }
}

/// The fields of a candidate's row. `cut` is an index into `cuts`; `codec`, `precision` and each
/// of `breaks` one into `texts`.
const COLUMNS: [&str; 21] = [
    "id",
    "placement",
    "cut",
    "codec",
    "precision",
    "whole",
    "parts",
    "p95",
    "energy",
    "up",
    "down",
    "cost",
    "rate",
    "memory",
    "accuracy",
    "leakage",
    "score",
    "breaks",
    "pareto",
    "kept",
    "measured",
];

fn row(candidate: &Candidate, cut: usize, texts: &mut Texts) -> Value {
    let parts = |latency: &seamline_plan::Latency| {
        let parts = latency.parts();
        parts.map(|(_, us)| rounded(us))
    };
    let leakage = candidate
        .leakage
        .map(|leakage| json!([rounded(leakage.recovered), leakage.psnr_db.map(rounded)]));
    let measured = candidate
        .measured
        .as_ref()
        .map(|run| json!([parts(&run.latency), rounded(run.p95_us), run.requests]));
    let breaks: Vec<usize> = candidate
        .breaks
        .iter()
        .map(|text| texts.index(text))
        .collect();
    let row: [Value; COLUMNS.len()] = [
        json!(clipped(&candidate.id)),
        json!(candidate.placement),
        json!(cut),
        json!(candidate.codec.as_ref().map(|codec| texts.index(codec))),
        json!(texts.index(&candidate.precision)),
        json!(u8::from(candidate.measured_whole)),
        json!(parts(&candidate.latency)),
        json!(rounded(candidate.latency_p95_us)),
        json!(rounded(candidate.energy_j)),
        json!(candidate.up_bytes),
        json!(candidate.down_bytes),
        json!(rounded(candidate.cloud_usd_per_thousand)),
        json!(rounded(candidate.throughput_per_s)),
        json!(candidate.device_memory),
        json!(candidate.accuracy.map(rounded)),
        json!(leakage),
        json!(rounded(candidate.score)),
        json!(breaks),
        json!(u8::from(candidate.pareto)),
        json!(u8::from(candidate.kept)),
        json!(measured),
    ];
    Value::from(row.to_vec())
}

/// A cut's name, depth, some of its values' names, and how many it has.
fn cut_row(candidate: &Candidate) -> Value {
    let values = &candidate.values;
    let named: Vec<String> = values
        .iter()
        .take(MAX_VALUES)
        .map(|name| clipped(name))
        .collect();
    json!([
        clipped(&candidate.cut),
        rounded(candidate.depth),
        named,
        values.len()
    ])
}

fn machine(record: &crate::plan::MachineRecord) -> Value {
    let machine = &record.machine;
    json!({
        "name": clipped(&machine.name),
        "cpu": clipped(&machine.cpu),
        "cores": machine.cores,
        "platform": clipped(&machine.platform),
        "memory_bytes": machine.memory_bytes,
        "runtime": clipped(&machine.runtime),
        "providers": sentences(&machine.providers),
        "kernels": sentences(&machine.kernels),
        "slowdown": record.slowdown,
        "threads": record.threads,
    })
}

fn link(link: &LinkModel) -> LinkModel {
    LinkModel {
        name: clipped(&link.name),
        ..link.clone()
    }
}

/// The best candidate of `placement` by the objective; one that breaks a constraint only where
/// there is no other.
fn baseline(record: &PlanRecord, placement: Placement) -> Option<usize> {
    let candidates = record.candidates.iter().enumerate();
    candidates
        .filter(|(_, candidate)| candidate.placement == placement)
        .min_by(|(_, a), (_, b)| {
            let breaks = |candidate: &Candidate| !candidate.breaks.is_empty();
            let order = breaks(a).cmp(&breaks(b));
            order.then(a.score.total_cmp(&b.score))
        })
        .map(|(index, _)| index)
}

/// `text`, cut off after [`MAX_TEXT`] characters; control characters and those that turn the
/// direction of what follows are replaced.
pub(super) fn clipped(text: &str) -> String {
    let plain = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    let mut clipped: String = text.chars().take(MAX_TEXT).map(plain).collect();
    if text.chars().nth(MAX_TEXT).is_some() {
        clipped.push('…');
    }
    clipped
}

/// Sentences whole, since a reason cut off says nothing; only absurd ones are cut.
fn sentences(texts: &[String]) -> Vec<String> {
    let clip = |text: &String| {
        let parts: Vec<char> = text.chars().take(10 * MAX_TEXT).collect();
        let whole: Vec<String> = parts
            .chunks(MAX_TEXT)
            .map(|chunk| clipped(&chunk.iter().collect::<String>()))
            .collect();
        whole.concat()
    };
    texts.iter().take(MAX_SENTENCES).map(clip).collect()
}

/// `value` to [`DIGITS`] significant digits.
fn rounded(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return json!(0);
    }
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the exponent of an f64 is within ±330"
    )]
    let exponent = value.abs().log10().floor() as i32;
    let decimals = DIGITS - 1 - exponent;
    // Powers beyond those that f64 has would round to nothing.
    if !(0..=300).contains(&decimals) {
        return json!(value.round());
    }
    let scale = 10f64.powi(decimals);
    let value = (value * scale).round() / scale;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below a million, and whole"
    )]
    if value.fract() == 0.0 && value.abs() < 1e6 {
        return json!(value as i64);
    }
    json!(value)
}

/// JSON that HTML's tokenizer takes for plain text: no end tag and no comment can stand in it.
fn in_script(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_six_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1234567.8, "1234568.0"),
            (41234.5678, "41234.6"),
            (0.000123456789, "0.000123457"),
            (5.0, "5"),
            (-0.5, "-0.5"),
            (1e-320, "0.0"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(rounded(value).to_string(), text);
        }
    }

    #[test]
    fn names_are_cut_off_and_turn_nothing() {
        assert_eq!(clipped("a\u{202e}b\u{7}"), "a\u{fffd}b\u{fffd}");
        let long = clipped(&"ü".repeat(1000));
        assert_eq!(long.chars().count(), MAX_TEXT + 1);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn no_tag_can_stand_in_the_script() {
        let text = in_script(r#"{"a":"</script><!--&\u0000"}"#);
        assert!(!text.contains(['<', '>', '&']), "{text}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["a"], "</script><!--&\u{0}");
    }
}
