//! Tests of the page as a whole.

use super::page;
use crate::fixture;
use crate::record::{Phase, Record};

/// A text that must not get into the page as it is.
const HOSTILE: &str = "</title></style><script>alert('x')</script>\"' onload=\"y&";

/// The record with its every text replaced. It goes by JSON, so that no field can be forgotten.
fn hostile(record: &Record) -> Record {
    fn replace(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) => *text = HOSTILE.to_owned(),
            serde_json::Value::Array(items) => items.iter_mut().for_each(replace),
            serde_json::Value::Object(fields) => fields
                .iter_mut()
                .filter(|(name, _)| !["phase", "headline", "columns"].contains(&name.as_str()))
                .for_each(|(_, value)| replace(value)),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(record).unwrap();
    replace(&mut value);
    serde_json::from_value(value).unwrap()
}

#[test]
fn no_text_of_a_record_becomes_markup() {
    let mut records: Vec<Record> = fixture::suite().iter().map(hostile).collect();
    records[1].reading = format!("another {HOSTILE}");
    records[0].headline = HOSTILE.to_owned();
    records[2].scenario = format!("another {HOSTILE}");
    let page = page(HOSTILE, &records);
    assert!(!page.contains("<script"), "{page}");
    assert!(!page.contains("onload=\""), "{page}");
    // Those of the page and of the places of charts, each of which begins with an element.
    let opened = page.matches("<title>").count();
    assert_eq!(page.matches("</title>").count(), opened);
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let page = page("Suite", &fixture::suite());
    let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for external in [
        "http:", "https:", "//", "src=", "url(", "@import", "<link", "<script",
    ] {
        assert!(!page.contains(external), "{external}");
    }
}

#[test]
fn runs_of_a_scenario_stand_together() {
    let mut records = fixture::suite();
    records.swap(1, 2);
    let page = page("Suite", &records);
    assert_eq!(page.matches("<section").count(), 3);
    assert_eq!(page.matches("href=\"#scenario-0\"").count(), 2);
    let first = page.split("<section").nth(1).unwrap_or_default();
    assert!(first.contains("measured, HeraldMQ 0.1"));
    assert!(first.contains("measured, mosquitto 2.0"));
    assert!(first.contains("class=\"warning\"><b>mosquitto 2.0</b>"));
    assert_eq!(first.matches("<svg").count(), 7);
}

#[test]
fn a_single_scenario_has_no_overview() {
    let page = page("Run", &[fixture::idle()]);
    assert!(!page.contains("class=\"overview\""));
    assert!(page.contains("KB each"));
}

#[test]
fn every_element_that_is_opened_is_closed() {
    let page = page("Suite", &fixture::suite());
    for name in [
        "section", "div", "table", "tr", "td", "th", "p", "figure", "svg", "text",
    ] {
        let opened =
            page.matches(&format!("<{name}>")).count() + page.matches(&format!("<{name} ")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{name}>")).count(),
            "{name}"
        );
    }
}

#[test]
fn records_with_little_or_odd_in_them_are_shown() {
    assert!(page("Nothing", &[]).contains("No runs."));
    let mut single = fixture::pairs("one sample", 1.0);
    single.samples.truncate(1);
    let mut odd = fixture::pairs("odd", 1.0);
    for (index, sample) in odd.samples.iter_mut().enumerate().skip(12) {
        sample.seconds = [0.0, -1.0, f64::MAX, f64::NAN][index % 4];
        sample.at_s = [f64::MAX, -5.0, f64::INFINITY][index % 3];
        sample.mean_ms = Some([f64::MAX, f64::NAN, -1.0][index % 3]);
        sample.delivered = u64::MAX;
        sample.system.clear();
    }
    odd.samples[13].phase = Phase::Drain;
    let mut timeless = odd.clone();
    timeless.samples[8].at_s = f64::NAN;
    if let Some(latency) = &mut odd.latencies.deliver {
        latency.buckets_ns = vec![(0, u64::MAX), (u64::MAX, u64::MAX)];
    }
    for record in [fixture::empty(), single, odd, timeless] {
        let page = page("Little", std::slice::from_ref(&record));
        assert!(page.contains("</html>"), "{}", record.label);
        assert_eq!(page.matches("not drawn").count(), 0, "{}", record.label);
    }
}
