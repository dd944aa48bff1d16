//! Policies for splits of shards, written in Rhai.
//!
//! Purpose: [`Script`] is a file that was compiled; the store asks it about the shards that a node leads, once a second.
//!
//! ```text
//!  text ─► Script ─► begin_second: node, store ─► decide: shard ─► an answer, or why the script has failed
//! ```
//!
//! Invariants: a script that loops costs less than [`SECOND_MOST`] of CPU time in a second, for all shards of its store
//! together; a call changes nothing that a later one sees.
//!
//! Deliberately absent: files but for the one that is read, clocks, network, output, modules and `eval` in scripts; when a
//! script is asked, and what follows if it fails (`store`).
//!
//! `input.rs`: what a script sees. `answer.rs`: what it may say.

mod answer;
mod input;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rhai::packages::{
    ArithmeticPackage, BasicArrayPackage, BasicIteratorPackage, BasicMapPackage, BasicMathPackage,
    BasicStringPackage, LogicPackage, Package,
};
use rhai::{AST, Dynamic, Engine, EvalAltResult, ParseError, Position, Scope};
use rustix::time::{ClockId, clock_gettime};
use store::{
    Busyness, Candidate, NodeView, ScriptAnswer, ScriptCause, ScriptFault, SplitScript, StoreView,
    Why,
};

/// The largest file that is read, in bytes.
pub const FILE_BYTES_MOST: usize = 64 * 1024;

/// CPU time of a script in a second, for all shards of its store.
pub const SECOND_MOST: Duration = Duration::from_millis(1);

/// CPU time of a second after which the script is asked about no further shard in it. What is left is enough for the call that
/// has begun.
const SECOND_ENOUGH: Duration = Duration::from_micros(500);

/// CPU time of one call.
const CALL_MOST: Duration = Duration::from_micros(400);

/// Operations of one call, as Rhai counts them: each expression and statement is one.
pub const OPERATIONS_MOST: u64 = 2_000;

/// Operations from one look at the CPU time to the next.
const LOOK_EVERY: u64 = 8;

/// A script that was compiled.
pub struct Script {
    engine: Engine,
    ast: AST,
    /// `node` and `store` of this second.
    scope: Scope<'static>,
    /// CPU time of this second.
    used: Duration,
    /// Whether CPU time has limits.
    has_clock: bool,
    /// CPU time of the thread at which the call ends, in ns.
    deadline: Arc<AtomicU64>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

impl Script {
    /// Reads and compiles a file of [`FILE_BYTES_MOST`] bytes at most.
    ///
    /// # Errors
    /// The file cannot be read, is too large or no text, or is no script.
    pub fn read(path: &Path) -> Result<Self, ScriptFault> {
        let unreadable = |reason: String| ScriptFault {
            cause: ScriptCause::File,
            line: None,
            reason: Why::new(&reason),
        };
        let mut text = String::new();
        File::open(path)
            // One byte more, so that a file that is too long is seen to be.
            .and_then(|file| {
                file.take(FILE_BYTES_MOST as u64 + 1)
                    .read_to_string(&mut text)
            })
            .map_err(|error| unreadable(error.to_string()))?;
        if text.len() > FILE_BYTES_MOST {
            return Err(unreadable(format!(
                "it has more than {FILE_BYTES_MOST} bytes"
            )));
        }
        Self::compile(&text)
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// The text is no script, or names a variable that there is not.
    pub fn compile(text: &str) -> Result<Self, ScriptFault> {
        let deadline = Arc::new(AtomicU64::new(u64::MAX));
        let engine = engine(Arc::clone(&deadline));
        let ast = engine.compile_with_scope(&input::names(), text);
        let ast = ast.map_err(|ParseError(kind, position)| ScriptFault {
            cause: ScriptCause::Syntax,
            line: position.line(),
            reason: Why::new(&kind.to_string()),
        })?;
        Ok(Self {
            engine,
            ast,
            scope: Scope::new(),
            used: Duration::ZERO,
            has_clock: true,
            deadline,
        })
    }

    /// The same without limits of CPU time, for a play that comes out alike on each machine. Operations have their limit.
    #[must_use]
    pub fn without_clock(self) -> Self {
        Self {
            has_clock: false,
            ..self
        }
    }

    fn call(&mut self, shard: &Candidate, busyness: &Busyness) -> Result<Dynamic, ScriptFault> {
        let before = self.scope.len();
        input::push_shard(&mut self.scope, shard, busyness);
        let answer = self
            .engine
            .eval_ast_with_scope::<Dynamic>(&mut self.scope, &self.ast);
        self.scope.rewind(before);
        answer.map_err(|error| fault(&error))
    }
}

impl SplitScript for Script {
    fn begin_second(&mut self, node: &NodeView, store: &StoreView) {
        self.used = Duration::ZERO;
        self.scope.clear();
        input::push_second(&mut self.scope, node, store);
    }

