//! Labels of calibration requests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use seamline_plan::read_text;

use super::{CalibrationError, LABELS_JSON, LABELS_TEXT};

/// The most bytes of labels.
const MAX_LABEL_BYTES: u64 = 64 << 20;

type Labels = BTreeMap<String, String>;

/// The labels of `folder` where it has any: one for each of `names`, and for nothing else.
pub(super) fn read(folder: &Path, names: &[String]) -> Result<Option<Labels>, CalibrationError> {
    let (text, json) = (folder.join(LABELS_TEXT), folder.join(LABELS_JSON));
    let path = match (text.exists(), json.exists()) {
        (false, false) => return Ok(None),
        (true, false) => text,
        (false, true) => json,
        (true, true) => {
            return Err(CalibrationError::Labels {
                path: json,
                problem: format!("{LABELS_TEXT} is there too; keep one of them"),
            });
        }
    };
    let content = read_text(&path, MAX_LABEL_BYTES).map_err(|error| CalibrationError::Io {
        path: path.clone(),
        error,
    })?;
    let is_json = path.ends_with(LABELS_JSON);
    let parsed = if is_json {
        parse_json(&content)
    } else {
        parse_text(&content)
    };
    let labels = parsed.map_err(|problem| CalibrationError::Labels {
        path: path.clone(),
        problem,
    })?;
    let known: BTreeSet<&String> = names.iter().collect();
    if let Some(name) = labels.keys().find(|name| !known.contains(name)) {
        let name = name.clone();
        return Err(CalibrationError::LabelWithoutInput { path, name });
    }
    if let Some(name) = names.iter().find(|name| !labels.contains_key(*name)) {
        let name = name.clone();
        return Err(CalibrationError::Unlabelled { path, name });
    }
    Ok(Some(labels))
}

/// `NAME<tab>LABEL` lines; a space will do where the name has none.
fn parse_text(content: &str) -> Result<Labels, String> {
    let mut labels = Labels::new();
    for (index, line) in content.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let at = index + 1;
        let (name, label) = line
            .split_once('\t')
            .or_else(|| line.split_once(' '))
            .ok_or_else(|| {
                format!("line {at}: expected a file's name, a tab and its label, got `{line}`")
            })?;
        if labels
            .insert(name.trim().to_owned(), label.to_owned())
            .is_some()
        {
            return Err(format!("line {at}: `{name}` has a label already"));
        }
    }
    Ok(labels)
}

/// An object of names to numbers or text.
fn parse_json(content: &str) -> Result<Labels, String> {
    let expected = "expected an object of file names to class indices or text";
    let object: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(content).map_err(|error| format!("{expected}: {error}"))?;
    let label = |(name, value): (String, serde_json::Value)| match value {
        serde_json::Value::String(text) => Ok((name, text)),
        serde_json::Value::Number(number) if number.is_u64() => Ok((name, number.to_string())),
        other => Err(format!("{expected}; `{name}` has {other}")),
    };
    object.into_iter().map(label).collect()
}
