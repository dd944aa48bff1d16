//! A profile with names: how often each stack of functions was seen.

use std::collections::HashMap;

use admin::api::CpuProfile;

use super::symbols::{Named, Symbols, place as place_of};
use crate::failure::Failure;

/// A stack of functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NamedStack {
    /// The name of its thread.
    pub(super) thread: String,
    /// How often it was seen.
    pub(super) count: i64,
    /// The innermost first. A place in code has several if functions were inlined there.
    pub(super) functions: Vec<Named>,
}

/// How often a function was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) function: String,
    /// As the innermost.
    pub(super) itself: i64,
    /// Anywhere.
    pub(super) total: i64,
}

/// The stacks of a profile.
///
/// # Errors
/// The answer names places that it does not have.
pub(super) fn named(profile: &CpuProfile, symbols: &Symbols) -> Result<Vec<NamedStack>, Failure> {
    let wrong = || Failure::Runtime("the profile names a place or thread that is not in it".into());
    let places = profile.places.iter().map(|place| {
        let (module, address) = place_of(place)?;
        Some(symbols.at(profile, module, address))
    });
    let places: Option<Vec<Vec<Named>>> = places.collect();
    let places = places.ok_or_else(wrong)?;
    let stacks = profile.stacks.iter().map(|stack| {
        let thread = profile.threads.get(stack.thread)?;
        let mut functions = Vec::new();
        for place in &stack.places {
            functions.extend_from_slice(places.get(*place)?);
        }
        let thread = match thread.name.as_str() {
            "" => format!("thread {}", thread.id.0),
            name => name.to_owned(),
        };
        let count = i64::try_from(stack.count.0).ok()?;
        Some(NamedStack {
            thread,
            count,
            functions,
        })
    });
    let stacks: Option<Vec<NamedStack>> = stacks.collect();
    stacks.ok_or_else(wrong)
}

/// All functions, those first that were innermost most often.
pub(super) fn functions(stacks: &[NamedStack]) -> Vec<Seen> {
    let mut counts: HashMap<&str, (i64, i64)> = HashMap::new();
    for stack in stacks {
        if let Some(innermost) = stack.functions.first() {
            counts.entry(&innermost.function).or_default().0 += stack.count;
        }
        let mut names: Vec<&str> = stack
            .functions
            .iter()
            .map(|f| f.function.as_str())
            .collect();
        names.sort_unstable();
        // One that calls itself is seen once.
        names.dedup();
        for name in names {
            counts.entry(name).or_default().1 += stack.count;
        }
    }
    let seen = counts.into_iter().map(|(function, (itself, total))| Seen {
        function: function.to_owned(),
        itself,
        total,
    });
    let mut seen: Vec<Seen> = seen.collect();
    seen.sort_by(|a, b| {
        let order = (b.itself, b.total).cmp(&(a.itself, a.total));
        order.then(a.function.cmp(&b.function))
    });
    seen
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn stack(thread: &str, count: i64, functions: &[&str]) -> NamedStack {
        NamedStack {
            thread: thread.to_owned(),
            count,
            functions: functions.iter().map(|name| Named::of(name)).collect(),
        }
    }

    #[test]
    fn a_function_that_calls_itself_counts_once_in_a_stack() {
        let stacks = [
            stack("loop-0", 3, &["leaf", "walk", "walk", "main"]),
            stack("loop-1", 2, &["walk", "main"]),
        ];
        let seen = functions(&stacks);
        let rows: Vec<_> = seen
            .iter()
            .map(|seen| (seen.function.as_str(), seen.itself, seen.total))
            .collect();
        assert_eq!(rows, [("leaf", 3, 3), ("walk", 2, 5), ("main", 0, 5)]);
    }
}
