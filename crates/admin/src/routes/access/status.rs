//! `/control`: what a node knows of users, groups and rules.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use control_view::Standing;

use crate::access::Access;
use crate::api::{AccessStanding, AccessStatus, Amount, RevisionNumber};

/// How many users, groups and rules the asked node has, and how far its copy can be believed.
#[utoipa::path(get, path = "/api/v1/control", operation_id = "get_control", tag = "access", responses((status = 200, description = "What this node has", body = AccessStatus)))]
pub(crate) async fn status(State(access): State<Arc<dyn Access>>) -> Json<AccessStatus> {
    let view = access.view();
    let amount = |count: usize| Amount(count as u64);
    Json(AccessStatus {
        standing: match view.standing() {
            Standing::Unused => AccessStanding::Unused,
            Standing::Unconfirmed => AccessStanding::Unconfirmed,
            Standing::Confirmed => AccessStanding::Confirmed,
        },
        files_only: view.is_off(),
        stale_s: Amount(access.age().as_secs()),
        revision: RevisionNumber(view.revision().0),
        users: amount(view.user_count()),
        groups: amount(view.groups().len()),
        lines: amount(view.rules().record.0.len()),
    })
}
