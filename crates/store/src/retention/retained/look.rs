//! Which messages a look finds that are not kept any longer.
//!
//! What is too old is found while it is looked at. Of a rule that has too much, the oldest messages go: a few ([`FEW`]) are known
//! after the look, exactly; for more, the look says from which age on they go, to a sixteenth ([`Ages`]), and the next one
//! finds them ([`Cut`]).
//!
//! Each shard that the node leads removes its share of what a rule has too much, in proportion to what the rule has there: the
//! oldest of the shard, which need not be the oldest of all.
//! Replicas of a shard on several nodes are limited by each of these; only the leader removes.

use std::collections::BinaryHeap;
use std::num::NonZero;
use std::sync::Arc;

use mqtt_session::Timestamp;
use store_state::Retention;
use store_state::retain::{
    RetainedAmount, RetainedAt, RetainedEnd, RetainedLimits, RetainedRules, RetainedSince,
    RetainedView,
};

use crate::retention::retained::ages::{Ages, Oldest};
use crate::retention::retained::held::{HeldByRule, RuleTotals};

/// So many of the oldest messages of a rule are removed exactly.
const FEW: usize = 256;

/// What a look goes by, and what it has found.
#[derive(Debug)]
pub(crate) struct Look {
    retention: Arc<Retention>,
    now: Timestamp,
    rules: Vec<RuleFound>,
    /// There are messages of which it is not known since when they count, and rules that go by that.
    pub(super) has_ageless: bool,
}

/// What is found of the messages of a rule.
#[derive(Debug)]
struct RuleFound {
    limits: RetainedLimits,
    cut: Option<Cut>,
    totals: RuleTotals,
    ages: Ages,
    oldest: BinaryHeap<Old>,
}

/// One of the oldest messages: the youngest of them is the first to leave for an older one.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Old {
    from: RetainedSince,
    topic: Box<str>,
    since: RetainedSince,
    counts: RuleTotals,
}

/// Messages of a rule that are to be removed by the next look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    end: RetainedEnd,
    oldest: Oldest,
}

/// What follows a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Surplus {
    /// To be removed now.
    pub(super) removals: Vec<(RetainedEnd, Vec<RetainedAt>)>,
    /// To be removed by the next look; by rule.
    pub(super) cuts: Vec<Option<Cut>>,
}

impl Surplus {
    pub(super) fn is_empty(&self) -> bool {
        self.removals.is_empty() && !self.cuts.iter().any(Option::is_some)
    }
}

impl Look {
    pub(crate) fn new(retention: Arc<Retention>, now: Timestamp, cuts: &[Option<Cut>]) -> Self {
        let places = 0..=retention.retained.rules.len();
        let rules = places.map(|place| RuleFound {
            limits: retention.retained.limits_at(place),
            cut: cuts.get(place).copied().flatten(),
            totals: RuleTotals::default(),
            ages: Ages::default(),
            oldest: BinaryHeap::new(),
        });
        Self {
            rules: rules.collect(),
            now,
            retention,
            has_ageless: false,
        }
    }

    /// Whether the rules are still those of the look.
    pub(super) fn is_by(&self, retention: &Retention) -> bool {
        self.retention.retained == retention.retained
    }

    /// A message is looked at: why it is not kept any longer, if it is not.
    pub(crate) fn handle_message(&mut self, message: &RetainedView<'_>) -> Option<RetainedEnd> {
        if RetainedRules::is_exempt(message.topic) {
            return None;
        }
        let place = self.retention.retained.place_of(message.topic);
        let found = self.rules.get_mut(place);
        let found = found.expect("each place has a rule, and the one behind the last has none");
        if found.limits == RetainedLimits::default() {
            return None;
        }
        let from = message.counts_from.unwrap_or_else(|| {
            self.has_ageless = true;
            RetainedSince(self.now.0)
        });
        let age = self.now.0.saturating_sub(from.0);
        if found.limits.age_ms.is_some_and(|most| age >= most.get()) {
            return Some(RetainedEnd::Age);
        }
        let counts = RuleTotals::one(message.bytes);
        if let Some(cut) = &mut found.cut
            && cut.takes(from, &counts)
        {
            return Some(cut.end);
        }
        found.totals = found.totals + counts;
        if found.limits.messages.is_some() || found.limits.bytes.is_some() {
            found.ages.add(from, counts, self.now);
            found.handle_old(from, message, counts);
        }
        None
    }

    /// What each rule has.
    pub(super) fn totals(&self) -> Vec<RuleTotals> {
        self.rules.iter().map(|found| found.totals).collect()
    }

    /// About how many messages of all rules there are too many, if no others are kept: by their number, or by their mean size.
    pub(crate) fn surplus_messages(&self) -> RetainedAmount {
        let of_rule = |found: &RuleFound| {
            let RuleTotals { messages, bytes } = found.totals;
            let excess = |has: RetainedAmount, most: Option<NonZero<u64>>| {
                has.minus(RetainedAmount(most.map_or(u64::MAX, NonZero::get)))
            };
            let mean = bytes.0.checked_div(messages.0).unwrap_or(0).max(1);
            let by_bytes = excess(bytes, found.limits.bytes).0.div_ceil(mean);
            excess(messages, found.limits.messages).max(RetainedAmount(by_bytes))
        };
        let all = self.rules.iter().map(of_rule);
        all.fold(RetainedAmount::default(), RetainedAmount::plus)
    }

