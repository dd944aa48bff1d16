//! Subscriptions that this node changes for a client: by the loop that has its connection, or by the shard that has its inbox
//! while it is away.
//!
//! Invariant: an inbox is asked with the epoch of the connection that left it last, so nothing comes of what is asked when the
//! client has connected again meanwhile.

use std::sync::Arc;
use std::time::Duration;

use admin::page::MissingReason;
use broker_core::{AwaySession, Changed, SubscriptionChange, admit_away};
use inspection::{AskedChange, ChangePart, ChangeQuestion};
use mqtt_proto::{QoS, ReasonCode, RetainHandling, SubscriptionOptions};
use store_state::CorrelationId;
use store_state::api::Store as _;
use store_state::inbox::{InboxOp, StoredSubscription};
use tokio::time::Instant;

use super::loops;
use super::state::Inspect;

/// How soon is looked again whether an inbox has done what it was asked.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What is left of a question's time when a node stops looking.
const LEFT: Duration = Duration::from_millis(10);

/// The change as a loop carries it out; `None`: no client could ask for it.
fn to_core(change: &AskedChange) -> Option<SubscriptionChange> {
    Some(match change {
        AskedChange::Unsubscribe { filter } => {
            SubscriptionChange::Unsubscribe(filter.as_str().into())
        }
        AskedChange::Subscribe(new) => SubscriptionChange::Subscribe(StoredSubscription {
            filter: new.filter.as_str().into(),
            options: SubscriptionOptions {
                qos: QoS::from_u8(new.qos)?,
                no_local: new.no_local,
                retain_as_published: new.retain_as_published,
                retain_handling: retain_handling(new.retain_handling)?,
            },
            id: new.identifier.unwrap_or(0),
        }),
    })
}

fn retain_handling(number: u8) -> Option<RetainHandling> {
    match number {
        0 => Some(RetainHandling::SendAtSubscribe),
        1 => Some(RetainHandling::SendIfNew),
        2 => Some(RetainHandling::DoNotSend),
        _ => None,
    }
}

/// Carries out what this node is to do.
pub(super) async fn change_here(
    inspect: &Arc<Inspect>,
    question: &ChangeQuestion,
    deadline: Instant,
) -> Result<ChangePart, MissingReason> {
    // It was checked where it was asked.
    let change = to_core(&question.change).ok_or(MissingReason::Failed)?;
    let client_id = question.client_id.as_str();
    if let Some(home) = inspect.node.home_of(client_id) {
        let asked = loops::change(&inspect.node, home, client_id.into(), change.clone());
        match asked.await? {
            Changed::Answered(reason) => {
                return Ok(ChangePart::Answered {
                    code: reason as u8,
                    is_away: false,
                });
            }
            Changed::Busy => return Ok(ChangePart::Busy),
            Changed::NotHere => {}
        }
    }
    match question.knows_session {
        true => change_away(inspect, question, change, deadline).await,
        // Nobody knows whose rules hold.
        false => Ok(ChangePart::NotHere),
    }
}

/// Has the inbox of an absent client change, if this node leads its shard, and waits until it has.
async fn change_away(
    inspect: &Arc<Inspect>,
    question: &ChangeQuestion,
    change: SubscriptionChange,
    deadline: Instant,
) -> Result<ChangePart, MissingReason> {
    let (node, client_id) = (&inspect.node, question.client_id.as_str());
    let store = node.store();
    let (_, inbox) = store.inspect().inbox(client_id);
    let Some(inbox) = inbox.found() else {
        return Ok(ChangePart::NotHere);
    };
    if inbox.is_attached {
        return Ok(ChangePart::Busy);
    }
    let had = store
        .inspect()
        .subscription(client_id, question.change.filter());
    let had = had.found();
    let answered = |reason: ReasonCode| ChangePart::Answered {
        code: reason as u8,
        is_away: true,
    };
    let session = store.session_name(client_id, inbox.number.0);
    let (op, wanted, reason) = match change {
        SubscriptionChange::Subscribe(subscription) => {
            let away = AwaySession {
                client_id,
                user: question.user.as_deref(),
                has_filter: had.is_some(),
                class: inbox.class,
            };
            let held = inbox.subscriptions;
            let settings = Arc::clone(&node.settings.read());
            let now_ms = node.rim.clock.now_ms();
            match admit_away(node, &settings, away, held, subscription, now_ms) {
                Ok((subscription, reason)) => {
                    let op = InboxOp::Subscribe {
                        session,
                        epoch: inbox.epoch.0,
                        subscriptions: vec![subscription.clone()],
                    };
                    (op, Some(subscription), reason)
                }
                Err(reason) => return Ok(answered(reason)),
            }
        }
        SubscriptionChange::Unsubscribe(_) if had.is_none() => {
            return Ok(answered(ReasonCode::NoSubscriptionExisted));
        }
        SubscriptionChange::Unsubscribe(filter) => {
            let op = InboxOp::Unsubscribe {
                session,
                epoch: inbox.epoch.0,
                filters: vec![filter],
            };
            (op, None, ReasonCode::Success)
        }
    };
    store.inbox(CorrelationId::NONE, op);
    loop {
        let look = store
            .inspect()
            .subscription(client_id, question.change.filter());
        if look.is_here() && look.found() == wanted {
            return Ok(answered(reason));
        }
        if Instant::now() + LEFT >= deadline {
            return Ok(ChangePart::MayCome);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
