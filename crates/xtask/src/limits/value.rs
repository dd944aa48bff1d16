//! What constants come to: numbers, sizes and times, as people write them.
//!
//! Deliberately absent: types, and names of other crates' constants in expressions; such an expression is shown as it is.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::source::{Crate, SourceFile};

/// The constants of all crates, without those of tests.
pub(super) struct Constants<'a> {
    all: BTreeMap<&'a str, Vec<Constant<'a>>>,
}

/// How often constants may name each other on the way to a number.
const DEEPEST: u8 = 8;

#[derive(Clone)]
struct Constant<'a> {
    name: &'a str,
    path: &'a str,
    kind: String,
    /// The tokens of its value.
    value: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Count,
    Bytes,
    Microseconds,
}

impl<'a> Constants<'a> {
    pub(super) fn of(crates: &'a [Crate]) -> Self {
        let mut all: BTreeMap<&str, Vec<Constant<'_>>> = BTreeMap::new();
        for file in crates.iter().flat_map(|member| &member.source) {
            for index in file.code() {
                if file.at(index) == "const" && file.at(index + 2) == ":" {
                    let constant = constant(index, file);
                    all.entry(constant.name).or_default().push(constant);
                }
            }
        }
        Self { all }
    }

    /// The value of a placeholder. `below`: the constant below the mark.
    ///
    /// # Errors
    /// There is no such constant, or several; a size is no number.
    pub(super) fn show(
        &self,
        placeholder: &str,
        path: &str,
        below: Option<&str>,
    ) -> Result<String, String> {
        let (name, is_size) = match placeholder.strip_suffix(":bytes") {
            Some(name) => (name, true),
            None => (placeholder, false),
        };
        let (name, part) = match name.rsplit_once('.') {
            Some((name, part)) => (name, part.parse::<usize>().ok()),
            None => (name, None),
        };
        let name = if name.is_empty() {
            below.ok_or("no constant is declared below the mark")?
        } else {
            name
        };
        let constant = &match part {
            Some(part) => self.find(name, path)?.part(part)?,
            None => self.find(name, path)?.clone(),
        };
        let unit = if is_size {
            Unit::Bytes
        } else {
            constant.unit()
        };
        match self.number(constant) {
            Some(number) => Ok(shown(number, unit)),
            None if is_size => Err(format!("`{name}` is no number")),
            None => Ok(format!("`{}`", constant.value.join(" "))),
        }
    }

    fn find(&self, name: &str, path: &str) -> Result<&Constant<'a>, String> {
        let (parts, last) = name.rsplit_once("::").unwrap_or(("", name));
        let named = self.all.get(last).map_or(&[][..], Vec::as_slice);
        let parts: Vec<&str> = parts
            .split("::")
            .filter(|part| !matches!(*part, "" | "super" | "crate" | "self"))
            .collect();
        let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<&Constant<'a>> {
            named
                .iter()
                .filter(|constant| wanted(constant.path))
                .collect()
        };
        let member = path.split("/src/").next().unwrap_or(path);
        let found = if parts.is_empty() {
            let here = of(&|other| other == path);
            if here.is_empty() {
                of(&|other| other.split("/src/").next() == Some(member))
            } else {
                here
            }
        } else {
            of(&|other| {
                let folders: Vec<&str> = other.trim_end_matches(".rs").split('/').collect();
                parts.iter().all(|part| folders.contains(part))
            })
        };
        match found.as_slice() {
            [only] => Ok(only),
            [] => Err(format!("there is no constant `{name}`")),
            _ => Err(format!(
                "there are several constants `{name}`: name a folder or file of its path, as in `{{part::{last}}}`"
            )),
        }
    }

    /// In microseconds if it is a time.
    fn number(&self, constant: &Constant<'a>) -> Option<u64> {
        self.evaluated(constant, DEEPEST)
    }

    fn evaluated(&self, constant: &Constant<'a>, depth: u8) -> Option<u64> {
        let mut expression = Expression {
            constants: self,
            path: constant.path,
            tokens: &constant.value,
            depth: depth.checked_sub(1)?,
        };
        let number = expression.shifts()?;
        if !expression.tokens.is_empty() {
            return None;
        }
        match constant.unit() {
            Unit::Microseconds if constant.name.ends_with("_MS") => number.checked_mul(1_000),
            Unit::Microseconds if constant.name.ends_with("_S") => number.checked_mul(1_000_000),
            _ => Some(number),
        }
    }
}

