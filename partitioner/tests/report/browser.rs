//! The page in headless Chromium: every chart holds marks, the console stays silent, and a picture
//! can be taken. Without Chromium these tests say that they were skipped.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use seamline_partitioner::plan::{Candidate, PlanRecord};
use seamline_partitioner::report::html;

use crate::{fixture, page};

/// Where a test's pages and pictures go: `SEAMLINE_REPORT_PAGES`, to look at them, or a folder
/// that is removed.
enum Folder {
    Kept(PathBuf),
    Removed(tempfile::TempDir),
}

impl Folder {
    fn new() -> Folder {
        match std::env::var_os("SEAMLINE_REPORT_PAGES") {
            Some(path) => {
                std::fs::create_dir_all(&path).unwrap();
                Folder::Kept(path.into())
            }
            None => Folder::Removed(tempfile::tempdir().unwrap()),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Folder::Kept(path) => path,
            Folder::Removed(folder) => folder.path(),
        }
    }
}

/// The browser, or none with a line that says that `test` was skipped.
fn chromium(test: &str) -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.is_file());
    if found.is_none() {
        let line =
            format!("skipped: {test}: no Chromium here (Debian: apt-get install chromium)\n");
        // Not by `eprintln`, which the test runner keeps to itself where a test passes.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    found
}

/// Opens `page` at `width` × `height` pixels and does as `arguments` say.
fn browse(browser: &Path, page: &Path, (width, height): (u32, u32), arguments: &[&str]) -> Output {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-sync",
        ])
        .args([
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ])
        .args([
            "--enable-logging=stderr",
            "--v=0",
            "--virtual-time-budget=4000",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},{height}"))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let console: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(
        console.is_empty(),
        "the page wrote to the console: {console:#?}"
    );
    output
}

/// The document of `record`'s page after its script ran.
fn drawn(browser: &Path, folder: &Path, name: &str, record: &PlanRecord) -> String {
    let page = write(folder, name, record);
    let output = browse(browser, &page, (1400, 1000), &["--dump-dom"]);
    let document = String::from_utf8(output.stdout).unwrap();
    let drawn = format!("data-drawn=\"{}\"", record.candidates.len());
    assert!(document.contains(&drawn), "the script did not end");
    document
}

fn write(folder: &Path, name: &str, record: &PlanRecord) -> PathBuf {
    let page = folder.join(format!("{name}.html"));
    std::fs::write(&page, html(record)).unwrap();
    std::fs::write(folder.join(format!("{name}.json")), record.to_json()).unwrap();
    page
}

/// The section called `id`.
fn section<'a>(document: &'a str, id: &str) -> &'a str {
    let start = document.find(&format!("<section id=\"{id}\"")).unwrap();
    let end = document[start..].find("</section>").unwrap();
    &document[start..start + end]
}

fn count(document: &str, id: &str, mark: &str) -> usize {
    section(document, id).matches(mark).count()
}

