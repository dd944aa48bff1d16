//! What a session shard can be asked, what it answers, and what it tells beside the answer.

use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use serde::{Deserialize, Serialize};

use crate::wire;

/// A request to a session shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SessionOp {
    /// A node runs from now on. Clients that an earlier process of it had connected were disconnected
    /// at `last_alive_ms`.
    NodeUp {
        /// The node.
        node: u64,
        /// Higher at each start.
        incarnation: u64,
        /// When the earlier process was last known to run, Unix time in ms.
        last_alive_ms: u64,
    },
    /// A CONNECT: the client identifier is to belong to a new connection.
    Claim(ClaimRequest),
    /// The connection is closed.
    Disconnect {
        /// The client.
        client: Box<str>,
        /// Of the connection.
        epoch: u64,
        /// The session expiry interval in seconds, which DISCONNECT may have changed; 0: the session
        /// ends now.
        expiry: u32,
        /// What becomes of the will.
        will: WillAtClose,
    },
    /// A will that [`SessionOutlet::fire`] told of is published, and everyone who must has it.
    Fired {
        /// The client.
        client: Box<str>,
        /// Of the connection that the will came with.
        epoch: u64,
    },
    /// The inbox of a session that [`SessionOutlet::ended`] told of is gone.
    Gone {
        /// The client.
        client: Box<str>,
        /// The session's last epoch.
        epoch: u64,
    },
    /// What has become due by the time of the batch happens: wills after their delay, the end of
    /// sessions.
    Due,
    /// A `Claim` of which the sender does not know whether it was carried out: if the client belongs to
    /// this process, it was; if it has connected to another one since, it is not carried out any more.
    ClaimAgain(ClaimRequest),
    /// The connection is to be closed soon, and not by the client: its will is due now, unless it has a
    /// delay that counts. Of a connection that was taken over: nobody is left who could say that its will is discarded. That
    /// is answered when all wills of the client's earlier connections are published, or discarded
    /// ([`super::SessionMachine::awaits_wills`]).
    WillDue {
        /// The client.
        client: Box<str>,
        /// Of the connection.
        epoch: u64,
    },
    /// As `Claim`, by a client of which authentication may have confirmed a user name.
    ClaimBy(ClaimByUser),
    /// Is to `ClaimBy` what `ClaimAgain` is to `Claim`.
    ClaimByAgain(ClaimByUser),
    /// The client may not leave its will any more.
    DiscardWill {
        /// The client.
        client: Box<str>,
        /// Of the connection.
        epoch: u64,
    },
    /// As `ClaimBy`. If it takes the client from another process, the will of the connection there is held until
    /// `Disconnect` says what becomes of it, that process has ended, or some time has passed. If it has waited for a
    /// second, and the client has connected to another process since it was asked for, it is not carried out.
    ClaimHolding(ClaimByUser),
    /// Is to `ClaimHolding` what `ClaimAgain` is to `Claim`.
    ClaimHoldingAgain(ClaimByUser),
    /// A will that [`SessionOutlet::fire`] told of could not be published: it is told of again, unless it is
    /// `Fired` by now.
    FireAgain {
        /// The client.
        client: Box<str>,
        /// Of the connection that the will came with.
        epoch: u64,
    },
    /// An operator ends the session of a client that has no connection, as if its time were over.
    End {
        /// The client.
        client: Box<str>,
        /// Of its last connection.
        epoch: u64,
    },
}

impl SessionOp {
    /// The claim of a client. `user`: the user name that authentication has confirmed.
    #[must_use]
    pub fn claim(
        request: ClaimRequest,
        user: Option<Box<str>>,
        of_another_user: OfAnotherUser,
    ) -> Self {
        Self::ClaimHolding(ClaimByUser {
            request,
            user,
            of_another_user,
        })
    }

    /// What is claimed, if it is a claim.
    #[must_use]
    pub fn claimed(&self) -> Option<&ClaimRequest> {
        match self {
            Self::Claim(request) | Self::ClaimAgain(request) => Some(request),
            Self::ClaimBy(by)
            | Self::ClaimByAgain(by)
            | Self::ClaimHolding(by)
            | Self::ClaimHoldingAgain(by) => Some(&by.request),
            _ => None,
        }
    }

    /// Who claims, if it is a claim by a user.
    #[must_use]
    pub fn claiming_user(&self) -> Option<&str> {
        match self {
            Self::ClaimBy(by)
            | Self::ClaimByAgain(by)
            | Self::ClaimHolding(by)
            | Self::ClaimHoldingAgain(by) => by.user.as_deref(),
            _ => None,
        }
    }

