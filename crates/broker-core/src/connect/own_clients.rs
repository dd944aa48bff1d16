//! The clients of the broker's own connections: outlets, each a process that holds the other end of a socket pair.
//!
//! Purpose: says which client identifiers belong to such connections, and whom such a connection is let in as.
//!
//! Invariant: a client has an identifier that begins with [`PREFIX`] if and only if its connection is of [`Kind::Outlet`]. So
//! no other client takes over, resumes or ends a session of an outlet, and behind CONNECT the identifier alone tells
//! whether a client is an outlet.
//!
//! Deliberately absent: who opens such connections (`broker`), and what is reserved for them (`sys.rs`).
//!
//! Where to read next: `open.rs`, which asks here before it asks anybody else about a CONNECT.

use std::num::NonZeroU64;

use authentication_api::Identity;
use mqtt_proto::ReasonCode;
use mqtt_session::{Accepted, Epoch, Incarnation};
use net_api::Kind;

use crate::connect::login_stage::Admission;
use crate::connect::refused::{Cause, Refused};

/// How the client identifiers of outlets begin: `$outlet/NAME/PART`.
const PREFIX: &str = "$outlet/";

/// The user that outlets are.
const USER: &str = "$outlet";

/// Whether a client is an outlet, by its identifier.
pub(crate) fn is_outlet(client_id: &str) -> bool {
    client_id.starts_with(PREFIX)
}

/// Whether a connection may have a client identifier. `kind`: how the connection came; `None`: that is not known.
pub(crate) fn judge(kind: Option<Kind>, client_id: &str) -> Result<(), Refused> {
    if is_outlet(client_id) == (kind == Some(Kind::Outlet)) {
        return Ok(());
    }
    Err(Refused {
        code: ReasonCode::ClientIdentifierNotValid,
        cause: Cause::ReservedClientId,
    })
}

/// What an outlet is let in as: its own user, whom no rule restricts.
pub(crate) fn admission() -> Box<Admission> {
    Box::new(Admission {
        identity: Box::new(Identity {
            username: Some(USER.into()),
            is_superuser: true,
            ..Identity::default()
        }),
        connect: None,
        data: None,
    })
}

/// What a client is accepted with whose connection the store has given an epoch; `began`: the epoch that its session began
/// with, 0 if the session ends with the connection. An outlet is told both: by them its target knows which of its
/// connections is the latest, and which messages it has already.
pub(crate) fn numbered<'a>(
    accepted: Accepted<'a>,
    client_id: &str,
    epoch: u64,
    began: u64,
) -> Accepted<'a> {
    if !is_outlet(client_id) {
        return accepted;
    }
    Accepted {
        epoch: Some(Epoch(epoch)),
        incarnation: NonZeroU64::new(began).map(Incarnation),
        ..accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlets_and_nobody_else_have_identifiers_of_outlets() {
        let is_let_in = |kind, client_id| judge(kind, client_id).is_ok();
        let outlets = ["$outlet/x/0", "$outlet/"];
        let others = ["", "$outlet", "$outlets/x", "x$outlet/", "$OUTLET/x", "x"];
        for kind in Kind::ALL.map(Some).into_iter().chain([None]) {
            let is_outlet = kind == Some(Kind::Outlet);
            for client_id in outlets {
                assert_eq!(
                    is_let_in(kind, client_id),
                    is_outlet,
                    "{kind:?} {client_id}"
                );
            }
            for client_id in others {
                assert_eq!(
                    is_let_in(kind, client_id),
                    !is_outlet,
                    "{kind:?} {client_id}"
                );
            }
        }
    }

    #[test]
    fn only_an_outlet_is_told_how_the_store_numbers() {
        let of = |client_id, began| {
            let accepted = numbered(Accepted::default(), client_id, 9, began);
            let began = accepted.incarnation.map(|of| of.0.get());
            (accepted.epoch.map(|epoch| epoch.0), began)
        };
        assert_eq!(of("$outlet/x/0", 7), (Some(9), Some(7)));
        assert_eq!(of("$outlet/x/0", 0), (Some(9), None));
        assert_eq!(of("x", 7), (None, None));
    }

    #[test]
    fn an_outlet_may_do_everything() {
        let admission = admission();
        let identity = admission.identity();
        assert_eq!(identity.username.as_deref(), Some("$outlet"));
        assert!(identity.is_superuser);
        assert_eq!(identity.expires_at, None);
    }
}
