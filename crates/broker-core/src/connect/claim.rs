//! Clients whose CONNECT waits for the store: durable sessions, wills, and client identifiers that the
//! store has a record of.
//!
//! A session is in the store's hands from the claim of its identifier to the answer of its inbox; its
//! connection is not read meanwhile. CONNACK follows when both are recorded.
//!
//! Invariants: at most one connection of a client identifier joins or is connected in this node; of those whose
//! CONNECTs wait meanwhile, the one whose CONNECT came last goes on, in whatever order they are resumed; a
//! connection that goes away while it joins is disconnected in the store as well, when the answer comes.

use std::sync::Arc;

use mqtt_proto::{Connect, LastWill, MessageBody, ReasonCode};
use mqtt_session::{
    ApplicationMessage, NEVER_EXPIRES, Restored, Session, Timestamp, class_of, session_expiry,
};
use net_api::Key;
use peer_protocol::{Asker, Older};
use store_state::api::{Failure, Store as _};
use store_state::inbox::{Attached, InboxOp, InboxReply};
use store_state::session::{
    ClaimRequest, Claimed, SessionOp, SessionReply, StoredWill, WillAtClose,
};

use crate::clients::{LoopIo, dismiss};
use crate::connect::joining::{ClaimStage, Joining, Waiter};
use crate::connect::own_clients;
use crate::connect::refused::{Cause, Refused};
use crate::dispatch::ClientLoop;
use crate::end::Ends;
use crate::events::{SessionEvent, SessionHappened};
use crate::excerpt::excerpt;
use crate::inbox::{self, Attachment, Epoch, InboxNumber, Inboxes, Sequence, Stored};
use crate::linger::Linger;
use crate::pending::{Answer, Pending};
use crate::retained::backlog::Replay;
use crate::rim::Rim;

impl<R: Rim> ClientLoop<R> {
    /// Whether a CONNECT concerns the store.
    pub(crate) fn concerns_store(&self, connect: &Connect<'_>, client_id: &str) -> bool {
        session_expiry(connect, &self.base.settings.limits.policy) != 0
            || connect.will.is_some()
            || self.base.node.store().knows(client_id)
    }

    /// Asks the store for the identifier of a client that has its place in the loop.
    pub(crate) fn join(&mut self, key: Key, connect: &Connect<'_>, client_id: &str) {
        let will = connect.will.as_ref().map(stored_will);
        let request = ClaimRequest {
            client: client_id.into(),
            node: self.base.node.store().node(),
            node_incarnation: self.base.node.store().incarnation(),
            clean_start: connect.clean_start,
            expiry: session_expiry(connect, &self.base.settings.limits.policy),
            will,
            // Not now: another node may have the client since then.
            asked_ms: self.came_at_us(key) / 1_000,
        };
        let op = SessionOp::claim(
            request,
            self.clients.user_of(key),
            self.base.settings.of_another_user,
        );
        let client = self.clients.get_mut(key);
        if let Some(joining) = client.and_then(|client| client.rare.get_mut(|of| &mut of.joining)) {
            joining.claim = ClaimStage::Asked;
        }
        let ticket = self.base.ask(Pending::Claim(key));
        self.base.node.store().session(client_id, ticket, op);
    }

    /// When the CONNECT of a client came, in µs of the cluster's time.
    pub(crate) fn came_at_us(&self, key: Key) -> u64 {
        let came_us = self.clients.get(key).map_or(0, |client| client.came_us);
        self.base.node.rim.cluster_time_us(came_us)
    }

    /// The connection of a client that joins is gone, or given up. Its place stays until the store has
    /// answered. False: the client does not join.
    pub(crate) fn abandon(&mut self, io: &mut impl LoopIo, key: Key) -> bool {
        let Some(client) = self
            .clients
            .get_mut(key)
            .filter(|c| c.rare.get().joining.is_some())
        else {
            return false;
        };
        if let Some(connection) = client.connection.take() {
            dismiss(io, connection, Vec::new());
            self.base.node.count_disconnected();
        }
        true
    }

