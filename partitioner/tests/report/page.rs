//! The page as text.

use seamline_partitioner::plan::PlanRecord;
use seamline_partitioner::report::html;
use serde_json::Value;

use crate::fixture;

/// The figures that stand in the page.
fn figures(page: &str) -> Value {
    let start = page.find("<script type=\"application/json\"").unwrap();
    let start = start + page[start..].find('>').unwrap() + 1;
    let end = start + page[start..].find("</script>").unwrap();
    serde_json::from_str(&page[start..end]).unwrap()
}

/// A field of a candidate's row.
fn field<'a>(figures: &'a Value, candidate: usize, name: &str) -> &'a Value {
    let columns = figures["columns"].as_array().unwrap();
    let column = columns.iter().position(|column| column == name).unwrap();
    &figures["candidates"][candidate][column]
}

/// Names as an enemy chooses them, in every text of a plan.
pub(crate) fn hostile() -> PlanRecord {
    let name = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>{{data}}\"'&";
    let mut record = fixture::example();
    record.model = name.into();
    record.reason.push(name.into());
    record.notes.push(name.into());
    record.shapes.insert(name.into(), 1);
    for machine in [&mut record.device, &mut record.cloud] {
        let machine = &mut machine.machine;
        machine.name = name.into();
        machine.cpu = name.into();
        machine.providers.push(name.into());
    }
    record.link.name = format!("{name}{}", "l".repeat(1 << 20));
    record.metric.as_mut().unwrap().name = format!("{name}{}", "m".repeat(1 << 20));
    record.attack.as_mut().unwrap().name = format!("{name}{}", "a".repeat(1 << 20));
    for candidate in &mut record.candidates {
        if record.chosen == candidate.id {
            record.chosen = format!("{}{name}", candidate.id);
        }
        candidate.id.push_str(name);
        candidate.cut.push_str(name);
        candidate.precision = name.into();
        candidate.codec = candidate
            .codec
            .as_ref()
            .map(|codec| format!("{codec}{name}"));
        candidate.values = vec![
            name.into(),
            "\u{202e}\u{0}\u{2028}".into(),
            "n".repeat(100_000),
        ];
        candidate.breaks.push(name.into());
    }
    record
}

#[test]
fn hostile_names_stay_text() {
    let record = hostile();
    let page = html(&record);
    let (usual, tags) = (
        html(&fixture::example()),
        ["<script", "</script", "<img", "<!--"],
    );
    for tag in tags {
        assert_eq!(
            page.matches(tag).count(),
            usual.matches(tag).count(),
            "{tag}"
        );
    }
    assert!(page.contains("<title>&lt;/script&gt;"));
    let figures = figures(&page);
    assert_eq!(figures["model"], record.model);
    assert_eq!(field(&figures, 0, "id"), record.candidates[0].id.as_str());
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

#[test]
fn a_page_of_three_thousand_candidates_is_small() {
    let record = fixture::large();
    assert_eq!(record.candidates.len(), 3001);
    let page = html(&record);
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    println!(
        "{} bytes for {} candidates",
        page.len(),
        record.candidates.len()
    );
    assert_eq!(figures(&page)["candidates"].as_array().unwrap().len(), 3001);
}

#[test]
fn baselines_are_the_best_of_their_kind_that_keep_the_constraints() {
    let mut record = fixture::example();
    let compressed = ["input/f16", "input/int8", "input/int8-packed", "input/int4"];
    let baseline = |record: &PlanRecord, name: &str| {
        let figures = figures(&html(record));
        let index = figures["baselines"][name].as_u64();
        index.map(|index| {
            record.candidates[usize::try_from(index).unwrap()]
                .id
                .clone()
        })
    };
    assert_eq!(baseline(&record, "device").unwrap(), "device");
    assert_eq!(baseline(&record, "cloud_raw").unwrap(), "input/raw");
    let best = baseline(&record, "cloud_compressed").unwrap();
    assert!(compressed.contains(&best.as_str()), "{best}");
    let index = record
        .candidates
        .iter()
        .position(|one| one.id == best)
        .unwrap();
    record.candidates[index].breaks.push("too much".into());
    assert_ne!(baseline(&record, "cloud_compressed").unwrap(), best);
    record.candidates.retain(|one| one.id != "device");
    assert_eq!(baseline(&record, "device"), None);
}

#[test]
fn figures_that_were_not_taken_are_absent_not_zero() {
    let mut record = fixture::example();
    record.metric = None;
    for candidate in &mut record.candidates {
        candidate.accuracy = None;
        candidate.leakage = None;
        candidate.device_memory = None;
        candidate.measured = None;
    }
    let figures = figures(&html(&record));
    assert_eq!(figures["metric"], Value::Null);
    for name in ["accuracy", "leakage", "memory", "measured"] {
        assert_eq!(*field(&figures, 5, name), Value::Null, "{name}");
    }
}
