//! What each session has lost: how many messages for which reason, and when the log says that its queue is full.
//!
//! Invariant: at most [`SESSIONS`] are remembered; beyond that the half that has lost nothing for longest is forgotten.

use hashing::HashMap;
use mqtt_session::{DropReason, Timestamp};

use crate::drops::{Reason, kept};

/// Sessions that are remembered.
///
/// Limit: sessions of which it is known what they have lost; pairs of a subscriber and a publisher that it held back
/// | {} for each loop and the store; {pairs::PAIRS} | those that lost nothing, or held nobody, for longest are
/// forgotten
const SESSIONS: usize = 4_096;

/// How often the log says of one session that its queue is full, in ms.
const ALARM_MS: u64 = 3_600_000;

/// What one session has lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionDrops {
    /// The session, or its first 256 bytes.
    pub client_id: Box<str>,
    /// Messages, by reason; each reason once.
    pub counts: Vec<(Reason, u64)>,
    /// When the first one was dropped.
    pub first: Timestamp,
    /// When the last one was.
    pub last: Timestamp,
}

impl SessionDrops {
    /// Messages, for whatever reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    fn add(&mut self, of: &Self) {
        for &(reason, count) in &of.counts {
            *self.count_mut(reason) += count;
        }
        self.first = self.first.min(of.first);
        self.last = self.last.max(of.last);
    }

    fn count_mut(&mut self, reason: Reason) -> &mut u64 {
        let known = self.counts.iter().position(|(of, _)| *of == reason);
        let index = known.unwrap_or_else(|| {
            self.counts.push((reason, 0));
            self.counts.len() - 1
        });
        match self.counts.get_mut(index) {
            Some((_, count)) => count,
            None => unreachable!("the place was found or made just now"),
        }
    }
}

/// The log is to say that the queue of a session is full.
/// Carries how many messages the session has lost, as far as it is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Alarm(pub(crate) u64);

/// What sessions have lost.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_client: HashMap<Box<str>, Row>,
}

#[derive(Debug)]
struct Row {
    drops: SessionDrops,
    /// When the log last said that its queue is full.
    alarmed: Option<Timestamp>,
}

impl Sessions {
    /// A message was dropped for a session.
    pub(crate) fn handle_drop(
        &mut self,
        client_id: &str,
        reason: Reason,
        now: Timestamp,
    ) -> Option<Alarm> {
        let client_id = kept(client_id);
        if !self.by_client.contains_key(client_id) {
            self.make_room();
            let drops = SessionDrops {
                client_id: client_id.into(),
                counts: Vec::new(),
                first: now,
                last: now,
            };
            let row = Row {
                drops,
                alarmed: None,
            };
            self.by_client.insert(client_id.into(), row);
        }
        let row = self.by_client.get_mut(client_id)?;
        *row.drops.count_mut(reason) += 1;
        row.drops.last = now;
        let is_full = matches!(
            reason,
            Reason::Session(DropReason::QueueFullMessages | DropReason::QueueFullBytes)
        );
        let is_due = row.alarmed.is_none_or(|at| now >= at.add_millis(ALARM_MS));
        (is_full && is_due).then(|| {
            row.alarmed = Some(now);
            Alarm(row.drops.total())
        })
    }

    fn make_room(&mut self) {
        if self.by_client.len() >= SESSIONS {
            let mut last: Vec<_> = self.by_client.values().map(|r| r.drops.last).collect();
            let (_, median, _) = last.select_nth_unstable(SESSIONS / 2);
            let median = *median;
            self.by_client.retain(|_, row| row.drops.last > median);
        }
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SessionDrops> {
        self.by_client.values().map(|row| &row.drops)
    }
}

/// Those of several, each session once: who has lost something last comes first, `limit` at most.
pub(crate) fn merged(of: impl Iterator<Item = SessionDrops>, limit: usize) -> Vec<SessionDrops> {
    let mut all: HashMap<Box<str>, SessionDrops> = HashMap::default();
    for drops in of {
        all.entry(drops.client_id.clone())
            .and_modify(|known| known.add(&drops))
            .or_insert(drops);
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_unstable_by(|a, b| {
        let newest = b.last.cmp(&a.last);
        newest.then_with(|| a.client_id.cmp(&b.client_id))
    });
    all.truncate(limit);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Reason = Reason::Session(DropReason::QueueFullMessages);
    const EXPIRED: Reason = Reason::Session(DropReason::Expired);

    #[test]
    fn a_full_queue_is_told_once_an_hour() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.handle_drop("a", EXPIRED, Timestamp(10)), None);
        let first = sessions.handle_drop("a", FULL, Timestamp(20));
        assert_eq!(first, Some(Alarm(2)));
        assert_eq!(
            sessions.handle_drop("a", FULL, Timestamp(20 + ALARM_MS - 1)),
            None
        );
        let other = sessions.handle_drop("b", FULL, Timestamp(30));
        assert_eq!(other, Some(Alarm(1)));
        let next = sessions.handle_drop("a", FULL, Timestamp(20 + ALARM_MS));
        assert_eq!(next, Some(Alarm(4)));
        let drops = merged(sessions.iter().cloned(), 1).remove(0);
        assert_eq!((&*drops.client_id, drops.first), ("a", Timestamp(10)));
        assert_eq!(drops.counts, [(EXPIRED, 1), (FULL, 3)]);
    }

    #[test]
    fn who_has_lost_nothing_for_longest_is_forgotten() {
        let mut sessions = Sessions::default();
        for n in 0..=SESSIONS as u64 {
            sessions.handle_drop(&n.to_string(), FULL, Timestamp(1_000 + n));
        }
        assert_eq!(sessions.by_client.len(), SESSIONS / 2);
        assert!(sessions.by_client.contains_key(&*SESSIONS.to_string()));
        assert!(!sessions.by_client.contains_key("0"));
    }

    #[test]
    fn what_several_have_seen_of_a_session_is_added() {
        let of = |reason, first, last| SessionDrops {
            client_id: "a".into(),
            counts: vec![(reason, 2)],
            first: Timestamp(first),
            last: Timestamp(last),
        };
        let drops = [of(FULL, 5, 9), of(EXPIRED, 3, 4), of(FULL, 6, 8)];
        let sum = SessionDrops {
            client_id: "a".into(),
            counts: vec![(FULL, 4), (EXPIRED, 2)],
            first: Timestamp(3),
            last: Timestamp(9),
        };
        assert_eq!(merged(drops.into_iter(), 10), [sum]);
    }
}
