//! When alarms begin and end. It knows neither clock nor file.

use std::collections::{BTreeMap, VecDeque};

use inspection::UnixMs;
use serde::{Deserialize, Serialize};

/// Alarms that have ended and are remembered.
const ENDED: usize = 256;

/// Alarms that are raised at once; more say nothing that these do not.
const RAISED: usize = 1_024;

/// Bytes of what is said of an alarm.
const DETAIL: usize = 1_024;

/// How long after a start an alarm of before it is waited for: a node learns in that time which others are down, and what it
/// drops in a minute.
const WAITED_FOR_MS: u64 = 120_000;

/// Something that is an alarm now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// A word that stays.
    pub(crate) name: &'static str,
    /// Of what, if a node may have several alarms of this name.
    pub(crate) subject: String,
    /// What is said of it.
    pub(crate) detail: String,
}

/// An alarm that is raised.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Raised {
    pub(crate) name: String,
    pub(crate) subject: String,
    pub(crate) detail: String,
    /// When it was first found, and has been since.
    pub(crate) since: UnixMs,
}

impl Raised {
    fn key(&self) -> (&str, &str) {
        (&self.name, &self.subject)
    }
}

/// An alarm that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) alarm: Raised,
    /// When it was not found any more.
    pub(crate) until: UnixMs,
}

/// What has become different.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Changed {
    pub(crate) raised: Vec<Raised>,
    pub(crate) ended: Vec<Raised>,
}

impl Changed {
    pub(super) fn is_empty(&self) -> bool {
        self.raised.is_empty() && self.ended.is_empty()
    }
}

/// What outlives the process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    raised: Vec<Raised>,
    /// The latest first.
    ended: VecDeque<Ended>,
}

/// Which alarms there are and were.
///
/// | An alarm | is found | is not found |
/// |---|---|---|
/// | not raised | is raised, since now | – |
/// | raised | stays raised, since then | ends now |
/// | raised before the start | is raised, since then | ends at the first look, once it was waited for |
#[derive(Debug, Default)]
pub(super) struct Record {
    raised: Vec<Raised>,
    /// Those of before the start that were not found since.
    earlier: Vec<Raised>,
    first_look_ms: Option<u64>,
    ended: VecDeque<Ended>,
}

impl Record {
    pub(super) fn new(kept: Kept) -> Self {
        let Kept { mut raised, ended } = kept;
        raised.truncate(RAISED);
        let mut record = Self {
            earlier: raised,
            ended,
            ..Self::default()
        };
        record.ended.truncate(ENDED);
        record
    }

    pub(super) fn kept(&self) -> Kept {
        Kept {
            raised: self.raised.iter().chain(&self.earlier).cloned().collect(),
            ended: self.ended.clone(),
        }
    }

    pub(super) fn raised(&self) -> &[Raised] {
        &self.raised
    }

    /// The latest first.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Ended> {
        self.ended.iter()
    }

    /// What is found at a time. Of several with one name and subject the first counts.
    pub(super) fn handle_found(&mut self, found: Vec<Found>, now_ms: u64) -> Changed {
        let first_look_ms = *self.first_look_ms.get_or_insert(now_ms);
        let mut before = by_key(std::mem::take(&mut self.raised));
        let mut earlier = by_key(std::mem::take(&mut self.earlier));
        let mut changed = Changed::default();
        for Found {
            name,
            subject,
            detail,
        } in found
        {
            let key = (name.to_owned(), subject);
            let is_twice = self
                .raised
                .iter()
                .any(|alarm| alarm.key() == (name, &key.1));
            if is_twice || self.raised.len() == RAISED {
                continue;
            }
            let was_raised = before.remove(&key);
            let is_new = was_raised.is_none();
            let was = was_raised.or_else(|| earlier.remove(&key));
            let alarm = Raised {
                since: was.map_or(UnixMs(now_ms), |alarm| alarm.since),
                name: key.0,
                subject: key.1,
                detail: cut(detail),
            };
            if is_new {
                changed.raised.push(alarm.clone());
            }
            self.raised.push(alarm);
        }
        for alarm in before.into_values() {
            self.end(alarm, now_ms, &mut changed);
        }
        if now_ms.saturating_sub(first_look_ms) < WAITED_FOR_MS {
            self.earlier = earlier.into_values().collect();
        } else {
            for alarm in earlier.into_values() {
                self.end(alarm, first_look_ms, &mut changed);
            }
        }
        changed
    }

    fn end(&mut self, alarm: Raised, until_ms: u64, changed: &mut Changed) {
        changed.ended.push(alarm.clone());
        self.ended.truncate(ENDED - 1);
        self.ended.push_front(Ended {
            // The clock may have been set back.
            until: UnixMs(until_ms).max(alarm.since),
            alarm,
        });
    }
}

fn by_key(alarms: Vec<Raised>) -> BTreeMap<(String, String), Raised> {
    let entry = |alarm: Raised| ((alarm.name.clone(), alarm.subject.clone()), alarm);
    alarms.into_iter().map(entry).collect()
}

