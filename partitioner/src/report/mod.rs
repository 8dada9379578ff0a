//! A plan as one HTML page: nothing is fetched, so that it can be mailed, archived and opened
//! anywhere.
//!
//! The page is a fixed skeleton, a style sheet, a script and the plan's figures as JSON. The
//! script draws every chart as SVG at the width that there is. Names come from models and files,
//! so they are hostile: they enter the page as JSON whose `<`, `>` and `&` are escaped, and the
//! script puts them into text nodes only. A content security policy forbids the page to load
//! anything.

mod data;

use crate::plan::PlanRecord;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");

/// The script's parts, in the order in which they use one another.
const SCRIPTS: [&str; 8] = [
    include_str!("page/data.js"),
    include_str!("page/base.js"),
    include_str!("page/headline.js"),
    include_str!("page/latency.js"),
    include_str!("page/depth.js"),
    include_str!("page/scatter.js"),
    include_str!("page/tables.js"),
    include_str!("page/main.js"),
];

/// The page of `record`, which must be one that [`PlanRecord::problem`] has nothing against.
pub fn html(record: &PlanRecord) -> String {
    let script = SCRIPTS.concat();
    fill(
        PAGE,
        &[
            ("title", &escaped(&data::clipped(&record.model))),
            ("style", STYLE),
            ("data", &data::json(record)),
            ("script", &script),
        ],
    )
}

/// `template` with each `{{name}}` replaced. What is put in is not searched for marks.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        page.push_str(value.map_or("", |(_, value)| value));
        page.push_str(rest);
    }
    page
}

/// `text` as the content of an HTML element.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_not_a_template() {
        let page = fill("a{{x}}b{{y}}c", &[("x", "{{y}}"), ("y", "1")]);
        assert_eq!(page, "a{{y}}b1c");
        assert_eq!(fill("{{unknown}}.", &[]), ".");
    }

    #[test]
    fn every_mark_of_the_page_is_known() {
        let marks = PAGE.split("{{").skip(1);
        let names: Vec<&str> = marks.filter_map(|part| part.split("}}").next()).collect();
        assert_eq!(names, ["title", "style", "data", "script"]);
    }

    #[test]
    fn the_page_names_no_outside_resource() {
        for part in SCRIPTS.into_iter().chain([PAGE, STYLE]) {
            let part = part.replace("http://www.w3.org/2000/svg", "");
            for outside in ["http:", "https:", "//cdn", "src=", "@import", "url("] {
                assert!(!part.contains(outside), "{outside}");
            }
        }
    }

    /// Text enters the page as text: nothing in the script makes markup of a string.
    #[test]
    fn the_script_makes_no_markup_of_strings() {
        for part in SCRIPTS {
            for sink in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "</script",
                "<!--",
            ] {
                assert!(!part.contains(sink), "{sink}");
            }
        }
    }
}
