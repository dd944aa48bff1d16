//! Takeovers that are under way: of connections of other nodes, and of those here.

use mqtt_session::PacketIdSet;
use net_api::{ConnectionId, Key};
use peer_protocol::{Asker, Older};
use route_exchange::NodeId;
use store_state::inbox::Attached;
use store_state::session::{Claimed, TakenFrom};

use crate::pending::Answer;

/// A client whose older connections other nodes are to close, and whose older wills are to be published before it is
/// answered: what it sends from then on comes after them.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(super) key: Key,
    pub(super) then: Then,
    /// Nodes that have not answered.
    left: usize,
    /// What they were asked.
    pub(super) questions: Vec<u64>,
    wills: OlderWills,
    /// Publications that came on the older connections, and are not released.
    pub(super) unreleased: PacketIdSet,
    /// The nodes that have told of them.
    pub(super) told_by: Vec<NodeId>,
}

/// How far the session store is with the wills of older connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OlderWills {
    /// There is none that a later connection waits for.
    Settled,
    /// There is one of this epoch, or of any before the present one (0). It is due when the older connections are closed:
    /// who could still say that it is discarded has done so, or is down.
    Left(u64),
    /// The session store is to answer when all are published or discarded.
    Asked,
    /// It cannot answer.
    Failed,
}

/// What comes next for a [`Taking`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// An answer.
    Wait,
    /// The session store is to be told that the will of an older connection is due.
    WillDue(u64),
    /// The connection goes on.
    GoOn,
    /// It is refused.
    Refuse,
}

impl Taking {
    /// `from`: where the client was.
    pub(super) fn new(key: Key, then: Then, from: TakenFrom) -> Self {
        let left = match (&then, from) {
            (Then::Claimed(_), TakenFrom::Node { will, .. }) => {
                Some(will).filter(|will| *will != 0)
            }
            (Then::Claimed(_), TakenFrom::Unknown) => Some(0),
            _ => None,
        };
        Self {
            key,
            then,
            left: 0,
            questions: Vec::new(),
            wills: left.map_or(OlderWills::Settled, OlderWills::Left),
            unreleased: PacketIdSet::new(),
            told_by: Vec::new(),
        }
    }

    /// Other nodes were asked.
    pub(super) fn handle_asked(&mut self, questions: Vec<u64>) {
        self.left = questions.len();
        self.questions = questions;
    }

    /// A node has closed what it had, and tells of publications that are not released; `None`: it is not waited for.
    pub(super) fn handle_closed(&mut self, told: Option<(NodeId, PacketIdSet)>) {
        if let Some((node, unreleased)) = told.filter(|(_, unreleased)| !unreleased.is_empty()) {
            self.unreleased.extend(unreleased.iter());
            self.told_by.push(node);
        }
        self.left -= 1;
    }

    /// The session store has answered.
    pub(crate) fn handle_answer(&mut self, answer: &Answer) {
        self.wills = match answer {
            Answer::Session(_) => OlderWills::Settled,
            _ => OlderWills::Failed,
        };
    }

    /// What comes next; to be done.
    pub(super) fn next(&mut self) -> Next {
        if self.left > 0 {
            return Next::Wait;
        }
        match self.wills {
            OlderWills::Settled => Next::GoOn,
            OlderWills::Left(epoch) => {
                self.wills = OlderWills::Asked;
                Next::WillDue(epoch)
            }
            OlderWills::Asked => Next::Wait,
            OlderWills::Failed => Next::Refuse,
        }
    }
}

/// What was answered last, and is gone on with.
#[derive(Debug)]
pub(crate) enum Then {
    /// By the directory.
    Registered,
    /// By the session store.
    Claimed(Claimed),
    /// By the inbox store.
    Attached { epoch: u64, attached: Box<Attached> },
}

/// A connection is closed, and another node is to hear so when shards have done all that they were asked before.
#[derive(Debug)]
pub(crate) struct Settling {
    /// Shards that have not yet.
    left: usize,
    pub(super) asker: Asker,
    pub(super) client: Box<str>,
    /// Of the later connection.
    pub(super) epoch: u64,
    /// The later connection has the session that this one had: it is told of publications that are not released.
    pub(super) resumes: bool,
}

impl Settling {
    /// `left`: the shards that are asked; not 0.
    pub(super) fn new(left: usize, asker: Asker, older: Older) -> Self {
        Self {
            left,
            asker,
            client: older.client,
            epoch: older.epoch,
            resumes: older.resumes,
        }
    }

    /// A shard has answered. Whether others have not.
    pub(crate) fn waits_for_others(&mut self) -> bool {
        self.left -= 1;
        self.left > 0
    }
}

/// A connection that another node takes over: what the client has sent on it before it connected there is read
/// first, because it may be DISCONNECT.
#[derive(Debug)]
pub(crate) struct Superseded {
    pub(super) connection: ConnectionId,
    pub(super) asker: Asker,
    pub(super) older: Older,
    pub(super) until_ms: u64,
}
