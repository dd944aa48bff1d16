//! Messages of a shared group that were chosen for a member whose rights deny them: they are offered to other members.
//!
//! The loop that a member lives in judges the member, so an offer visits the loops of the node one after the other. A
//! loop looks for a member of its own that may receive the message; without one it passes the offer on. A durable
//! session without a connection cannot be judged: its inbox takes the message, and its loop judges it when it connects.
//!
//! Invariant: a message is dropped only when no member that can be asked may receive it.
//!
//! Deliberately absent: whom an offer may go to (`offer.rs`), and what members may do (`rights`).

use std::cell::RefCell;

use authorization::Action;
use mqtt_session::{ApplicationMessage, Delivery};
use net_api::Key;

use crate::clients::{BetweenLoops, LoopIo};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::key::{Publisher, SessionKey};
use crate::publish::forward::item_for;
use crate::publish::route::MATCHES_PER_UNIT;
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::share::units;
use crate::shared::groups::{Member, Who};
use crate::shared::offer::{Beyond, Offer};
use crate::turn::Turn;

/// Other nodes do not pass on what they are given so.
const LAST_HOP: u8 = 1;

impl<R: Rim> ClientLoop<R> {
    /// A client may not receive a message that was chosen for it, or was to be sent to it: of a shared group, others of
    /// the group are offered it; else it is dropped. `is_stored`: its inbox has it.
    pub(crate) fn deny_delivery(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        delivery: Delivery,
        is_stored: bool,
    ) {
        let client = self.clients.get(key);
        let client_id = client.map_or("", |client| client.session.client_id());
        let refused_by = Box::<str>::from(client_id);
        let Some(group) = delivery.group else {
            return drop_denied(self, io, &refused_by, &delivery.message);
        };
        let publisher = Publisher::from_bits(delivery.message.publisher);
        let beyond = if is_stored {
            Beyond::Above(refused_by.clone())
        } else if matches!(publisher, Some(Publisher::Here(_))) || self.base.node.peers().is_none()
        {
            Beyond::All
        } else {
            Beyond::Nobody
        };
        // What was chosen for it has not come.
        self.clients.show_room(key);
        let offer = Offer {
            message: delivery.message,
            group,
            beyond,
            judged: Vec::new(),
            refused_by,
        };
        self.pass_on(io, offer);
    }

    /// Gives a message to a member of this loop that may receive it, or offers it to members elsewhere.
    pub(crate) fn pass_on(&mut self, io: &mut impl LoopIo, mut offer: Offer) {
        let Some(group) = self.base.node.routes.group(offer.group.get()) else {
            return drop_denied(self, io, &offer.refused_by, &offer.message);
        };
        let members = self.base.node.routes.members(&group);
        io.charge(1 + units(members.len() / MATCHES_PER_UNIT));
        let (own_loop, publisher) = (self.base.index, offer.message.publisher_hash);
        let here = {
            let (parts, turn) = self.turn(io);
            let judge = RefCell::new((&mut parts.rights, turn));
            let may_have = |member: &Member| {
                let (rights, turn) = &mut *judge.borrow_mut();
                offer.admits(member, own_loop).is_none()
                    && may_be_sent(rights, turn, member, &offer.message)
            };
            group.choose(&members, publisher, may_have)
        };
        let elsewhere = |member: &Member| offer.admits(member, own_loop) == Some(true);
        let chosen = here.or_else(|| group.choose(&members, publisher, elsewhere));
        let Some(member) = chosen else {
            return drop_denied(self, io, &offer.refused_by, &offer.message);
        };
        let home = match &member.who {
            Who::Session(session) => Some(*session),
            Who::Durable(_) => member.gauge.home(),
            Who::Node(node) => {
                return self.forward_to_group(io, *node, &group, &offer.message, LAST_HOP, None);
            }
        };
        match home.map(SessionKey::loop_index) {
            Some(home) if home != own_loop => {
                offer.judged.push(own_loop);
                io.send(home, BetweenLoops::Offer(Box::new(offer)).into());
            }
            _ => {
                let item = item_for(&group, member, &offer.message);
                if let Some((client, item)) = self.give_directly(io, &group, member, item, None) {
                    self.give_to_inbox(&client, item, None, None);
                }
            }
        }
    }
}

/// Whether a member of this loop may receive a message.
fn may_be_sent<R: Rim, Io: LoopIo>(
    rights: &mut Rights,
    turn: &mut Turn<'_, R, Io>,
    member: &Member,
    message: &ApplicationMessage,
) -> bool {
    let home = match &member.who {
        Who::Session(session) => Some(*session),
        Who::Durable(_) | Who::Node(_) => member.gauge.home(),
    };
    home.is_some_and(|home| {
        let key = home.key();
        let client = turn.clients.get(key);
        client.is_some_and(|client| client.connection.is_some())
            && rights.allows(turn, key, Action::Receive, message.body.topic())
    })
}

/// Nobody may receive a message.
fn drop_denied<R: Rim>(
    this: &ClientLoop<R>,
    io: &impl LoopIo,
    client_id: &str,
    message: &ApplicationMessage,
) {
    this.base.count_denied(Action::Receive);
    let (topic, length) = (message.body.topic(), message.body.payload().len());
    let reason = Reason::Denied(Action::Receive);
    this.base
        .drops
        .record(io.now_ms(), client_id, topic, reason, message.qos, length);
}
