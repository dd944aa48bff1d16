//! Options that take names with values: as a YAML map, or as `name=value` separated by commas.

use crate::{
    declare::Spec,
    node::Value,
    setting::{Setting, put, text_ok},
};

/// Names with values, in the order written; each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(Vec<(String, String)>);

impl Attributes {
    /// Name and value of each, in the order written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// `None`: a name is empty or there twice, or a name or value holds a comma, an equals sign or control characters.
    fn new(pairs: impl Iterator<Item = Option<(String, String)>>) -> Option<Self> {
        let pairs: Vec<_> = pairs.collect::<Option<_>>()?;
        let is_text = |text: &str| !text.is_empty() && !text.contains([',', '=']) && text_ok(text);
        let mut names: Vec<&str> = pairs.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        let are_distinct = names.windows(2).all(|pair| pair.first() != pair.last());
        let are_texts = pairs
            .iter()
            .all(|(name, value)| is_text(name) && is_text(value));
        (are_distinct && are_texts).then_some(Self(pairs))
    }
}

impl Setting for Attributes {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        let parsed = match text.trim() {
            "" => Some(Self::default()),
            listed => Self::new(listed.split(',').map(|pair| {
                let (name, value) = pair.split_once('=')?;
                Some((name.trim().to_owned(), value.trim().to_owned()))
            })),
        };
        put(self, parsed)
    }
    fn show(&self, _: &Spec) -> Option<String> {
        let shown: Vec<String> = self
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        (!shown.is_empty()).then(|| shown.join(","))
    }
    fn expected(&self, _: &Spec) -> String {
        "a map of names and values without commas and equals signs, or name=value separated by commas".to_owned()
    }
    fn read(&mut self, value: &Value, spec: &Spec) -> bool {
        match value {
            Value::Scalar(text) => self.take(text, spec),
            Value::Map(pairs) => put(
                self,
                Self::new(pairs.iter().map(|pair| match &pair.node.value {
                    Value::Scalar(text) => Some((pair.key.clone(), text.trim().to_owned())),
                    Value::Null | Value::List(_) | Value::Map(_) => None,
                })),
            ),
            Value::Null | Value::List(_) => false,
        }
    }
}