    /// What the shard removes of what rules have too much. `held`: what a rule has in all replicas of the node, if that is known.
    pub(super) fn surplus(self, held: impl Fn(usize) -> Option<HeldByRule>) -> Surplus {
        let mut surplus = Surplus::default();
        for (place, found) in self.rules.into_iter().enumerate() {
            let own_excess = held(place).and_then(|held| found.excess(&held));
            let mut cut = None;
            if let Some((end, amount)) = own_excess {
                match found.few(end, amount) {
                    Some(few) => surplus.removals.push((end, few)),
                    None => {
                        let oldest = found.ages.oldest(amount, self.now, count_of(end));
                        cut = oldest.map(|oldest| Cut { end, oldest });
                    }
                }
            }
            surplus.cuts.push(cut);
        }
        surplus
    }
}

/// What is counted of messages that end for a reason.
fn count_of(end: RetainedEnd) -> impl Fn(&RuleTotals) -> RetainedAmount {
    move |totals| match end {
        RetainedEnd::Bytes => totals.bytes,
        _ => totals.messages,
    }
}

impl Cut {
    /// Whether a message is one of those that are removed.
    fn takes(&mut self, from: RetainedSince, counts: &RuleTotals) -> bool {
        let oldest = &mut self.oldest;
        if from < oldest.before {
            return true;
        }
        if from >= oldest.partly_before || oldest.of_part == RetainedAmount::default() {
            return false;
        }
        oldest.of_part = oldest.of_part.minus(count_of(self.end)(counts));
        true
    }
}

impl RuleFound {
    fn handle_old(&mut self, from: RetainedSince, message: &RetainedView<'_>, counts: RuleTotals) {
        if self.oldest.len() == FEW {
            if self
                .oldest
                .peek()
                .is_some_and(|youngest| youngest.from <= from)
            {
                return;
            }
            self.oldest.pop();
        }
        self.oldest.push(Old {
            from,
            topic: message.topic.into(),
            since: message.since,
            counts,
        });
    }

    /// What the shard has too much of, by what the node holds: messages first, and bytes when there are no more messages than
    /// there may be.
    fn excess(&self, held: &HeldByRule) -> Option<(RetainedEnd, RetainedAmount)> {
        let of = |end, most: Option<NonZero<u64>>| {
            let count = count_of(end);
            let all = count(&held.all);
            let excess = all.minus(RetainedAmount(most?.get()));
            // The shares of all shards are the excess together, to the message.
            let up_to = |count: RetainedAmount| {
                let share = u128::from(excess.0) * u128::from(count.0) / u128::from(all.0.max(1));
                RetainedAmount(u64::try_from(share).unwrap_or(u64::MAX))
            };
            let below = count(&held.below);
            let own = up_to(below.plus(count(&self.totals))).minus(up_to(below));
            (own > RetainedAmount::default()).then_some((end, own))
        };
        of(RetainedEnd::Messages, self.limits.messages)
            .or_else(|| of(RetainedEnd::Bytes, self.limits.bytes))
    }

    /// The oldest messages that are so many; `None`: more than are known.
    fn few(&self, end: RetainedEnd, amount: RetainedAmount) -> Option<Vec<RetainedAt>> {
        let mut oldest: Vec<&Old> = self.oldest.iter().collect();
        oldest.sort();
        let mut left = amount;
        let mut few = Vec::new();
        for old in oldest {
            if left == RetainedAmount::default() {
                break;
            }
            left = left.minus(count_of(end)(&old.counts));
            few.push(RetainedAt {
                topic: old.topic.clone(),
                since: old.since,
            });
        }
        (left == RetainedAmount::default()).then_some(few)
    }
}

#[cfg(test)]
mod tests {
    use store_state::retain::{RetainedRule, RetainedRules};

    use super::*;

    const NOW: u64 = 1_000_000;

    fn rule(filter: &str, limits: RetainedLimits) -> RetainedRule {
        RetainedRule {
            filter: filter.into(),
            limits,
        }
    }

    fn retention(rules: Vec<RetainedRule>, age_ms: u64) -> Arc<Retention> {
        Arc::new(Retention {
            retained: RetainedRules {
                rules,
                age_ms: NonZero::new(age_ms),
            },
            ..Retention::default()
        })
    }

    fn limits(age_ms: u64, messages: u64, bytes: u64) -> RetainedLimits {
        RetainedLimits {
            age_ms: NonZero::new(age_ms),
            messages: NonZero::new(messages),
            bytes: NonZero::new(bytes),
        }
    }

    /// Topics and their ages in ms.
    type Kept = Vec<(String, u64)>;

