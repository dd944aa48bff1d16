//! Records as JSON text: one record, or an array of them, which is a suite.
//!
//! Invariant: what is written is read again as the same, as long as all its figures are finite.

use std::error::Error;
use std::fmt;

use serde_json::Value;

use crate::record::{FORMAT, Record};

/// Why a text holds no records.
#[derive(Debug)]
pub enum ReadError {
    /// The text is not JSON, or not all of it is there.
    NotJson(serde_json::Error),
    /// It is JSON, but a field is missing or of another type; the error says which and where.
    NotARecord(serde_json::Error),
    /// A record says that it is of a format other than [`FORMAT`].
    UnknownFormat(u64),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(fault) => write!(f, "not JSON: {fault}"),
            Self::NotARecord(fault) => write!(f, "not a record of a run: {fault}"),
            Self::UnknownFormat(format) => write!(
                f,
                "a record of format {format}; this program knows only format {FORMAT}"
            ),
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotJson(fault) | Self::NotARecord(fault) => Some(fault),
            Self::UnknownFormat(_) => None,
        }
    }
}

impl Record {
    /// The record as JSON in one line, since most of it is buckets. A figure that is not finite becomes null, and such a text is refused
    /// when it is read.
    #[must_use]
    pub fn to_json(&self) -> String {
        line(self)
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// The text is not JSON, not one record, or of an unknown format.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        check_format(&parse(text)?)?;
        serde_json::from_str(text).map_err(ReadError::NotARecord)
    }
}

/// Several records as JSON, a line each: an array, also of a single one.
#[must_use]
pub fn records_to_json(records: &[Record]) -> String {
    let lines: Vec<String> = records.iter().map(line).collect();
    format!("[\n{}\n]", lines.join(",\n"))
}

/// Reads one record or an array of them.
///
/// # Errors
/// The text is not JSON, or one of its records is not a record or of an unknown format.
pub fn records_from_json(text: &str) -> Result<Vec<Record>, ReadError> {
    match parse(text)? {
        Value::Array(items) => {
            items.iter().try_for_each(check_format)?;
            serde_json::from_str(text).map_err(ReadError::NotARecord)
        }
        _ => Record::from_json(text).map(|record| vec![record]),
    }
}

fn parse(text: &str) -> Result<Value, ReadError> {
    serde_json::from_str(text).map_err(ReadError::NotJson)
}

/// Looks at the number first: of another format, a missing field would only mislead. What has no number
/// passes; the typed reading names it.
fn check_format(value: &Value) -> Result<(), ReadError> {
    match value.get("format").and_then(Value::as_u64) {
        Some(format) if format != u64::from(FORMAT) => Err(ReadError::UnknownFormat(format)),
        _ => Ok(()),
    }
}

fn line(record: &Record) -> String {
    serde_json::to_string(record).expect("a record has no maps with keys that are not strings")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for record in fixture::suite() {
            let read = Record::from_json(&record.to_json()).unwrap();
            assert!(read == record, "{}", record.scenario);
        }
    }

    #[test]
    fn a_record_from_before_there_were_shards_is_read() {
        let record = fixture::splitting("HeraldMQ 0.1");
        assert!(Record::from_json(&record.to_json()).unwrap() == record);
        let old = fixture::pairs("HeraldMQ 0.1", 1.0);
        let text = old.to_json();
        assert!(!text.contains("shards"));
        assert!(Record::from_json(&text).unwrap() == old);
    }

    #[test]
    fn one_record_and_an_array_are_both_read() {
        let suite = fixture::suite();
        assert!(records_from_json(&records_to_json(&suite)).unwrap() == suite);
        let single = suite[0].to_json();
        assert!(records_from_json(&single).unwrap() == suite[..1]);
        assert!(records_from_json("[]").unwrap().is_empty());
    }

    #[test]
    fn what_is_cut_off_is_not_json() {
        let mut text = fixture::empty().to_json();
        text.pop();
        assert!(matches!(
            Record::from_json(&text),
            Err(ReadError::NotJson(_))
        ));
    }

    #[test]
    fn a_missing_field_is_named() {
        for text in ["{}", "[{}]", "7"] {
            let fault = records_from_json(text).unwrap_err();
            assert!(matches!(fault, ReadError::NotARecord(_)), "{text}: {fault}");
        }
        let text = fixture::empty()
            .to_json()
            .replace("\"scenario\"", "\"scenery\"");
        let fault = Record::from_json(&text).unwrap_err().to_string();
        assert!(fault.contains("missing field `scenario`"), "{fault}");
        assert!(fault.contains("line"), "{fault}");
    }

    #[test]
    fn another_format_is_told_before_anything_else() {
        for text in [r#"{"format": 2}"#, r#"[{"format": 2}]"#] {
            let fault = records_from_json(text).unwrap_err();
            assert!(matches!(fault, ReadError::UnknownFormat(2)), "{fault}");
        }
        assert!(Record::from_json(r#"{"format": 2}"#).is_err());
    }
}
