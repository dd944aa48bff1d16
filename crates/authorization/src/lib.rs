//! What a client may do: rules, and which of them decides.
//!
//! Purpose: [`Rules`] reads a rule file (or rules that came with a login) and decides about a client's
//! action on a topic. The first rule that matches decides.
//!
//! Invariants: pure; deciding allocates nothing and takes time in proportion to the rules that could
//! concern the client. A file with any mistake is refused as a whole, with the line of each.
//!
//! Deliberately absent: reading files, remembering decisions (the broker's loops do), users and passwords.

use std::net::IpAddr;

/// Who wants to do something.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// Client identifier.
    pub client_id: &'a str,
    /// User name that authentication has confirmed, if any.
    pub username: Option<&'a str>,
    /// Where it connects from; `None` for a Unix domain socket.
    pub address: Option<IpAddr>,
}

/// What is to be allowed or denied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// To publish to a topic name (also by a will).
    Publish,
    /// To have a message on a topic name retained.
    Retain,
    /// To subscribe to a topic filter.
    Subscribe,
    /// To be sent a message on a topic name.
    Receive,
}

/// What a rule says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The action is allowed.
    Allow,
    /// The action is denied.
    Deny,
}

/// A rule that decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What it says.
    pub effect: Effect,
    /// Its line in the file, or its number among the rules of a login; from 1.
    pub line: u32,
}

/// Rules in the order in which they count.
#[derive(Clone, Debug, Default)]
pub struct Rules {}

impl Rules {
    /// Which rule decides; `None`: none of them concerns this.
    /// For [`Action::Subscribe`] `topic` is a topic filter, without `$share/…/`.
    #[must_use]
    pub fn decide(&self, client: &Client<'_>, action: Action, topic: &str) -> Option<Decision> {
        let _ = (client, action, topic);
        None
    }

    /// Whether any rule could concern [`Action::Receive`]: if not, deliveries need no look at the rules.
    #[must_use]
    pub fn concern_receive(&self) -> bool {
        false
    }
}
