//! YAML text to a tree that knows on which line each value stands.
//!
//! Invariant: a scalar keeps the characters the operator wrote; what they mean is decided by the
//! type of the option that takes them. So `level: off` is the text `off`, and `12.50` is not
//! silently turned into another number, whether it comes from a file or from the environment.
//!
//! Hostile input meets limits here: size, depth, number of nodes, and replayed anchors.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Localizer, Location, RenderOptions, Spanned, UserMessageFormatter};

/// A value and the line (from 1) it stands on; line 0 if it does not come from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) line: u64,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Pair>),
}

/// One key of a map with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) line: u64,
    pub(crate) node: Node,
}

/// Why a text is not a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotYaml {
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// Reads one YAML (or JSON) document. No document at all is [`Value::Null`].
pub(crate) fn parse(source: &str) -> Result<Node, NotYaml> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            flow_nesting_limit: 32,
            max_nodes: 50_000,
            max_events: 200_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_recorded_anchor_events: 50_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 50_000,
            max_replay_stack_depth: 8,
        },
        with_snippet: false,
        // Otherwise a file with a hundred lines of comments in a row would be refused.
        emit_comments: false,
        // Otherwise `.inf` would be refused before the option's own type can say what it expects.
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::AsString,
    };
    match serde_saphyr::from_str_with_options::<Option<Spanned<Raw>>>(source, options) {
        Ok(Some(root)) => Ok(node(root, source)),
        Ok(None) => Ok(Node {
            line: 0,
            value: Value::Null,
        }),
        Err(error) => Err(NotYaml {
            line: error.location().map_or(0, |location| location.line()),
            reason: one_line(&error),
        }),
    }
}

/// The value given by an environment variable or on the command line: a scalar, always. Quotes
/// around it are taken off as YAML does; anything else is taken as it stands, so that `::` and
/// `[::1]:8899` need no quoting.
pub(crate) fn scalar(text: &str) -> Value {
    if matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Value::Null;
    }
    if text.starts_with(['"', '\''])
        && let Ok(Node {
            value: Value::Scalar(unquoted),
            ..
        }) = parse(text)
    {
        return Value::Scalar(unquoted);
    }
    Value::Scalar(text.to_owned())
}

impl Value {
    /// What stands here, for the second half of "expected …, found …".
    pub(crate) fn found(&self) -> String {
        const SHOWN: usize = 60;
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Scalar(text) if text.chars().count() > SHOWN => {
                format!("{:?}…", text.chars().take(SHOWN).collect::<String>())
            }
            Self::Scalar(text) => format!("{text:?}"),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

/// What serde hands over, before the source text of typed scalars is looked up.
enum Raw {
    Null,
    Text(String),
    /// A plain scalar that the library took for a boolean or a number.
    Typed(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

fn node(raw: Spanned<Raw>, source: &str) -> Node {
    let line = raw.referenced.line();
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Text(text) => Value::Scalar(text),
        Raw::Typed(text) => Value::Scalar(written(raw.defined, source).unwrap_or(text)),
        Raw::List(items) => Value::List(items.into_iter().map(|item| node(item, source)).collect()),
        Raw::Map(pairs) => Value::Map(
            pairs
                .into_iter()
                .map(|(key, value)| Pair {
                    line: key.referenced.line(),
                    key: key.value,
                    node: node(value, source),
                })
                .collect(),
        ),
    };
    Node { line, value }
}

/// The characters of the source at `location`, if the library knows where they are.
fn written(location: Location, source: &str) -> Option<String> {
    let start = usize::try_from(location.span().byte_offset()?).ok()?;
    let length = usize::try_from(location.span().byte_len()?).ok()?;
    let text = source.get(start..start.checked_add(length)?)?.trim();
    // A tag such as `!!int` belongs to the span but not to the value.
    (!text.is_empty() && !text.starts_with('!')).then(|| text.to_owned())
}

/// The library's words without position (it is printed in front) and on one line.
fn one_line(error: &serde_saphyr::Error) -> String {
    struct WithoutPosition;
    impl Localizer for WithoutPosition {
        fn attach_location<'a>(
            &self,
            base: std::borrow::Cow<'a, str>,
            _: Location,
        ) -> std::borrow::Cow<'a, str> {
            base
        }
    }
    let formatter = UserMessageFormatter.with_localizer(&WithoutPosition);
    let text = error.render_with_options(RenderOptions::new(&formatter));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a YAML value")
            }
            fn visit_unit<E>(self) -> Result<Raw, E> {
                Ok(Raw::Null)
            }
            fn visit_none<E>(self) -> Result<Raw, E> {
                Ok(Raw::Null)
            }
            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Raw, D::Error> {
                Raw::deserialize(inner)
            }
            fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
                Ok(Raw::Text(text.to_owned()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
                Ok(Raw::Typed(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
                Ok(Raw::Typed(value.to_string()))
            }
            fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
                Ok(Raw::Typed(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
                Ok(Raw::Typed(value.to_string()))
            }
            fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
                Ok(Raw::Typed(value.to_string()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
                Ok(Raw::Typed(value.to_string()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Raw::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Raw, A::Error> {
                let mut map = Vec::new();
                while let Some(pair) = pairs.next_entry()? {
                    map.push(pair);
                }
                Ok(Raw::Map(map))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
