//! Subscriptions that an operator changes for a client.
//!
//! A connected client: as if it had sent SUBSCRIBE or UNSUBSCRIBE, with its rights, limits and retained messages, but the
//! operator is answered. Meanwhile nothing that the client sends is read; while it waits for an answer of its own, the
//! operator is told that it is busy.
//!
//! A client that is away: its inbox shard is to be asked, and this says what is admitted.

use authorization::{Action, Client};
use mqtt_proto::ReasonCode;
use mqtt_session::ClassId;
use net_api::Key;
use store_state::inbox::StoredSubscription;

use crate::clients::LoopIo;
use crate::node::Node;
use crate::rim::Rim;
use crate::settings::Settings;
use crate::subscribe::asked::{Change, ChangeSubscription, Changed};
use crate::subscribe::grant::{Below, Subscriptions, granted_code};
use crate::subscribe::parts::{AnswerTo, Parts};
use crate::subscribe::room::Room;
use crate::turn::Turn;

/// Carries a change out, or begins to.
pub(crate) fn change<R: Rim, Io: LoopIo>(
    turn: &mut Turn<'_, R, Io>,
    below: &mut Below<'_>,
    asked: ChangeSubscription,
) {
    let ChangeSubscription {
        session,
        client_id,
        change,
        answer,
    } = asked;
    let key = session.key();
    let client = turn.clients.get_mut(key).filter(|client| {
        client.session.client_id() == &*client_id
            && client.connection.is_some()
            && client.session.is_online()
    });
    let Some(client) = client else {
        return answer(Changed::NotHere);
    };
    if client.waits || client.rare.get().joining.is_some() || client.rare.get().parts.is_some() {
        return answer(Changed::Busy);
    }
    let reply = AnswerTo::Operator(Box::new(|reasons: Vec<ReasonCode>| {
        let reason = reasons.first().copied();
        answer(Changed::Answered(
            reason.unwrap_or(ReasonCode::UnspecifiedError),
        ));
    }));
    let id = match &change {
        Change::Subscribe(subscription) => subscription.id,
        Change::Unsubscribe(_) => 0,
    };
    client
        .rare
        .set(|of| &mut of.parts, Some(Box::new(Parts::new(reply, id, 0))));
    match change {
        Change::Subscribe(subscription) => subscribe(turn, below, key, &subscription),
        Change::Unsubscribe(filter) => {
            if let Err(part) = Subscriptions::store_removal(turn, below, key, vec![filter]) {
                Subscriptions::remove_part(turn, key, &part, None);
                Subscriptions::all_unsubscribed(turn, key);
            }
        }
    }
}

fn subscribe<R: Rim, Io: LoopIo>(
    turn: &mut Turn<'_, R, Io>,
    below: &mut Below<'_>,
    key: Key,
    subscription: &StoredSubscription,
) {
    let mut filters = std::iter::once((&*subscription.filter, subscription.options));
    let part = Subscriptions::next_part(turn, below, key, &mut filters);
    if let Err(part) = Subscriptions::store_part(turn, below, key, part) {
        Subscriptions::take_part(turn, key, part, None);
        // What it may still wait for ends the waiting.
        Subscriptions::all_subscribed(turn, below, key);
    }
}

/// A durable session whose client is away, as far as a subscription of it is to be judged.
#[derive(Clone, Copy, Debug)]
pub struct AwaySession<'a> {
    /// The client identifier.
    pub client_id: &'a str,
    /// Its user.
    pub user: Option<&'a str>,
    /// Whether it has a subscription with the same filter.
    pub has_filter: bool,
    /// Its class.
    pub class: ClassId,
}

/// The subscription to store for a client that is away, and the code that SUBACK would have. It is judged by the rules and
/// limits of the node. `held`: subscriptions that it has. What came with its last login is not known, and is applied when the client connects again.
///
/// # Errors
/// The reason code why it is refused.
pub fn admit_away<R: Rim>(
    node: &Node<R>,
    settings: &Settings,
    away: AwaySession<'_>,
    held: u64,
    subscription: StoredSubscription,
    now_ms: u64,
) -> Result<(StoredSubscription, ReasonCode), ReasonCode> {
    let limits = settings.limits_of(away.class);
    let policy = &limits.policy;
    let (parsed, options) = policy.admit_filter(&subscription.filter, subscription.options)?;
    let client = Client {
        client_id: away.client_id,
        username: away.user,
        address: None,
    };
    let action = Action::Subscribe;
    let verdict = settings
        .authorization
        .explain(&client, action, parsed.filter);
    if !verdict.is_allowed {
        return Err(ReasonCode::NotAuthorized);
    }
    if !away.has_filter {
        let mut room = Room::new(settings, node, limits.subscription_bytes, away.user, now_ms);
        if held >= u64::from(policy.subscriptions) || !room.take(&subscription.filter, node) {
            return Err(ReasonCode::QuotaExceeded);
        }
    }
    let stored = StoredSubscription {
        options,
        ..subscription
    };
    Ok((stored, granted_code(options.qos)))
}
