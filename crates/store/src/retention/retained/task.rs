//! Looks at the retained messages of a shard again and again, and removes what is not kept any longer.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use mqtt_session::Timestamp;
use store_state::retain::{RetainedAt, RetainedEnd};
use tokio::time::{Instant, sleep};
use topic_router::Cursor;

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::retention::retained::held::{HeldRetained, Looked, ShardRetained};
use crate::retention::retained::look::Look;
use crate::retention::task::carry_out;
use crate::shard::handle::Shard;

/// Time from one look at a shard to the next, at least.
const PAUSE: Duration = Duration::from_secs(1);

/// The same at most. A look at many messages is followed by one of so many times its own.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const PAUSES_OF_A_LOOK: u32 = 4;

/// What a part of a look does at most, as [`topic_router::RetainedIndex::walk`] counts it: some 100 µs, and the comparison with the rules.
const WORK_AT_ONCE: usize = 1_024;

/// Time between two parts of a look.
const PART_PAUSE: Duration = Duration::from_millis(10);

/// Messages that one operation removes at most, and bytes of their topics: what else the shard has to do comes in between.
const AT_ONCE: usize = 256;
const BYTES_AT_ONCE: usize = 65_536;

/// Looks at the retained messages of a shard for as long as it is there.
pub(crate) struct RetainedWatch<M: Kind> {
    pub(crate) shard: Arc<Shard<M>>,
    pub(crate) held: Arc<HeldRetained>,
    pub(crate) listener: Arc<dyn Listener>,
}

type Removals = Vec<(RetainedEnd, Vec<RetainedAt>)>;

impl<M: Kind> RetainedWatch<M> {
    pub(crate) async fn run(self) {
        let number = self.shard.number;
        let _looked = Looked {
            held: &self.held,
            shard: number,
        };
        let mut cuts = Vec::new();
        let mut waits_for_level = false;
        // When the shard has last removed something because there was too much.
        let mut shrunk_at = Instant::now();
        loop {
            let retention = self.listener.retention();
            let standing = self.shard.standing();
            let can_remove = standing.is_some_and(|(level, _)| level.ages_retained());
            let keeps_all = retention.retained.keep_all();
            let waits = standing.is_some() && !keeps_all && !can_remove;
            if waits && !waits_for_level {
                tracing::warn!(
                    shard = number,
                    "rules for retained messages do nothing until the level of the cluster is raised"
                );
            }
            waits_for_level = waits;
            let begun = Instant::now();
            let last_cuts = std::mem::take(&mut cuts);
            let look = match can_remove && !keeps_all {
                true => {
                    let now = Timestamp(self.listener.now_ms());
                    self.look(Look::new(retention, now, &last_cuts)).await
                }
                false => None,
            };
            let Some(look) = look else {
                self.held.remove(number);
                sleep(PAUSE).await;
                continue;
            };
            let found = ShardRetained {
                rules: look.totals(),
                looked_at: Instant::now(),
            };
            self.held.put(number, found);
            if self.shard.routing.is_here() {
                let surplus = look.surplus(|place| self.held.rule_since(shrunk_at, place, number));
                if !surplus.is_empty() {
                    shrunk_at = Instant::now();
                }
                self.remove(surplus.removals).await;
                cuts = surplus.cuts;
            }
            match cuts.iter().any(Option::is_some) {
                true => sleep(PART_PAUSE).await,
                false => self.pause(begun.elapsed() * PAUSES_OF_A_LOOK).await,
            }
        }
    }

    /// Waits for about so long, and not longer than the rules are the same.
    async fn pause(&self, pause: Duration) {
        let pause = pause.clamp(PAUSE, LONGEST_PAUSE);
        let (begun, rules) = (Instant::now(), self.listener.retention());
        while begun.elapsed() < pause && self.listener.retention().retained == rules.retained {
            sleep(PAUSE).await;
        }
    }

    /// One look at all messages; the leader removes what it finds. `None`: the shard does not serve, another node leads it now, no
    /// majority answers, or the rules are others.
    async fn look(&self, mut look: Look) -> Option<Look> {
        let is_led = self.shard.routing.is_here();
        let mut after: Option<Cursor> = None;
        loop {
            let (next, removals) = self.look_at_part(&mut look, after.as_ref())?;
            if is_led && !self.remove(removals).await {
                return None;
            }
            after = next;
            if after.is_none() {
                if is_led && look.has_ageless {
                    // Messages count from then on of which it is not known since when they are retained.
                    self.remove(vec![(RetainedEnd::Age, Vec::new())]).await;
                }
                return Some(look);
            }
            if !look.is_by(&self.listener.retention()) {
                return None;
            }
            sleep(PART_PAUSE).await;
        }
    }

    /// A part of a look: where the next one begins, and what is not kept any longer. `None`: the shard does not serve.
    fn look_at_part(
        &self,
        look: &mut Look,
        after: Option<&Cursor>,
    ) -> Option<(Option<Cursor>, Removals)> {
        let mut removals = Removals::new();
        let (mut count, mut bytes) = (0, 0);
        let mut work = WORK_AT_ONCE;
        let next = self.shard.look(|machine| {
            machine.look_at_retained(after, &mut work, &mut |message| {
                let Some(end) = look.handle_message(&message) else {
                    return ControlFlow::Continue(());
                };
                let removal = message.to_removal();
                match removals.iter_mut().find(|(of, _)| *of == end) {
                    Some((_, messages)) => messages.push(removal),
                    None => removals.push((end, vec![removal])),
                }
                count += 1;
                bytes += message.topic.len();
                match count == AT_ONCE || bytes >= BYTES_AT_ONCE {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
        })?;
        Some((next, removals))
    }

    /// Removes messages, and waits until that is done or refused. False: as of [`carry_out`].
    async fn remove(&self, removals: Removals) -> bool {
        let mut is_done = true;
        let parts = removals.into_iter();
        let mut parts = parts.flat_map(|(end, messages)| {
            let parts = in_parts(messages).into_iter();
            parts.map(move |part| (end, part))
        });
        while is_done && let Some((end, messages)) = parts.next() {
            is_done = carry_out(&self.shard, M::remove_retained(messages, end)).await;
        }
        is_done
    }
}

/// What one operation removes each: topics may be long. At least one part, which may be empty.
fn in_parts(messages: Vec<RetainedAt>) -> Vec<Vec<RetainedAt>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for message in messages {
        bytes += message.topic.len();
        match parts.last_mut() {
            Some(part) if part.is_empty() || bytes <= BYTES_AT_ONCE => part.push(message),
            _ => {
                bytes = message.topic.len();
                parts.push(vec![message]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use store_state::retain::RetainedSince;

    use super::*;

    #[test]
    fn long_topics_go_in_several_operations() {
        let of = |len: usize| RetainedAt {
            topic: "x".repeat(len).into(),
            since: RetainedSince(1),
        };
        let lengths = [30_000, 30_000, 30_000, 65_535, 65_536, 1, 2];
        let parts = in_parts(lengths.map(of).to_vec());
        let parts: Vec<Vec<usize>> = parts
            .iter()
            .map(|part| part.iter().map(|of| of.topic.len()).collect())
            .collect();
        let expected: [&[usize]; 5] = [&[30_000, 30_000], &[30_000], &[65_535], &[65_536], &[1, 2]];
        assert_eq!(parts, expected);
        assert_eq!(in_parts(Vec::new()), [Vec::new()]);
    }
}
