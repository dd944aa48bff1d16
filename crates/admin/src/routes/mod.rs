//! The paths, in groups by the role that they need.

#![expect(
    unused_qualifications,
    reason = "utoipa qualifies the parameters that it describes"
)]

mod access;
mod bans;
mod clients;
mod cluster;
mod documented;
mod drops;
mod events;
mod health;
mod input;
mod login;
mod logins;
mod matching;
mod member;
mod messages;
mod nodes;
mod outlets;
mod profiles;
mod rates;
mod reading;
mod rules;
mod settings;
mod subscriptions;
mod top;

use std::sync::{Arc, LazyLock};

use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::api_state::Api;
use crate::backend::Broker;
use crate::dashboard;
use crate::problem::{Kind, Problem};
use crate::requests;
use crate::rights::{Gate, Needed, Rights, Role, authorize, check_host};

/// The largest body of a request, in bytes.
const LARGEST_BODY: usize = 64 * 1024;

/// All paths of a node that serves.
pub fn router(broker: Arc<dyn Broker>, access: Arc<dyn Access>, rights: &Arc<Rights>) -> Router {
    let gate = Gate::new(Arc::clone(rights), Arc::clone(&broker), access.trail());
    let api = Api::new(broker, access);
    let may = |role| middleware::from_fn_with_state((gate.clone(), Needed::Role(role)), authorize);
    let bodies =
        middleware::from_fn_with_state(longest_body as fn(&str) -> usize, requests::read_body);
    let [viewers, operators, administrators] = Role::ALL.map(|role| {
        let (routes, _) = group(role).split_for_parts();
        // Rights first, then the body, and a turn last: bodies that do not come keep nobody out.
        routes.route_layer(bodies.clone()).route_layer(may(role))
    });
    let (audit, _) = audit().split_for_parts();
    let may_audit = middleware::from_fn_with_state((gate.clone(), Needed::Audit), authorize);
    let audit = audit.route_layer(bodies.clone()).route_layer(may_audit);
    let (logins, _) = logins().split_for_parts();
    public(rights)
        .merge(logins.route_layer(bodies.clone()).layer(Extension(gate)))
        .merge(dashboard::router())
        .merge(viewers)
        .merge(operators)
        .merge(administrators)
        .merge(audit)
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(middleware::from_fn(requests::wrap))
        .with_state(api)
}

/// What is answered before the node serves.
pub fn not_ready() -> Router {
    let says_no = || async { (StatusCode::SERVICE_UNAVAILABLE, health::NOT_READY) };
    Router::new()
        .route("/healthz", get(health::healthy))
        .fallback(says_no)
}

/// The description of `/api/v1`, OpenAPI 3.1.
#[must_use]
pub fn document() -> OpenApi {
    let groups = Role::ALL.map(|role| {
        let group = match role {
            Role::Administrator => group(role).merge(audit()),
            Role::Viewer | Role::Operator => group(role),
        };
        (role, group.split_for_parts().1)
    });
    documented::document(logins().split_for_parts().1, groups)
}

fn public(rights: &Arc<Rights>) -> Router<Api> {
    let of_host = middleware::from_fn_with_state(Arc::clone(rights), check_host);
    Router::new()
        .route("/metrics", get(health::metrics).layer(of_host))
        .route("/healthz", get(health::healthy))
        .route("/readyz", get(health::ready))
}

/// Paths of the API that need no right.
fn logins() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(login::login))
        .routes(routes!(login::methods))
        .routes(routes!(login::first))
}

/// Paths for administrators, and for those who may audit.
fn audit() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(access::audit::list))
        .routes(routes!(access::audit::head))
        .routes(routes!(access::audit::export))
}

