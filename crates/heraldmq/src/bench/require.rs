//! `--require`: criteria that scripts go by, and the exit code where a run misses one.
//!
//! Deliberately absent: what figures there are and how they are judged; the `loadtest` crate knows.

use loadtest::{Criteria, Verdict};
use report::Record;

use crate::failure::Failure;

/// What records have to show.
#[derive(clap::Args, Clone)]
pub(super) struct Require {
    /// End with exit code 4 if one of these criteria is missed, such as 'loss=0,p99<20ms'.
    ///
    /// Each is a figure, one of < <= = >= >, and a value. Figures: mean, p50, p95, p99, p999, max (also of connect,
    /// subscribe, ack and deliver: ack.p99), loss, duplicated, reordered, stray, disconnects, cpu, memory, rate. What was
    /// not measured is missed.
    #[arg(long, value_name = "CRITERIA")]
    require: Option<Criteria>,
}

impl Require {
    /// # Errors
    /// [`Failure::Missed`], with a sentence for each criterion that a record misses.
    pub(super) fn judge<'a>(
        &self,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<(), Failure> {
        let of_record = |record: &Record| {
            let verdict = self.require.as_ref().map(|one| one.judge_alone(record));
            let broken = verdict.map_or_else(Vec::new, |verdict| verdict.broken);
            let name = format!("{}, {}", record.scenario, record.label);
            broken.into_iter().map(move |one| format!("{name}: {one}"))
        };
        missed(records.into_iter().flat_map(of_record).collect())
    }
}

/// # Errors
/// [`Failure::Missed`], with the sentences of the verdict.
pub(super) fn judged(verdict: Verdict) -> Result<(), Failure> {
    missed(verdict.broken)
}

fn missed(broken: Vec<String>) -> Result<(), Failure> {
    if broken.is_empty() {
        return Ok(());
    }
    let lines = broken.iter().map(|one| format!("missed: {one}"));
    Err(Failure::Missed(lines.collect::<Vec<_>>().join("\n")))
}
