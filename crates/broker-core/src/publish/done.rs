//! What those who are to keep a message have answered, and what its publisher is told then.

use mqtt_proto::ReasonCode;
use net_api::Key;
use store_state::api::Failure;
use store_state::inbox::InboxReply;
use store_state::retain::RetainReply;

use crate::clients::{Client, LoopIo, record_drop};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::pending::{Answer, Awaiting, Pending, Publication, Storing};
use crate::publish::on_behalf::{self, Kept};
use crate::rim::Rim;
use crate::turn::Effect;

impl<R: Rim> ClientLoop<R> {
    /// A shard has answered for a publication.
    pub(crate) fn publication_answered(&mut self, io: &mut impl LoopIo, id: Key, answer: Answer) {
        if let Some(Pending::Publish(publication)) = self.base.pending.get_mut(id) {
            publication.left -= 1;
            match answer {
                Answer::Inbox(InboxReply::Published {
                    matched,
                    refused,
                    pressing,
                }) => {
                    publication.matched(matched > 0, refused > 0);
                    publication.receivers.answered(matched, pressing);
                }
                Answer::Retain(RetainReply::Full) => {
                    publication.matched(true, true);
                    publication.not_retained = true;
                }
                Answer::Failed(Failure::Full | Failure::TooLong) => {
                    publication.matched(true, true);
                    publication.stored(Storing::Refused);
                }
                Answer::Inbox(InboxReply::Fenced) | Answer::Retain(RetainReply::Fenced) => {
                    publication.stored(Storing::Stale);
                }
                Answer::Failed(_) => {
                    publication.stored(Storing::Unknown);
                    publication.reason = ReasonCode::ImplementationSpecificError;
                }
                _ => publication.matched(false, false),
            }
        }
        let finished =
            matches!(self.base.pending.get(id), Some(Pending::Publish(p)) if p.left == 0);
        if finished && let Some(Pending::Publish(publication)) = self.base.pending.remove(id) {
            self.publication_done(io, *publication);
            self.base.stats.pending.set(self.base.pending.len() as u64);
        }
    }

    /// All who must have a message have it, or one of them could not.
    pub(crate) fn publication_done(&mut self, io: &mut impl LoopIo, publication: Publication) {
        let Publication {
            from,
            reason,
            storing,
            message,
            once,
            receivers,
            not_retained,
            call,
            ..
        } = publication;
        if let Some(call) = call {
            self.calls.end(call);
        }
        let failed = storing != Storing::Done;
        if let Awaiting::Client(key, _) | Awaiting::Nobody(key) = from {
            if failed {
                self.base
                    .drop_inbound(&self.clients, io, key, &message, Reason::StoreFailed);
            } else if not_retained {
                self.base
                    .drop_inbound(&self.clients, io, key, &message, Reason::RetainedLimit);
            }
        }
        match from {
            Awaiting::Nobody(_) => {}
            Awaiting::Operator(operator) => {
                let done = Kept {
                    reason,
                    storing,
                    not_retained,
                };
                on_behalf::publication_done(self, io, &operator, &message, done);
            }
            Awaiting::Client(key, packet_id) => {
                // Who is not told sends the message again, and those that have it know it by its origin.
                let Some(client) = self.clients.get_mut(key) else {
                    return;
                };
                if storing == Storing::Stale {
                    self.base.end(key, ReasonCode::SessionTakenOver);
                    return;
                }
                if failed && !client.session.version().is_v5() {
                    // Before 5.0 an acknowledgement cannot say no: none is sent, and the client sends
                    // the message again on its next connection.
                    self.base.end(key, reason);
                    return;
                }
                if storing == Storing::Unknown && once.is_some() {
                    // A PUBREC that refuses has its identifier forgotten. If it is lost, the client sends the
                    // message again, and a shard that keeps it would take it for another one.
                    self.base.end(key, ReasonCode::ServerBusy);
                    return;
                }
                client
                    .session
                    .complete_publish(packet_id, reason, message.taken_up);
                if let Some(connection) = client.connection {
                    io.touch(connection);
                }
                if receivers.filling > 0 || client.rare.get().hold.is_some() {
                    let topic = message.body.topic_bytes();
                    let (parts, mut turn) = self.turn(io);
                    parts
                        .backpressure
                        .handle_publication(&mut turn, key, receivers, topic);
                }
                if let Some(once) = once.filter(|_| reason.is_error()) {
                    // [MQTT-4.3.3-9] the identifier is free for another message.
                    self.base.release_everywhere(&once);
                    if let Some(inbox) = self.clients.get_mut(key).and_then(Client::inbox) {
                        inbox.forget(packet_id);
                    }
                }
            }
            Awaiting::Will { client, epoch } => {
                if failed {
                    self.base.add(Effect::WillUnpublished { client, epoch });
                    return;
                }
                if not_retained {
                    record_drop(
                        &self.base.drops,
                        io.now_ms(),
                        &message,
                        Reason::RetainedLimit,
                    );
                }
                self.base.add(Effect::WillPublished { client, epoch });
            }
        }
    }
}

impl Publication {
    fn stored(&mut self, storing: Storing) {
        self.storing = self.storing.max(storing);
    }

    /// A shard has said whether anybody there matched, and whether anybody refused.
    pub(crate) fn matched(&mut self, matched: bool, refused: bool) {
        if refused {
            self.reason = ReasonCode::QuotaExceeded;
        } else if matched && self.reason == ReasonCode::NoMatchingSubscribers {
            self.reason = ReasonCode::Success;
        }
    }
}
