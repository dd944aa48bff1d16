//! Reads values of requests, and says of one that cannot be used where it stands, what it is, and what is accepted.
//!
//! Invariant: a problem has the words of this file or of the type that was read, never those of a library.

use std::fmt::{self, Display};

use serde::Deserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Expected, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use crate::problem::{Kind, Problem};

/// What fields accept of which the type says less.
const FIELDS: [(&str, &str); 4] = [
    ("qos", "0, 1 or 2"),
    ("retain_handling", "0, 1 or 2"),
    ("limit", "a whole number from 1 to 500"),
    ("identifier", "a whole number from 1 to 268435455"),
];

/// Fields of which no problem shows the value, or what is in it.
const SECRETS: [&str; 5] = ["password", "hash", "hashes", "secret", "secrets"];

/// Reads a JSON body.
pub(super) fn body<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    let error = match serde_json::from_slice(text) {
        Ok(body) => return Ok(body),
        Err(error) => error,
    };
    // The error has the words of a library: the body is read again with errors of this file.
    let wrong = |detail: String| Problem::new(Kind::InvalidBody, detail);
    if text.trim_ascii().is_empty() {
        let detail = "the body is empty; JSON is expected";
        return Err(wrong(detail.to_owned()).with("accepted", "JSON"));
    }
    let value = match serde_json::from_slice::<Value>(text) {
        Ok(value) => value,
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            let detail = match error.is_eof() {
                true => format!("the body ends within JSON, at line {line}, column {column}"),
                false => format!("the body is no JSON from line {line}, column {column}, on"),
            };
            return Err(wrong(detail).with("accepted", "JSON"));
        }
    };
    match read::<T>(&value) {
        Err(refused) => Err(refused.of_body(&value, &accepted_if_missing::<T>)),
        // A tree has each field once.
        Ok(_) => {
            let (line, column) = (error.line(), error.column());
            let detail = format!("a field stands twice, at line {line}, column {column}");
            Err(wrong(detail).with("accepted", "each field once"))
        }
    }
}

/// Reads the parameters of a query.
pub(super) fn query<T: DeserializeOwned>(pairs: Vec<(String, String)>) -> Result<T, Problem> {
    let mut given = Map::new();
    for (name, text) in pairs {
        if given.contains_key(&name) {
            let why = format!("`{}` is given twice", shortened(&name));
            return Err(
                Problem::parameter(&shortened(&name), why).with("accepted", "each parameter once")
            );
        }
        given.insert(name, Value::String(text));
    }
    let given = Value::Object(given);
    read(&given).map_err(|refused| refused.of_query(&given, &accepted_if_missing::<T>))
}

/// A value as problems show it: all of a number, the beginning of a text, and of others what they are.
fn shown(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
        Value::String(text) => format!("`{}`", shortened(text)),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The first 64 characters of a text.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned() + "…",
        None => text.to_owned(),
    }
}

/// A parameter that is not accepted.
pub(super) fn wrong_parameter(name: &str, given: &str, accepted: &str) -> Problem {
    let given = shortened(given);
    let why = format!("`{name}` is `{given}`; it is to be {accepted}");
    let problem = Problem::parameter(name, why);
    problem.with("value", given).with("accepted", accepted)
}

/// A field of a body that is not accepted.
pub(super) fn wrong_field(pointer: &str, given: &Value, accepted: &str) -> Problem {
    let path = pointer.split('/').skip(1);
    let steps = path.map(|step| match step.parse() {
        Ok(index) => Step::Item(index),
        Err(_) => Step::Field(step.replace("~1", "/").replace("~0", "~")),
    });
    unusable(&steps.collect::<Vec<_>>(), Some(given), accepted)
}

/// An array of a body that is too long.
pub(super) fn too_many(pointer: &str, count: usize, most: usize) -> Problem {
    let name = pointer.trim_start_matches('/');
    let accepted = format!("at most {most}");
    let why = format!("`{name}` has {count} items; there are to be {accepted}");
    let problem = Problem::new(Kind::InvalidBody, why).with("pointer", pointer);
    problem.with("accepted", accepted)
}