impl Constant<'_> {
    /// One part of a tuple, from 0. Its unit is that of the tuple's name.
    fn part(&self, part: usize) -> Result<Self, String> {
        let inner = self
            .value
            .strip_prefix(&["("])
            .and_then(|rest| rest.strip_suffix(&[")"]));
        let value = inner
            .and_then(|tokens| tokens.split(|token| *token == ",").nth(part))
            .ok_or_else(|| format!("`{}` has no part {part}", self.name))?;
        Ok(Self {
            value: value.to_vec(),
            kind: String::new(),
            ..self.clone()
        })
    }

    fn unit(&self) -> Unit {
        let is_time = ["_MS", "_US", "_S"]
            .iter()
            .any(|ending| self.name.ends_with(ending));
        if is_time || self.kind == "Duration" {
            Unit::Microseconds
        } else if self.name.contains("BYTES") || self.kind.ends_with("Bytes") {
            Unit::Bytes
        } else {
            Unit::Count
        }
    }
}

/// The constant whose `const` has this index.
fn constant(index: usize, file: &SourceFile) -> Constant<'_> {
    let behind = |from: usize, end: &'static str| {
        (from..file.tokens.len()).take_while(move |index| file.at(*index) != end)
    };
    let equals = index + 3 + behind(index + 3, "=").count();
    Constant {
        name: file.at(index + 1),
        path: &file.path,
        kind: behind(index + 3, "=").map(|index| file.at(index)).collect(),
        value: behind(equals + 1, ";")
            .map(|index| file.at(index))
            .collect(),
    }
}

/// A value that is read from its tokens; `None`: it is not one that this knows.
struct Expression<'a, 'b> {
    constants: &'b Constants<'a>,
    path: &'b str,
    tokens: &'b [&'a str],
    depth: u8,
}

