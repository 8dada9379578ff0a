//! A link from the command line: a preset's name, figures, or a file.

use std::path::{Path, PathBuf};

use seamline_plan::{LinkModel, LinkSource, Radio, Rate, Spread, read_text};
use thiserror::Error;

/// The most bytes of a link's file: a day of a sample each second.
const MAX_BYTES: u64 = 16 << 20;

/// What a trace without a column for it is taken to have.
const ROUND_TRIP_MS: f64 = 50.0;

/// A link that cannot be understood.
#[derive(Debug, Error)]
pub enum LinkError {
    /// Neither a preset nor a file.
    #[error(
        "`{text}` is no link: give one of {}, the file that `seamline-edge probe` writes (.json), or a trace (.csv)",
        LinkModel::presets().collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// As given.
        text: String,
    },
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The file's content.
    #[error("{}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Where, what was expected and what came.
        problem: String,
    },
}

/// The link called `text`: a preset, a JSON file of a [`LinkModel`], or a trace: CSV with a header
/// and a column `up_mbps`, and optionally `down_mbps`, `rtt_ms` and `loss`.
///
/// # Errors
/// [`LinkError`].
pub fn read_link(text: &str) -> Result<LinkModel, LinkError> {
    if let Some(preset) = LinkModel::preset(&text.to_ascii_lowercase()) {
        return Ok(preset);
    }
    let path = Path::new(text);
    let is_trace = path.extension().is_some_and(|extension| extension == "csv");
    if !is_trace && path.extension().is_none_or(|extension| extension != "json") {
        return Err(LinkError::Unknown { text: text.into() });
    }
    let content = read_text(path, MAX_BYTES).map_err(|error| LinkError::Io {
        path: path.to_owned(),
        error,
    })?;
    let link = if is_trace {
        let name = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        trace(&name.unwrap_or_default(), &content)
    } else {
        serde_json::from_str(&content).map_err(|error| format!("it is no link: {error}"))
    };
    let checked = link.and_then(|link: LinkModel| match link.problem() {
        Some(problem) => Err(problem),
        None => Ok(link),
    });
    checked.map_err(|problem| LinkError::Content {
        path: path.to_owned(),
        problem,
    })
}

fn trace(name: &str, content: &str) -> Result<LinkModel, String> {
    let mut lines = content
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let header = lines.next().map(|(_, line)| line).unwrap_or_default();
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let up = column("up_mbps").ok_or_else(|| {
        format!("its first line is `{header}`; expected names of columns, `up_mbps` among them")
    })?;
    let (down, rtt, loss) = (column("down_mbps"), column("rtt_ms"), column("loss"));
    let mut samples: [Vec<f64>; 4] = Default::default();
    for (index, line) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let wanted = [Some(up), down, rtt, loss];
        for (samples, column) in samples.iter_mut().zip(wanted) {
            let Some(column) = column else { continue };
            let field = fields.get(column).copied().unwrap_or_default();
            let number = field
                .parse::<f64>()
                .ok()
                .filter(|it| it.is_finite() && *it >= 0.0);
            samples.push(number.ok_or_else(|| {
                format!(
                    "line {}, column `{}` is `{field}`; expected a number, not negative",
                    index + 1,
                    columns[column]
                )
            })?);
        }
    }
    let [up, down, rtt, loss] = samples;
    if up.is_empty() {
        return Err("it has no samples".into());
    }
    let rate = |mbps: &[f64]| {
        // Where nothing passes for a while, a plan still needs a rate.
        let times: Vec<f64> = mbps.iter().map(|mbps| 1.0 / mbps.max(1e-3)).collect();
        let spread = Spread::of(&times);
        Rate {
            p50_bps: 1e6 / spread.p50_us,
            p5_bps: 1e6 / spread.p95_us,
        }
    };
    let rtt_us: Vec<f64> = rtt.iter().map(|ms| ms * 1e3).collect();
    Ok(LinkModel {
        name: name.to_owned(),
        source: LinkSource::Trace,
        up: rate(&up),
        down: if down.is_empty() {
            rate(&up)
        } else {
            rate(&down)
        },
        round_trip: if rtt_us.is_empty() {
            Spread::exactly(ROUND_TRIP_MS * 1e3)
        } else {
            Spread::of(&rtt_us)
        },
        loss: loss.iter().sum::<f64>() / loss.len().max(1) as f64,
        radio: LinkModel::preset("lte").map_or(Radio::default(), |lte| lte.radio),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_names_in_any_case() {
        assert_eq!(read_link("WiFi").unwrap().name, "wifi");
        let error = read_link("carrier-pigeon").unwrap_err().to_string();
        assert!(error.contains("3g, lte, wifi, 5g, ethernet"), "{error}");
    }

    #[test]
    fn a_trace_gives_median_and_bad_moments() {
        let lines: Vec<String> = (1..=20)
            .map(|mbps| format!("{mbps}, {mbps}.5, 30"))
            .collect();
        let text = format!("up_mbps,down_mbps,rtt_ms\n{}\n", lines.join("\n"));
        let link = trace("t", &text).unwrap();
        assert!((9e6..=12e6).contains(&link.up.p50_bps), "{link:?}");
        assert!((1e6..=2.1e6).contains(&link.up.p5_bps), "{link:?}");
        assert_eq!(link.round_trip.p50_us, 30e3);
        assert_eq!(link.problem(), None);
    }

    #[test]
    fn what_is_no_trace_is_named_by_line() {
        for (text, expected) in [
            ("", "up_mbps"),
            ("seconds\n1\n", "up_mbps"),
            ("up_mbps\n", "no samples"),
            ("up_mbps\n3\nfast\n", "line 3, column `up_mbps` is `fast`"),
            ("up_mbps\nNaN\n", "line 2"),
            ("up_mbps,loss\n3\n", "line 2, column `loss` is ``"),
        ] {
            let error = trace("t", text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