fn unusable(path: &[Step], given: Option<&Value>, accepted: &str) -> Problem {
    let name = name(path);
    let is_secret = path
        .iter()
        .any(|step| matches!(step, Step::Field(field) if SECRETS.contains(&field.as_str())));
    let was = match given {
        None => "missing".to_owned(),
        Some(_) if is_secret => "of another type".to_owned(),
        Some(value) => shown(value),
    };
    let detail = format!("{name} is {was}; it is to be {accepted}");
    let problem = Problem::new(Kind::InvalidBody, detail).with("pointer", pointer(path));
    let problem = match given {
        Some(Value::String(text)) if !is_secret => problem.with("value", shortened(text)),
        Some(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) if !is_secret => {
            problem.with("value", value.clone())
        }
        _ => problem,
    };
    problem.with("accepted", accepted)
}

/// A step from a value to one in it.
#[derive(Clone, PartialEq, Debug)]
enum Step {
    Field(String),
    Item(usize),
}

/// As in sentences: `messages[0].topic`.
fn name(path: &[Step]) -> String {
    let mut name = String::new();
    for step in path {
        match step {
            Step::Field(field) if name.is_empty() => name.push_str(&shortened(field)),
            Step::Field(field) => name.extend([".", &shortened(field)]),
            Step::Item(index) => name.push_str(&format!("[{index}]")),
        }
    }
    match name.is_empty() {
        true => "the body".to_owned(),
        false => format!("`{name}`"),
    }
}

/// As RFC 6901 writes it.
fn pointer(path: &[Step]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Field(field) => shortened(field).replace('~', "~0").replace('/', "~1"),
        Step::Item(index) => index.to_string(),
    });
    steps.flat_map(|step| ["/".to_owned(), step]).collect()
}

/// Why a value cannot be used.
#[derive(Debug)]
enum Fault {
    /// It is of another type, or of no use. What is accepted.
    Unusable(String),
    /// It has no field of this name.
    Missing(&'static str),
    /// It has a field that is none.
    Unknown(String, &'static [&'static str]),
}

/// A value that cannot be used.
#[derive(Debug)]
struct Refused {
    /// From the value to the whole.
    path: Vec<Step>,
    fault: Fault,
}

impl Refused {
    fn unusable(accepted: impl Display) -> Self {
        Self::of(Fault::Unusable(accepted.to_string()))
    }

    fn of(fault: Fault) -> Self {
        Self {
            path: Vec::new(),
            fault,
        }
    }

