//! The highest rate that a broker holds, found by trying rates.
//!
//! Call order: [`Search::new`]; then [`Search::next_probe`], a run at that rate, and [`Search::tell`],
//! until there is no next probe; [`Search::result`] at any time.
//!
//! A rate is a factor of the scenario's own. From the start, rates are doubled or halved until one held
//! and one failed; then the geometric middle of the two is tried until they are as near to each other as
//! the resolution asks. Then both are run again: first the one that failed, since a run that was
//! disturbed by chance would else hide everything above it; then the one that held, since luck would
//! else be reported as capacity. Whichever of them answers differently moves its end, and the search
//! goes on from there.
//!
//! Invariant: a rate's last run is what is believed of it, and every rate believed to hold is below
//! every rate believed to fail. All that is decided follows from the runs so far.
//!
//! Deliberately absent: running anything, clocks and randomness. The same answers lead to the same
//! probes.

use std::fmt;

/// No factor below this is tried: a broker that does not hold a millionth holds nothing.
const LOWEST: f64 = 1e-6;

/// No search goes above this factor.
const HIGHEST: f64 = 1e6;

/// More runs than anybody waits for.
const MOST_PROBES: usize = 100;

/// Nearer rates than this differ by chance alone.
const FINEST: f64 = 0.001;

/// Factors that differ by less are the same rate, computed in two ways.
const ROUNDING: f64 = 1.0 + 1e-9;

/// What a search may try.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SearchSettings {
    /// The first factor: from 0.000001 to `highest`.
    pub start: f64,
    /// No factor above this is tried; at most 1,000,000.
    pub highest: f64,
    /// How far apart the results may be, as a share of the one that held: from 0.001 to 1.
    pub resolution: f64,
    /// Runs in all: from 1 to 100. With 20, starting from 1, a resolution of 5 % is reached for each
    /// limit from 1/4,096 to 4,096, if no run is disturbed.
    pub at_most_probes: usize,
}

impl Default for SearchSettings {
    fn default() -> Self {
        Self {
            start: 1.0,
            highest: HIGHEST,
            resolution: 0.05,
            at_most_probes: 20,
        }
    }
}

/// Which of the settings is out of its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchError {
    /// `highest`.
    Highest,
    /// `start`.
    Start,
    /// `resolution`.
    Resolution,
    /// `at_most_probes`.
    Probes,
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Highest => write!(f, "the highest factor must be from {LOWEST} to {HIGHEST}"),
            Self::Start => write!(f, "the start must be from {LOWEST} to the highest factor"),
            Self::Resolution => write!(f, "the resolution must be from {FINEST} to 1"),
            Self::Probes => write!(f, "the number of probes must be from 1 to {MOST_PROBES}"),
        }
    }
}

impl std::error::Error for SearchError {}

/// What is known so far.
#[derive(Clone, PartialEq, Debug)]
pub struct SearchResult {
    /// `None` if no rate is believed to hold.
    pub highest_that_held: Option<f64>,
    /// `None` if no rate is believed to fail. Further above the other than the resolution if the probes
    /// were used up.
    pub lowest_that_failed: Option<f64>,
    /// All runs in order: the factor, and whether it held.
    pub probes: Vec<(f64, bool)>,
    /// Whether `highest_that_held` held at least twice.
    pub confirmed: bool,
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    settings: SearchSettings,
    probes: Vec<(f64, bool)>,
}

impl Search {
    /// A search that has tried nothing yet.
    ///
    /// # Errors
    /// A setting is out of its limits.
    pub fn new(settings: SearchSettings) -> Result<Self, SearchError> {
        let SearchSettings {
            start,
            highest,
            resolution,
            at_most_probes,
        } = settings;
        if !(LOWEST..=HIGHEST).contains(&highest) {
            return Err(SearchError::Highest);
        }
        if !(LOWEST..=highest).contains(&start) {
            return Err(SearchError::Start);
        }
        if !(FINEST..=1.0).contains(&resolution) {
            return Err(SearchError::Resolution);
        }
        if !(1..=MOST_PROBES).contains(&at_most_probes) {
            return Err(SearchError::Probes);
        }
        Ok(Self {
            settings,
            probes: Vec::new(),
        })
    }

