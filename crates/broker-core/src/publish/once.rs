//! What a publication that must happen once is known by to those who keep it.

use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use store_state::inbox::{ClientName, InboxOp, Item, Origin};

/// The name of a publication.
#[derive(Clone, Debug)]
pub(crate) enum Once {
    /// The broker publishes it: a will, or a message that a session has left to its shared groups. Another node may
    /// do so as well.
    Broker(Origin),
    /// A client's of QoS 2.
    Client {
        origin: Origin,
        /// Of the connection that it came by: when a later one has released something, what was sent by this one
        /// and is still on its way is refused.
        epoch: u64,
    },
}

impl Once {
    pub(crate) fn origin(&self) -> &Origin {
        match self {
            Self::Broker(origin) | Self::Client { origin, .. } => origin,
        }
    }

    /// The origin, if the broker publishes it.
    pub(crate) fn of_broker(&self) -> Option<&Origin> {
        match self {
            Self::Broker(origin) => Some(origin),
            Self::Client { .. } => None,
        }
    }

    /// The request to an inbox shard to forget the publication.
    pub(crate) fn release(&self) -> InboxOp {
        let origin = self.origin().clone();
        match *self {
            Self::Broker(_) => InboxOp::Release { origin },
            Self::Client { epoch, .. } => InboxOp::ReleaseFenced { origin, epoch },
        }
    }
}

/// The request to an inbox shard to give a message to the sessions that match.
pub(crate) fn publish(
    message: Arc<ApplicationMessage>,
    publisher: u64,
    once: Option<Once>,
) -> InboxOp {
    match once {
        Some(Once::Client { origin, epoch }) => InboxOp::PublishFenced {
            message,
            publisher,
            origin,
            epoch,
        },
        Some(Once::Broker(origin)) => InboxOp::Publish {
            message,
            publisher,
            origin: Some(origin),
        },
        None => InboxOp::Publish {
            message,
            publisher,
            origin: None,
        },
    }
}

/// The request to the inbox of a member of a shared group.
pub(crate) fn deliver(member: ClientName, item: Item, once: Option<Once>) -> InboxOp {
    let (session, items) = (member.into(), vec![item]);
    match once {
        Some(Once::Client { origin, epoch }) => InboxOp::DeliverFenced {
            session,
            items,
            origin,
            epoch,
        },
        Some(Once::Broker(origin)) => InboxOp::Deliver {
            session,
            items,
            origin: Some(origin),
        },
        None => InboxOp::Deliver {
            session,
            items,
            origin: None,
        },
    }
}
