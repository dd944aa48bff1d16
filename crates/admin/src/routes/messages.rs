//! `/publish`, `/retained` and `/queues`: messages that are published, kept, or wait.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::input::{Body, BudgetParams, ListParams, Params, Segment, budget, limit, word};
use super::reading::{too_many, wrong_field};
use crate::api::{
    Message, NewMessage, PublishedMessage, QueueOrder, QueuePurge, QueueRow, QueuedMessage,
    RetainedLevelRow, RetainedRow,
};
use crate::api_state::{ListTurn, Turn};
use crate::backend::{Broker, QueueQuestion};
use crate::page::{LARGEST_LIMIT, List, Page};
use crate::problem::{Document, Kind, Problem};
use crate::rights::{Target, Untold};

/// Messages of one request at most.
///
/// Limit: messages of one request of an operator | {} and {LARGEST_BULK:bytes}; {broker::publishing::AT_ONCE} are with the
/// loops at once | 400 or 413; the next ones wait
const MOST_OF_A_REQUEST: usize = 1_000;

/// The largest body of a request with many messages, in bytes.
pub(super) const LARGEST_BULK: usize = 1024 * 1024;

/// Where it is sent to.
pub(super) const BULK: &str = "/api/v1/publish/bulk";

/// Publishes a message. The answer comes when a client's acknowledgement would: with QoS 1 and 2, each durable session that gets
/// the message has it on a majority of nodes. Nobody's rules judge it. 503 `not-stored`: a client would not be acknowledged.
#[utoipa::path(post, path = "/api/v1/publish", operation_id = "publish_message", tag = "messages", params(BudgetParams), request_body = NewMessage, responses((status = 200, description = "What an acknowledgement would say", body = PublishedMessage)))]
pub(super) async fn publish(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(message): Body<NewMessage>,
) -> Result<Response, Problem> {
    let target = message.topic.clone();
    let published = publish_one(&broker, message, &budget).await?;
    let answer = (Extension(Untold), Json(published));
    Ok(named(answer.into_response(), target))
}

async fn publish_one(
    broker: &Arc<dyn Broker>,
    message: NewMessage,
    budget: &BudgetParams,
) -> Result<PublishedMessage, Problem> {
    let mut results = broker.publish(vec![message], budget.budget()?).await?;
    let result = results.pop();
    result.unwrap_or_else(|| {
        Err(Problem::new(
            Kind::Internal,
            "the message was not published",
        ))
    })
}

/// An answer to a request that concerns something, as the log says.
fn named(mut response: Response, target: String) -> Response {
    response.extensions_mut().insert(Target(target));
    response
}

/// Messages that are to be published.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bulk {
    /// At most 1,000. Those of one topic are published in their order.
    messages: Vec<NewMessage>,
}

/// What became of one message: one of the two.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BulkResult {
    /// What an acknowledgement would say.
    published: Option<PublishedMessage>,
    /// Why there would be none.
    problem: Option<Document>,
}

