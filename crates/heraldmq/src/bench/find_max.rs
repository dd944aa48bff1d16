//! `--find-max`: the highest rate at which criteria hold, found by one run after another.
//!
//! Deliberately absent: which rate to try next, and what holds; the `loadtest` crate knows.

use std::cmp::Ordering;

use loadtest::{Criteria, Search, SearchResult, SearchSettings};
use report::Record;

use super::observers::Observers;
use super::run::{Request, setting};
use crate::failure::{Failure, complain};

/// What a search found.
pub(super) struct Found {
    /// Which rate holds, and which does not any more.
    pub(super) sentence: String,
    /// Of all runs, by rate; the best one is the last.
    pub(super) records: Vec<Record>,
}

/// One run of a search.
struct Probe {
    /// Times the scenario's rate.
    factor: f64,
    holds: bool,
    record: Record,
}

impl Found {
    /// Tries rates until the highest is known.
    ///
    /// # Errors
    /// A run failed; the scenario has no rate; or the criteria hold at no rate that was tried.
    pub(super) fn search(
        request: &Request<'_>,
        criteria: &Criteria,
        observers: &Observers,
    ) -> Result<Self, Failure> {
        let rate = request.workload.asked_per_second().unwrap_or(0.0);
        if rate == 0.0 {
            let message = "--find-max needs a scenario with messages at a rate";
            return Err(Failure::Usage(message.to_owned()));
        }
        if request.is_cold() {
            let message = "--find-max plays many runs, and only the first would be a cold start";
            return Err(Failure::Usage(message.to_owned()));
        }
        let search = Search::new(SearchSettings::default());
        let mut search = search.map_err(|error| Failure::Usage(error.to_string()))?;
        let mut probes = Vec::new();
        while let Some(factor) = search.next_probe() {
            let probe = Probe::run(request, factor, criteria, observers)?;
            search.tell(factor, probe.holds);
            probes.push(probe);
        }
        let result = search.result();
        let Some(best) = result.highest_that_held else {
            let message = format!("{criteria} holds at no rate that was tried");
            return Err(Failure::Runtime(message));
        };
        let is_best = |probe: &Probe| probe.holds && probe.factor == best;
        probes.sort_by(|one, other| {
            let by_rate = one.factor.partial_cmp(&other.factor);
            let by_merit = is_best(one).cmp(&is_best(other));
            by_merit.then(by_rate.unwrap_or(Ordering::Equal))
        });
        Ok(Self {
            sentence: sentence(criteria, &result, best, rate),
            records: probes.into_iter().map(|probe| probe.record).collect(),
        })
    }
}

impl Probe {
    fn run(
        request: &Request<'_>,
        factor: f64,
        criteria: &Criteria,
        observers: &Observers,
    ) -> Result<Self, Failure> {
        let mut faster = request.clone();
        faster.workload = request.workload.at_rate(factor);
        let asked = faster.workload.asked_per_second().unwrap_or(0.0);
        let mut record = faster.record(observers)?;
        let verdict = criteria.judge(&record);
        let outcome = match verdict.broken.as_slice() {
            [] => "holds".to_owned(),
            broken => broken.join("; "),
        };
        complain(&format!("{asked:.0} msg/s: {outcome}"));
        record.settings.push(setting("criteria", criteria));
        record.label = format!("{} at {asked:.0} msg/s", record.label);
        Ok(Self {
            factor,
            holds: verdict.holds,
            record,
        })
    }
}

fn sentence(criteria: &Criteria, result: &SearchResult, best: f64, rate: f64) -> String {
    let held = best * rate;
    let mut sentence = format!("{criteria} holds up to {held:.0} msg/s");
    if let Some(failed) = result.lowest_that_failed {
        sentence += &format!(", not at {:.0} msg/s", failed * rate);
    }
    if !result.confirmed {
        sentence += "; it held once, and a second run did not confirm it";
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_says_what_holds_what_does_not_and_how_sure_that_is() {
        let criteria: Criteria = "p99<20ms".parse().unwrap();
        let mut result = SearchResult {
            highest_that_held: Some(2.0),
            lowest_that_failed: Some(2.5),
            probes: Vec::new(),
            confirmed: true,
        };
        let told = sentence(&criteria, &result, 2.0, 1_000.0);
        assert_eq!(told, "p99<20ms holds up to 2000 msg/s, not at 2500 msg/s");
        result.lowest_that_failed = None;
        result.confirmed = false;
        let told = sentence(&criteria, &result, 2.0, 1_000.0);
        assert!(
            told.starts_with("p99<20ms holds up to 2000 msg/s; it held once"),
            "{told}"
        );
    }
}
