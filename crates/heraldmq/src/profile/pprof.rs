//! A profile in the format of pprof (github.com/google/pprof, `proto/profile.proto`), with the fields that are used.
//!
//! Identifiers and addresses are `uint64` there. As `int64` they have the same bytes while they are below 2^63.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::stacks::NamedStack;
use super::symbols::Named;

/// What the samples are counted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sampled {
    /// Samples for each second of CPU time.
    pub(super) hertz: i64,
    /// How long was sampled, in ns.
    pub(super) lasted_ns: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

/// Indices of strings.
#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost first.
    #[prost(int64, repeated, tag = "1")]
    location_id: Vec<i64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

/// Indices of strings.
#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(int64, tag = "1")]
    function_id: i64,
    #[prost(int64, tag = "2")]
    line: i64,
}

/// Strings by their indices.
#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Writes it, compressed by gzip.
///
/// # Errors
/// `to` takes nothing.
pub(super) fn write(
    stacks: &[NamedStack],
    sampled: Sampled,
    to: impl Write,
) -> std::io::Result<()> {
    let mut to = GzEncoder::new(to, Compression::default());
    to.write_all(&profile(stacks, sampled).encode_to_vec())?;
    to.finish()?.flush()
}

fn profile(stacks: &[NamedStack], sampled: Sampled) -> Profile {
    let mut tables = Tables::default();
    // The first string is empty.
    tables.string("");
    let samples = ValueType {
        kind: tables.string("samples"),
        unit: tables.string("count"),
    };
    let cpu = ValueType {
        kind: tables.string("cpu"),
        unit: tables.string("nanoseconds"),
    };
    let key = tables.string("thread");
    let period = 1_000_000_000 / sampled.hertz.max(1);
    let sample = stacks.iter().map(|stack| Sample {
        location_id: stack.functions.iter().map(|f| tables.location(f)).collect(),
        value: vec![stack.count, stack.count.saturating_mul(period)],
        label: vec![Label {
            key,
            str: tables.string(&stack.thread),
        }],
    });
    let sample = sample.collect();
    Profile {
        sample_type: vec![samples, cpu],
        sample,
        location: tables.location,
        function: tables.function,
        string_table: tables.strings,
        duration_nanos: sampled.lasted_ns,
        period_type: Some(cpu),
        period,
    }
}

/// Numbers of what stands in the profile once.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    string_ids: HashMap<String, i64>,
    function: Vec<Function>,
    function_ids: HashMap<(String, String), i64>,
    location: Vec<Location>,
    location_ids: HashMap<Named, i64>,
}

impl Tables {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(id) = self.string_ids.get(text) {
            return *id;
        }
        let id = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), id);
        id
    }

    fn function(&mut self, named: &Named) -> i64 {
        let known = (named.function.clone(), named.file.clone());
        if let Some(id) = self.function_ids.get(&known) {
            return *id;
        }
        let id = self.function.len() as i64 + 1;
        let (name, filename) = (self.string(&named.function), self.string(&named.file));
        self.function.push(Function {
            id,
            name,
            system_name: name,
            filename,
        });
        self.function_ids.insert(known, id);
        id
    }

    fn location(&mut self, named: &Named) -> i64 {
        if let Some(id) = self.location_ids.get(named) {
            return *id;
        }
        let id = self.location.len() as i64 + 1;
        let function_id = self.function(named);
        let line = Line {
            function_id,
            line: named.line,
        };
        self.location.push(Location {
            id,
            line: vec![line],
        });
        self.location_ids.insert(named.clone(), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::super::stacks::tests::stack;
    use super::*;

    #[test]
    fn a_profile_has_each_function_once_and_samples_with_their_threads() {
        let stacks = [
            stack("loop-0", 3, &["copy", "main"]),
            stack("loop-1", 1, &["main"]),
        ];
        let sampled = Sampled {
            hertz: 200,
            lasted_ns: 7,
        };
        let made = profile(&stacks, sampled);
        let string = |id: i64| made.string_table[usize::try_from(id).unwrap()].as_str();
        assert_eq!(string(0), "");
        let functions: Vec<_> = made.function.iter().map(|f| string(f.name)).collect();
        assert_eq!(functions, ["copy", "main"]);
        let samples: Vec<_> = made
            .sample
            .iter()
            .map(|s| (&*s.location_id, &*s.value))
            .collect();
        let first: (&[i64], &[i64]) = (&[1, 2], &[3, 15_000_000]);
        assert_eq!(samples, [first, (&[2], &[1, 5_000_000])]);
        assert_eq!(string(made.sample[1].label[0].str), "loop-1");
        assert_eq!((made.period, made.duration_nanos), (5_000_000, 7));
    }
}
