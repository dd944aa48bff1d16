//! Subscriptions that are changed for a client, wherever it is.

use std::sync::Arc;
use std::time::Duration;

use admin::api::{ClientState, SubscriptionChanged};
use admin::cluster::NodeId;
use admin::page::Missing;
use admin::problem::{Kind, Problem};
use inspection::{Answer, AskedChange, ChangePart, ChangeQuestion, Question};
use mqtt_proto::{ReasonCode, SubscriptionFilter};
use tokio::time::Instant;

use super::gather::{self, SHORTEST};
use super::known;
use super::state::Inspect;

/// How soon a client is asked again that was busy.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Changes a subscription of a client, wherever it is.
pub(super) async fn change(
    inspect: &Arc<Inspect>,
    client_id: String,
    change: AskedChange,
    budget: Duration,
) -> Result<SubscriptionChanged, Problem> {
    check(&change)?;
    let deadline = Instant::now() + budget;
    let mut partial: Vec<Missing>;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let (parts, missing) = known::client_parts(inspect, &client_id, left).await;
        partial = missing;
        let is_known = parts
            .iter()
            .any(|(.., part)| part.here.is_some() || part.record.is_some());
        if !is_known && partial.is_empty() {
            return Err(known::not_found(&client_id, partial));
        }
        let record = parts.into_iter().find_map(|(.., part)| part.record);
        let left = deadline.saturating_duration_since(Instant::now());
        let question = Question::ChangeSubscription(ChangeQuestion {
            client_id: client_id.clone(),
            knows_session: record.is_some(),
            user: record.and_then(|record| record.user),
            change: change.clone(),
        });
        let answers = gather::all(inspect, question, left).await;
        let (parts, missing) = gather::sort(answers, "subscription", |answer| match answer {
            Answer::ChangeSubscription(part) => Some(part),
            _ => None,
        });
        partial.extend(missing);
        let mut may_come = !partial.is_empty();
        for (node, node_name, part) in parts {
            match part {
                ChangePart::Answered { code, is_away } => {
                    let place = (!is_away).then_some((node, node_name));
                    return answer(client_id, &change, code, place);
                }
                ChangePart::MayCome => may_come = true,
                ChangePart::NotHere | ChangePart::Busy => {}
            }
        }
        if may_come || Instant::now() + TRY_AGAIN + SHORTEST >= deadline {
            return Err(nobody(&client_id, partial, may_come));
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// What is said if no node has answered.
fn nobody(client_id: &str, partial: Vec<Missing>, may_come: bool) -> Problem {
    if !partial.is_empty() {
        return known::not_found(client_id, partial).with("may_have_begun", true);
    }
    if may_come {
        let why = "the inbox shard has not changed the subscription in time; it may still do so";
        return Problem::new(Kind::NoLeader, why).with("may_have_begun", true);
    }
    let why =
        "the client connects, leaves, or waits for the answer to a packet of its own: ask again";
    Problem::new(Kind::Conflict, why)
}

/// What is said of a reason code of SUBACK or UNSUBACK.
fn answer(
    client_id: String,
    change: &AskedChange,
    code: u8,
    place: Option<(NodeId, String)>,
) -> Result<SubscriptionChanged, Problem> {
    let reason = ReasonCode::from_u8(code).unwrap_or(ReasonCode::UnspecifiedError);
    if reason.is_error() {
        let name = reason.name();
        let why = format!("the client would be refused: {name} (0x{code:02x})");
        let problem = Problem::new(Kind::Conflict, why);
        return Err(problem.with("reason_code", code).with("reason", name));
    }
    let given_filter = change.filter().to_owned();
    if reason == ReasonCode::NoSubscriptionExisted {
        let why = "the client has no subscription with this filter";
        return Err(Problem::new(Kind::NotFound, why).with("kind", "subscription"));
    }
    let (node, node_name) = place.unzip();
    Ok(SubscriptionChanged {
        client_id,
        given_filter,
        qos: matches!(change, AskedChange::Subscribe(_)).then_some(code),
        state: match node {
            Some(_) => ClientState::Connected,
            None => ClientState::Away,
        },
        node,
        node_name,
    })
}

/// What no client could ask either.
fn check(change: &AskedChange) -> Result<(), Problem> {
    let wrong = |pointer: &str, why: String| {
        Err(Problem::new(Kind::InvalidBody, why).with("pointer", pointer))
    };
    let parsed = match SubscriptionFilter::parse(change.filter()) {
        Ok(parsed) => parsed,
        Err(error) => return wrong("/filter", format!("`filter`: {error}")),
    };
    let new = match change {
        AskedChange::Subscribe(new) => new,
        AskedChange::Unsubscribe { .. } => return Ok(()),
    };
    if new.qos > 2 {
        return wrong("/qos", "`qos` is 0, 1 or 2".to_owned());
    }
    if new.retain_handling > 2 {
        return wrong(
            "/retain_handling",
            "`retain_handling` is 0, 1 or 2".to_owned(),
        );
    }
    if new
        .identifier
        .is_some_and(|id| !(1..=LARGEST_ID).contains(&id))
    {
        let why = format!("`identifier` is 1 to {LARGEST_ID}");
        return wrong("/identifier", why);
    }
    // [MQTT-3.8.3-4]
    if new.no_local && parsed.shared.is_some() {
        return wrong(
            "/no_local",
            "a shared subscription cannot have `no_local`".to_owned(),
        );
    }
    Ok(())
}

/// The largest Subscription Identifier.
const LARGEST_ID: u32 = 268_435_455;
