//! A client of a loop.

use mqtt_session::Session;
use net_api::ConnectionId;
use store_state::api::Store;
use store_state::inbox::SessionName;

use super::rare::Rare;
use crate::backpressure::held::Earned;
use crate::connect::login_stage::LoggedIn;
use crate::inbox::{Epoch, Inbox, InboxNumber, Stored};
use crate::linger::Kept;
use crate::rights::access::Access;

/// A session in its loop.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) connection: Option<ConnectionId>,
    /// When its CONNECT came to this node, in µs of the node's clock.
    pub(crate) came_us: u64,
    /// The deadline that the loop is armed for; 0: none.
    pub(crate) armed_ms: u64,
    /// What rules know of it. `None`: it is anonymous, and nobody has asked yet.
    pub(crate) access: Option<Box<Access>>,
    pub(crate) acknowledged: Earned,
    /// What the store knows it by.
    pub(crate) stored: Option<Box<Stored>>,
    /// What the client has authenticated as; anonymous clients have none.
    pub(crate) login: Option<Box<LoggedIn>>,
    /// A SUBSCRIBE or UNSUBSCRIBE waits for the store or for other nodes: nothing more is read meanwhile.
    pub(crate) waits: bool,
    /// Changes of its subscriptions that the inbox has not answered, or has not made as far as is known: it may
    /// have other subscriptions than the session.
    pub(crate) unanswered: u32,
    /// It publishes to a node to which too much is on its way.
    pub(crate) crowds: bool,
    /// It is among the loop's sessions; the others are counted by the store.
    pub(crate) counted: bool,
    pub(crate) rare: Rare,
    /// Of the connection, among those of the cluster; 0: it is not registered.
    pub(crate) number: u64,
    /// The rules by which what is queued for it was judged, as [`Rejudge`](crate::rejudge::Rejudge) counts them.
    pub(crate) judged: u32,
}

impl Client {
    /// A session with its connection, of which nothing is known yet.
    pub(crate) fn new(session: Session, connection: ConnectionId) -> Self {
        Self {
            session,
            connection: Some(connection),
            came_us: 0,
            armed_ms: 0,
            access: None,
            acknowledged: Earned::default(),
            stored: None,
            login: None,
            waits: false,
            unanswered: 0,
            crowds: false,
            rare: Rare::default(),
            counted: false,
            number: 0,
            judged: 0,
        }
    }

    /// Whether filters of its last packet are in no part yet: the packet is to be offered again.
    pub(crate) fn has_parts_left(&self) -> bool {
        let parts = self.rare.get().parts.as_ref();
        parts.is_some_and(|parts| parts.bytes_left > 0)
    }

    /// The user that it has confirmed to be; `None`: it is anonymous.
    pub(crate) fn confirmed_user(&self) -> Option<&str> {
        self.login.as_ref()?.username()
    }

    /// Whether messages would be lost with its connection, or it would send some again.
    pub(crate) fn is_busy(&self) -> bool {
        self.session.expires_at_close() && !self.session.is_quiet()
    }

    /// Whether its routes have outlived its connection, and lead to whoever has succeeded it.
    pub(crate) fn lingers(&self) -> bool {
        matches!(self.rare.get().kept.as_deref(), Some(Kept::Here(_)))
    }

    /// What the inbox shard knows its session by, and the epoch of its connection; `None`: the session is not durable.
    pub(crate) fn inbox_name(&self, store: &impl Store) -> Option<(SessionName, Epoch)> {
        let stored = self.stored.as_ref()?;
        let InboxNumber(number) = stored.inbox()?.number();
        let name = store.session_name(self.session.client_id(), number);
        Some((name, stored.epoch()))
    }

    /// A durable session's inbox.
    pub(crate) fn inbox(&mut self) -> Option<&mut Inbox> {
        self.stored.as_mut()?.inbox_mut()
    }

    /// The same, with the session.
    pub(crate) fn inbox_and_session(&mut self) -> Option<(&mut Inbox, &Session)> {
        let inbox = self.stored.as_mut()?.inbox_mut()?;
        Some((inbox, &self.session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_as_small_as_it_was() {
        // Each connection has one, its session included: docs/internals/budget.md.
        assert_eq!(size_of::<Client>(), 240);
    }
}
