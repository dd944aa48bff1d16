//! Looks at the queues of a shard again and again, and drops what is not kept any longer.

use std::sync::Arc;
use std::time::Duration;

use mqtt_session::Timestamp;
use store_state::inbox::inspect::LeftPart;
use store_state::inbox::{QueueView, RetentionLimit, SessionName};
use store_state::{CorrelationId, Level};
use tokio::time::{Instant, sleep};

use crate::api::listener::Listener;
use crate::api::stats::HeldBack;
use crate::kinds::kind::Kind;
use crate::retention::away::AwayMembers;
use crate::retention::found::Found;
use crate::retention::held::{HeldQueues, Looked, ShardQueues};
use crate::retention::lag::{LagChange, LagWatch};
use crate::retention::policy::{Trim, plan};
use crate::retention::tried::Tried;
use crate::shard::handle::Shard;
use crate::shard::queues::look_at_queues;
use crate::shard::request::{weigh, work};

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Inboxes that are looked at before the shard does something else: about a tenth of a millisecond.
const INBOXES_AT_ONCE: usize = 1_024;

/// Time between two parts of a look.
const PART_PAUSE: Duration = Duration::from_millis(10);

/// How often is looked whether what was dropped is dropped.
const LOOK: Duration = Duration::from_millis(2);

/// How long that is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Messages, and their accounted bytes, that one operation leaves to a group at most. A quarter of what a queue may hold, if that
/// is less: the member that gets them has to have room for them.
///
/// Limit: what members of a shared group that are away leave to it in a second | for each shard and group
/// {LEFT_AT_ONCE.0} messages or {LEFT_AT_ONCE.1:bytes}, a quarter of a queue at most; {LEFT_MOST} groups | it waits
const LEFT_AT_ONCE: (usize, usize) = (1_024, 1024 * 1024);

/// Groups that have a turn after one look at most.
const LEFT_MOST: usize = 64;

/// Log lines about sessions that lag, after one look of one shard, at most.
const LINES: usize = 16;

/// Looks at the queues of a shard for as long as it is there.
pub(crate) async fn watch_queues<M: Kind>(
    shard: Arc<Shard<M>>,
    held: Arc<HeldQueues>,
    listener: Arc<dyn Listener>,
) {
    let _looked = Looked {
        held: &held,
        shard: shard.number,
    };
    let mut lag = LagWatch::default();
    let mut tried = Tried::default();
    let mut away = AwayMembers::default();
    let mut looked_at = Instant::now();
    let mut settled_at = looked_at;
    // When the shard has last dropped something because there was too much.
    let mut shrunk_at = looked_at;
    loop {
        let settles = settled_at.elapsed() >= PAUSE;
        if settles {
            settled_at = Instant::now();
        }
        let rules = listener.retention();
        let mut found = Found::default();
        let notes = (&mut found, &mut away);
        if look(&shard, notes, settles, &*listener).await.is_none() {
            held.remove(shard.number);
            sleep(PAUSE).await;
            continue;
        }
        let elapsed = looked_at.elapsed().as_secs_f64();
        looked_at = Instant::now();
        found.rate(&held.of(shard.number), elapsed);
        let is_led = shard.routing.is_here();
        let classes = found.classes.clone();
        let queues = ShardQueues {
            classes,
            is_led,
            looked_at,
        };
        held.put(shard.number, queues);
        if !is_led {
            lag = LagWatch::default();
            away = AwayMembers::default();
            sleep(PAUSE).await;
            continue;
        }
        log(lag.handle_look(std::mem::take(&mut found.lagging), !found.more_lag));
        tried.leave_out_again(&mut found.overdue);
        let plan = plan(&found, held.bytes_since(shrunk_at).as_ref(), &rules);
        let mut trims = plan.trims.iter();
        let mut is_done = true;
        while is_done && let Some(trim) = trims.next() {
            is_done = carry_out(&shard, trim.op::<M>(shard.standing())).await;
        }
        if is_done {
            away.leave_to_groups(&shard, &*listener).await;
        }
        if plan.trims.iter().any(Trim::is_for_bytes) {
            shrunk_at = Instant::now();
        }
        if plan.has_more || !is_done {
            tried.forget();
        }
        if !plan.has_more || !is_done {
            sleep(PAUSE).await;
        }
    }
}

