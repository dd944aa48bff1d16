//! Rules of outlets in the language jq: which messages go on, and what the target gets as payload.
//!
//! Purpose: [`Rules::compile`] says what is wrong with a text; [`Rules::judge`] says what becomes of a message.
//!
//! Invariants: a rule sees the message and the clock, and nothing else of the machine: the functions of jq that read the environment, further
//! inputs or modules, that print, or that end the process are not there. A payload that is nested deeper than [`DEEPEST`] is text for rules, so
//! the parser's stack is bounded.
//!
//! Deliberately absent: limits of time, memory and stack. A rule can exceed each of them, and the thread that evaluates it cannot stop
//! it: `outlets` runs rules in the process of an outlet, which ends then.
//!
//! Where to read next: `input.rs`, `problem.rs`.

mod input;
mod problem;

use std::sync::Arc;

use bytes::Bytes;
use jaq_core::data::JustLut;
use jaq_core::load::{Arena, File, Loader, import};
use jaq_core::{Compiler, Ctx, Filter, Vars};
use jaq_json::Val;
use outlet::Item;

pub use input::DEEPEST;
pub use problem::CompileError;

/// The longest text of a rule, in bytes.
pub const LONGEST: usize = 16 * 1024;

/// The longest reason of a refusal, in bytes: errors of jq have values of the message in them.
const LONGEST_REASON: usize = 300;

/// Functions of jq that reach beyond the message: the environment, standard error, the end of the process.
const ABSENT: &[&str] = &[
    "debug",
    "debug_empty",
    "env",
    "halt",
    "halt_error",
    "stderr",
    "stderr_empty",
];

/// What becomes of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on as it is.
    Unchanged,
    /// It goes on with this payload.
    Changed(Bytes),
    /// It does not go on.
    Filtered,
    /// A rule fails on it; for the dead letter.
    Refused(Arc<str>),
}

/// The rules of an outlet.
#[derive(Debug)]
pub struct Rules {
    condition: Option<Rule>,
    map: Option<Rule>,
}

impl Rules {
    /// `condition`: a message goes on if its first output is neither false nor null. `map`: its first output is the payload. `None`: there
    /// is neither.
    ///
    /// # Errors
    /// What is wrong with a text: longer than [`LONGEST`], no jq, or a function that is not there.
    pub fn compile(
        condition: Option<&str>,
        map: Option<&str>,
    ) -> Result<Option<Self>, CompileError> {
        let rule = |key, text: Option<&str>| text.map(|text| Rule::compile(key, text)).transpose();
        let rules = Self {
            condition: rule("where", condition)?,
            map: rule("map", map)?,
        };
        Ok((rules.condition.is_some() || rules.map.is_some()).then_some(rules))
    }

    /// What becomes of a message. May take for ever, all memory, or the whole stack.
    #[must_use]
    pub fn judge(&self, item: &Item) -> Verdict {
        let input = input::of(item);
        let is_wanted = |output: Option<Val>| {
            output.is_some_and(|output| !matches!(output, Val::Null | Val::Bool(false)))
        };
        if let Some(condition) = &self.condition {
            match condition.first(input.clone()) {
                Ok(output) if is_wanted(output.clone()) => {}
                Ok(_) => return Verdict::Filtered,
                Err(why) => return Verdict::Refused(why),
            }
        }
        let Some(map) = &self.map else {
            return Verdict::Unchanged;
        };
        match map.first(input) {
            Ok(Some(Val::TStr(text) | Val::BStr(text))) => Verdict::Changed(*text),
            Ok(Some(value)) => Verdict::Changed(value.to_string().into()),
            Ok(None) => Verdict::Filtered,
            Err(why) => Verdict::Refused(why),
        }
    }
}

/// A rule, compiled.
struct Rule {
    /// As in the configuration.
    key: &'static str,
    filter: Filter<JustLut<Val>>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("key", &self.key).finish()
    }
}

impl Rule {
    fn compile(key: &'static str, text: &str) -> Result<Self, CompileError> {
        if text.len() > LONGEST {
            return Err(CompileError::too_long(key, text.len()));
        }
        let is_there = |name: &str| !ABSENT.contains(&name);
        let definitions = jaq_core::defs()
            .chain(jaq_std::defs())
            .chain(jaq_json::defs());
        let definitions = definitions.filter(|definition| is_there(definition.name));
        let functions = jaq_core::funs()
            .chain(jaq_std::funs())
            .chain(jaq_json::funs());
        let functions = functions.filter(|(name, ..)| is_there(name));
        let arena = Arena::default();
        let file = File {
            code: text,
            path: (),
        };
        let modules = Loader::new(definitions).load(&arena, file);
        let modules = modules.map_err(|errors| CompileError::load(key, text, &errors))?;
        // A variable of a data file that nobody reads would have no value.
        let imported = import(&modules, |_| Err("there are no files for rules".to_owned()));
        imported.map_err(|errors| CompileError::load(key, text, &errors))?;
        let compiled = Compiler::default().with_funs(functions).compile(modules);
        let filter = compiled.map_err(|errors| CompileError::undefined(key, text, &errors))?;
        Ok(Self { key, filter })
    }

    /// Its first output.
    fn first(&self, input: Val) -> Result<Option<Val>, Arc<str>> {
        let context = Ctx::<JustLut<Val>>::new(&self.filter.lut, Vars::new([]));
        let first = self.filter.id.run((context, input)).next();
        first.transpose().map_err(|exception| {
            let why = exception.get_err().map_or_else(
                |_| "ends without an output".to_owned(),
                |error| error.to_string(),
            );
            let why = why.replace(|character: char| character.is_control(), " ");
            let end = why.floor_char_boundary(LONGEST_REASON);
            format!("{}: {}", self.key, &why[..end]).into()
        })
    }
}

#[cfg(test)]
mod tests;
