//! Looks at the retained messages of a shard again and again, and removes what is not kept any longer.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use store_state::retain::{RetainedAt, RetainedEnd};
use tokio::time::{Instant, sleep};
use topic_router::Cursor;

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::retention::retained::held::{HeldRetained, Looked, ShardRetained};
use crate::retention::retained::look::Look;
use crate::retention::task::give;
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
pub(crate) async fn watch_retained<M: Kind>(
    shard: Arc<Shard<M>>,
    held: Arc<HeldRetained>,
    listener: Arc<dyn Listener>,
) {
    let _looked = Looked {
        held: &held,
        shard: shard.number,
    };
    let mut cuts = Vec::new();
    let mut waits_for_level = false;
    // When the shard has last removed something because there was too much.
    let mut shrunk_at = Instant::now();
    loop {
        let retention = listener.retention();
        let standing = shard.standing();
        let can_remove = standing.is_some_and(|(level, _)| level.ages_retained());
        if retention.retained.keep_all() || !can_remove {
            let waits = standing.is_some() && !retention.retained.keep_all();
            if waits && !waits_for_level {
                tracing::warn!(
                    shard = shard.number,
                    "rules for retained messages do nothing until the level of the cluster is raised"
                );
            }
            waits_for_level = waits;
            cuts.clear();
            held.remove(shard.number);
            sleep(PAUSE).await;
            continue;
        }
        let begun = Instant::now();
        let look = Look::new(retention, listener.now_ms(), &cuts);
        cuts.clear();
        let Some(look) = look_at_all(&shard, look, &*listener).await else {
            held.remove(shard.number);
            sleep(PAUSE).await;
            continue;
        };
        held.put(
            shard.number,
            ShardRetained {
                rules: look.totals(),
                looked_at: Instant::now(),
            },
        );
        if shard.routing.is_here() {
            let surplus = look.surplus(|place| held.rule_since(shrunk_at, place, shard.number));
            if !surplus.is_empty() {
                shrunk_at = Instant::now();
            }
            for (end, messages) in surplus.removals {
                if !remove(&shard, messages, end).await {
                    break;
                }
            }
            cuts = surplus.cuts;
        }
        if cuts.iter().any(Option::is_some) {
            sleep(PART_PAUSE).await;
        } else {
            let pause = begun.elapsed() * PAUSES_OF_A_LOOK;
            pause_while_kept(pause.clamp(PAUSE, LONGEST_PAUSE), &*listener).await;
        }
    }
}

/// Waits, but not longer than the rules are the same.
async fn pause_while_kept(pause: Duration, listener: &dyn Listener) {
    let (begun, rules) = (Instant::now(), listener.retention());
    while begun.elapsed() < pause && listener.retention().retained == rules.retained {
        sleep(PAUSE).await;
    }
}

/// One look at all messages; the leader removes what it finds. `None`: the shard does not serve, another node leads it now, no
/// majority answers, or the rules are others.
async fn look_at_all<M: Kind>(
    shard: &Shard<M>,
    mut look: Look,
    listener: &dyn Listener,
) -> Option<Look> {
    let is_led = shard.routing.is_here();
    let mut after: Option<Cursor> = None;
    loop {
        let (next, removals) = look_at_part(shard, &mut look, after.as_ref())?;
        if is_led {
            for (end, messages) in removals {
                if !remove(shard, messages, end).await {
                    return None;
                }
            }
        }
        after = next;
        if after.is_none() {
            if is_led && look.has_ageless {
                // Messages count from then on of which it is not known since when they are retained.
                remove(shard, Vec::new(), RetainedEnd::Age).await;
            }
            return Some(look);
        }
        if !look.is_by(&listener.retention()) {
            return None;
        }
        sleep(PART_PAUSE).await;
    }
}

type Removals = Vec<(RetainedEnd, Vec<RetainedAt>)>;

/// A part of a look: where the next one begins, and what is not kept any longer. `None`: the shard does not serve.
fn look_at_part<M: Kind>(
    shard: &Shard<M>,
    look: &mut Look,
    after: Option<&Cursor>,
) -> Option<(Option<Cursor>, Removals)> {
    let mut removals = Removals::new();
    let (mut count, mut bytes) = (0, 0);
    let mut work = WORK_AT_ONCE;
    let next = shard.look(|machine| {
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

/// Removes messages, and waits until that is done or refused. False: as of [`give`].
async fn remove<M: Kind>(shard: &Shard<M>, messages: Vec<RetainedAt>, end: RetainedEnd) -> bool {
    give(shard, M::remove_retained(messages, end)).await
}
