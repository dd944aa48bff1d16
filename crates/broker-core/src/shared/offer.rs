//! A message of a shared group that a member may not receive: whom it may be offered.
//!
//! Invariants: an offer visits a loop once. Inboxes whose sessions cannot be judged take it in ascending order of their
//! client identifiers. Another node gets it only from the node on which it was published or queued. So it ends.
//!
//! Deliberately absent: which member of several gets it (`groups.rs`), and how it gets there (`offers.rs`).

use std::num::NonZeroU32;
use std::sync::Arc;

use mqtt_proto::QoS;
use mqtt_session::{ApplicationMessage, StoredState};
use store_state::inbox::Item;

use crate::key::SessionKey;
use crate::routes::Routes;
use crate::shared::groups::{Member, Who};

/// A message of a shared group that looks for a member which may receive it.
///
/// Limit: offers of a message of a shared group that a member may not receive | each loop of the node once, then one
/// other node, or an inbox with a greater client identifier | the message is dropped and counted as `receive_denied`
#[derive(Debug)]
pub(crate) struct Offer {
    pub(super) message: Arc<ApplicationMessage>,
    pub(super) group: NonZeroU32,
    pub(super) beyond: Beyond,
    /// Loops of this node without a member that may receive it: each once.
    pub(super) judged: Vec<usize>,
    /// The client that it was chosen for.
    pub(super) refused_by: Box<str>,
}

/// Who may be offered a message, beside members that are connected to this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Beyond {
    /// Nobody.
    Nobody,
    /// All others.
    All,
    /// Other nodes, and durable sessions with a greater client identifier.
    Above(Box<str>),
}

impl Offer {
    /// Whether a member may be offered the message. `None`: its home is this loop, which judges it.
    pub(super) fn admits(&self, member: &Member, own_loop: usize) -> Option<bool> {
        let home = match &member.who {
            Who::Session(session) => Some(*session),
            Who::Durable(_) => member.gauge.home(),
            Who::Node(_) => None,
        };
        if let Some(home) = home.map(SessionKey::loop_index) {
            return (home != own_loop).then(|| !self.judged.contains(&home));
        }
        Some(match (&self.beyond, &member.who) {
            (Beyond::Nobody, _) => false,
            (Beyond::Above(client), Who::Durable(other)) => **other > **client,
            (Beyond::All | Beyond::Above(_), _) => true,
        })
    }
}

/// What deliveries name the shared group by to which a message of an inbox may go back, if it may.
pub(crate) fn group_of(routes: &Routes, item: &Item, state: StoredState) -> Option<NonZeroU32> {
    // [MQTT-4.8.2-5] a QoS 2 message that was sent goes to no other member.
    if item.qos == QoS::ExactlyOnce && state == StoredState::Sent {
        return None;
    }
    let filter = item.group.as_deref()?;
    Some(routes.group_of(filter)?.number())
}

#[cfg(test)]
mod tests {
    use crate::shared::groups::By;
    use mqtt_proto::{MessageBody, RetainHandling, SubscriptionOptions};
    use mqtt_session::Wanted;
    use net_api::Key;

    use super::*;
    use crate::shared::groups::Gauge;

    const OWN_LOOP: usize = 0;

    fn offer(beyond: Beyond) -> Offer {
        let message = ApplicationMessage {
            body: MessageBody::new("t", b""),
            qos: QoS::AtLeastOnce,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        };
        Offer {
            message: Arc::new(message),
            group: NonZeroU32::MIN,
            beyond,
            judged: vec![2],
            refused_by: "c".into(),
        }
    }

    fn member(who: Who, home: Option<usize>) -> Member {
        let gauge = Arc::new(Gauge::default());
        let key = Key {
            slot: 1,
            generation: 0,
        };
        gauge.set_home(home.map(|home| SessionKey::new(home, key)));
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::SendAtSubscribe,
        };
        Member {
            who,
            by: By::OWN,
            wanted: Wanted::new(options, 0),
            gauge,
        }
    }

    #[test]
    fn a_connected_member_is_judged_by_its_loop_once() {
        for beyond in [Beyond::Nobody, Beyond::All, Beyond::Above("z".into())] {
            let offer = offer(beyond);
            for (home, admitted) in [(OWN_LOOP, None), (1, Some(true)), (2, Some(false))] {
                let key = Key {
                    slot: 1,
                    generation: 0,
                };
                let session = Who::Session(SessionKey::new(home, key));
                for member in [
                    member(session, None),
                    member(Who::Durable("d".into()), Some(home)),
                ] {
                    assert_eq!(offer.admits(&member, OWN_LOOP), admitted, "{member:?}");
                }
            }
        }
    }

    #[test]
    fn inboxes_take_an_offer_in_the_order_of_their_clients() {
        for (beyond, admitted) in [
            (Beyond::Nobody, [false, false, false, false]),
            (Beyond::All, [true, true, true, true]),
            (Beyond::Above("m".into()), [false, false, true, true]),
        ] {
            let offer = offer(beyond);
            let members = [
                Who::Durable("a".into()),
                Who::Durable("m".into()),
                Who::Durable("n".into()),
                Who::Node(7),
            ];
            let admits = members.map(|who| offer.admits(&member(who, None), OWN_LOOP));
            assert_eq!(admits, admitted.map(Some));
        }
    }
}
