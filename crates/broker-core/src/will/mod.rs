//! Wills, which the session store says are due: this node publishes those of the session shards that it leads.
//!
//! | call | when | costs |
//! |---|---|---|
//! | [`Wills::handle_due`] | the store says that a will is due | what is to be published, which its caller does |
//! | [`Wills::handle_published`], [`Wills::handle_unpublished`] | once for each, when that has come to an end | a question to the session shard; a place in a list |
//! | [`Wills::handle_timer`] | while there are wills that could not be published | a question for each |
//! | [`Wills::handle_unrecorded`] | a connection ends of a client whose will the store does not know | as the first |
//! | [`Wills::handle_shutdown`] | once | a question for each client with a will |
//!
//! Invariant: the store is told that a will is published when everyone who must has it; until then it tells
//! whoever leads the shard. A will that could not be published is asked for again, until it is.

pub(crate) mod asked;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use store_state::api::Store;
use store_state::inbox::Origin;
use store_state::session::{SessionOp, StoredWill};

use self::asked::Asked;
use crate::clients::{Clients, Done, LoopIo, Timer, record_drop};
use crate::drops::Reason;
use crate::inbox::Epoch;
use crate::key::ordering_hash;
use crate::pending::{Answer, Awaiting, Pending};
use crate::publish::once::Once;
use crate::publish::source::Source;
use crate::rim::Rim;
use crate::sys;
use crate::turn::{Base, Effect, Turn};

/// How long a loop waits before it asks for wills again that it could not publish, in ms: at first, and at most.
const RETRY_MS: u64 = 1_000;
const RETRY_MOST_MS: u64 = 30_000;

/// Wills that a loop asks for again. Beyond that they are published by who leads the session shard next.
///
/// Limit: wills that a loop could not publish, and asks for again after {RETRY_MS} to {RETRY_MOST_MS} | {} |
/// published by who leads the session shard next
const UNPUBLISHED: usize = 65_536;

/// The wills that a loop could not publish.
#[derive(Debug)]
pub(crate) struct Wills {
    unpublished: Vec<(Box<str>, Epoch)>,
    retry_ms: u64,
    is_armed: bool,
}

impl Default for Wills {
    fn default() -> Self {
        Self {
            unpublished: Vec::new(),
            retry_ms: RETRY_MS,
            is_armed: false,
        }
    }
}

/// What is to be published.
type Publication = (Arc<ApplicationMessage>, Source);