    /// The same claim, of which the sender does not know whether it was carried out.
    #[must_use]
    pub fn again(self) -> Self {
        match self {
            Self::Claim(request) => Self::ClaimAgain(request),
            Self::ClaimBy(by) => Self::ClaimByAgain(by),
            Self::ClaimHolding(by) => Self::ClaimHoldingAgain(by),
            other => other,
        }
    }
}

/// A claim, and who claims.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimByUser {
    /// What is claimed.
    pub request: ClaimRequest,
    /// The user name that authentication has confirmed; `None`: the client is anonymous.
    pub user: Option<Box<str>>,
    /// What becomes of a session that another user has made.
    pub of_another_user: OfAnotherUser,
}

/// What a client gets that claims a session which another user has made. A session that an anonymous client has
/// made is open to all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OfAnotherUser {
    /// Nothing; the session stays as it is.
    Refuse,
    /// A session of its own; the other one ends.
    Discard,
}

/// What a CONNECT asks of the session store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// The client.
    pub client: Box<str>,
    /// The node that the client is connected to.
    pub node: u64,
    /// The node's incarnation.
    pub node_incarnation: u64,
    /// Whether what exists is discarded.
    pub clean_start: bool,
    /// The session expiry interval in seconds.
    pub expiry: u32,
    /// The will of the connection.
    pub will: Option<StoredWill>,
    /// When the node first asked for it, Unix time in ms.
    pub asked_ms: u64,
}

/// A will as the store keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredWill {
    /// The message; its life begins when it is published.
    #[serde(with = "wire::message")]
    pub message: Arc<ApplicationMessage>,
    /// Message expiry interval in seconds, to count from then.
    pub message_expiry: Option<u32>,
    /// Seconds from the end of the connection.
    pub delay: u32,
}

/// What becomes of the will when a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WillAtClose {
    /// It is discarded: the client disconnected as it should.
    Discard,
    /// It is published after its delay, or when the session ends.
    Keep,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SessionReply {
    /// Done; nothing to say.
    Done,
    /// The epoch is not the client's any more.
    Stale,
    /// To `Claim` and all others that claim.
    Claimed(Claimed),
    /// To a claim: the session is another user's, and nothing has changed.
    NotOwner,
}

/// What a claim found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claimed {
    /// The epoch of the new connection; higher than any before for this client.
    pub epoch: u64,
    /// A session exists, and goes on.
    pub resumed: bool,
    /// An inbox of an earlier session may exist, or one of this one. If `resumed` is not set, it is to be discarded.
    pub had_inbox: bool,
    /// Whose connection of this client is to be closed, and which will of it is to be waited for.
    pub taken_from: TakenFrom,
}

/// Who had a client before a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TakenFrom {
    /// It was not connected, and has left no will that is not published.
    Nobody,
    /// A node.
    Node {
        /// The node; that of the claim itself: none, but a will is to be waited for.
        node: u64,
        /// An earlier connection whose will is not published yet, and not discarded, by its epoch; 0: there is none. One
        /// that may be discarded is held for the end of the connection that the node has.
        will: u64,
    },
    /// Not known any more: any node may have a connection of a lower epoch, and any such connection may have left a will.
    Unknown,
}

/// Why a session has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// Its client has connected with a clean start, or as another user.
    CleanStart,
    /// Its client has ended it by DISCONNECT, or an operator with the connection.
    Disconnect,
    /// Its Session Expiry Interval has passed.
    Expired,
    /// An operator has ended it while its client was away.
    Operator,
}

impl SessionEnd {
    /// As in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CleanStart => "clean_start",
            Self::Disconnect => "disconnect",
            Self::Expired => "expired",
            Self::Operator => "operator",
        }
    }
}

/// Who is told what an operation brings about.
pub trait SessionOutlet {
    /// A will is to be published; tell [`SessionOp::Fired`] when that is done. Told again by
    /// [`super::SessionMachine::outstanding`] after a start.
    fn fire(&mut self, client: &str, epoch: u64, will: &StoredWill);

    /// A session has ended, and its inbox is to be removed; tell [`SessionOp::Gone`] when that is done. `why`: `None` if
    /// this is told again.
    fn ended(&mut self, client: &str, epoch: u64, why: Option<SessionEnd>);

    /// Whether the store has a record of this client, of whatever kind.
    fn known(&mut self, client: &str, known: bool);
}