#[test]
fn every_chart_is_drawn_and_the_console_is_silent() {
    let Some(browser) = chromium("every_chart_is_drawn_and_the_console_is_silent") else {
        return;
    };
    let folder = Folder::new();
    let record = fixture::example();
    let document = drawn(&browser, folder.path(), "example", &record);
    // 89 seams, the input and the device; five codecs each, and the device alone.
    let (cuts, all) = (91, record.candidates.len());
    assert_eq!(count(&document, "latency", "<g data-i="), cuts);
    assert!(count(&document, "latency", "<rect class=\"p") > 4 * cuts);
    let baselines = count(&document, "latency", "<line class=\"reference");
    assert_eq!(baselines, 2);
    let latency = section(&document, "latency");
    assert!(latency.contains("Above the chart: cloud only, raw input"));
    // What sends nothing has no place on a logarithmic scale.
    assert_eq!(
        count(&document, "payload", "data-i="),
        all - 1 + 1,
        "and the choice's ring"
    );
    assert_eq!(count(&document, "payload", "<line class=\"reference"), 2);
    assert_eq!(count(&document, "accuracy", "data-i="), all + 1);
    assert_eq!(count(&document, "memory", "data-i="), all + 1);
    assert_eq!(count(&document, "leakage", "data-i="), all - 1 + 1);
    let breaking = record
        .candidates
        .iter()
        .filter(|one| !one.breaks.is_empty());
    assert_eq!(
        count(&document, "pareto", "class=\"cross\""),
        breaking.count()
    );
    assert!(count(&document, "pareto", "class=\"dot pareto\"") > 5);
    assert_eq!(count(&document, "pareto", "class=\"front\""), 1);
    let measured = record
        .candidates
        .iter()
        .filter(|one| one.measured.is_some());
    assert_eq!(count(&document, "measured", "data-i="), measured.count());
    assert!(section(&document, "leakage").contains("Splitting is not privacy."));
    for note in &record.notes {
        assert!(document.contains(note.as_str()), "{note}");
    }
    assert!(section(&document, "choice").contains(&record.reason[0]));
    assert_eq!(
        count(&document, "candidates", "<tr"),
        1 + 100,
        "a page of rows"
    );
}

/// What a person does: every control once, and the pointer over a column.
const HANDS: &str = r##"<script>
const press = (label) =>
  [...document.querySelectorAll("button")].find((one) => one.textContent.startsWith(label)).click();
press("all (");
press("by latency");
press("latency");
const search = document.querySelector("input[type=search]");
search.value = "S2 int4";
search.dispatchEvent(new Event("input"));
const across = document.querySelector("#pareto select");
across.value = "leakage";
across.dispatchEvent(new Event("change"));
for (const details of document.querySelectorAll("details")) details.open = true;
const column = document.querySelector("#latency g[data-i] .hit");
column.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
</script></body>"##;

#[test]
fn controls_change_what_is_shown() {
    let Some(browser) = chromium("controls_change_what_is_shown") else {
        return;
    };
    let folder = Folder::new();
    let record = fixture::example();
    let page = write(folder.path(), "controls", &record);
    std::fs::write(&page, html(&record).replace("</body>", HANDS)).unwrap();
    let output = browse(&browser, &page, (1400, 1000), &["--dump-dom"]);
    let document = String::from_utf8(output.stdout).unwrap();
    let all = record.candidates.len();
    assert_eq!(count(&document, "latency", "<g data-i="), all);
    assert_eq!(
        count(&document, "latency", "<tr"),
        1 + all,
        "the data behind it"
    );
    // The first column is the fastest of all, and the tooltip tells of it.
    let by_latency = |one: &&Candidate| one.latency.total_us();
    let fastest = record
        .candidates
        .iter()
        .min_by(|a, b| by_latency(a).total_cmp(&by_latency(b)))
        .unwrap();
    let tip = &document[document.find("<div id=\"tip\"").unwrap()..];
    let name = format!("<b>{}</b>", fastest.id);
    assert!(tip.contains(&name), "{name} is not in the tooltip");
    let broken = &fastest.breaks[0];
    assert!(
        tip.contains(broken.as_str()),
        "{broken} is not in the tooltip"
    );
    assert!(section(&document, "pareto").contains("leakage (share recovered) against bytes sent"));
    // s2 and s20 to s29, by int4 alone.
    assert_eq!(count(&document, "candidates", "<tr"), 1 + 11);
}

#[test]
fn charts_without_figures_say_why() {
    let Some(browser) = chromium("charts_without_figures_say_why") else {
        return;
    };
    let folder = Folder::new();
    let mut record = fixture::example();
    (record.metric, record.attack) = (None, None);
    for candidate in &mut record.candidates {
        (candidate.accuracy, candidate.leakage) = (None, None);
        (candidate.device_memory, candidate.measured) = (None, None);
    }
    let document = drawn(&browser, folder.path(), "without", &record);
    for (id, reason) in [
        ("accuracy", "--calibration"),
        ("memory", "profile"),
        ("leakage", "failed at the input itself"),
        ("measured", "--measure"),
    ] {
        let section = section(&document, id);
        assert!(
            !section.contains("<svg"),
            "{id} draws figures that are not there"
        );
        assert!(section.contains("class=\"missing\""), "{id}");
        assert!(section.contains(reason), "{id}: {section}");
    }
    assert!(section(&document, "leakage").contains("Splitting is not privacy."));
}

