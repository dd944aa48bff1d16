//! Options that take several values: separated by commas, or as a YAML list.

use std::fmt;

use crate::{
    declare::Spec,
    node::Value,
    setting::{Setting, put, text_ok},
};

/// One of the values.
pub(crate) trait Item: Sized + fmt::Display {
    /// What is allowed, as in "expected …".
    const EXPECTED: &str;

    /// `None`: the text is no value.
    fn parse(text: &str) -> Option<Self>;
}

/// Values in the order written, separated by commas or as a YAML list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T>(Vec<T>);

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Listed<T> {
    /// In the order written.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> From<Vec<T>> for Listed<T> {
    fn from(values: Vec<T>) -> Self {
        Self(values)
    }
}

impl<T: Item> Setting for Listed<T> {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        let parsed = match text.trim() {
            "" => Some(Vec::new()),
            listed => listed
                .split(',')
                .map(|item| T::parse(item.trim()))
                .collect(),
        };
        put(self, parsed.map(Self))
    }
    fn show(&self, _: &Spec) -> Option<String> {
        let shown: Vec<String> = self.0.iter().map(T::to_string).collect();
        (!shown.is_empty()).then(|| shown.join(","))
    }
    fn expected(&self, _: &Spec) -> String {
        T::EXPECTED.to_owned()
    }
    fn read(&mut self, value: &Value, spec: &Spec) -> bool {
        let parsed = match value {
            Value::Scalar(text) => return self.take(text, spec),
            Value::List(items) => items
                .iter()
                .map(|item| match &item.value {
                    Value::Scalar(text) => T::parse(text.trim()),
                    Value::Null | Value::List(_) | Value::Map(_) => None,
                })
                .collect(),
            Value::Null | Value::Map(_) => None,
        };
        put(self, parsed.map(Self))
    }
}

/// A word or name: no comma, no control characters.
impl Item for String {
    const EXPECTED: &str = "a word, or several separated by commas or as a list";

    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty() && !text.contains(',') && text_ok(text)).then(|| text.to_owned())
    }
}