    /// Refuses a CONNECT that the store has recorded for a process of this node that the others have taken for dead.
    /// What it still waits for is answered as if the client had gone.
    pub(crate) fn refuse_claimed(&mut self, io: &mut impl LoopIo, key: Key) {
        let is_claimed = |joining: &Joining| matches!(joining.claim, ClaimStage::Given(_));
        if let Some(client) = self.clients.get_mut(key)
            && client.rare.get().joining.as_deref().is_some_and(is_claimed)
            && let Some(connection) = client.connection.take()
        {
            let version = client.session.version();
            self.base.node.count_disconnected();
            let answer = Some((version, ReasonCode::ServerUnavailable));
            let why = (client.who(), Cause::TakenForDead);
            self.base.refuse(io, connection, answer, why);
        }
    }

    pub(crate) fn claim_answered(&mut self, io: &mut impl LoopIo, key: Key, answer: Answer) {
        let deferred = self.take_deferred_closes(key);
        self.judge_claim(io, key, answer);
        for (asker, older) in deferred {
            self.close_older(io, asker, older, false);
        }
    }

    /// Those who are to hear whether this connection is the older one.
    pub(crate) fn take_deferred_closes(&mut self, key: Key) -> Vec<(Asker, Older)> {
        let client = self.clients.get_mut(key);
        client
            .and_then(|client| client.rare.get_mut(|of| &mut of.joining))
            .map_or_else(Vec::new, |joining| {
                std::mem::take(&mut joining.deferred_closes)
            })
    }

