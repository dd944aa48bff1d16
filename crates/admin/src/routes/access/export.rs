//! `/control/export`: all users, groups, rules, people and keys as one document.
//!
//! Invariant: the view is locked for some thousand users at a time, and the text is never in memory as a whole.

use std::time::SystemTime;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use control::{AuditNote, Records};
use control_document::Export;
use control_view::View;
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::task::spawn_blocking;
use utoipa::IntoParams;

use super::asked::tagged;
use super::current::Current;
use crate::api_state::ExportTurn;
use crate::problem::{Kind, Problem};
use crate::rights::{Caller, Gate, Role, refuse, unix_ms};
use crate::routes::input::{Params, word};
use crate::streams::StreamTurn;

/// Users that are copied while changes of the view wait.
const AT_ONCE: usize = 2_000;

/// How often a copy begins anew because something has changed meanwhile.
const TRIES: usize = 3;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportParams {
    /// `true`: with the hashes of passwords, the keys of SCRAM and the SHA-256 of random secrets, which needs the role administrator.
    #[param(value_type = Option<bool>)]
    with_secrets: Option<String>,
}

/// All users, groups and rules of the asked node as one document of YAML, in the order of their names; for an administrator, all people and keys too. A document with secrets is a backup: an import
/// of it gives the same users with the same passwords. One export at a time is answered.
#[utoipa::path(get, path = "/api/v1/control/export", operation_id = "export_control", tag = "access", params(ExportParams, ("Control-Revision" = Option<u64>, Header, description = "Answer only when this node has this revision; it waits for 1 s, then 503 `not-ready`")), responses((status = 200, description = "The document; `ETag` has the last change that is in it", body = String, content_type = "application/yaml")))]
pub(crate) async fn export(
    Current(access): Current,
    Extension(caller): Extension<Caller>,
    Extension(gate): Extension<Gate>,
    Params(params): Params<ExportParams>,
    mut stream: StreamTurn,
    turn: ExportTurn,
) -> Result<Response, Problem> {
    let with_secrets = params.with_secrets.as_deref();
    let with_secrets = word("with_secrets", with_secrets, "true or false", |text| {
        text.parse().ok()
    })?;
    let with_secrets = with_secrets.unwrap_or_default();
    if with_secrets {
        if caller.role < Role::Administrator {
            return Err(refuse(gate.rights(), &caller, Role::Administrator));
        }
        tracing::info!(
            name = caller.who.shown(),
            peer = caller.peer.map(tracing::field::display),
            "users are exported with their hashes"
        );
        // Nothing changes, and whoever has the hashes can guess passwords elsewhere.
        let trail = access.trail();
        trail.note(AuditNote {
            at: unix_ms(SystemTime::now()),
            by: caller.by(trail.node()),
            action: "control.export".into(),
            target: "with_secrets".into(),
            fields: Box::default(),
        });
    }
    let view = access.view();
    let records = spawn_blocking(move || copy(&view));
    let records = records.await.map_err(|error| {
        tracing::error!(%error, "the records were not copied");
        Problem::new(Kind::Internal, "the records could not be copied")
    })?;
    let revision = records.revision;
    stream.begin();
    let export = Export::new(records, with_secrets);
    let export = match caller.role {
        Role::Administrator => export,
        Role::Viewer | Role::Operator => export.without_people(),
    };
    let parts = unfold(Some((export, stream, turn)), |state| async {
        let (mut export, stream, turn) = state?;
        // Where bytes are sent, nothing that takes long is done.
        let made = spawn_blocking(move || (export.next(), export)).await;
        match made {
            Ok((part, export)) => Some((Ok(Bytes::from(part?)), Some((export, stream, turn)))),
            Err(error) => Some((Err(error), None)),
        }
    });
    let kind = [(header::CONTENT_TYPE, "application/yaml")];
    let answer = (kind, Body::from_stream(parts)).into_response();
    Ok(tagged(revision, answer))
}

/// A copy of all records as they are at one time.
pub(super) fn copy(view: &View) -> Records {
    for _ in 0..TRIES {
        let mut records = Records {
            revision: view.revision(),
            ..without_users(view)
        };
        let mut users = Vec::with_capacity(view.user_count());
        loop {
            let mut left = AT_ONCE;
            let after: Option<Box<str>> =
                users.last().map(|(name, _): &(Box<str>, _)| name.clone());
            view.each_user(after.as_deref(), |name, user| {
                users.push((name.into(), user.clone()));
                left -= 1;
                left > 0
            });
            if left > 0 {
                break;
            }
        }
        if view.revision() == records.revision {
            records.users = users.into_iter().collect();
            return records;
        }
    }
    view.records()
}

/// All but the users.
pub(super) fn without_users(view: &View) -> Records {
    Records {
        revision: view.revision(),
        groups: view.groups(),
        rules: view.rules(),
        people: view.people(),
        keys: view.keys(),
        ..Records::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use control::{Changed, Revision, Stored, User};

    use super::*;

    #[test]
    fn a_copy_has_all_users_of_a_view_that_is_larger_than_one_visit() {
        let view = View::default();
        assert!(copy(&view).users.is_empty());
        let record = User {
            enabled: true,
            verifiers: Box::default(),
            groups: Box::default(),
            rules: Box::default(),
            client_ids: None,
            class: None,
            superuser: false,
            ends_ms: None,
            note: "".into(),
            logins_since: Revision(1),
        };
        let revision = Revision(1);
        let stored = Arc::new(Stored { revision, record });
        for count in [AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE + 7] {
            let revision = Revision(count as u64);
            let users = (0..count).map(|number| {
                let name = format!("u{number}").into();
                (name, Some(Arc::clone(&stored)))
            });
            let users = users.collect();
            view.changed(&Changed {
                revision,
                users,
                ..Changed::default()
            });
            let copied = copy(&view);
            assert_eq!((copied.revision, copied.users.len()), (revision, count));
            assert_eq!(copied.users, view.records().users);
        }
    }
}
