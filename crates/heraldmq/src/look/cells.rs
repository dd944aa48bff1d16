//! What stands in the cells of tables.

use std::time::{Duration, SystemTime};

use admin::api::At;

/// Text of strangers: control characters and those that change the direction of text are escaped.
pub(crate) fn shown(text: &str) -> String {
    let is_hidden = |c: char| {
        let changes_direction = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() || changes_direction
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// A value, or a dash.
pub(crate) fn or_dash(value: Option<&str>) -> String {
    value.map_or_else(|| "-".to_owned(), shown)
}

/// A number with its thousands apart, or a dash.
pub(super) fn number(value: Option<u64>) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    let digits = value.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A rate, or a dash: two digits behind the point below 10.
pub(super) fn rate(per_s: Option<f64>) -> String {
    match per_s {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 10.0 => format!("{rate:.2}"),
        Some(rate) => number(Some(rate.round() as u64)),
    }
}

/// A time in ms, or a dash.
pub(super) fn milliseconds(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{} ms", rate(Some(ms))))
}

/// How long ago a moment is, in its two largest units.
pub(super) fn ago(at: Option<&At>, now: SystemTime) -> String {
    let moment = at.and_then(|at| humantime::parse_rfc3339(&at.to_string()).ok());
    let Some(moment) = moment else {
        return "-".to_owned();
    };
    // A clock that is behind that of the broker.
    let age = now.duration_since(moment).unwrap_or_default();
    let text = humantime::format_duration(Duration::from_secs(age.as_secs())).to_string();
    let mut units = text.split(' ');
    match (units.next(), units.next()) {
        (Some(one), Some(two)) => format!("{one} {two}"),
        (Some(one), None) => one.to_owned(),
        (None, _) => "0s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_write_moves_no_cursor() {
        assert_eq!(shown("a/ü 1"), "a/ü 1");
        assert_eq!(shown("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
        assert_eq!(shown("\u{202e}abc"), "\\u{202e}abc");
    }

    #[test]
    fn numbers_and_ages_are_read_at_a_glance() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(number(Some(value)), expected);
        }
        for (value, expected) in [
            (None, "-"),
            (Some(0.0), "0"),
            (Some(0.125), "0.12"),
            (Some(1_234.6), "1,235"),
        ] {
            assert_eq!(rate(value), expected);
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (seconds, expected) in [
            (0, "0s"),
            (59, "59s"),
            (3_661, "1h 1m"),
            (90_000, "1day 1h"),
        ] {
            let at = At::unix_ms(1_000_000_000 - seconds * 1_000);
            assert_eq!(ago(Some(&at), now), expected, "{seconds}");
        }
    }
}
