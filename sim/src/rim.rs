//! What a broker runs on in a simulation: a clock that goes in steps, loop messages, links of the simulated network; and what its
//! store tells it.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use authentication_api::{Credentials, DatabaseUser, Source, Step, UserNow, Verdict};
use broker_core::{Links, LoopMessage, Node as Broker, Rim};
use bytes::Bytes;
use consensus::{Network, Unreachable};
use control::{Changed, Records, Revision};
use control_view::View;
use futures_util::future::BoxFuture;
use mqtt_proto::QoS;
use mqtt_session::{ApplicationMessage, DropReason};
use net_api::PeerAddress;
use parking_lot::Mutex;
use peer_protocol::{Encode, PeerMessage, PublicationsFrame};
use store::{Listener, Peers, Store};
use store_state::api::{Event, ShardNumber};
use store_state::inbox::{InboxDrop, StoredSubscription};
use store_state::{Limits, Retention};
use tokio::sync::oneshot;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::clients::number_of;
use crate::node::LOOPS;

/// What a node sends.
pub(crate) enum Out {
    Message {
        to: u64,
        message: Bytes,
    },
    Call {
        to: u64,
        group: u64,
        request: Bytes,
        answer: oneshot::Sender<Bytes>,
    },
    Answer {
        call: u64,
        answer: Option<Bytes>,
    },
}

/// The network as one life of a node has it.
#[derive(Clone, Default)]
pub(crate) struct Plug(Arc<Mutex<Plugged>>);

#[derive(Default)]
struct Plugged {
    out: Vec<Out>,
    linked: BTreeSet<u64>,
}

impl std::fmt::Debug for Plug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Plug")
    }
}

impl Plug {
    pub(crate) fn push(&self, out: Out) {
        self.0.lock().out.push(out);
    }

    pub(crate) fn take(&self) -> Vec<Out> {
        std::mem::take(&mut self.0.lock().out)
    }

    pub(crate) fn linked(&self, to: u64, is_linked: bool) {
        let linked = &mut self.0.lock().linked;
        if is_linked {
            linked.insert(to);
        } else {
            linked.remove(&to);
        }
    }

    fn encode_and_send(&self, to: u64, message: impl Encode) -> bool {
        if !self.0.lock().linked.contains(&to) {
            return false;
        }
        let message = message.encode(*peer_protocol::VERSIONS.end());
        let message = message.expect("it can be sent");
        self.push(Out::Message { to, message });
        true
    }
}

impl Links for Plug {
    fn send(&self, to: u64, message: PeerMessage<'_>) -> bool {
        self.encode_and_send(to, message)
    }

    fn forward(&self, to: u64, frame: PublicationsFrame) -> bool {
        self.encode_and_send(to, frame)
    }

    fn queued_bytes(&self, _: u64) -> usize {
        0
    }
}

impl Peers for Plug {
    fn send(&self, to: u64, message: Bytes) {
        self.push(Out::Message { to, message });
    }
}

impl Network for Plug {
    fn call(
        &self,
        to: u64,
        group: u64,
        _bulk: bool,
        request: Bytes,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unreachable>> {
        let (answer, answered) = oneshot::channel();
        self.push(Out::Call {
            to,
            group,
            request,
            answer,
        });
        Box::pin(async move {
            match tokio::time::timeout(limit, answered).await {
                Ok(Ok(answer)) => Ok(answer),
                _ => Err(Unreachable("lost".to_owned())),
            }
        })
    }
}

/// A life's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) origin: Instant,
    /// Unix time in ms at the origin.
    pub(crate) origin_ms: u64,
}

impl Clock {
    /// Within the life's runtime.
    pub(crate) fn now_ms(self) -> u64 {
        self.origin_ms + self.origin.elapsed().as_millis() as u64
    }
}

/// The process that a broker runs in.
#[derive(Debug)]
pub(crate) struct SimulatedProcess {
    clock: Clock,
    store: OnceLock<Store>,
    /// From threads that are no loops.
    messages: Mutex<Vec<(usize, LoopMessage)>>,
    /// Calls of the clock in µs: each is later than the one before, as it is on a machine.
    ticks: Mutex<(u64, u64)>,
}

impl SimulatedProcess {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            store: OnceLock::new(),
            messages: Mutex::default(),
            ticks: Mutex::default(),
        }
    }

    pub(crate) fn set_store(&self, store: Store) {
        assert!(self.store.set(store).is_ok(), "a node has one store");
    }

    pub(crate) fn take_messages(&self) -> Vec<(usize, LoopMessage)> {
        std::mem::take(&mut self.messages.lock())
    }
}