    fn judge_claim(&mut self, io: &mut impl LoopIo, key: Key, answer: Answer) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let client_id = Box::<str>::from(client.session.client_id());
        let durable = client.session.session_expiry() != 0;
        let here = client.connection.is_some();
        let claimed = match answer {
            Answer::Session(SessionReply::Claimed(claimed)) => claimed,
            Answer::Failed(_) if here && !durable && !self.base.node.store().knows(&client_id) => {
                // Only a will to record: it is kept in memory, like the rest of the session.
                self.joined_transient(io, key, None);
                return;
            }
            Answer::Session(SessionReply::NotOwner) => return self.refuse_another_user(io, key),
            Answer::Failed(failure) => return self.refuse_joining(io, key, failure),
            _ => return self.refuse_joining(io, key, Failure::Stopped),
        };
        if let Some(joining) = client.rare.get_mut(|of| &mut of.joining) {
            joining.claim = ClaimStage::Given(claimed.epoch);
        }
        self.take_from_others(io, key, claimed);
    }

    /// The identifier is the client's, and no other node has a connection of it.
    pub(crate) fn claimed(&mut self, io: &mut impl LoopIo, key: Key, claimed: Claimed) {
        let Some(client) = self.clients.get(key) else {
            return;
        };
        let client_id = Box::<str>::from(client.session.client_id());
        let durable = client.session.session_expiry() != 0;
        let class = class_of(&client.session);
        let here = client.connection.is_some();
        let Claimed {
            epoch,
            resumed,
            had_inbox,
            ..
        } = claimed;
        // A session that goes on is a durable one, even if it is to end with this connection.
        let durable = durable || resumed;
        if !here {
            self.leave_unjoined(io, key, &client_id, epoch);
            return;
        }
        if durable {
            let node = self.base.node.store().node();
            let node_incarnation = self.base.node.store().incarnation();
            let last = Linger::left_by(&self.clients, key).filter(|_| resumed);
            let op = match last.map(|(Epoch(last), knows_owed)| (last, knows_owed)) {
                last if !class.is_default() => InboxOp::AttachAs {
                    client: client_id.clone(),
                    epoch,
                    node,
                    node_incarnation,
                    resume: resumed,
                    last,
                    class,
                },
                Some((last, knows_owed)) => InboxOp::AttachAgain {
                    client: client_id.clone(),
                    epoch,
                    node,
                    node_incarnation,
                    last,
                    knows_owed,
                },
                None => InboxOp::Attach {
                    client: client_id.clone(),
                    epoch,
                    node,
                    node_incarnation,
                    resume: resumed,
                },
            };
            self.base.ask_inbox(Pending::Attach { key, epoch }, op);
        } else if had_inbox {
            let op = InboxOp::Remove {
                session: self.base.node.store().client_name(&client_id).into(),
                epoch,
            };
            self.base.ask_inbox(Pending::Discard { key, epoch }, op);
        } else {
            self.joined_transient(io, key, Some(epoch));
        }
    }

    pub(crate) fn discard_answered(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        epoch: u64,
        answer: &Answer,
    ) {
        let Some(client) = self.clients.get(key) else {
            return;
        };
        let client_id = Box::<str>::from(client.session.client_id());
        if client.connection.is_none() {
            self.leave_unjoined(io, key, &client_id, epoch);
        } else if let Answer::Failed(failure) = answer {
            let failure = *failure;
            Ends::record(&mut self.base, &client_id, epoch, 0, WillAtClose::Discard);
            self.refuse_joining(io, key, failure);
        } else {
            self.joined_transient(io, key, Some(epoch));
        }
    }

    pub(crate) fn attach_answered(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        epoch: u64,
        answer: Answer,
    ) {
        let Some(client) = self.clients.get(key) else {
            return;
        };
        let client_id = Box::<str>::from(client.session.client_id());
        let expiry = client.session.session_expiry();
        let is_here = client.connection.is_some();
        if let Answer::Inbox(InboxReply::Attached(_)) = answer {
            // Routes that the last connection left may be for other subscriptions than it has now.
            let (parts, mut turn) = self.turn(io);
            parts.linger.handle_no_use(&mut turn, key);
        }
        match answer {
            Answer::Inbox(InboxReply::Attached(attached) | InboxReply::AttachedAgain(attached)) => {
                if is_here {
                    self.has_attached(io, key, epoch, attached);
                } else {
                    self.leave_attached(io, key, epoch, Some(*attached));
                }
            }
            _ if !is_here => self.leave_attached(io, key, epoch, None),
            Answer::Failed(failure) => {
                Ends::record(
                    &mut self.base,
                    &client_id,
                    epoch,
                    expiry,
                    WillAtClose::Discard,
                );
                self.refuse_joining(io, key, failure);
            }
            // A later connection has the session, and this one was not told in time.
            _ => {
                self.refuse_joining(io, key, Failure::Stopped);
            }
        }
    }

    fn has_attached(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        epoch: u64,
        attached: Box<Attached>,
    ) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let client_id = client.session.client_id();
        let unreleased = self.base.node.unreleased.before(client_id, epoch);
        // Those of a session that has ended say nothing about a new one.
        if let Some(joining) = client
            .rare
            .get_mut(|of| &mut of.joining)
            .filter(|_| attached.present)
        {
            joining.unreleased.extend(unreleased.iter());
        }
        self.attached(io, key, epoch, attached);
    }

    /// The store has attached a client to its inbox that is not there any more; `None`: it may have.
    fn leave_attached(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        epoch: u64,
        attached: Option<Attached>,
    ) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let client_id = Box::<str>::from(client.session.client_id());
        let expiry = client.session.session_expiry();
        let joining = client.rare.take(|of| &mut of.joining);
        Ends::record(
            &mut self.base,
            &client_id,
            epoch,
            expiry,
            WillAtClose::Discard,
        );
        self.unregister(io, key);
        let (parts, mut turn) = self.turn(io);
        let lingers = attached.is_some_and(|attached| {
            parts
                .linger
                .handle_unjoined(&mut turn, key, Epoch(epoch), attached)
        });
        if !lingers {
            let op = InboxOp::Detach {
                session: self.base.node.store().client_name(&client_id).into(),
                epoch,
                sent: 0,
            };
            self.base.tell_inbox(op);
            self.forget_client(io, key);
        }
        self.resume_waiters(io, joining.map_or_else(Vec::new, |joining| joining.waiters));
    }

    /// The store has recorded a client that is not there any more.
    fn leave_unjoined(&mut self, io: &mut impl LoopIo, key: Key, client_id: &str, epoch: u64) {
        let expiry = self
            .clients
            .get(key)
            .map_or(NEVER_EXPIRES, |client| client.session.session_expiry());
        Ends::record(
            &mut self.base,
            client_id,
            epoch,
            expiry,
            WillAtClose::Discard,
        );
        self.forget_joining(io, key);
    }

    /// A client that joined is gone. Later connections of it go on, here and on other nodes.
    pub(crate) fn forget_joining(&mut self, io: &mut impl LoopIo, key: Key) {
        self.unregister(io, key);
        let deferred = self.take_deferred_closes(key);
        let joining = self
            .clients
            .get_mut(key)
            .and_then(|c| c.rare.take(|of| &mut of.joining));
        self.forget_client(io, key);
        for (asker, older) in deferred {
            self.close_older(io, asker, older, false);
        }
        self.resume_waiters(io, joining.map_or_else(Vec::new, |joining| joining.waiters));
    }

    /// The store cannot record a client: it is refused.
    fn refuse_joining(&mut self, io: &mut impl LoopIo, key: Key, failure: Failure) {
        if let Some(client) = self.clients.get(key)
            && let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms())
        {
            tracing::info!(
                client_id = &*excerpt(client.session.client_id()),
                ?failure,
                left_out,
                "a client is refused: the store cannot record it"
            );
        }
        let code = match failure {
            Failure::Full | Failure::TooLong => ReasonCode::QuotaExceeded,
            Failure::Stopped | Failure::Moved => ReasonCode::ServerUnavailable,
        };
        let cause = Cause::Store;
        self.turn_away(io, key, Refused { code, cause });
    }

    /// The client has connected to another node since: this connection of it is closed.
    pub(crate) fn refuse_given_up(&mut self, io: &mut impl LoopIo, key: Key) {
        self.abandon(io, key);
        self.forget_joining(io, key);
    }

    /// The client identifier has a session of another user: the client is refused.
    pub(crate) fn refuse_another_user(&mut self, io: &mut impl LoopIo, key: Key) {
        if let Some(client) = self.clients.get(key) {
            self.report_another_user(
                io,
                client.session.client_id(),
                self.clients.user_of(key).as_deref(),
            );
        }
        let refused = Refused {
            code: ReasonCode::NotAuthorized,
            cause: Cause::SessionOfAnotherUser,
        };
        self.turn_away(io, key, refused);
    }

    /// Counts a client that is refused because its identifier has a session of another user.
    pub(crate) fn report_another_user(
        &self,
        io: &impl LoopIo,
        client_id: &str,
        user: Option<&str>,
    ) {
        self.base.stats.not_owner.add(1);
        if let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms()) {
            tracing::info!(
                client_id = &*excerpt(client_id),
                user = user.map(excerpt).as_deref(),
                left_out,
                "a client is refused: its identifier has a session of another user"
            );
        }
    }

    /// A client that joins is answered with a refusal.
    fn turn_away(&mut self, io: &mut impl LoopIo, key: Key, refused: Refused) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let answer = Some((client.session.version(), refused.code));
        if let Some(connection) = client.connection.take() {
            self.base.node.count_disconnected();
            let why = (client.who(), refused.cause);
            self.base.refuse(io, connection, answer, why);
        }
        self.forget_joining(io, key);
    }

    /// A client whose session ends with its connection. `epoch`: what the store recorded it under.
    pub(crate) fn joined_transient(&mut self, io: &mut impl LoopIo, key: Key, epoch: Option<u64>) {
        let now = Timestamp(io.now_ms());
        let (parts, mut turn) = self.turn(io);
        parts.linger.handle_no_use(&mut turn, key);
        // A client leaves only by ways that end its joining, and end or detach what it has asked the store for.
        let client = self
            .clients
            .get_mut(key)
            .expect("a client that joins is there");
        let joining = client
            .rare
            .take(|of| &mut of.joining)
            .expect("a client joins once");
        let connect = joining.connect().expect("a client joins by CONNECT");
        let client_id = Box::<str>::from(client.session.client_id());
        let accepted = match epoch {
            Some(epoch) => own_clients::numbered(joining.accepted(), &client_id, epoch, 0),
            None => joining.accepted(),
        };
        client.session = Session::open(
            &connect,
            client_id,
            accepted,
            self.base.settings.policy_of(joining.class()),
            now,
        );
        if let Some(epoch) = epoch {
            self.base
                .node
                .unreleased
                .forget(client.session.client_id(), epoch);
        }
        client.stored = epoch.map(|epoch| Box::new(Stored::without_inbox(Epoch(epoch))));
        if client.stored.is_none() {
            self.count_session(key);
        }
        self.has_joined(io, key);
        self.resume_waiters(io, joining.waiters);
    }

    /// A client with a durable session.
    pub(crate) fn joined_durable(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        epoch: u64,
        attached: Attached,
    ) {
        // It may have gone while older connections of it were closed.
        if self
            .clients
            .get(key)
            .is_none_or(|client| client.connection.is_none())
        {
            return self.leave_attached(io, key, epoch, Some(attached));
        }
        let now = Timestamp(io.now_ms());
        let session_key = self.base.session_key(key);
        let (parts, mut turn) = self.turn(io);
        let taken = parts.linger.take(turn.base, turn.clients, key);
        if taken.is_none() {
            Linger::route_all(&mut turn, key, &attached);
        }
        // A client leaves only by ways that end its joining, and end or detach what it has asked the store for.
        let client = self
            .clients
            .get_mut(key)
            .expect("a client that joins is there");
        let mut joining = client
            .rare
            .take(|of| &mut of.joining)
            .expect("a client joins once");
        let connect = joining.connect().expect("a client joins by CONNECT");
        let Attached {
            present,
            inbox,
            incarnation,
            subscriptions,
            received,
            first,
            sent,
            owed,
        } = attached;
        let client_id = Box::<str>::from(client.session.client_id());
        client.rare.set(
            |of| &mut of.gauge,
            self.base.node.routes.durable_gauge(&client_id),
        );
        if let Some(gauge) = &client.rare.get().gauge {
            gauge.set_home(Some(session_key));
        }
        if taken.is_none() {
            client.rare.set(
                |of| &mut of.replay,
                Replay::resumed(owed, &subscriptions).map(Box::new),
            );
        }
        let restored = Restored {
            subscriptions: subscriptions.into_iter().map(inbox::subscription).collect(),
            received: received.clone(),
        };
        client.session = Session::open_durable(
            &connect,
            client_id.clone(),
            own_clients::numbered(joining.accepted(), &client_id, epoch, incarnation),
            present,
            restored,
            self.base.settings.policy_of(joining.class()),
            now,
        );
        if !present {
            self.base.node.rim.tell_session(&SessionEvent {
                what: SessionHappened::Begun,
                client_id: &client_id,
                user: client.user(),
            });
        }
        match taken {
            // Their bytes are counted all the time.
            Some(taken) => client.session.restore_subscriptions(taken),
            None => {
                let filters = client.session.filters().0;
                self.base.stats.subscription_bytes.add(filters);
            }
        }
        self.base
            .node
            .quotas
            .handle_connected(client.confirmed_user(), &client.session);
        let attachment = Attachment {
            epoch: Epoch(epoch),
            number: InboxNumber(inbox),
            incarnation: Epoch(incarnation),
            present,
            sent: Sequence(sent),
            first: Sequence(first),
            received,
            repeated: std::mem::take(&mut joining.unreleased),
        };
        Inboxes::handle_attached(&self.base, &mut self.clients, key, attachment);
        self.forget_unreleased(&client_id, epoch, key, &joining.told_by);
        self.has_joined(io, key);
        self.resume_waiters(io, joining.waiters);
    }

    /// CONNACK can go.
    pub(crate) fn has_joined(&mut self, io: &mut impl LoopIo, key: Key) {
        if !self.may_stay(io, key) {
            return;
        }
        let Some(connection) = self.clients.get(key).and_then(|client| client.connection) else {
            return;
        };
        if self
            .clients
            .get(key)
            .is_some_and(|client| client.stored.is_some())
        {
            self.unregister(io, key);
        }
        self.base.stats.connects.add(1);
        let (parts, mut turn) = self.turn(io);
        parts.rejudge.handle_joined(&mut turn, &parts.rights, key);
        self.clients.show_room(key);
        self.clients.arm_deadline(io, key);
        io.touch(connection);
        io.resume(connection);
        if let Some(client) = self.clients.get(key) {
            self.base.log_connected(io, client);
        }
    }

    /// Connections whose CONNECTs waited are read again. In which order does not matter: each knows when its CONNECT
    /// came.
    fn resume_waiters(&self, io: &mut impl LoopIo, waiters: Vec<Waiter>) {
        self.base.stats.connects_waiting.sub(waiters.len() as u64);
        for waiter in waiters {
            io.resume(waiter.connection);
        }
    }
}

/// A will as the store keeps it.
fn stored_will(will: &LastWill<'_>) -> StoredWill {
    StoredWill {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::from_will(will),
            qos: will.qos,
            retain: will.retain,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        }),
        message_expiry: will.properties.message_expiry_interval,
        delay: will.properties.will_delay_interval.unwrap_or(0),
    }
}
