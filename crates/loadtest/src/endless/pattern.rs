//! Texts that differ from client to client: topics and user names with `%i`, `%c` and `%u`.

use serde::{Deserialize, Serialize};

/// What a variable stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Variable {
    /// `%i`: the number of the client.
    Number,
    /// `%c`: its client identifier.
    ClientId,
    /// `%u`: its user name, empty if it has none.
    Username,
}

/// Every variable with its spelling.
const VARIABLES: [(&str, Variable); 3] = [
    ("%i", Variable::Number),
    ("%c", Variable::ClientId),
    ("%u", Variable::Username),
];

/// Who a text is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) number: usize,
    pub(crate) client_id: &'a str,
    pub(crate) username: &'a str,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Segment {
    Text(String),
    Variable(Variable),
}

/// A text with variables. Whatever else follows a `%` stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pattern(Vec<Segment>);

impl Pattern {
    /// Reads a text; every text is a pattern.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let segment = |found: Result<Variable, &str>| match found {
            Ok(variable) => Segment::Variable(variable),
            Err(text) => Segment::Text(text.to_owned()),
        };
        let segments = split(text, &VARIABLES).into_iter();
        Self(segments.map(segment).collect())
    }

    /// Whether the text differs with this.
    #[must_use]
    pub fn has(&self, variable: Variable) -> bool {
        self.0.contains(&Segment::Variable(variable))
    }

    /// The text for one client.
    pub(crate) fn text(&self, identity: Identity<'_>) -> String {
        let mut text = String::new();
        for segment in &self.0 {
            match segment {
                Segment::Text(part) => text.push_str(part),
                Segment::Variable(variable) => variable.append(&mut text, identity),
            }
        }
        text
    }
}

impl Variable {
    pub(crate) fn append(self, text: &mut String, identity: Identity<'_>) {
        match self {
            Self::Number => text.push_str(&identity.number.to_string()),
            Self::ClientId => text.push_str(identity.client_id),
            Self::Username => text.push_str(identity.username),
        }
    }
}

/// A text in pieces: what a name of `names` stands for, or what is between two of them. Where several names match, the
/// first one counts.
pub(crate) fn split<'a, V: Copy>(text: &'a str, names: &[(&str, V)]) -> Vec<Result<V, &'a str>> {
    let mut pieces = Vec::new();
    let (mut plain, mut at) = (0, 0);
    while let Some(offset) = text[at..].find('%') {
        at += offset;
        let named = names.iter().find(|(name, _)| text[at..].starts_with(name));
        let Some(&(name, value)) = named else {
            at += 1;
            continue;
        };
        if plain < at {
            pieces.push(Err(&text[plain..at]));
        }
        pieces.push(Ok(value));
        at += name.len();
        plain = at;
    }
    if plain < text.len() {
        pieces.push(Err(&text[plain..]));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_other_percent_signs_stay() {
        let identity = Identity {
            number: 7,
            client_id: "c-7",
            username: "ann",
        };
        let text = |pattern| Pattern::parse(pattern).text(identity);
        assert_eq!(text("bench/%i"), "bench/7");
        assert_eq!(text("%u/%c/%i/%i"), "ann/c-7/7/7");
        assert_eq!(text("100%/%%i/%x%"), "100%/%7/%x%");
        assert_eq!(text("ä%iö"), "ä7ö");
        assert_eq!(text(""), "");
    }

    #[test]
    fn a_pattern_knows_what_it_depends_on() {
        let pattern = Pattern::parse("a/%u");
        assert!(pattern.has(Variable::Username));
        assert!(!pattern.has(Variable::Number));
    }
}
