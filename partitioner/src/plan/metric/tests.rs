use seamline_graph::builder::GraphBuilder;
use seamline_plan::{Bindings, Dim, Fingerprint};

use super::*;
use crate::model::Model;

fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_vec(shape.to_vec(), values.to_vec()).unwrap()
}

fn answer(tensor: Tensor) -> Answer {
    Answer::from([("y".to_owned(), tensor)])
}

/// One request for each label; `ids` [1, 4] for all.
fn requests(labels: &[Option<&str>]) -> Calibration {
    let ids = Tensor::from_vec(vec![1, 4], vec![0i64, 1, 1, 0]).unwrap();
    let sample = |(index, label): (usize, &Option<&str>)| Sample {
        name: format!("r{index}"),
        values: BTreeMap::from([("ids".to_owned(), ids.clone())]),
        label: label.map(str::to_owned),
    };
    Calibration {
        samples: labels.iter().enumerate().map(sample).collect(),
        available: labels.len(),
    }
}

/// A model whose output `y` of `shape` comes from `op`.
fn model(op: &str, shape: &[Dim], dtype: DType) -> Model {
    let graph = GraphBuilder::new("m", 17)
        .input("x", dtype, shape)
        .input("ids", DType::I64, &[1.into(), 4.into()])
        .output("y", dtype, shape)
        .output("same", DType::I64, &[1.into(), 4.into()])
        .node(op, &["x"], &["y"])
        .node("Identity", &["ids"], &["same"])
        .build()
        .unwrap();
    Model::new(graph, "m".into(), Fingerprint::of(b"m"), &Bindings::new()).unwrap()
}

fn measure(kind: Kind, labels: &[Option<&str>], whole: &[Answer], split: &[Answer]) -> f64 {
    Metric { kind }
        .measure(&requests(labels), whole, split)
        .unwrap()
}

fn y() -> String {
    "y".into()
}

#[test]
fn agreement_counts_rows_whose_best_class_is_the_same() {
    let whole = [answer(floats(&[2, 2], &[0.1, 0.9, 0.7, 0.3]))];
    let split = |values: &[f32]| [answer(floats(&[2, 2], values))];
    let top1 =
        |values: &[f32]| measure(Kind::Top1 { output: y() }, &[None], &whole, &split(values));
    assert_eq!(top1(&[0.4, 0.6, 0.6, 0.4]), 1.0);
    assert_eq!(top1(&[0.6, 0.4, 0.6, 0.4]), 0.5);
    assert_eq!(
        top1(&[f32::NAN, 0.9, 0.6, 0.4]),
        0.5,
        "NaN agrees with nothing"
    );
}

#[test]
fn accuracy_is_against_labels_not_the_whole_model() {
    let whole = [
        answer(floats(&[1, 2], &[1.0, 0.0])),
        answer(floats(&[1, 2], &[1.0, 0.0])),
    ];
    let labels = [Some("1"), Some("0")];
    assert_eq!(
        measure(Kind::Accuracy { output: y() }, &labels, &whole, &whole),
        0.5
    );
    let metric = Metric {
        kind: Kind::Accuracy { output: y() },
    };
    assert!((metric.loss(0.9, 0.8) - 0.1).abs() < 1e-12);
    let error = metric
        .measure(&requests(&[Some("7")]), &whole, &whole)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`r0`: class 7 of 2"), "{error}");
}

#[test]
fn cosine_of_equal_opposite_and_empty_answers() {
    let whole = [answer(floats(&[2], &[3.0, 4.0]))];
    let cosine = |values: &[f32]| {
        measure(
            Kind::Cosine { output: y() },
            &[None],
            &whole,
            &[answer(floats(&[2], values))],
        )
    };
    assert!((cosine(&[6.0, 8.0]) - 1.0).abs() < 1e-12);
    assert!((cosine(&[-3.0, -4.0]) + 1.0).abs() < 1e-12);
    assert_eq!(cosine(&[0.0, 0.0]), 0.0);
    assert_eq!(cosine(&[f32::NAN, 1.0]), 0.0);
}

#[test]
fn perplexity_is_that_of_the_next_token() {
    // p(0) = 1/4, p(1) = 3/4 at each place; the tokens are 0 1 1 0.
    let logits = floats(&[1, 4, 2], &[0.25f32.ln(), 0.75f32.ln()].repeat(4));
    let kind = Kind::Perplexity {
        logits: y(),
        ids: "ids".into(),
    };
    let got = measure(
        kind.clone(),
        &[None],
        &[answer(logits.clone())],
        &[answer(logits)],
    );
    let expected = (-(2.0 * 0.75f64.ln() + 0.25f64.ln()) / 3.0).exp();
    assert!((got - expected).abs() < 1e-6, "{got} {expected}");
    let short = [answer(floats(&[1, 3, 2], &[0.0; 6]))];
    let error = Metric { kind }
        .measure(&requests(&[None]), &short, &short)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("3 rows of scores for ids [1, 4]"),
        "{error}"
    );
}

#[test]
fn the_largest_relative_error_must_be_finite() {
    let whole = [answer(floats(&[1], &[10.0]))];
    let max_rel = |value: f32| {
        Metric {
            kind: Kind::MaxRelativeError,
        }
        .measure(
            &requests(&[None]),
            &whole,
            &[answer(floats(&[1], &[value]))],
        )
    };
    assert!((max_rel(11.0).unwrap() - 0.1).abs() < 1e-6);
    let error = max_rel(f32::NAN).unwrap_err().to_string();
    assert!(error.contains("NaN or infinity"), "{error}");
}