#[test]
fn hostile_names_run_nothing_in_a_browser() {
    let Some(browser) = chromium("hostile_names_run_nothing_in_a_browser") else {
        return;
    };
    let folder = Folder::new();
    let document = drawn(&browser, folder.path(), "hostile", &page::hostile());
    assert!(!document.contains("<img"));
    assert_eq!(document.matches("<script").count(), 2);
}

#[test]
fn three_thousand_candidates_are_drawn() {
    let Some(browser) = chromium("three_thousand_candidates_are_drawn") else {
        return;
    };
    let folder = Folder::new();
    let document = drawn(&browser, folder.path(), "large", &fixture::large());
    assert_eq!(count(&document, "latency", "<g data-i="), 251);
    assert!(document.contains("all (3,001)"));
}

#[test]
fn ten_thousand_candidates_are_drawn() {
    let Some(browser) = chromium("ten_thousand_candidates_are_drawn") else {
        return;
    };
    let folder = Folder::new();
    let record = fixture::large_of(834);
    assert!(record.candidates.len() > 10_000);
    let document = drawn(&browser, folder.path(), "huge", &record);
    assert_eq!(count(&document, "candidates", "<tr"), 1 + 100);
}

#[test]
fn a_plan_of_one_candidate_is_drawn() {
    let Some(browser) = chromium("a_plan_of_one_candidate_is_drawn") else {
        return;
    };
    let folder = Folder::new();
    let mut record = fixture::example();
    record.candidates.retain(|one| one.id == "device");
    record.chosen = "device".into();
    let document = drawn(&browser, folder.path(), "single", &record);
    assert!(section(&document, "choice").contains("Stay on the device"));
    assert_eq!(count(&document, "latency", "<g data-i="), 1);
}

/// Set `SEAMLINE_REPORT_PAGES` to a folder to keep the pictures and look at them.
#[test]
fn a_picture_is_taken_in_both_widths_and_themes() {
    let Some(browser) = chromium("a_picture_is_taken_in_both_widths_and_themes") else {
        return;
    };
    let folder = Folder::new();
    let page = write(folder.path(), "picture", &fixture::example());
    // A window is 500 pixels wide at least; a frame may be narrower.
    let narrow = folder.path().join("narrow.html");
    let frame =
        "<body style='margin:0'><iframe src=picture.html width=400 height=6600 style='border:0'>";
    std::fs::write(&narrow, frame).unwrap();
    let dark = "--blink-settings=preferredColorScheme=0";
    for (name, page, size, theme) in [
        ("wide-light", &page, (1400, 3200), None),
        ("wide-dark", &page, (1400, 3200), Some(dark)),
        ("narrow-light", &narrow, (500, 6600), None),
        ("narrow-dark", &narrow, (500, 6600), Some(dark)),
    ] {
        let picture = folder.path().join(format!("{name}.png"));
        let screenshot = format!("--screenshot={}", picture.display());
        let arguments: Vec<&str> = std::iter::once(screenshot.as_str()).chain(theme).collect();
        browse(&browser, page, size, &arguments);
        let picture = image::open(&picture).unwrap().into_rgb8();
        assert_eq!((picture.width(), picture.height()), size);
        let corner = picture.get_pixel(2, 2).0[0];
        assert_eq!(
            corner < 128,
            theme.is_some(),
            "the theme of {name}: {corner}"
        );
        let colours: std::collections::HashSet<_> = picture.pixels().collect();
        assert!(colours.len() > 100, "{name} is nearly empty");
    }
}