fn cut(mut detail: String) -> String {
    detail.truncate(detail.floor_char_boundary(DETAIL));
    detail
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &'static str, subject: &str, detail: &str) -> Found {
        Found {
            name,
            subject: subject.to_owned(),
            detail: detail.to_owned(),
        }
    }

    fn times(record: &Record) -> Vec<(&str, u64)> {
        let raised = record.raised().iter();
        raised
            .map(|alarm| (&*alarm.subject, alarm.since.0))
            .collect()
    }

    fn ended(record: &Record) -> Vec<(&str, u64, u64)> {
        let ended = record.ended();
        ended
            .map(|of| (&*of.alarm.subject, of.alarm.since.0, of.until.0))
            .collect()
    }

    fn subjects(alarms: &[Raised]) -> Vec<&str> {
        alarms.iter().map(|alarm| &*alarm.subject).collect()
    }

    #[test]
    fn an_alarm_begins_is_kept_ends_and_begins_again() {
        let mut record = Record::default();
        let begun = record.handle_found(vec![found("no_leader", "inbox 0", "1 s")], 10);
        assert_eq!(
            (subjects(&begun.raised), &*begun.ended),
            (vec!["inbox 0"], &[][..])
        );
        // Another detail is no other alarm, and another subject is.
        let both = vec![
            found("no_leader", "inbox 0", "2 s"),
            found("no_leader", "inbox 1", "0 s"),
        ];
        let kept = record.handle_found(both, 20);
        assert_eq!(
            (subjects(&kept.raised), &*kept.ended),
            (vec!["inbox 1"], &[][..])
        );
        assert_eq!(times(&record), [("inbox 0", 10), ("inbox 1", 20)]);
        assert_eq!(record.raised()[0].detail, "2 s");
        let over = record.handle_found(vec![found("no_leader", "inbox 1", "1 s")], 30);
        assert_eq!(
            (&*over.raised, subjects(&over.ended)),
            (&[][..], vec!["inbox 0"])
        );
        assert_eq!(ended(&record), [("inbox 0", 10, 30)]);
        let again = record.handle_found(vec![found("no_leader", "inbox 0", "0 s")], 40);
        assert_eq!(subjects(&again.raised), ["inbox 0"]);
        assert_eq!(times(&record), [("inbox 0", 40)]);
        assert_eq!(ended(&record), [("inbox 1", 20, 40), ("inbox 0", 10, 30)]);
        // The clock was set back.
        record.handle_found(Vec::new(), 7);
        assert_eq!(ended(&record)[0], ("inbox 0", 40, 40));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut record = Record::default();
        for round in 0..1_000 {
            record.handle_found(vec![found("memory", &round.to_string(), "")], round);
        }
        assert_eq!(record.ended().count(), ENDED);
        assert_eq!(ended(&record)[0], ("998", 998, 999));
        let many =
            (0..2_000).map(|number| found("memory", &number.to_string(), &"ä".repeat(DETAIL)));
        record.handle_found(many.collect(), 1_000);
        assert_eq!(record.raised().len(), RAISED);
        assert!(record.raised().iter().all(|of| of.detail.len() <= DETAIL));
        // One that stands there twice is one.
        let twice = vec![found("memory", "a", "1"), found("memory", "a", "2")];
        record.handle_found(twice, 1_001);
        assert_eq!((record.raised().len(), ended(&record).len()), (1, ENDED));
    }

    #[test]
    fn an_alarm_of_before_a_restart_that_is_found_soon_keeps_its_begin() {
        let mut record = Record::default();
        let all = || {
            vec![
                found("a", "soon", ""),
                found("a", "late", ""),
                found("a", "gone", ""),
            ]
        };
        record.handle_found(all(), 10);
        let mut record = Record::new(record.kept());
        assert_eq!(times(&record), []);
        let first = record.handle_found(Vec::new(), 1_000);
        assert!(first.is_empty());
        let soon = record.handle_found(vec![found("a", "soon", "")], 1_000 + WAITED_FOR_MS - 1);
        assert_eq!(subjects(&soon.raised), ["soon"]);
        assert_eq!(times(&record), [("soon", 10)]);
        // Until then they are of the next start, too.
        assert_eq!(record.kept().raised.len(), 3);
        let late = record.handle_found(all(), 1_000 + WAITED_FOR_MS);
        assert_eq!(subjects(&late.raised), ["late", "gone"]);
        let mut record = Record::new(record.kept());
        record.handle_found(Vec::new(), 5_000);
        let over = record.handle_found(Vec::new(), 5_000 + WAITED_FOR_MS);
        assert_eq!(subjects(&over.ended), ["gone", "late", "soon"]);
        assert_eq!(ended(&record)[0], ("soon", 10, 5_000));
        assert_eq!(record.kept().raised, []);
    }
}