impl Rim for SimulatedProcess {
    type Store = Store;
    type Links = Plug;

    fn store(&self) -> Option<&Store> {
        self.store.get()
    }

    fn loops_run(&self) -> bool {
        true
    }

    fn send(&self, loop_index: usize, messages: LoopMessage) {
        self.messages.lock().push((loop_index, messages));
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn now_us(&self) -> u64 {
        let now_us = self.clock.now_ms() * 1_000;
        let (at, calls) = &mut *self.ticks.lock();
        if *at != now_us {
            (*at, *calls) = (now_us, 0);
        }
        *calls += 1;
        now_us + (*calls).min(999)
    }

    fn system_s(&self) -> u64 {
        self.now_ms() / 1_000
    }

    fn cluster_time_ms(&self, now_ms: u64) -> u64 {
        now_ms
    }

    fn cluster_time_us(&self, now_us: u64) -> u64 {
        now_us
    }

    fn is_proxied(&self, _: u16) -> bool {
        false
    }

    fn trusts(&self, _: u16, _: PeerAddress) -> bool {
        true
    }

    fn has_authenticators(&self) -> bool {
        false
    }

    fn user_now(&self, _: Source, _: &str) -> UserNow {
        UserNow::Same
    }

    fn has_too_many_logins(&self) -> bool {
        false
    }

    fn begin_exchange(&self, _: &str, _: &str, _: &[u8]) -> Option<Step> {
        None
    }

    fn authenticate(
        &self,
        _: usize,
        _: Credentials,
        _: impl FnOnce(Verdict, u64) -> LoopMessage + Send + 'static,
    ) {
        unreachable!("there are no authenticators");
    }

    fn look_up(
        &self,
        _: usize,
        _: Arc<DatabaseUser>,
        _: impl FnOnce(Verdict) -> LoopMessage + Send + 'static,
    ) {
        unreachable!("there is no database");
    }

    fn tell_incarnation(&self) {}

    fn sys_topics(&self, _: &Broker<Self>) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// What the store tells the broker of its node.
pub(crate) struct Ears {
    /// `None`: the life is over.
    broker: Mutex<Option<Arc<Broker<SimulatedProcess>>>>,
    failure: Mutex<Option<String>>,
    /// Shards whose inboxes the broker was asked to open again.
    reopened: Mutex<Vec<ShardNumber>>,
    /// A digest of all that it was told.
    told: Mutex<u64>,
    /// What the node believes to have used of the CPU: so much more each time that it looks.
    cpu: Mutex<Duration>,
    look: Duration,
    /// How long messages are kept in queues.
    retention: Arc<Retention>,
    /// Messages that were not kept any longer.
    trimmed: Mutex<Vec<Trimmed>>,
    /// What its replica of the control store has told.
    pub(crate) view: View,
    answers: Mutex<Vec<Event>>,
}

/// A message that was not kept any longer: for which client, its number, and why.
#[derive(Debug)]
pub(crate) struct Trimmed(pub(crate) Box<str>, pub(crate) u64, pub(crate) DropReason);

impl Ears {
    pub(crate) fn new(
        broker: Arc<Broker<SimulatedProcess>>,
        look: Duration,
        retention: Arc<Retention>,
    ) -> Self {
        Self {
            retention,
            trimmed: Mutex::default(),
            cpu: Mutex::default(),
            look,
            broker: Mutex::new(Some(broker)),
            failure: Mutex::default(),
            reopened: Mutex::default(),
            told: Mutex::default(),
            view: View::default(),
            answers: Mutex::default(),
        }
    }

    /// Answers of the control store since the last call.
    pub(crate) fn take_answers(&self) -> Vec<Event> {
        std::mem::take(&mut self.answers.lock())
    }

    /// A digest of all that the store has told the broker, in its order.
    pub(crate) fn told(&self) -> u64 {
        *self.told.lock()
    }

    fn is_told(&self, what: std::fmt::Arguments<'_>) {
        let mut told = self.told.lock();
        *told = xxh3_64_with_seed(what.to_string().as_bytes(), *told);
    }

    pub(crate) fn forget(&self) {
        *self.broker.lock() = None;
    }

    pub(crate) fn take_failure(&self) -> Option<String> {
        self.failure.lock().take()
    }

    /// Shards whose inboxes the broker was asked to open again since the last call, once for each request.
    pub(crate) fn take_reopened(&self) -> Vec<ShardNumber> {
        std::mem::take(&mut self.reopened.lock())
    }

    /// Messages that were not kept any longer, since the last call.
    pub(crate) fn take_trimmed(&self) -> Vec<Trimmed> {
        std::mem::take(&mut self.trimmed.lock())
    }

    fn broker(&self) -> Option<Arc<Broker<SimulatedProcess>>> {
        self.broker.lock().clone()
    }

    fn fails(&self, what: String) {
        *self.failure.lock() = Some(what);
    }
}

impl Listener for Ears {
    fn thread_cpu(&self) -> Duration {
        let mut cpu = self.cpu.lock();
        *cpu += self.look;
        *cpu
    }

    /// The same in each run.
    fn thread_wait(&self) -> Duration {
        Duration::ZERO
    }

    /// The same in each run.
    fn process_cpu(&self) -> Duration {
        Duration::ZERO
    }

    fn mail(&self, loop_index: usize, events: Vec<Event>) {
        self.is_told(format_args!("{loop_index} {events:?}"));
        // All loops are asked; the first one stands for them.
        if loop_index == 0 {
            self.reopened
                .lock()
                .extend(events.iter().filter_map(|event| match event {
                    Event::Reopen { shard } => Some(*shard),
                    _ => None,
                }));
        }
        if let Some(broker) = self.broker() {
            broker.rim.send(loop_index, LoopMessage::Store(events));
        }
    }

    fn loops(&self) -> usize {
        LOOPS
    }

    fn filter(&self, shard: ShardNumber, filter: &str, any: bool, detached: bool) {
        self.is_told(format_args!("{shard:?} {filter} {any} {detached}"));
        if let Some(broker) = self.broker() {
            broker.routes.set_shard(shard, filter, any, detached);
        }
    }

    fn member(
        &self,
        shard: ShardNumber,
        client: &str,
        filter: &str,
        subscription: Option<&StoredSubscription>,
    ) {
        self.is_told(format_args!("{shard:?} {client} {filter} {subscription:?}"));
        if let Some(broker) = self.broker() {
            let subscription = subscription.map(|s| (s.options, s.id));
            broker
                .routes
                .set_member(shard, client, filter, subscription);
        }
    }

    fn inbox_leader(&self, shard: ShardNumber, leader: Option<u64>, term: u64) {
        self.is_told(format_args!("{shard:?} {leader:?} {term}"));
        if let Some(broker) = self.broker() {
            broker.with_peers(|peers, node| {
                if leader == Some(peers.own()) {
                    peers.lead(node, shard, term);
                } else {
                    peers.resign(node, shard);
                }
            });
        }
    }

    fn inbox_announced(&self, shard: ShardNumber) {
        self.is_told(format_args!("{shard:?}"));
        if let Some(broker) = self.broker() {
            broker.inbox_announced(shard);
        }
    }

    fn inbox_shards_changed(&self) {
        if let Some(broker) = self.broker() {
            broker.inbox_shards_changed();
        }
    }

    fn dropped(&self, drop: &InboxDrop<'_>) {
        if matches!(
            drop.reason,
            DropReason::RetentionAge | DropReason::RetentionBytes
        ) {
            let number = number_of(drop.message.body.payload());
            let trimmed = Trimmed(drop.client.into(), number, drop.reason);
            return self.trimmed.lock().push(trimmed);
        }
        // Of QoS 2, and its client may have received it.
        let is_bound = drop.message.qos == QoS::ExactlyOnce;
        if drop.reason != DropReason::SessionEnded || !is_bound {
            self.fails(format!("dropped: {drop:?}"));
        }
    }

    fn lost(&self, _: &str, _: &ApplicationMessage) {}

    fn control_loaded(&self, records: Records) {
        self.is_told(format_args!("{records:?}"));
        self.view.loaded(records);
    }

    fn control_changed(&self, changed: &Changed) {
        self.is_told(format_args!("{changed:?}"));
        self.view.changed(changed);
    }

    fn control_begun(&self) {
        self.view.begun();
    }

    fn control_confirmed(&self, revision: Revision) {
        self.view.confirmed(revision);
    }

    fn control_answered(&self, answer: Event) {
        self.is_told(format_args!("{answer:?}"));
        self.answers.lock().push(answer);
    }

    fn failed(&self, what: &str) {
        self.fails(what.to_owned());
    }

    fn now_ms(&self) -> u64 {
        self.broker().map_or(0, |broker| broker.cluster_now_ms())
    }

    fn limits(&self) -> Limits {
        crate::settings::settings().store_limits
    }

    fn has_room_in_group(&self, group: &str) -> bool {
        // Members are seldom connected to the node that leads, and what is handed over is kept whoever gets it.
        let broker = self.broker();
        broker.is_some_and(|broker| broker.routes.group_of(group).is_some())
    }

    fn retention(&self) -> Arc<Retention> {
        Arc::clone(&self.retention)
    }
}