#[test]
fn the_metric_that_fits_is_chosen() {
    let rows: [Dim; 2] = [1.into(), 4.into()];
    let chosen = |op: &str, dtype, labels: &[Option<&str>]| {
        let asked = MetricChoice {
            output: Some(y()),
            ..MetricChoice::default()
        };
        let metric = Metric::choose(&model(op, &rows, dtype), &requests(labels), &asked).unwrap();
        metric.name().to_owned()
    };
    assert_eq!(chosen("Softmax", DType::F32, &[None]), "top-1 agreement");
    assert_eq!(chosen("Tanh", DType::F32, &[None]), "cosine");
    assert_eq!(chosen("Softmax", DType::F32, &[Some("3")]), "accuracy");
    assert_eq!(
        chosen("Identity", DType::I64, &[None]),
        "maximum relative error"
    );
}

#[test]
fn a_metric_that_does_not_fit_says_what_it_needs() {
    let net = model("Softmax", &[1.into(), 4.into()], DType::F32);
    let refused = |name: &str, labels: &[Option<&str>], parts: &[&str]| {
        let asked = MetricChoice {
            name: Some(name.parse().unwrap()),
            ..MetricChoice::default()
        };
        let error = Metric::choose(&net, &requests(labels), &asked)
            .unwrap_err()
            .to_string();
        for part in parts {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    };
    refused("accuracy", &[None], &["needs labels", "labels.txt"]);
    refused(
        "accuracy",
        &[Some("cat")],
        &["`r0`", "index of a class", "`cat`"],
    );
    refused("accuracy", &[Some("4")], &["class 4 of 4"]);
    refused("cer", &[Some("a")], &["metadata key `character`"]);
    refused("perplexity", &[None], &["[N, T, vocabulary]"]);
    let error = "best".parse::<MetricName>().unwrap_err().to_string();
    assert!(error.contains("top1, accuracy, cosine, cer"), "{error}");
    let asked = MetricChoice {
        output: Some("z".into()),
        ..MetricChoice::default()
    };
    let error = Metric::choose(&net, &requests(&[None]), &asked)
        .unwrap_err()
        .to_string();
    assert!(error.contains("it has y, same"), "{error}");
}

/// The figure of a command over one request labelled `a'b $(x)`.
#[cfg(unix)]
fn command(text: &str) -> Result<f64, String> {
    let asked = MetricChoice {
        command: Some(text.into()),
        ..MetricChoice::default()
    };
    let net = model("Tanh", &[1.into(), 4.into()], DType::F32);
    let requests = requests(&[Some("a'b $(touch x)")]);
    let metric = Metric::choose(&net, &requests, &asked).unwrap();
    let answers = [answer(floats(&[2], &[1.0, 2.0]))];
    metric
        .measure(&requests, &answers, &answers)
        .map_err(|error| error.to_string())
}

#[cfg(unix)]
#[test]
fn the_users_command_reads_lines_of_json_and_prints_a_number() {
    assert_eq!(command("wc -l").unwrap(), 1.0);
    // The path stands in the line; the file is an npy of 64 bytes of header and 8 of values.
    let path = r#"sed 's/.*"outputs":{"y":"\([^"]*\)".*/\1/'"#;
    assert_eq!(
        command(&format!("{path} | xargs cat | wc -c")).unwrap(),
        136.0
    );
    assert_eq!(
        command("grep -c '\"label\":\"a.b $(touch x)\"'").unwrap(),
        1.0
    );
    assert_eq!(
        command("echo 0.25").unwrap(),
        0.25,
        "it need not read its stdin"
    );
}

#[cfg(unix)]
#[test]
fn a_command_that_fails_is_quoted() {
    for (text, expected) in [
        ("echo 1; exit 3", "exit status: 3"),
        ("echo good", "got `good`"),
        ("echo nan", "one finite number"),
        ("true", "got ``"),
        (
            "head -c 200000 /dev/zero | tr '\\0' 1",
            "expected one finite number",
        ),
        ("printf '\\377\\376'", "cannot read its stdout"),
        ("kill -KILL $$", "signal: 9"),
    ] {
        let error = command(text).unwrap_err();
        assert!(error.contains(text) && error.contains(expected), "{error}");
    }
}

/// One that never ends, and one that leaves something behind which holds its stdout.
#[cfg(unix)]
#[test]
fn a_command_that_hangs_is_ended() {
    use super::command::Command;
    for text in [
        "sleep 600 | cat",
        "sleep 600 & echo 1",
        "cat /dev/zero | wc -c",
    ] {
        let command = Command {
            text: text.into(),
            higher_is_better: true,
            time_limit: std::time::Duration::from_millis(200),
        };
        let metric = Metric {
            kind: Kind::Command(command),
        };
        let answers = [answer(floats(&[1], &[1.0]))];
        let error = metric.measure(&requests(&[None]), &answers, &answers);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("0.2 s"), "{error}");
    }
}

#[test]
fn of_one_number_the_cosine_says_nothing() {
    let net = model("Sigmoid", &[1.into(), 1.into()], DType::F32);
    let metric = Metric::choose(&net, &requests(&[None]), &MetricChoice::default()).unwrap();
    assert_eq!(metric.name(), "maximum relative error");
}
