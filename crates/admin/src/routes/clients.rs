//! `/clients`: who is there, and its end.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::input::{Body, BudgetParams, ListParams, Params, Segment, word};
use super::member;
use super::reading::too_many;
use crate::api::{Client, ClientOrder, ClientRow, ClientState, Gone, QueuePurge};
use crate::api_state::{ListTurn, Turn};
use crate::backend::{Broker, ClientFilter};
use crate::page::{List, Page};
use crate::problem::{Document, Problem};
use crate::rights::Target;

/// Clients of one action at most.
const MOST_OF_AN_ACTION: usize = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// What identifiers begin with.
    prefix: Option<String>,
    /// The user; looks at each client, a bounded number of them for a page.
    user: Option<String>,
    /// The address of the connection, without the port; looks at each client.
    address: Option<String>,
    /// The node that clients are connected to, by its identifier or name.
    node: Option<String>,
    /// `connecting`, `connected`, `closing` or `away`.
    #[param(value_type = Option<ClientState>, inline)]
    state: Option<String>,
    /// `true`: those whose sessions are in the stores; `false`: the others. Looks at each client.
    #[param(value_type = Option<bool>)]
    durable: Option<String>,
    /// `identifier` if it is not given. `held`: only clients that were held within the last minute, those that were held
    /// longest first, on one page; each event loop of a node names 128 at most.
    #[param(value_type = Option<ClientOrder>, inline)]
    order: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// Clients in the order of their identifiers, or those that were held longest.
#[utoipa::path(get, path = "/api/v1/clients", operation_id = "list_clients", tag = "clients", params(ListQuery), responses((status = 200, description = "A page of clients", body = Page<ClientRow>)))]
pub(super) async fn list(
    _turn: ListTurn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page<ClientRow>>, Problem> {
    let filters = [
        query.prefix.as_deref(),
        query.user.as_deref(),
        query.address.as_deref(),
        query.node.as_deref(),
        query.state.as_deref(),
        query.durable.as_deref(),
        query.order.as_deref(),
    ];
    let list = List::new("clients", &filters);
    let params = ListParams {
        limit: query.limit,
        after: query.after,
        budget_ms: query.budget_ms,
    };
    let range = params.range(&list)?;
    let node = query.node.as_deref();
    let state = query.state.as_deref();
    let states = "connecting, connected, closing or away";
    let filter = ClientFilter {
        node: member::parameter(&broker, node)?,
        state: word("state", state, states, |text| {
            ClientState::ALL
                .into_iter()
                .find(|state| state.name() == text)
        })?,
        durable: word(
            "durable",
            query.durable.as_deref(),
            "true or false",
            |text| text.parse().ok(),
        )?,
        order: word(
            "order",
            query.order.as_deref(),
            "identifier or held",
            |text| match text {
                "identifier" => Some(ClientOrder::Identifier),
                "held" => Some(ClientOrder::Held),
                _ => None,
            },
        )?
        .unwrap_or_default(),
        prefix: query.prefix,
        user: query.user,
        address: query.address,
    };
    let found = broker.clients(filter, range).await?;
    Ok(Json(found.page(&list)))
}

/// One client in full.
#[utoipa::path(get, path = "/api/v1/clients/{client_id}", operation_id = "get_client", tag = "clients", params(("client_id" = String, Path, description = "The client identifier"), BudgetParams), responses((status = 200, description = "The client", body = Client)))]
pub(super) async fn one(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(client_id): Segment<String>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Client>, Problem> {
    let client = broker.client(client_id, budget.budget()?).await?;
    Ok(Json(client))
}

/// An identifier that does not fit into a path.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lookup {
    /// The client identifier.
    client_id: String,
}

/// The same as `GET` on the client, for identifiers that do not fit into a path.
#[utoipa::path(post, path = "/api/v1/lookup", operation_id = "look_up_client", tag = "clients", params(BudgetParams), request_body = Lookup, responses((status = 200, description = "The client", body = Client)))]
pub(super) async fn lookup(
    turn: Turn,
    broker: State<Arc<dyn Broker>>,
    budget: Params<BudgetParams>,
    Body(lookup): Body<Lookup>,
) -> Result<Json<Client>, Problem> {
    one(turn, broker, Segment(lookup.client_id), budget).await
}

/// Ends the connection of a client with DISCONNECT 0x98 (administrative action). Its session stays; the client may come back.
#[utoipa::path(delete, path = "/api/v1/clients/{client_id}", operation_id = "disconnect_client", tag = "clients", params(("client_id" = String, Path, description = "The client identifier"), BudgetParams), responses((status = 200, description = "What was ended", body = Gone)))]
pub(super) async fn disconnect(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(client_id): Segment<String>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Gone>, Problem> {
    let gone = broker.end(client_id, false, budget.budget()?).await?;
    Ok(Json(gone))
}

/// Ends the session of a client, and its connection if there is one: its subscriptions and what waits for it are gone.
#[utoipa::path(delete, path = "/api/v1/sessions/{client_id}", operation_id = "end_session", tag = "clients", params(("client_id" = String, Path, description = "The client identifier"), BudgetParams), responses((status = 200, description = "What was ended", body = Gone)))]
pub(super) async fn end_session(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Segment(client_id): Segment<String>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Gone>, Problem> {
    let gone = broker.end(client_id, true, budget.budget()?).await?;
    Ok(Json(gone))
}

/// The same for several clients, or for identifiers that do not fit into a path.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Action {
    /// What is done to each.
    action: ActionName,
    /// Whose, at most 100.
    client_ids: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ActionName {
    Disconnect,
    EndSession,
    EmptyQueue,
}

/// What an action did to one client: one of the three.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ActionResult {
    /// Whose.
    client_id: String,
    /// What was ended.
    done: Option<Gone>,
    /// What was dropped from its queue.
    emptied: Option<QueuePurge>,
    /// Why nothing was.
    problem: Option<Document>,
}

/// Disconnects clients, ends their sessions, or drops what waits for them.
#[utoipa::path(post, path = "/api/v1/actions", operation_id = "act_on_clients", tag = "clients", params(BudgetParams), request_body = Action, responses((status = 200, description = "What became of each client, in the order of the request", body = Vec<ActionResult>)))]
pub(super) async fn act(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
    Body(action): Body<Action>,
) -> Result<Response, Problem> {
    let budget = budget.budget()?;
    if action.client_ids.len() > MOST_OF_AN_ACTION {
        let count = action.client_ids.len();
        return Err(too_many("/client_ids", count, MOST_OF_AN_ACTION));
    }
    let target = action.client_ids.join(", ");
    let all = action.client_ids.into_iter().map(|client_id| {
        let broker = Arc::clone(&broker);
        async move {
            let id = client_id.clone();
            let (done, emptied) = match action.action {
                ActionName::Disconnect => (Some(broker.end(id, false, budget).await), None),
                ActionName::EndSession => (Some(broker.end(id, true, budget).await), None),
                ActionName::EmptyQueue => (None, Some(broker.purge_queue(id, budget).await)),
            };
            let (done, emptied) = (done.transpose(), emptied.transpose());
            let (done, emptied, problem) = match (done, emptied) {
                (Ok(done), Ok(emptied)) => (done, emptied, None),
                (Err(problem), _) | (_, Err(problem)) => (None, None, Some(problem.document(""))),
            };
            ActionResult {
                client_id,
                done,
                emptied,
                problem,
            }
        }
    });
    let results = futures_util::future::join_all(all).await;
    let mut response = Json(results).into_response();
    response.extensions_mut().insert(Target(target));
    Ok(response)
}