fn group(role: Role) -> OpenApiRouter<Api> {
    match role {
        Role::Viewer => OpenApiRouter::new()
            .routes(routes!(openapi))
            .routes(routes!(login::who))
            .routes(routes!(login::logout))
            .routes(routes!(login::password))
            .routes(routes!(cluster::status))
            .routes(routes!(nodes::list))
            .routes(routes!(nodes::one))
            .routes(routes!(nodes::health))
            .routes(routes!(settings::list))
            .routes(routes!(settings::stats))
            .routes(routes!(settings::history))
            .routes(routes!(cluster::shards))
            .routes(routes!(cluster::shard_history))
            .routes(routes!(cluster::shard))
            .routes(routes!(cluster::listeners))
            .routes(routes!(cluster::alarms))
            .routes(routes!(clients::list))
            .routes(routes!(clients::one))
            .routes(routes!(clients::lookup))
            .routes(routes!(subscriptions::list))
            .routes(routes!(subscriptions::of_client))
            .routes(routes!(subscriptions::groups))
            .routes(routes!(subscriptions::members))
            .routes(routes!(matching::matching))
            .routes(routes!(rules::test))
            .routes(routes!(rules::list))
            .routes(routes!(messages::retained))
            .routes(routes!(messages::levels))
            .routes(routes!(messages::queues))
            .routes(routes!(messages::queue))
            .routes(routes!(top::publishers))
            .routes(routes!(top::subscribers))
            .routes(routes!(top::topics))
            .routes(routes!(events::stream))
            .routes(routes!(events::watch))
            .routes(routes!(logins::failed_logins))
            .routes(routes!(drops::list))
            .routes(routes!(drops::totals))
            .routes(routes!(drops::sessions))
            .routes(routes!(drops::holders))
            .routes(routes!(bans::list))
            .routes(routes!(outlets::list))
            .routes(routes!(outlets::one))
            .routes(routes!(access::users::list))
            .routes(routes!(access::users::one))
            .routes(routes!(access::groups::list))
            .routes(routes!(access::groups::one))
            .routes(routes!(access::rules::list))
            .routes(routes!(access::status::status))
            .routes(routes!(access::export::export)),
        Role::Operator => OpenApiRouter::new()
            .routes(routes!(clients::disconnect))
            .routes(routes!(clients::end_session))
            .routes(routes!(clients::act))
            .routes(routes!(subscriptions::subscribe))
            .routes(routes!(subscriptions::unsubscribe))
            .routes(routes!(subscriptions::subscribe_for))
            .routes(routes!(subscriptions::unsubscribe_for))
            .routes(routes!(messages::publish))
            .merge(with_long_bodies())
            .routes(routes!(
                messages::retained_message,
                messages::retain,
                messages::remove_retained
            ))
            .routes(routes!(messages::queue_with_payloads))
            .routes(routes!(messages::purge_queue))
            .routes(routes!(logins::refused_logins))
            .routes(routes!(bans::add))
            .routes(routes!(bans::remove))
            .routes(routes!(outlets::pause))
            .routes(routes!(outlets::resume))
            .routes(routes!(cluster::drain))
            .routes(routes!(nodes::drain))
            .routes(routes!(nodes::end_drain))
            .routes(routes!(cluster::transfer_leader))
            .routes(routes!(cluster::rebalance)),
        Role::Administrator => OpenApiRouter::new()
            .routes(routes!(cluster::join))
            .routes(routes!(cluster::leave))
            .routes(routes!(nodes::leave))
            .routes(routes!(nodes::evict))
            .routes(routes!(profiles::cpu))
            .routes(routes!(profiles::threads))
            .routes(routes!(profiles::memory))
            .routes(routes!(cluster::evict))
            .routes(routes!(cluster::split))
            .routes(routes!(cluster::finish_upgrade))
            .routes(routes!(access::users::add))
            .routes(routes!(access::users::replace, access::users::remove))
            .routes(routes!(access::users::password))
            .routes(routes!(access::people::list, access::people::add))
            .routes(routes!(
                access::people::one,
                access::people::replace,
                access::people::remove
            ))
            .routes(routes!(access::keys::list, access::keys::add))
            .routes(routes!(access::keys::remove))
            .routes(routes!(access::keys::rotate))
            .routes(routes!(access::groups::add))
            .routes(routes!(access::groups::replace, access::groups::remove))
            .merge(
                OpenApiRouter::new()
                    .routes(routes!(access::rules::replace))
                    .layer(DefaultBodyLimit::max(access::LARGEST_RULES)),
            )
            .merge(
                OpenApiRouter::new()
                    .routes(routes!(access::import::import))
                    .layer(DefaultBodyLimit::max(access::LARGEST_IMPORT)),
            ),
    }
}

/// Bytes of the longest body that is read of a path.
fn longest_body(path: &str) -> usize {
    match path {
        messages::BULK => messages::LARGEST_BULK,
        access::RULES => access::LARGEST_RULES,
        access::IMPORT => access::LARGEST_IMPORT,
        _ => LARGEST_BODY,
    }
}

/// Paths whose bodies may have more than [`LARGEST_BODY`].
fn with_long_bodies() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(messages::bulk))
        .layer(DefaultBodyLimit::max(messages::LARGEST_BULK))
}

/// This document.
#[utoipa::path(get, path = "/api/v1/openapi.json", operation_id = "get_openapi", tag = "document", responses((status = 200, description = "This document")))]
async fn openapi() -> impl IntoResponse {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| {
        let text = serde_json::to_vec(&document());
        text.expect("a document of strings and numbers is JSON")
            .into()
    });
    ([(header::CONTENT_TYPE, "application/json")], TEXT.clone())
}

async fn unknown() -> Problem {
    Problem::new(
        Kind::UnknownPath,
        "GET /api/v1/openapi.json lists the paths",
    )
}

#[cfg(test)]
mod tests;