    /// The factor to run at next; `None` when the search has ended. Asking changes nothing.
    #[must_use]
    pub fn next_probe(&self) -> Option<f64> {
        let held = self.highest_that_held();
        let failed = self.lowest_that_failed();
        let unconfirmed = held.filter(|&factor| !self.is_confirmed(factor));
        match self.settings.at_most_probes - self.probes.len() {
            0 => None,
            // The last run is kept for what makes the result worth reporting.
            1 if unconfirmed.is_some() => unconfirmed,
            _ => failed
                .filter(|&factor| self.is_contradicted(factor))
                .or_else(|| self.untried(held, failed))
                .or_else(|| failed.filter(|&factor| self.ran_once(factor)))
                .or(unconfirmed),
        }
    }

    /// Takes in whether the run at `factor` held.
    ///
    /// # Panics
    /// `factor` is not what [`next_probe`](Self::next_probe) asks for.
    pub fn tell(&mut self, factor: f64, holds: bool) {
        assert_eq!(
            self.next_probe(),
            Some(factor),
            "only the rate that was asked for is told"
        );
        self.probes.push((factor, holds));
    }

    /// What is known so far.
    #[must_use]
    pub fn result(&self) -> SearchResult {
        let highest_that_held = self.highest_that_held();
        SearchResult {
            highest_that_held,
            lowest_that_failed: self.lowest_that_failed(),
            probes: self.probes.clone(),
            confirmed: highest_that_held.is_some_and(|factor| self.is_confirmed(factor)),
        }
    }

    fn highest_that_held(&self) -> Option<f64> {
        self.believed(true).max_by(f64::total_cmp)
    }

    fn lowest_that_failed(&self) -> Option<f64> {
        self.believed(false).min_by(f64::total_cmp)
    }

    /// Factors whose last run ended like this, in the order of their runs.
    fn believed(&self, holds: bool) -> impl Iterator<Item = f64> {
        let factors = self.probes.iter().map(|&(factor, _)| factor);
        factors.filter(move |&factor| self.runs(factor).next_back() == Some(holds))
    }

    /// How the runs at `factor` ended, in order.
    fn runs(&self, factor: f64) -> impl DoubleEndedIterator<Item = bool> {
        let same = self.probes.iter().filter(move |probe| probe.0 == factor);
        same.map(|&(_, holds)| holds)
    }

    fn ran_once(&self, factor: f64) -> bool {
        self.runs(factor).count() == 1
    }

    fn is_confirmed(&self, factor: f64) -> bool {
        self.runs(factor).filter(|&holds| holds).count() >= 2
    }

    /// Whether a single run failed below a rate that held at some time. One of the two was chance;
    /// asking at once costs one run, while believing the wrong one costs a search in the wrong place.
    fn is_contradicted(&self, failed: f64) -> bool {
        let held_above = |&(factor, holds): &(f64, bool)| holds && factor > failed;
        self.ran_once(failed) && self.probes.iter().any(held_above)
    }