impl Wills {
    /// A will is due. Gives what is to be published, and [`Self::handle_published`] is told when it is; `None`: nothing is.
    pub(crate) fn handle_due<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        client: Box<str>,
        epoch: Epoch,
        will: &StoredWill,
    ) -> Option<Publication> {
        if sys::is_closed_to(&client, will.message.body.topic_bytes()) {
            // CONNECT refuses such a will. An earlier version has stored this one.
            let (drops, now_ms) = (&turn.base.drops, turn.io.now_ms());
            record_drop(drops, now_ms, &will.message, Reason::ReservedTopic);
            self.handle_published(turn.base, &client, epoch);
            return None;
        }
        turn.base.stats.wills.add(1);
        let now = turn.base.expiry_now(turn.io);
        let message = Arc::new(ApplicationMessage {
            expires_at: will.message_expiry.map(|secs| now.add_secs(secs)),
            publisher_hash: ordering_hash(&client),
            ..(*will.message).clone()
        });
        let origin = origin_of_will(turn.base.node.store(), &client, epoch);
        let source = Source {
            once: Some(Once::Broker(origin)),
            awaiting: Some(Awaiting::Will {
                client,
                epoch: epoch.0,
            }),
            ..Source::default()
        };
        Some((message, source))
    }

    /// The connection has ended of a client that was let in though the session store could not record it (P10). Gives what is to be
    /// published.
    pub(crate) fn handle_unrecorded<R: Rim>(
        base: &Base<R>,
        client: &str,
        will: ApplicationMessage,
    ) -> Publication {
        base.stats.wills.add(1);
        let message = Arc::new(ApplicationMessage {
            publisher_hash: ordering_hash(client),
            ..will
        });
        let source = Source {
            transient: true,
            ..Source::default()
        };
        (message, source)
    }

    /// A will is published: the session store forgets it, and then, when that is recorded, all shards
    /// its origin.
    pub(crate) fn handle_published<R: Rim>(
        &mut self,
        base: &mut Base<R>,
        client: &str,
        epoch: Epoch,
    ) {
        self.retry_ms = RETRY_MS;
        let origin = origin_of_will(base.node.store(), client, epoch);
        let ticket = base.ask(Pending::Will(Asked::Fired(origin)));
        let op = SessionOp::Fired {
            client: client.into(),
            epoch: epoch.0,
        };
        base.node.store().session(client, ticket, op);
    }

    /// A will could not be published: the session shard is asked for it again in a while.
    pub(crate) fn handle_unpublished<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        client: Box<str>,
        epoch: Epoch,
    ) {
        if self.unpublished.len() >= UNPUBLISHED {
            return;
        }
        self.unpublished.push((client, epoch));
        let count = self.unpublished.len() as u64;
        turn.base.stats.unpublished_wills.set(count);
        if !std::mem::replace(&mut self.is_armed, true) {
            let at = turn.io.now_ms() + self.retry_ms;
            turn.io.arm(at, Timer::Wills.to_bits());
            self.retry_ms = (2 * self.retry_ms).min(RETRY_MOST_MS);
        }
    }

    /// Asks for all wills again that could not be published. Whoever leads their shards publishes those that are
    /// not published by now.
    pub(crate) fn handle_timer<R: Rim>(&mut self, base: &mut Base<R>) {
        self.is_armed = false;
        for (client, epoch) in std::mem::take(&mut self.unpublished) {
            let op = SessionOp::FireAgain {
                client: client.clone(),
                epoch: epoch.0,
            };
            let ticket = base.ask(Pending::Will(Asked::Again {
                client: client.clone(),
                epoch,
            }));
            base.node.store().session(&client, ticket, op);
        }
        base.stats.unpublished_wills.set(0);
    }

    /// The session shard has answered.
    pub(crate) fn handle_answer<R: Rim>(base: &mut Base<R>, asked: Asked, answer: &Answer) {
        match (asked, answer) {
            (Asked::Fired(origin), Answer::Session(_)) => {
                base.release_everywhere(&Once::Broker(origin));
            }
            // If it is not recorded, the will is fired again by who leads the shard next, and its origin is
            // needed.
            (Asked::Fired(_), _) => {}
            (Asked::Again { client, epoch }, Answer::Failed(_)) => {
                let epoch = epoch.0;
                base.add(Effect::WillUnpublished { client, epoch });
            }
            // Whoever leads the shard says that it is due.
            (Asked::Again { .. }, _) => {}
            // A shutdown goes on when the last one of these is dropped.
            (Asked::Due { .. }, _) => {}
        }
    }

    /// At shutdown the wills of connected clients are published while there is somebody to hear them. The
    /// delayed ones of durable sessions wait in the store: their clients may be back in time. `done` is
    /// dropped when all are on their way.
    pub(crate) fn handle_shutdown<R: Rim>(base: &mut Base<R>, clients: &Clients, done: &Done) {
        for key in clients.online() {
            let client = clients.get(key).filter(|c| c.session.has_will());
            let Some((client, stored)) = client.and_then(|of| Some((of, of.stored.as_ref()?)))
            else {
                continue;
            };
            let client_id = Box::<str>::from(client.session.client_id());
            let op = SessionOp::WillDue {
                client: client_id.clone(),
                epoch: stored.epoch().0,
            };
            let ticket = base.ask(Pending::Will(Asked::Due {
                _done: done.clone(),
            }));
            base.node.store().session(&client_id, ticket, op);
        }
    }
}

/// What makes a will happen once. No client identifier holds a NUL [MQTT-1.5.4-2], so that wills and
/// what the client itself publishes do not meet.
fn origin_of_will(store: &impl Store, client: &str, Epoch(epoch): Epoch) -> Origin {
    Origin {
        client: store.client_name(&format!("\0{epoch}/{client}")),
        incarnation: epoch,
        packet_id: 0,
    }
}