/// One look. `None`: the shard does not serve.
async fn look<M: Kind>(
    shard: &Shard<M>,
    (found, away): (&mut Found, &mut AwayMembers),
    settles: bool,
    listener: &dyn Listener,
) -> Option<()> {
    let rules = listener.retention();
    let mut pass = None;
    away.handle_look();
    loop {
        let now = Timestamp(listener.now_ms());
        let tell = |queue: QueueView<'_>, given| {
            found.add(&queue, given, (&rules, now));
            away.handle_queue(&queue, now, rules.handover_away_ms);
        };
        if look_at_queues(shard, &mut pass, (INBOXES_AT_ONCE, settles), tell)? {
            if settles {
                shard.send_out(listener);
            }
            return Some(());
        }
        sleep(PART_PAUSE).await;
    }
}

/// Gives the shard an operation, and waits until that is done or refused. False: there is none, another node leads, or no majority
/// answers; what follows would only wait in the queue behind it.
pub(super) async fn carry_out<M: Kind>(shard: &Shard<M>, op: Option<M::Op>) -> bool {
    let op = op.filter(|_| shard.routing.is_here());
    let is_here = op.is_some();
    if let Some(op) = op {
        let bytes = weigh(&op);
        shard.give(work(CorrelationId::NONE, op, false), bytes);
    }
    let (given, since) = (shard.given(), Instant::now());
    while !shard.has_finished(given) && shard.routing.is_here() && since.elapsed() < PATIENCE {
        sleep(LOOK).await;
    }
    is_here && shard.has_finished(given)
}

impl Trim {
    /// The operation that drops the messages, or leaves them to a group, if the shard can have it.
    pub(super) fn op<M: Kind>(&self, standing: Option<(Level, HeldBack)>) -> Option<M::Op> {
        let may_trim = standing.is_some_and(|(level, _)| self.limit.is_of(level));
        let session = SessionName::Inbox(self.inbox);
        let op = M::trim(session, self.sequences.clone(), self.limit.clone());
        op.filter(|_| may_trim)
    }
}

impl AwayMembers {
    /// Lets each group that has a member with room have a part of what waits with its members that are away.
    async fn leave_to_groups<M: Kind>(&mut self, shard: &Shard<M>, listener: &dyn Listener) {
        let queue = listener.limits().queue;
        let quarter = |of: u64| usize::try_from(of / 4).unwrap_or(usize::MAX);
        let (messages, bytes) = LEFT_AT_ONCE;
        let messages = messages.min(quarter(queue.messages.into())).max(1);
        let limits = (messages, bytes.min(quarter(queue.bytes)).max(1));
        let due = self.take_due().into_iter();
        let due = due.filter(|(group, _)| listener.has_room_in_group(group));
        let mut is_done = true;
        let mut due = due.take(LEFT_MOST);
        while is_done && let Some((group, members)) = due.next() {
            self.handle_turn(&group);
            let mut parts = members.into_iter().filter_map(|due| {
                let of = (due.inbox, &*group);
                let from = due.unseen.start;
                let found = shard
                    .read_tables_by(|machine, table| machine.left_part(of, from, limits, table));
                let LeftPart(sequences) = found.flatten()?;
                self.handle_looked(due.inbox, &group, sequences.start);
                (!sequences.is_empty()).then_some((due, sequences))
            });
            if let Some((due, sequences)) = parts.next() {
                let limit = RetentionLimit::Away {
                    epoch: due.epoch.0,
                    group: group.clone(),
                };
                let trim = Trim {
                    inbox: due.inbox,
                    sequences,
                    limit,
                };
                is_done = carry_out(shard, trim.op::<M>(shard.standing())).await;
            }
        }
    }
}

fn log(changes: Vec<LagChange>) {
    let left_out = changes.len().saturating_sub(LINES);
    for change in changes.into_iter().take(LINES) {
        match change {
            LagChange::Lags(of) => tracing::warn!(
                client = &*of.client_id,
                messages = of.messages.0,
                age_s = of.age.as_secs(),
                "a session lags behind"
            ),
            LagChange::CaughtUp(client) => {
                tracing::info!(client = &*client, "a session has caught up");
            }
        }
    }
    if left_out > 0 {
        tracing::warn!(left_out, "more sessions lag behind, or have caught up");
    }
}
