//! What the store tells a loop: answers to what it was asked, and what happens to sessions.

use net_api::Key;
use store_state::api::Event;

use super::ClientLoop;
use crate::clients::LoopIo;
use crate::events::{SessionEvent, SessionHappened};
use crate::pending::Answer;
use crate::rim::Rim;
use crate::session::new_leaders;
use crate::session::reopening::LeaderChange;

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
                    new_leaders::begin(self, io, [LeaderChange::OfInboxes(shard)]);
                }
                Event::Fenced => self.fence(io),
                Event::Page {
                    home,
                    epoch,
                    from,
                    items,
                } => self.page(io, Key::from_bits(home), epoch, from, items),
                Event::Fire {
                    client,
                    epoch,
                    will,
                } => self.fire(io, client, epoch, &will),
                Event::Ended { client, epoch, why } => {
                    if let Some(why) = why {
                        self.base.node.rim.tell_session(&SessionEvent {
                            what: SessionHappened::Ended(why),
                            client_id: &client,
                            user: None,
                        });
                    }
                    self.remove_inbox(client, epoch);
                }
                Event::LeftBehind { client, inbox } => self.left_behind(client, inbox),
                Event::SplitOff { .. } => {
                    debug_assert!(
                        false,
                        "the store itself sends on what belongs to other shards"
                    );
                }
            }
        }
    }
}