    fn decide(
        &mut self,
        shard: &Candidate,
        busyness: &Busyness,
    ) -> Result<ScriptAnswer, ScriptFault> {
        if self.has_clock && self.used >= SECOND_ENOUGH {
            return Ok(ScriptAnswer::Deferred);
        }
        let begun = thread_cpu();
        if self.has_clock {
            let deadline = begun + CALL_MOST;
            let nanos = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
            self.deadline.store(nanos, Ordering::Relaxed);
        }
        let answer = self.call(shard, busyness);
        self.used += thread_cpu().saturating_sub(begun);
        answer::read(answer?)
    }
}

/// What runs scripts, with all limits, and without what reaches outside.
fn engine(deadline: Arc<AtomicU64>) -> Engine {
    let mut engine = Engine::new_raw();
    // Not the core package: its functions can sleep.
    ArithmeticPackage::new().register_into_engine(&mut engine);
    LogicPackage::new().register_into_engine(&mut engine);
    BasicMathPackage::new().register_into_engine(&mut engine);
    BasicStringPackage::new().register_into_engine(&mut engine);
    BasicIteratorPackage::new().register_into_engine(&mut engine);
    BasicArrayPackage::new().register_into_engine(&mut engine);
    BasicMapPackage::new().register_into_engine(&mut engine);
    for symbol in ["eval", "print", "debug", "import", "export"] {
        engine.disable_symbol(symbol);
    }
    engine
        .set_strict_variables(true)
        .set_fail_on_invalid_map_property(true)
        .set_max_operations(OPERATIONS_MOST)
        .set_max_call_levels(8)
        .set_max_expr_depths(32, 16)
        .set_max_variables(64)
        .set_max_functions(32)
        .set_max_string_size(512)
        .set_max_array_size(2 * input::LISTED_MOST)
        .set_max_map_size(64);
    engine.on_progress(move |operations| {
        let looks = operations.is_multiple_of(LOOK_EVERY);
        let is_over = || thread_cpu().as_nanos() > u128::from(deadline.load(Ordering::Relaxed));
        (looks && is_over()).then_some(Dynamic::UNIT)
    });
    engine
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Never negative, and below 10^9.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Why a script has failed.
fn fault(error: &EvalAltResult) -> ScriptFault {
    let inner = error.unwrap_inner();
    let (cause, reason) = match inner {
        EvalAltResult::ErrorTooManyOperations(_) => (
            ScriptCause::Operations,
            format!("it uses more than {OPERATIONS_MOST} operations"),
        ),
        EvalAltResult::ErrorTerminated(..) => (
            ScriptCause::Operations,
            format!("it uses more than {} µs of CPU time", CALL_MOST.as_micros()),
        ),
        EvalAltResult::ErrorStackOverflow(_)
        | EvalAltResult::ErrorTooManyVariables(_)
        | EvalAltResult::ErrorDataTooLarge(..) => (ScriptCause::Operations, plain(inner)),
        _ => (ScriptCause::Runtime, plain(inner)),
    };
    ScriptFault {
        cause,
        line: inner.position().line(),
        reason: Why::new(&reason),
    }
}

/// What an error says, without the position behind it.
fn plain(error: &EvalAltResult) -> String {
    let text = error.to_string();
    match error.position() {
        Position::NONE => text,
        position => {
            let end = format!(" ({position})");
            text.strip_suffix(&end).map(str::to_owned).unwrap_or(text)
        }
    }
}

#[cfg(test)]
mod tests;
