//! JSON as `mosquitto_sub` prints it: members in the order in which they came, doubled ones too, numbers in their shortest form.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value of a text in JSON, or of a message.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Whole(i128),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a text. `None`: it is no JSON, or is nested more than 127 deep.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Text of bytes; what is not UTF-8 in it is replaced by U+FFFD.
    pub(super) fn text(bytes: &[u8]) -> Self {
        Self::Text(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Appends it on one line.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        Writer { out, depth: None }.value(self);
    }

    /// Appends it with a line for each member of an object.
    pub(super) fn append_pretty(&self, out: &mut Vec<u8>) {
        let depth = Some(0);
        Writer { out, depth }.value(self);
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reading)
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Whole(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Whole(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(member) = members.next_entry()? {
            object.push(member);
        }
        Ok(Json::Object(object))
    }
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Objects and lists around; `None`: all is one line.
    depth: Option<usize>,
}

impl Writer<'_> {
    fn value(&mut self, value: &Json) {
        match value {
            Json::Null => self.put("null"),
            Json::Bool(true) => self.put("true"),
            Json::Bool(false) => self.put("false"),
            Json::Whole(number) => self.put(&number.to_string()),
            Json::Number(number) => self.put(&shortest(*number)),
            Json::Text(text) => self.text(text),
            Json::List(items) => {
                self.put("[");
                self.depth = self.depth.map(|depth| depth + 1);
                for (number, item) in items.iter().enumerate() {
                    if number > 0 {
                        self.put(if self.depth.is_some() { ", " } else { "," });
                    }
                    self.value(item);
                }
                self.depth = self.depth.map(|depth| depth - 1);
                self.put("]");
            }
            Json::Object(members) => self.object(members),
        }
    }

    fn object(&mut self, members: &[(String, Json)]) {
        self.put("{");
        self.depth = self.depth.map(|depth| depth + 1);
        if self.depth.is_some() {
            self.put("\n");
        }
        for (number, (name, value)) in members.iter().enumerate() {
            self.tabs();
            self.text(name);
            self.put(if self.depth.is_some() { ":\t" } else { ":" });
            self.value(value);
            if number + 1 < members.len() {
                self.put(",");
            }
            if self.depth.is_some() {
                self.put("\n");
            }
        }
        self.depth = self.depth.map(|depth| depth - 1);
        self.tabs();
        self.put("}");
    }

    fn tabs(&mut self) {
        let depth = self.depth.unwrap_or_default();
        self.out.extend(std::iter::repeat_n(b'\t', depth));
    }

    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn text(&mut self, text: &str) {
        serde_json::to_writer(&mut *self.out, text).expect("memory takes any text");
    }
}

/// A number with 15 significant digits, or with 17 where 15 would be another number, without zeros at its end (`%.15g` of C).
fn shortest(number: f64) -> String {
    if !number.is_finite() {
        return "null".to_owned();
    }
    let short = general(number, 15);
    match short.parse() == Ok(number) {
        true => short,
        false => general(number, 17),
    }
}

/// `%.*g` of C.
fn general(number: f64, digits: usize) -> String {
    let scientific = format!("{:.*e}", digits - 1, number);
    let (mantissa, exponent) = scientific.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let places = i32::try_from(digits).unwrap_or(i32::MAX);
    if (-4..places).contains(&exponent) {
        let behind = usize::try_from(places - 1 - exponent).unwrap_or_default();
        return without_zeros(&format!("{number:.behind$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let mantissa = without_zeros(mantissa);
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> String {
        let mut out = Vec::new();
        Json::parse(text.as_bytes()).unwrap().append(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_read_is_printed_on_one_line_in_its_order() {
        for (text, expected) in [
            (
                " { \"b\" : [ 1 , 2.50 ] , \"a\" : {} } ",
                r#"{"b":[1,2.5],"a":{}}"#,
            ),
            // Members that are doubled are kept.
            (r#"{"a":1,"a":null}"#, r#"{"a":1,"a":null}"#),
            (r#""\u0041\/\u00e4\n\u0001\"""#, "\"A/ä\\n\\u0001\\\"\""),
            ("[true, false, null]", "[true,false,null]"),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("-0.5", "-0.5"),
            ("0.1", "0.1"),
            ("0.30000000000000004", "0.30000000000000004"),
            ("1e-7", "1e-07"),
            ("1e21", "1e+21"),
            ("123456789012345678", "123456789012345678"),
        ] {
            assert_eq!(printed(text), expected, "{text}");
        }
        let deep = "[".repeat(200) + "]".repeat(200).as_str();
        for wrong in ["", "{", "plain", "1 2", "[1,]", deep.as_str()] {
            assert_eq!(Json::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn pretty_json_has_a_line_for_each_member() {
        let json = Json::parse(br#"{"a":{"b":[1,{"c":2}]},"d":{}}"#).unwrap();
        let mut out = Vec::new();
        json.append_pretty(&mut out);
        let expected = "{\n\t\"a\":\t{\n\t\t\"b\":\t[1, {\n\t\t\t\t\"c\":\t2\n\t\t\t}]\n\t},\n\t\"d\":\t{\n\t}\n}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
