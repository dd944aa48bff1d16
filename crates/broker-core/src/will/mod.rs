//! Wills, which the session store says are due: this node publishes those of the session shards that it leads.
//!
//! Invariant: the store is told that a will is published when everyone who must has it; until then it tells
//! whoever leads the shard. A will that could not be published is asked for again, until it is.

pub(crate) mod unpublished;

use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use store_state::api::Store;
use store_state::inbox::Origin;
use store_state::session::{SessionOp, StoredWill};

use crate::clients::{Done, LoopIo, Timer, record_drop};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::pending::{Answer, Awaiting, Pending};
use crate::publish::once::Once;
use crate::publish::route::ordering_hash;
use crate::publish::source::Source;
use crate::rim::Rim;
use crate::sys;
use crate::will::unpublished::{RETRY_MS, UNPUBLISHED};

const RETRY_MOST_MS: u64 = 30_000;

impl<R: Rim> ClientLoop<R> {
    /// A will is due.
    pub(crate) fn fire(
        &mut self,
        io: &mut impl LoopIo,
        client: Box<str>,
        epoch: u64,
        will: &StoredWill,
    ) {
        if sys::is_closed_to(&client, will.message.body.topic_bytes()) {
            // CONNECT refuses such a will. An earlier version has stored this one.
            record_drop(
                &self.base.drops,
                io.now_ms(),
                &will.message,
                Reason::ReservedTopic,
            );
            self.will_is_published(&client, epoch);
            return;
        }
        self.base.stats.wills.add(1);
        let now = self.base.expiry_now(io);
        let message = Arc::new(ApplicationMessage {
            expires_at: will.message_expiry.map(|secs| now.add_secs(secs)),
            publisher_hash: ordering_hash(&client),
            ..(*will.message).clone()
        });
        let source = Source {
            once: Some(Once::Broker(origin_of_will(
                self.base.node.store(),
                &client,
                epoch,
            ))),
            awaiting: Some(Awaiting::Will {
                client: client.clone(),
                epoch,
            }),
            ..Source::default()
        };
        if self.distribute(io, &message, source).is_some() {
            self.will_is_published(&client, epoch);
        }
    }

    /// The connection has ended of a client that was let in though the session store could not record it (P10).
    pub(crate) fn publish_unrecorded_will(
        &mut self,
        io: &mut impl LoopIo,
        client: &str,
        will: ApplicationMessage,
    ) {
        self.base.stats.wills.add(1);
        let message = Arc::new(ApplicationMessage {
            publisher_hash: ordering_hash(client),
            ..will
        });
        let source = Source {
            transient: true,
            ..Source::default()
        };
        self.distribute(io, &message, source);
    }

    /// A will is published: the session store forgets it, and then, when that is recorded, all shards
    /// its origin.
    pub(crate) fn will_is_published(&mut self, client: &str, epoch: u64) {
        self.unpublished.retry_ms = RETRY_MS;
        let ticket = self.base.ask(Pending::Fired(origin_of_will(
            self.base.node.store(),
            client,
            epoch,
        )));
        let op = SessionOp::Fired {
            client: client.into(),
            epoch,
        };
        self.base.node.store().session(client, ticket, op);
    }

    /// A will could not be published: the session shard is asked for it again in a while.
    pub(crate) fn will_is_unpublished(
        &mut self,
        io: &mut impl LoopIo,
        client: Box<str>,
        epoch: u64,
    ) {
        let unpublished = &mut self.unpublished;
        if unpublished.wills.len() >= UNPUBLISHED {
            return;
        }
        unpublished.wills.push((client, epoch));
        self.base
            .stats
            .unpublished_wills
            .set(unpublished.wills.len() as u64);
        if !std::mem::replace(&mut unpublished.is_armed, true) {
            io.arm(io.now_ms() + unpublished.retry_ms, Timer::Wills.to_bits());
            unpublished.retry_ms = (2 * unpublished.retry_ms).min(RETRY_MOST_MS);
        }
    }

    /// Asks for all wills again that could not be published. Whoever leads their shards publishes those that are
    /// not published by now.
    pub(crate) fn retry_wills(&mut self) {
        self.unpublished.is_armed = false;
        for (client, epoch) in std::mem::take(&mut self.unpublished.wills) {
            let op = SessionOp::FireAgain {
                client: client.clone(),
                epoch,
            };
            let ticket = self.base.ask(Pending::FireAgain {
                client: client.clone(),
                epoch,
            });
            self.base.node.store().session(&client, ticket, op);
        }
        self.base.stats.unpublished_wills.set(0);
    }

    pub(crate) fn fired_answered(&self, origin: &Origin, answer: &Answer) {
        // If it is not recorded, the will is fired again by who leads the shard next, and its origin is
        // needed.
        if let Answer::Session(_) = answer {
            self.base.release_everywhere(&Once::Broker(origin.clone()));
        }
    }

    /// At shutdown the wills of connected clients are published while there is somebody to hear them. The
    /// delayed ones of durable sessions wait in the store: their clients may be back in time. `done` is
    /// dropped when all are on their way.
    pub(crate) fn publish_all_wills(&mut self, done: &Done) {
        for key in self.clients.online() {
            let Some(client) = self.clients.get(key).filter(|c| c.session.has_will()) else {
                continue;
            };
            let Some(stored) = &client.stored else {
                continue;
            };
            let client_id = Box::<str>::from(client.session.client_id());
            let op = SessionOp::WillDue {
                client: client_id.clone(),
                epoch: stored.epoch().0,
            };
            let ticket = self.base.ask(Pending::WillDue {
                _done: done.clone(),
            });
            self.base.node.store().session(&client_id, ticket, op);
        }
    }
}

/// What makes a will happen once. No client identifier holds a NUL [MQTT-1.5.4-2], so that wills and
/// what the client itself publishes do not meet.
fn origin_of_will(store: &impl Store, client: &str, epoch: u64) -> Origin {
    Origin {
        client: store.client_name(&format!("\0{epoch}/{client}")),
        incarnation: epoch,
        packet_id: 0,
    }
}
