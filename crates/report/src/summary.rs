//! A run as text for a terminal.

use crate::record::Record;
use crate::tables;

impl Record {
    /// The tables that a user sees at the end of a run, each followed by an empty line, and the warnings.
    #[must_use]
    pub fn summary(&self) -> String {
        let records = [self];
        let mut tables = vec![
            tables::results(&records),
            tables::latencies(&records),
            tables::counts(&records),
            tables::cpu(&records),
        ];
        tables.extend(tables::traffic(&records));
        tables.extend(tables::resources(&records));
        tables.extend(tables::shards(&records));
        tables.extend(tables::parts(&records));
        tables.extend(tables::publishers(&records));
        let mut text = String::new();
        for table in tables.iter().filter(|table| !table.rows().is_empty()) {
            text += &format!("{table}\n");
        }
        for warning in &self.warnings {
            text += &format!("warning: {warning}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use crate::record::{Counts, PartFigures};

    /// The cells of the first line that begins with `name`.
    fn cells<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_whitespace().collect()
    }

    #[test]
    fn asked_measured_and_published_stand_below_each_other() {
        let text = fixture::pairs("HeraldMQ", 1.0).summary();
        assert_eq!(cells(&text, "asked for"), ["50,000"], "{text}");
        let measured = [
            "4,000", "0", "32", "B", "25", "49,987", "0.620", "1.55", "17.05", "15.6", "61.0", "MB",
        ];
        assert_eq!(cells(&text, "measured, HeraldMQ"), measured, "{text}");
        let published = [
            "4,000", "0", "32", "B", "25", "50,000", "3.22", "24.11", "-", "80.0", "5-10", "GB",
        ];
        let name = "published, BifroMQ 2.1, scaled to 1/4";
        assert_eq!(cells(&text, name), published, "{text}");
    }

    #[test]
    fn parts_of_a_mixed_load_have_a_line_each() {
        let mut record = fixture::pairs("HeraldMQ", 1.0);
        assert!(!record.summary().contains("part "));
        let part = |name: &str, delivered| PartFigures {
            name: name.to_owned(),
            asked_per_second: 100.0,
            counts: Counts {
                delivered,
                lost: 1,
                ..Counts::default()
            },
            acknowledge: None,
            deliver: record.latencies.deliver.clone(),
        };
        record.parts = vec![part("sensors", 70), part("wills", 80)];
        let text = record.summary();
        let wills = [
            "100", "0", "0", "80", "1", "0", "0", "0.620", "1.55", "17.05",
        ];
        assert_eq!(cells(&text, "wills"), wills, "{text}");
        assert_eq!(cells(&text, "sensors")[3], "70", "{text}");
    }

    #[test]
    fn connections_alone_have_columns_of_their_own() {
        let text = fixture::idle().summary();
        let measured = [
            "50,000", "6,250", "0.900", "2.25", "24.75", "2.3", "61.0", "MB", "1.0",
        ];
        assert_eq!(cells(&text, "measured, HeraldMQ 0.1"), measured, "{text}");
        let published = ["50,000", "5,000", "-", "-", "-", "80.0", "5-10", "GB", "-"];
        let name = "published, BifroMQ 2.1, scaled to 1/20";
        assert_eq!(cells(&text, name), published, "{text}");
        assert!(!text.contains("asked for"), "{text}");
    }

    #[test]
    fn faults_cpu_and_warnings_are_shown() {
        let text = fixture::pairs("slow", 2.0).summary();
        let counts = ["3,500,000", "0", "3,499,983", "17", "0", "3", "0", "0"];
        assert_eq!(cells(&text, "messages"), counts, "{text}");
        let broker = ["62.00", "88.00", "250.0", "50.03"];
        assert_eq!(cells(&text, "pid 4242 (broker)"), broker, "{text}");
        assert_eq!(cells(&text, "number 17")[3], "9", "{text}");
        assert!(text.ends_with("use a lower rate\n"), "{text}");
    }

    #[test]
    fn shards_are_shown_from_begin_to_end_if_the_broker_has_them() {
        let text = fixture::splitting("HeraldMQ").summary();
        let expected = ["1", "1", "→", "3", "1", "2"];
        assert_eq!(cells(&text, "shards"), expected, "{text}");
        assert!(!fixture::pairs("other", 1.0).summary().contains("shards"));
    }

    #[test]
    fn traffic_and_resources_are_those_of_the_measurement() {
        let record = fixture::pairs("HeraldMQ", 1.0);
        let text = record.summary();
        let traffic = cells(&text, "clients");
        let both: Vec<f64> = traffic
            .iter()
            .take(3)
            .map(|cell| cell.replace(',', "").parse().unwrap())
            .collect();
        assert!((both[0] + both[1] - both[2]).abs() <= 1.0, "{text}");
        assert!((49_000.0..51_000.0).contains(&both[0]), "{text}");
        let resources = cells(&text, "broker");
        // 31 s in user mode and 44 s in the kernel of 60 s of 8 cores.
        assert_eq!(resources[..2], ["6.5", "9.2"], "{text}");
        assert!(!fixture::idle().summary().contains("NaN"));
    }

    #[test]
    fn nothing_measured_is_shown_as_such() {
        let text = fixture::empty().summary();
        assert!(text.starts_with("            connections"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }
}
