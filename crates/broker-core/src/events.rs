//! What happens to clients, for those who watch.

use std::fmt;

use store_state::session::SessionEnd;

/// Something that has happened to a client on this node.
#[derive(Clone, Copy)]
pub struct ClientEvent<'a> {
    /// What.
    pub what: Happened,
    /// The client identifier.
    pub client_id: &'a str,
    /// The user that it has authenticated as, or else the one that it named.
    pub user: Option<&'a str>,
    /// Where its connection comes from.
    pub peer: Option<&'a dyn fmt::Display>,
    /// Why, as in the log.
    pub reason: Option<&'static str>,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    /// It has a session and a connection.
    Connected,
    /// Its connection has ended.
    Disconnected,
    /// It was not let in. Those are told that the log has a line for: strangers choose how many there are.
    Refused,
}

/// A subscription of a client that is connected to this node has been added or removed.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionEvent<'a> {
    /// Which of the two.
    pub what: SubscriptionHappened,
    /// The client identifier.
    pub client_id: &'a str,
    /// The user that it has authenticated as, or else the one that it named.
    pub user: Option<&'a str>,
    /// The filter as it was given at SUBSCRIBE.
    pub filter: &'a str,
}

/// What happened to a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubscriptionHappened {
    /// It was made, and replaces none.
    Added,
    /// It was removed, and the session goes on.
    Removed,
}

/// A session that outlasts its connection has begun on this node, or has ended in a shard that this node leads.
#[derive(Clone, Copy, Debug)]
pub struct SessionEvent<'a> {
    /// Which of the two.
    pub what: SessionHappened,
    /// The client identifier.
    pub client_id: &'a str,
    /// The user of the client that has begun it.
    pub user: Option<&'a str>,
}

/// What happened to a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionHappened {
    /// There was none before.
    Begun,
    /// It is no more.
    Ended(SessionEnd),
}

impl fmt::Debug for ClientEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientEvent")
            .field("what", &self.what)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}