/// Publishes messages, each answered for itself and in the order of the request. The body has at most 1 MiB.
#[utoipa::path(post, path = "/api/v1/publish/bulk", operation_id = "publish_messages", tag = "messages", params(BudgetParams), request_body = Bulk, responses((status = 200, description = "What became of each message, in the order of the request", body = Vec<BulkResult>)))]
pub(super) async fn bulk(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(bulk): Body<Bulk>,
) -> Result<Response, Problem> {
    if bulk.messages.len() > MOST_OF_A_REQUEST {
        let count = bulk.messages.len();
        return Err(too_many("/messages", count, MOST_OF_A_REQUEST));
    }
    let target = match bulk.messages.len() {
        1 => "1 message".to_owned(),
        count => format!("{count} messages"),
    };
    let results = broker.publish(bulk.messages, budget.budget()?).await?;
    let results = results.into_iter().map(|result| match result {
        Ok(published) => BulkResult {
            published: Some(published),
            problem: None,
        },
        Err(problem) => BulkResult {
            published: None,
            problem: Some(problem.document("")),
        },
    });
    let results: Vec<BulkResult> = results.collect();
    let answer = (Extension(Untold), Json(results));
    Ok(named(answer.into_response(), target))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RetainedQuery {
    /// The topic filter that topics match; `#` if it is not given.
    filter: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// Retained messages without their payloads, in the order of their topics, level by level. Those below `$SYS` are in no list.
#[utoipa::path(get, path = "/api/v1/retained", operation_id = "list_retained_messages", tag = "messages", params(RetainedQuery), responses((status = 200, description = "A page of retained messages", body = Page<RetainedRow>)))]
pub(super) async fn retained(
    _turn: ListTurn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<RetainedQuery>,
) -> Result<Json<Page<RetainedRow>>, Problem> {
    let list = List::new("retained", &[query.filter.as_deref()]);
    let params = ListParams {
        limit: query.limit,
        after: query.after,
        budget_ms: query.budget_ms,
    };
    let filter = query.filter.unwrap_or_else(|| "#".to_owned());
    let found = broker.retained(filter, params.range(&list)?).await?;
    Ok(Json(found.page(&list)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct LevelsQuery {
    /// The topic whose next levels are listed; without it the first levels of all topics.
    below: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// The levels below a topic that have retained messages, themselves or below them, as a tree is opened.
#[utoipa::path(get, path = "/api/v1/retained/levels", operation_id = "list_retained_levels", tag = "messages", params(LevelsQuery), responses((status = 200, description = "A page of levels", body = Page<RetainedLevelRow>)))]
pub(super) async fn levels(
    _turn: ListTurn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<LevelsQuery>,
) -> Result<Json<Page<RetainedLevelRow>>, Problem> {
    let list = List::new("levels", &[query.below.as_deref()]);
    let params = ListParams {
        limit: query.limit,
        after: query.after,
        budget_ms: query.budget_ms,
    };
    let range = params.range(&list)?;
    let found = broker.retained_levels(query.below, range).await?;
    Ok(Json(found.page(&list)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicQuery {
    /// The topic. It stands in the query because it can have any characters, `/` among them.
    topic: String,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// The retained message of a topic, with its payload.
#[utoipa::path(get, path = "/api/v1/retained/message", operation_id = "get_retained_message", tag = "messages", params(TopicQuery), responses((status = 200, description = "The message", body = Message)))]
pub(super) async fn retained_message(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<TopicQuery>,
) -> Result<Json<Message>, Problem> {
    let budget = budget(query.budget_ms.as_deref())?;
    Ok(Json(broker.retained_message(query.topic, budget).await?))
}

/// Makes a message the retained one of its topic: `POST /publish` with `retain`.
#[utoipa::path(put, path = "/api/v1/retained/message", operation_id = "set_retained_message", tag = "messages", params(BudgetParams), request_body = NewMessage, responses((status = 200, description = "What an acknowledgement would say", body = PublishedMessage)))]
pub(super) async fn retain(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(message): Body<NewMessage>,
) -> Result<Response, Problem> {
    let target = message.topic.clone();
    let message = NewMessage {
        retain: true,
        ..message
    };
    if message.payload.is_empty() {
        let why = "a retained message without a payload is none: DELETE removes that of a topic";
        return Err(Problem::new(Kind::InvalidBody, why).with("pointer", "/payload"));
    }
    let published = publish_one(&broker, message, &budget).await?;
    Ok(named(Json(published).into_response(), target))
}

/// Removes the retained message of a topic, as a client does: by publishing one without a payload, which subscribers get.
#[utoipa::path(delete, path = "/api/v1/retained/message", operation_id = "remove_retained_message", tag = "messages", params(TopicQuery), responses((status = 200, description = "What an acknowledgement would say", body = PublishedMessage)))]
pub(super) async fn remove_retained(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<TopicQuery>,
) -> Result<Response, Problem> {
    let TopicQuery { topic, budget_ms } = query;
    let time = budget(budget_ms.as_deref())?;
    let before = broker.retained_message(topic.clone(), time).await?;
    let message = NewMessage::empty(before.topic);
    let published = publish_one(&broker, message, &BudgetParams { budget_ms }).await?;
    Ok(named(Json(published).into_response(), topic))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct QueuesQuery {
    /// By what the queues are sorted, largest first: `messages`, `bytes` or `age`; `bytes` if it is not given.
    #[param(value_type = Option<QueueOrder>, inline)]
    by: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given. A node remembers 128 of each class.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// The largest, longest or oldest queues of durable sessions, as of some seconds ago.
#[utoipa::path(get, path = "/api/v1/queues", operation_id = "list_queues", tag = "messages", params(QueuesQuery), responses((status = 200, description = "The queues", body = Page<QueueRow>)))]
pub(super) async fn queues(
    _turn: ListTurn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<QueuesQuery>,
) -> Result<Json<Page<QueueRow>>, Problem> {
    let by = word(
        "by",
        query.by.as_deref(),
        "messages, bytes or age",
        |text| {
            let mut all = QueueOrder::ALL.into_iter();
            all.find(|order| order.name() == text)
        },
    )?;
    let limit = limit(query.limit.as_deref())?;
    let budget = budget(query.budget_ms.as_deref())?;
    let queues = broker
        .queues(by.unwrap_or_default(), limit.into(), budget)
        .await?;
    Ok(Json(queues.page()))
}

/// What waits for a durable session, without payloads, the oldest first.
#[utoipa::path(get, path = "/api/v1/sessions/{client_id}/queue", operation_id = "list_queued_messages", tag = "messages", params(("client_id" = String, Path, description = "The client identifier"), ListParams), responses((status = 200, description = "A page of messages that wait", body = Page<QueuedMessage>)))]
pub(super) async fn queue(
    turn: ListTurn,
    broker: State<Arc<dyn Broker>>,
    Segment(client_id): Segment<String>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<QueuedMessage>>, Problem> {
    list_queue(turn, broker, client_id, &params, false).await
}

/// Drops what waits for a durable session, with the reason `purged`. What its client may have got already stays, and what is on its
/// way to it arrives. What comes meanwhile stays, too.
#[utoipa::path(delete, path = "/api/v1/sessions/{client_id}/queue", operation_id = "empty_queue", tag = "messages", params(("client_id" = String, Path, description = "The client identifier"), BudgetParams), responses((status = 200, description = "What was dropped", body = QueuePurge)))]
pub(super) async fn purge_queue(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(client_id): Segment<String>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<QueuePurge>, Problem> {
    let purge = broker.purge_queue(client_id, budget.budget()?).await?;
    Ok(Json(purge))
}

/// Whose queue is asked for, in the body.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueLookup {
    /// The client identifier.
    client_id: String,
    /// The most items, 1 to 500; 100 if it is not given.
    #[serde(default)]
    limit: Option<u16>,
    /// The `next` of the page before.
    #[serde(default)]
    after: Option<String>,
}

/// The same with payloads of up to 16 KiB, and for identifiers that do not fit into a path.
#[utoipa::path(post, path = "/api/v1/queue", operation_id = "look_up_queue", tag = "messages", params(BudgetParams), request_body = QueueLookup, responses((status = 200, description = "A page of messages that wait", body = Page<QueuedMessage>)))]
pub(super) async fn queue_with_payloads(
    turn: ListTurn,
    broker: State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(lookup): Body<QueueLookup>,
) -> Result<(Extension<Untold>, Json<Page<QueuedMessage>>), Problem> {
    if let Some(limit) = lookup.limit
        && !(1..=LARGEST_LIMIT).contains(&limit)
    {
        let accepted = format!("a whole number from 1 to {LARGEST_LIMIT}");
        return Err(wrong_field("/limit", &limit.into(), &accepted));
    }
    let params = ListParams {
        limit: lookup.limit.map(|limit| limit.to_string()),
        after: lookup.after,
        budget_ms: budget.budget_ms,
    };
    let page = list_queue(turn, broker, lookup.client_id, &params, true).await?;
    // It reads.
    Ok((Extension(Untold), page))
}

async fn list_queue(
    _turn: ListTurn,
    State(broker): State<Arc<dyn Broker>>,
    client_id: String,
    params: &ListParams,
    payloads: bool,
) -> Result<Json<Page<QueuedMessage>>, Problem> {
    let list = List::new("queue", &[Some(&client_id)]);
    let range = params.range(&list)?;
    let question = QueueQuestion {
        client_id,
        payloads,
    };
    Ok(Json(broker.queue(question, range).await?.page(&list)))
}
