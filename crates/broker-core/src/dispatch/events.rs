//! What the store tells a loop: answers to what it was asked, and what happens to sessions.

use mqtt_proto::ReasonCode;
use net_api::Key;
use store_state::api::Event;

use super::ClientLoop;
use crate::clients::LoopIo;
use crate::events::{SessionEvent, SessionHappened};
use crate::inbox::{Epoch, InboxNumber, Inboxes, Page, Sequence};
use crate::pending::Answer;
use crate::reopening::LeaderChange;
use crate::rim::Rim;
use crate::turn::Effect;

impl<R: Rim> ClientLoop<R> {
    /// Events of the store.
    pub(crate) fn store_events(&mut self, io: &mut impl LoopIo, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Session { token, reply } => {
                    self.answered(io, token, Answer::Session(reply));
                }
                Event::Inbox { token, reply } => self.answered(io, token, Answer::Inbox(reply)),
                Event::Retain { token, reply } => self.answered(io, token, Answer::Retain(reply)),
                Event::Failed { token, failure } => {
                    self.answered(io, token, Answer::Failed(failure));
                }
                Event::Passed { token } => self.answered(io, token, Answer::Passed),
                Event::Retained { token, pages } => {
                    self.answered(io, token, Answer::Retained(pages));
                }
                Event::Reopen { shard } => {
                    let (parts, mut turn) = self.turn(io);
                    let changes = [LeaderChange::OfInboxes(shard)];
                    parts.reopening.handle_leaders(&mut turn, changes);
                }
                Event::Fenced => self.fence(io),
                Event::Page {
                    home,
                    epoch,
                    from,
                    items,
                } => {
                    let page = Page {
                        key: Key::from_bits(home),
                        epoch: Epoch(epoch),
                        from: Sequence(from),
                        items,
                    };
                    let (parts, mut turn) = self.turn(io);
                    let lower = (&mut parts.rights, &mut parts.backpressure);
                    Inboxes::handle_page(&mut turn, lower, page);
                }
                Event::Fire {
                    client,
                    epoch,
                    will,
                } => {
                    let (parts, mut turn) = self.turn(io);
                    let (name, of) = (client.clone(), Epoch(epoch));
                    let due = parts.wills.handle_due(&mut turn, name, of, &will);
                    if let Some((message, source)) = due
                        && self.distribute(io, &message, source).is_some()
                    {
                        self.base.add(Effect::WillPublished { client, epoch });
                    }
                }
                Event::Ended { client, epoch, why } => {
                    if let Some(why) = why {
                        self.base.node.rim.tell_session(&SessionEvent {
                            what: SessionHappened::Ended(why),
                            client_id: &client,
                            user: None,
                        });
                    }
                    Inboxes::handle_ended(&mut self.base, client, Epoch(epoch));
                }
                Event::LeftBehind { client, inbox } => {
                    let legacies = &mut self.parts.legacies;
                    legacies.handle_told(&mut self.base, client, InboxNumber(inbox));
                }
                Event::SplitOff { .. } => {
                    debug_assert!(
                        false,
                        "the store itself sends on what belongs to other shards"
                    );
                }
                Event::Control { .. } => {
                    debug_assert!(false, "no loop asks the control store");
                }
            }
            self.carry_out(io);
        }
    }

    /// The other nodes have taken this one for dead, and with it the connections that the store knows of.
    fn fence(&mut self, io: &mut impl LoopIo) {
        if self.base.index == 0 {
            self.base.node.rim.tell_incarnation();
        }
        let (parts, mut turn) = self.turn(io);
        parts.linger.handle_fence(&mut turn);
        self.carry_out(io);
        for key in self.clients.online() {
            self.refuse_claimed(io, key);
            if self
                .clients
                .get(key)
                .is_some_and(|client| client.stored.is_some())
            {
                // Not as effects: there may be as many as the loop has clients.
                self.end_connection(io, key, ReasonCode::ServerBusy);
                self.carry_out(io);
            }
        }
    }
}