impl<'a> Expression<'a, '_> {
    fn take(&mut self, wanted: &[&'a str]) -> bool {
        match self.tokens.strip_prefix(wanted) {
            Some(rest) => {
                self.tokens = rest;
                true
            }
            None => false,
        }
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn shifts(&mut self) -> Option<u64> {
        let mut left = self.sum()?;
        while self.take(&["<", "<"]) {
            left = left.checked_mul(2_u64.checked_pow(u32::try_from(self.sum()?).ok()?)?)?;
        }
        Some(left)
    }

    fn sum(&mut self) -> Option<u64> {
        let mut left = self.product()?;
        loop {
            if self.take(&["+"]) {
                left = left.checked_add(self.product()?)?;
            } else if self.take(&["-"]) {
                left = left.checked_sub(self.product()?)?;
            } else {
                return Some(left);
            }
        }
    }

    fn product(&mut self) -> Option<u64> {
        let mut left = self.operand()?;
        loop {
            if self.take(&["*"]) {
                left = left.checked_mul(self.operand()?)?;
            } else if self.take(&["/"]) {
                left = left.checked_div(self.operand()?)?;
            } else {
                return Some(left);
            }
        }
    }

    fn operand(&mut self) -> Option<u64> {
        // What tests have is another limit.
        if self.take(&["if", "cfg", "!", "(", "test", ")", "{"]) {
            while self.next()? != "}" {}
            return self
                .take(&["else", "{"])
                .then(|| self.shifts())
                .flatten()
                .filter(|_| self.take(&["}"]));
        }
        if self.take(&["("]) {
            return self.shifts().filter(|_| self.take(&[")"]));
        }
        let mut name = self.next()?;
        if name.starts_with(|digit: char| digit.is_ascii_digit()) {
            return name.replace('_', "").parse().ok();
        }
        let mut full = name.to_owned();
        while self.take(&["::"]) {
            name = self.next()?;
            full = format!("{full}::{name}");
        }
        if !self.take(&["("]) {
            let constant = self.constants.find(&full, self.path).ok()?;
            return self.constants.evaluated(constant, self.depth);
        }
        let inner = self.shifts().filter(|_| self.take(&[")"]))?;
        if self.take(&[".", "expect", "("]) {
            while self.next()? != ")" {}
        }
        match full.as_str() {
            "Duration::from_secs" => inner.checked_mul(1_000_000),
            "Duration::from_millis" => inner.checked_mul(1_000),
            "Duration::from_micros" | "NonZero::new" => Some(inner),
            // A type around a number.
            _ if name.starts_with(char::is_uppercase) => Some(inner),
            _ => None,
        }
    }
}

/// A number as people write it.
fn shown(number: u64, unit: Unit) -> String {
    let of = |parts: &[(u64, &str)]| {
        parts
            .iter()
            .find(|(size, _)| number >= *size && number.is_multiple_of(*size))
            .map(|(size, name)| format!("{} {name}", grouped(number / size)))
    };
    match unit {
        Unit::Count => grouped(number),
        Unit::Bytes => of(&[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")])
            .unwrap_or_else(|| format!("{} bytes", grouped(number))),
        Unit::Microseconds => of(&[(86_400_000_000, "d"), (3_600_000_000, "h")])
            .filter(|_| number > 3_600_000_000)
            .or_else(|| of(&[(60_000_000, "min")]).filter(|_| number > 60_000_000))
            .or_else(|| of(&[(1_000_000, "s")]))
            .unwrap_or_else(|| match number {
                1_000_000.. if number.is_multiple_of(100_000) => {
                    format!("{}.{} s", number / 1_000_000, number % 1_000_000 / 100_000)
                }
                _ if number.is_multiple_of(1_000) => format!("{} ms", grouped(number / 1_000)),
                _ => format!("{} µs", grouped(number)),
            }),
    }
}

/// With a comma between thousands, from 1,000 on.
fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    fn check(text: &str, placeholder: &str, expect: &str) {
        let crates = [member(&[
            ("lib.rs", text),
            ("b/c.rs", "const MOST: usize = 1;"),
            ("d.rs", "const MOST: usize = 2;"),
        ])];
        let shown = Constants::of(&crates).show(placeholder, "crates/a/src/lib.rs", Some("A"));
        assert_eq!(shown.as_deref(), Ok(expect), "{text}");
    }

    #[test]
    fn values_are_written_for_people() {
        for (text, placeholder, expect) in [
            ("const A: usize = 16_384;", "", "16,384"),
            ("const A: usize = 999;", "", "999"),
            ("const A: usize = 16 << 20;", ":bytes", "16 MiB"),
            (
                "const A: usize = (32 << 20) - 64 * 1024;",
                ":bytes",
                "32,704 KiB",
            ),
            ("const A_BYTES: u64 = 107;", "A_BYTES", "107 bytes"),
            (
                "const A: Duration = Duration::from_millis(500);",
                "",
                "500 ms",
            ),
            ("const A: Duration = Duration::from_secs(1);", "", "1 s"),
            (
                "const A: Duration = Duration::from_secs(30 * 60);",
                "",
                "30 min",
            ),
            (
                "const A: Duration = Duration::from_secs(24 * 3_600);",
                "",
                "1 d",
            ),
            ("const A_MS: u64 = 1_500;", "A_MS", "1.5 s"),
            (
                "const A: Duration = Duration::from_micros(400);",
                "",
                "400 µs",
            ),
            (
                "const A: NonZero<usize> = NonZero::new(256).expect(\"more\");",
                "",
                "256",
            ),
            (
                "const A: usize = if cfg!(test) { 2 } else { 1_024 };",
                "",
                "1,024",
            ),
            (
                "const A: usize = 2 * B; const B: usize = c::MOST + 3;",
                "",
                "8",
            ),
            (
                "const A: usize = size_of::<B>();",
                "",
                "`size_of :: < B > ( )`",
            ),
            ("const A: usize = A;", "", "`A`"),
            (
                "const A: (usize, usize) = (64, 256 * 1024);",
                ".1:bytes",
                "256 KiB",
            ),
            ("", "d::MOST", "2"),
        ] {
            check(text, placeholder, expect);
        }
    }

    #[test]
    fn a_name_that_is_not_one_constant_is_an_error() {
        let crates = [member(&[
            ("b/c.rs", "const MOST: usize = 1;"),
            (
                "d.rs",
                "const MOST: usize = 2;\n#[cfg(test)]\nconst A: u8 = 1;",
            ),
        ])];
        let constants = Constants::of(&crates);
        for name in ["MOST", "A", "e::MOST", ""] {
            let shown = constants.show(name, "crates/a/src/lib.rs", None);
            assert!(shown.is_err(), "{name}");
        }
    }
}
