//! Values of JSON, each with its place.
//!
//! Invariant: no error has a value in it; it could be a hash.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::ImportError;
use crate::imported::Imported;

/// Reads a text. Nesting is limited to 128 levels.
pub(super) fn parse(text: &str) -> Result<Value, ImportError> {
    serde_json::from_str(text).map_err(|error| {
        let column = error.column();
        ImportError::in_line(error.line(), format!("no JSON at column {column}"))
    })
}

/// An object. Names of its members are found in any case, as Mosquitto does.
pub(super) struct Object<'a> {
    pub(super) at: String,
    members: &'a Map<String, Value>,
    read: BTreeSet<&'a str>,
}

impl<'a> Object<'a> {
    pub(super) fn new(at: impl Into<String>, value: &'a Value) -> Result<Self, ImportError> {
        let at = at.into();
        match value {
            Value::Object(members) => Ok(Self {
                at,
                members,
                read: BTreeSet::new(),
            }),
            _ => Err(ImportError::new(at, "this is no object")),
        }
    }

    /// The place of a member.
    pub(super) fn place(&self, name: &str) -> String {
        match self.at.as_str() {
            "" => name.to_owned(),
            at => format!("{at}.{name}"),
        }
    }

    fn wrong(&self, name: &str, what: &str) -> ImportError {
        ImportError::new(self.place(name), what)
    }

    /// A member that is there and not null.
    pub(super) fn get(&mut self, name: &str) -> Option<&'a Value> {
        let mut members = self.members.iter();
        let (found, value) = members.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        self.read.insert(found);
        Some(value).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<&'a str>, ImportError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "this is no text")),
        }
    }

    /// A text that has to be there, and is not empty.
    pub(super) fn name(&mut self, name: &str) -> Result<&'a str, ImportError> {
        let text = self.text(name)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| self.wrong(name, "this is missing or empty"))
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, ImportError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.wrong(name, "this is neither true nor false")),
        }
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<i64>, ImportError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(name, "this is no whole number")),
            },
        }
    }

    /// The objects of a list; none if it is not there.
    pub(super) fn objects(&mut self, name: &str) -> Result<Vec<Object<'a>>, ImportError> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => {
                let place = self.place(name);
                let values = (0..).zip(values);
                values
                    .map(|(n, value): (usize, _)| Object::new(format!("{place}[{n}]"), value))
                    .collect()
            }
            Some(_) => Err(self.wrong(name, "this is no list")),
        }
    }

    /// Says of each member that nobody has asked for that it is left out.
    pub(super) fn rest(self, imported: &mut Imported) {
        for name in self.members.keys() {
            if !self.read.contains(name.as_str()) {
                imported.leave_out(self.place(name), "the member is not known to this version");
            }
        }
    }
}