    /// What a look leaves, and why what it removes ends.
    fn look_at(look: &mut Look, kept: Kept, ends: &mut Vec<RetainedEnd>) -> Kept {
        let mut left = Kept::new();
        for (topic, age) in kept {
            let since = RetainedSince(NOW - age);
            let view = RetainedView {
                topic: &topic,
                since,
                counts_from: Some(since),
                bytes: RetainedAmount(100),
            };
            match look.handle_message(&view) {
                Some(end) => ends.push(end),
                None => left.push((topic, age)),
            }
        }
        left
    }

    /// Looks at a node's only shard until nothing is left to be removed.
    fn settle(retention: &Arc<Retention>, mut kept: Kept) -> (Kept, Vec<RetainedEnd>) {
        let (mut cuts, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let mut look = Look::new(Arc::clone(retention), Timestamp(NOW), &cuts);
            kept = look_at(&mut look, kept, &mut ends);
            let totals = look.totals();
            let surplus = look.surplus(|place| {
                Some(HeldByRule {
                    all: totals[place],
                    below: RuleTotals::default(),
                })
            });
            if surplus.is_empty() {
                return (kept, ends);
            }
            for (end, removals) in surplus.removals {
                kept.retain(|(topic, _)| removals.iter().all(|of| *of.topic != **topic));
                ends.extend(removals.iter().map(|_| end));
            }
            cuts = surplus.cuts;
        }
        panic!("it goes on for ever");
    }

    fn topics(of: &str, ages: impl IntoIterator<Item = u64>) -> Kept {
        let topic = |age| (format!("{of}/{age}"), age);
        ages.into_iter().map(topic).collect()
    }

    #[test]
    fn what_is_too_old_ends_by_the_first_rule_of_its_topic() {
        let rules = vec![
            rule("keep/#", RetainedLimits::default()),
            rule("short/+", limits(10, 0, 0)),
        ];
        let retention = retention(rules, 1_000);
        let kept = [
            topics("keep", [5, 5_000]),
            topics("short", [5, 10, 900]),
            topics("other", [999, 1_000]),
        ]
        .concat();
        let (left, ends) = settle(&retention, kept);
        let names: Vec<&str> = left.iter().map(|(topic, _)| &**topic).collect();
        assert_eq!(names, ["keep/5", "keep/5000", "short/5", "other/999"]);
        assert_eq!(ends, [RetainedEnd::Age; 3]);
    }

    #[test]
    fn a_few_messages_too_many_are_exactly_the_oldest() {
        let retention = retention(vec![rule("a/#", limits(0, 10, 0))], 0);
        let (left, ends) = settle(&retention, topics("a", (1..=14).rev()));
        assert_eq!(left, topics("a", (1..=10).rev()));
        assert_eq!(ends, [RetainedEnd::Messages; 4]);
    }

    #[test]
    fn of_many_messages_the_oldest_half_ends_in_two_looks() {
        let retention = retention(vec![rule("#", limits(0, 5_000, 0))], 0);
        let (left, ends) = settle(&retention, topics("a", 1..=10_000));
        assert_eq!((left.len(), ends.len()), (5_000, 5_000));
        let oldest = left.iter().map(|(_, age)| *age).max();
        assert!(
            oldest.is_some_and(|oldest| oldest <= 5_000 * 17 / 16),
            "{oldest:?}"
        );
        // All of one age: any of them.
        let same = (0..10_000).map(|n| (format!("b/{n}"), 7)).collect();
        let (left, _) = settle(&retention, same);
        assert_eq!(left.len(), 5_000);
    }

    #[test]
    fn bytes_count_when_there_are_no_more_messages_than_there_may_be() {
        let retention = retention(vec![rule("#", limits(0, 8, 500))], 0);
        let (left, ends) = settle(&retention, topics("a", 1..=10));
        assert_eq!(left, topics("a", 1..=5));
        let (messages, bytes) = ends.split_at(2);
        assert_eq!(messages, [RetainedEnd::Messages; 2]);
        assert_eq!(bytes, [RetainedEnd::Bytes; 3]);
    }

    #[test]
    fn shards_have_their_shares_to_the_message() {
        let retention = retention(vec![rule("#", limits(0, 10, 0))], 0);
        let shards = [4, 1, 9];
        let (mut below, mut removed) = (0, 0);
        for own in shards {
            let mut look = Look::new(Arc::clone(&retention), Timestamp(NOW), &[]);
            look_at(&mut look, topics("a", 1..=own), &mut Vec::new());
            let of = |messages| RuleTotals {
                messages: RetainedAmount(messages),
                bytes: RetainedAmount(0),
            };
            let held = HeldByRule {
                all: of(shards.iter().sum()),
                below: of(below),
            };
            let surplus = look.surplus(|place| (place == 0).then_some(held));
            removed += surplus
                .removals
                .iter()
                .map(|(_, of)| of.len())
                .sum::<usize>();
            below += own;
        }
        assert_eq!(removed, 4);
    }

    #[test]
    fn a_message_of_unknown_age_is_as_old_as_the_look() {
        let mut look = Look::new(retention(Vec::new(), 1), Timestamp(NOW), &[]);
        let view = RetainedView {
            topic: "a",
            since: RetainedSince::default(),
            counts_from: None,
            bytes: RetainedAmount(1),
        };
        assert_eq!(look.handle_message(&view), None);
        assert!(look.has_ageless);
    }
}