    /// The same, seen from what the value stands in.
    fn within(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    fn path(&self) -> Vec<Step> {
        self.path.iter().rev().cloned().collect()
    }

    fn of_body(&self, whole: &Value, if_missing: &dyn Fn(&Value, &[Step]) -> String) -> Problem {
        let mut path = self.path();
        match &self.fault {
            Fault::Unusable(accepted) => unusable(&path, find(whole, &path), accepted),
            Fault::Missing(field) => {
                path.push(Step::Field((*field).to_owned()));
                unusable(&path, None, &if_missing(whole, &path))
            }
            Fault::Unknown(field, known) => {
                path.push(Step::Field(field.clone()));
                let known = words(known, "and");
                let detail = format!("{} is no field; the fields are {known}", name(&path));
                let problem = Problem::new(Kind::InvalidBody, detail);
                let problem = problem.with("pointer", pointer(&path));
                problem.with("accepted", known)
            }
        }
    }

    fn of_query(&self, whole: &Value, if_missing: &dyn Fn(&Value, &[Step]) -> String) -> Problem {
        match (&self.fault, self.path.first()) {
            (Fault::Unknown(parameter, known), _) => {
                let known = words(known, "and");
                let parameter = shortened(parameter);
                let why = format!("`{parameter}` is no parameter; the parameters are {known}");
                Problem::parameter(&parameter, why).with("accepted", known)
            }
            (Fault::Missing(parameter), _) => {
                let path = [Step::Field((*parameter).to_owned())];
                let accepted = if_missing(whole, &path);
                let why = format!("`{parameter}` is missing; it is to be {accepted}");
                Problem::parameter(parameter, why).with("accepted", accepted)
            }
            (Fault::Unusable(accepted), Some(Step::Field(parameter))) => {
                let given = find(whole, &self.path()).and_then(Value::as_str);
                wrong_parameter(parameter, given.unwrap_or_default(), accepted)
            }
            (Fault::Unusable(accepted), _) => {
                let why = format!("the parameters are to be {accepted}");
                Problem::new(Kind::InvalidParameter, why)
            }
        }
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be used", name(&self.path()))
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    /// `message`: what the type accepts, as its own error says.
    fn custom<T: Display>(message: T) -> Self {
        Self::unusable(message)
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::unusable(in_words(&expected.to_string()))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::unusable(in_words(&expected.to_string()))
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::unusable(in_words(&expected.to_string()))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::unusable(words(expected, "or"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::of(Fault::Unknown(field.to_owned(), expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::of(Fault::Missing(field))
    }
}

/// What a type accepts.
fn in_words(expected: &str) -> &str {
    match expected {
        "a boolean" => "true or false",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 on",
        "a sequence" => "an array",
        "a string" => "a string",
        _ => "an object",
    }
}

/// A list for a sentence.
fn words(all: &[&str], last: &str) -> String {
    match all {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

fn find<'a>(whole: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(whole, |value, step| match step {
        Step::Field(field) => value.get(field),
        Step::Item(index) => value.get(index),
    })
}

/// What a field accepts that is not there: what is said if it is `null`.
fn accepted_if_missing<T: DeserializeOwned>(whole: &Value, path: &[Step]) -> String {
    let mut whole = whole.clone();
    if let Some((Step::Field(field), parents)) = path.split_last() {
        let parent = parents
            .iter()
            .try_fold(&mut whole, |value, step| match step {
                Step::Field(field) => value.get_mut(field),
                Step::Item(index) => value.get_mut(index),
            });
        if let Some(Value::Object(parent)) = parent {
            parent.insert(field.clone(), Value::Null);
        }
    }
    match read::<T>(&whole) {
        Err(Refused {
            fault: Fault::Unusable(accepted),
            ..
        }) => accepted,
        _ => "given".to_owned(),
    }
}

fn read<T: DeserializeOwned>(whole: &Value) -> Result<T, Refused> {
    T::deserialize(Given(whole))
}

/// A value that is read.
struct Given<'a>(&'a Value);

impl<'de> Deserializer<'de> for Given<'de> {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(is) => visitor.visit_bool(*is),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (.., number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            Value::Object(fields) => visitor.visit_map(Fields {
                rest: fields.iter(),
                next: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        match self.0 {
            Value::Object(_) => self.deserialize_any(visitor),
            _ => Err(Refused::unusable("an object")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => Err(Refused::unusable(words(variants, "or"))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// The items of an array.
struct Items<'a>(std::iter::Enumerate<std::slice::Iter<'a, Value>>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refused> {
        let next = self.0.next().map(|(index, item)| {
            let read = seed.deserialize(Given(item));
            read.map_err(|refused| refused.within(Step::Item(index)))
        });
        next.transpose()
    }
}

/// The fields of an object.
struct Fields<'a> {
    rest: serde_json::map::Iter<'a>,
    next: Option<(&'a String, &'a Value)>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refused> {
        self.next = self.rest.next();
        let read = self
            .next
            .map(|(field, _)| seed.deserialize(field.as_str().into_deserializer()));
        read.transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        let (field, value) = self.next.expect("a value is read behind its name");
        seed.deserialize(Given(value)).map_err(|mut refused| {
            let known = FIELDS.iter().find(|(name, _)| name == field);
            if let (true, Some((_, accepted))) = (refused.path.is_empty(), known)
                && let Fault::Unusable(said) = &mut refused.fault
            {
                *said = (*accepted).to_owned();
            }
            refused.within(Step::Field(field.clone()))
        })
    }
}
