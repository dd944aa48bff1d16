//! What a part wants done that lies above it.
//!
//! Calls between parts go down. What would go up is one of these: the part adds it to the turn, and the dispatch carries it
//! out after the frame, message, timer or event of the store that led to it, in the order in which they were added; what one
//! leads to comes before those behind it, as if it were called. So a part that adds one goes on before anything of it has
//! happened.

use std::sync::Arc;

use mqtt_proto::ReasonCode;
use mqtt_session::{ApplicationMessage, Delivery};
use net_api::Key;
use peer_protocol::{Asker, Older};

use crate::key::SessionKey;
use crate::publish::source::Source;

/// What is to be done when what is being handled has been handled.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A client is disconnected: a DISCONNECT with the reason (5.0), then the close.
    End(Key, ReasonCode),
    /// An entry leaves the table; its identifier is free.
    Forget(Key),
    /// What a client has logged in as is nobody's any more: it has no connection, and its entry stays.
    Logout(Key),
    /// The login of a client ends at another time, in seconds since 1970-01-01 UTC; `None`: not by itself.
    LoginRenewed {
        key: Key,
        before: Option<u64>,
        now: Option<u64>,
    },
    /// Other nodes are told of routes before the loop waits for anything.
    TellPeers,
    /// PUBLISH packets that were kept while a publisher was held back are handled, and its connection is read.
    HeldFrames(Key),
    /// A message for a client, whose routes are under this key, goes on to it, or to its inbox.
    DeliverTo(Key, Box<Delivery>),
    /// A message of the broker's is published.
    Distribute(Arc<ApplicationMessage>, Box<Source>),
    /// Messages of shared groups that one member did not acknowledge go to others.
    Redispatch {
        deliveries: Vec<Delivery>,
        /// The member that is not to get them.
        except: Option<SessionKey>,
    },
    /// A client may not receive a message that was chosen for it. `is_stored`: its inbox has it.
    DenyDelivery {
        key: Key,
        delivery: Box<Delivery>,
        is_stored: bool,
    },
    /// The connections here of a client that has a later one on another node are looked for anew.
    CloseOlder(Box<(Asker, Older)>),
    /// All who must have a will have it.
    WillPublished { client: Box<str>, epoch: u64 },
    /// A will could not be published.
    WillUnpublished { client: Box<str>, epoch: u64 },
}

/// What is to be done; empty between calls.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// What was added since the last one was taken.
    added: Vec<Effect>,
    /// What is behind that: the next one is the last.
    behind: Vec<Effect>,
}

impl Effects {
    pub(super) fn add(&mut self, effect: Effect) {
        self.added.push(effect);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.behind.is_empty()
    }

    /// Takes the next one. Those that are added from here on come before those that are left.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Effect> {
        // This is so after nearly each packet.
        if self.is_empty() {
            return None;
        }
        self.next_of_some()
    }

    fn next_of_some(&mut self) -> Option<Effect> {
        self.behind.extend(self.added.drain(..).rev());
        self.behind.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32) -> Key {
        Key {
            slot,
            generation: 0,
        }
    }

    #[test]
    fn what_an_effect_leads_to_comes_before_those_behind_it() {
        let mut effects = Effects::default();
        let mut order = Vec::new();
        effects.add(Effect::Forget(key(1)));
        effects.add(Effect::Forget(key(4)));
        while let Some(Effect::Forget(Key { slot, .. })) = effects.next() {
            order.push(slot);
            if slot == 1 {
                effects.add(Effect::Forget(key(2)));
                effects.add(Effect::Forget(key(3)));
            }
        }
        assert_eq!(order, [1, 2, 3, 4]);
        assert!(effects.is_empty());
    }
}