    /// The rate that tells most of those not tried yet; `None` if the ends are near enough.
    fn untried(&self, held: Option<f64>, failed: Option<f64>) -> Option<f64> {
        let SearchSettings {
            start,
            highest,
            resolution,
            ..
        } = self.settings;
        let step = 1.0 + resolution;
        match (held, failed) {
            (None, None) => Some(start),
            (Some(held), None) => (held < highest).then(|| highest.min(held * 2.0)),
            // A rate that held and then failed is at the limit: the limit is one step below it rather
            // than far away.
            (held, Some(failed)) if self.runs(failed).any(|holds| holds) => {
                Some(failed / step).filter(|&factor| factor > held.unwrap_or(LOWEST) * ROUNDING)
            }
            (Some(held), Some(failed)) => {
                let is_wide = failed > held * step * ROUNDING;
                is_wide.then(|| (held * failed).sqrt())
            }
            (None, Some(failed)) => Some(failed / 2.0).filter(|&factor| factor >= LOWEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Enough for every search of these tests to come to its own end.
    const AMPLE: usize = 60;

    fn settings(start: f64, at_most_probes: usize) -> SearchSettings {
        SearchSettings {
            start,
            at_most_probes,
            ..SearchSettings::default()
        }
    }

    /// Asks `broker` with the number of the run and the factor, until the search ends.
    fn search(
        settings: SearchSettings,
        mut broker: impl FnMut(usize, f64) -> bool,
    ) -> SearchResult {
        let mut search = Search::new(settings).unwrap();
        for run in 0..=settings.at_most_probes {
            let Some(factor) = search.next_probe() else {
                return search.result();
            };
            search.tell(factor, broker(run, factor));
        }
        panic!("more probes than allowed: {search:?}");
    }

    /// The factors that are asked for, when the runs end like this: `+` holds, `-` fails.
    fn asked(settings: SearchSettings, answers: &str) -> Vec<f64> {
        let answers = answers.as_bytes();
        let result = search(settings, |run, _| answers.get(run) == Some(&b'+'));
        let factors = result.probes.iter().take(answers.len());
        factors.map(|(factor, _)| *factor).collect()
    }

    fn coarse() -> SearchSettings {
        SearchSettings {
            resolution: 0.5,
            ..SearchSettings::default()
        }
    }

    fn check(answers: &str, expected: &[f64]) {
        let factors = asked(coarse(), answers);
        let are_near = |(one, two): (&f64, &f64)| (one / two - 1.0).abs() < 1e-6;
        assert!(
            factors.len() == expected.len() && factors.iter().zip(expected).all(are_near),
            "{answers}: {factors:?} instead of {expected:?}"
        );
    }

    const SQRT_2: f64 = std::f64::consts::SQRT_2;

    #[test]
    fn rates_double_until_one_fails_then_both_ends_run_again() {
        check("++--", &[1.0, 2.0, 4.0, 2.0 * SQRT_2]);
        check("++---+", &[1.0, 2.0, 4.0, 2.0 * SQRT_2, 2.0 * SQRT_2, 2.0]);
    }

    #[test]
    fn rates_halve_until_one_holds() {
        check("--++", &[1.0, 0.5, 0.25, 0.25 * SQRT_2]);
    }

    #[test]
    fn a_failure_that_does_not_repeat_moves_the_search_up() {
        let asked = [1.0, 0.5, 0.5 * SQRT_2, 1.0, 2.0];
        check("-+++-", &asked);
    }

    #[test]
    fn a_rate_that_is_not_confirmed_is_left_by_one_step() {
        let step = 1.0 / 1.5;
        check("+----++", &[1.0, 2.0, SQRT_2, SQRT_2, 1.0, step, step]);
    }

    #[test]
    fn a_rate_that_held_within_that_step_is_confirmed_instead() {
        let last = 2.0 * SQRT_2;
        check(
            "+++---+",
            &[1.0, 2.0, 4.0, 8.0, 4.0 * SQRT_2, 4.0 * SQRT_2, 4.0],
        );
        check("++-+--+", &[1.0, 2.0, 4.0, last, 4.0, last, 2.0]);
    }

    #[test]
    fn a_failure_below_a_rate_that_held_is_run_again_at_once() {
        let step = 1.0 / 1.5;
        let asked = [1.0, 2.0, SQRT_2, SQRT_2, 1.0, step, step, step / 2.0];
        check("+-------", &asked);
    }

    #[test]
    fn the_last_run_confirms() {
        let of_four = SearchSettings {
            at_most_probes: 4,
            ..SearchSettings::default()
        };
        let result = search(of_four, |_, _| true);
        let factors: Vec<f64> = result.probes.iter().map(|probe| probe.0).collect();
        assert_eq!(factors, [1.0, 2.0, 4.0, 4.0]);
        assert!(result.confirmed);
    }

    #[test]
    fn a_broker_that_holds_everything_is_confirmed_at_the_highest() {
        let limited = SearchSettings {
            highest: 3.0,
            ..SearchSettings::default()
        };
        let result = search(limited, |_, _| true);
        assert_eq!(result.probes.len(), 4);
        assert_eq!(result.highest_that_held, Some(3.0));
        assert_eq!(result.lowest_that_failed, None);
        assert!(result.confirmed);
    }

    #[test]
    fn a_broker_that_holds_nothing_ends_the_search() {
        let result = search(settings(1.0, AMPLE), |_, _| false);
        assert_eq!(result.highest_that_held, None);
        assert!(result.lowest_that_failed < Some(2.0 * LOWEST));
        assert!(!result.confirmed);
        // The last one twice.
        assert_eq!(result.probes.len(), 21);
    }

    #[test]
    #[should_panic(expected = "only the rate that was asked for is told")]
    fn another_rate_is_not_taken() {
        Search::new(SearchSettings::default())
            .unwrap()
            .tell(2.0, true);
    }

    #[test]
    fn settings_out_of_their_limits_are_refused() {
        let usual = SearchSettings::default();
        let refused = |settings| Search::new(settings).err();
        for start in [0.0, -1.0, f64::NAN, f64::INFINITY, HIGHEST * 2.0] {
            assert_eq!(
                refused(SearchSettings { start, ..usual }),
                Some(SearchError::Start)
            );
        }
        for highest in [0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                refused(SearchSettings { highest, ..usual }),
                Some(SearchError::Highest)
            );
        }
        for resolution in [0.0, f64::NAN, 1.1] {
            assert_eq!(
                refused(SearchSettings {
                    resolution,
                    ..usual
                }),
                Some(SearchError::Resolution)
            );
        }
        for at_most_probes in [0, MOST_PROBES + 1] {
            assert_eq!(
                refused(SearchSettings {
                    at_most_probes,
                    ..usual
                }),
                Some(SearchError::Probes)
            );
        }
        assert_eq!(refused(usual), None);
    }

    /// A factor within `doublings` of 1, either way.
    fn factor(doublings: f64) -> impl Strategy<Value = f64> {
        (-doublings..doublings).prop_map(f64::exp2)
    }

    proptest! {
        #[test]
        fn without_noise_the_result_is_within_the_resolution(
            limit in factor(12.0),
            resolution in 0.05..0.5,
        ) {
            let settings = SearchSettings { resolution, ..SearchSettings::default() };
            let result = search(settings, |_, factor| factor <= limit);
            let held = result.highest_that_held.unwrap();
            let failed = result.lowest_that_failed.unwrap();
            prop_assert!(result.confirmed);
            prop_assert!(held <= limit && limit < failed, "{result:?}");
            prop_assert!(failed <= held * (1.0 + resolution) * ROUNDING, "{result:?}");
        }

        #[test]
        fn one_wrong_answer_costs_no_more_than_a_step(
            limit in factor(6.0),
            start in factor(3.0),
            resolution in 0.02..0.5,
            wrong in 0..30_usize,
        ) {
            let settings = SearchSettings { resolution, ..settings(start, AMPLE) };
            let result = search(settings, |run, factor| (factor <= limit) != (run == wrong));
            let held = result.highest_that_held.unwrap();
            let step = 1.0 + resolution;
            prop_assert!(result.confirmed);
            prop_assert!(held <= limit, "{result:?}");
            prop_assert!(held * step * step * ROUNDING >= limit, "{result:?}");
        }

        #[test]
        fn one_wrong_answer_confirms_nothing_above_the_limit(
            limit in factor(6.0),
            wrong in 0..20_usize,
            at_most_probes in 1..20_usize,
        ) {
            let settings = settings(1.0, at_most_probes);
            let result = search(settings, |run, factor| (factor <= limit) != (run == wrong));
            let is_too_high = result.highest_that_held.is_some_and(|held| held > limit);
            prop_assert!(!(result.confirmed && is_too_high), "{result:?}");
        }

        #[test]
        fn whatever_is_answered_the_search_stays_within_its_limits(
            answers in proptest::collection::vec(any::<bool>(), MOST_PROBES),
            start in 0.01..10.0,
            highest in 10.0..20.0,
            at_most_probes in 1..=MOST_PROBES,
        ) {
            let settings = SearchSettings {
                highest,
                ..settings(start, at_most_probes)
            };
            let result = search(settings, |run, _| answers[run]);
            prop_assert!(result.probes.len() <= at_most_probes);
            for (factor, _) in &result.probes {
                prop_assert!((LOWEST..=highest).contains(factor), "{result:?}");
            }
            if let (Some(held), Some(failed)) =
                (result.highest_that_held, result.lowest_that_failed)
            {
                prop_assert!(held < failed, "{result:?}");
            }
        }
    }
}
