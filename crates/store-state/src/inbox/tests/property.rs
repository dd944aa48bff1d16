//! Random operations, checkpoints and crashes: the machine does as plain lists do, however its state is
//! spread over memory and tables.

use std::collections::{BTreeMap, BTreeSet};

use mqtt_proto::RetainHandling;
use proptest::prelude::*;

use super::model::{Model, weight};
use super::*;
use crate::NameHash;
use crate::inbox::origins::LINGER_MS;
use crate::inbox::tables::{QueueRow, count_key, number_of};
use crate::inbox::{Call, Caller};
use crate::{ClassLimits, QueueLimits, SlotRange, Split, row};

pub(super) const CLIENTS: [&str; 4] = [
    "ann",
    "bob",
    "cyd",
    "one whose identifier is longer than what stands for it",
];
const FILTERS: [&str; 7] = ["a", "a/b", "a/+", "#", "$share/g/a", "$share/h/#", "b/#"];
const TOPICS: [&str; 4] = ["a", "a/b", "b", "b/c/d"];

/// Numbers that an operation is made of.
pub(super) type Dice = (u8, [u8; 6]);

/// A step of a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Op(Dice),
    Collect,
    Write,
    Saved,
    Crash,
    Page([u8; 4]),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        24 => any::<Dice>().prop_map(Step::Op),
        2 => Just(Step::Collect),
        2 => Just(Step::Write),
        2 => Just(Step::Saved),
        1 => Just(Step::Crash),
        4 => any::<[u8; 4]>().prop_map(Step::Page),
    ]
}

/// What was applied since the start, and what came of it.
#[derive(Clone)]
struct Applied {
    header: Header,
    op: InboxOp,
    reply: InboxReply,
    events: Vec<Event>,
}

/// A step of the log.
#[derive(Clone)]
enum Logged {
    Op(Box<Applied>),
    /// The shard was split at this slot, and the upper half is this run's.
    Split(u16, bool),
}

/// What an outlet knows of filters: the two answers.
type Told = BTreeMap<String, (bool, bool)>;

/// One of the two replicas of a run that are never compared with tables.
#[derive(Clone)]
struct Listener {
    told: Told,
    /// Nothing is left to be rebuilt.
    is_whole: bool,
}

/// A replica that makes checkpoints and crashes, one that does neither, and the model.
pub(super) struct Run {
    pub(super) slots: Slots,
    /// Those of the last checkpoint.
    saved_slots: Slots,
    /// All rows of the last checkpoint, if that is of before a split.
    base: Option<TestTable>,
    crashing: InboxMachine,
    table: TestTable,
    /// Applied before the last checkpoint.
    saved: usize,
    /// The checkpoint under way: its changes, what was applied before it, whether it is in the table.
    checkpoint: Option<(Changes, usize, bool)>,
    /// The checkpoint has yet to be handed out in part: row by row, between operations.
    collecting: bool,
    steady: InboxMachine,
    model: Model,
    applied: Vec<Logged>,
    /// Of `crashing` and `steady`.
    listeners: [Listener; 2],
    now_ms: u64,
    epoch: u64,
    incarnation: u64,
    payload: u64,
}

/// One of a few, none of which is forgotten.
fn call(number: u8) -> Call {
    Call {
        caller: Caller {
            node: 1,
            loop_index: 0,
            incarnation: 1,
        },
        number: u64::from(number % 16),
        oldest: 0,
    }
}

/// Without what was told of filters.
fn without_filters(events: &[Event]) -> Vec<Event> {
    let others = events
        .iter()
        .filter(|event| !matches!(event, Event::Filter(..)));
    others.cloned().collect()
}

impl Listener {
    fn hear(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Filter(filter, any, detached) = event {
                match any {
                    true => drop(self.told.insert(filter.clone(), (true, *detached))),
                    false => drop(self.told.remove(filter)),
                }
            }
        }
    }
}

impl Run {
    pub(super) fn new() -> Self {
        let table = TestTable::default();
        let listener = Listener {
            told: Told::new(),
            is_whole: true,
        };
        Self {
            slots: Slots::ALL,
            saved_slots: Slots::ALL,
            base: None,
            listeners: [listener.clone(), listener],
            crashing: InboxMachine::load(Slots::ALL, &table).unwrap(),
            steady: InboxMachine::load(Slots::ALL, &table).unwrap(),
            table,
            saved: 0,
            checkpoint: None,
            collecting: false,
            model: Model::default(),
            applied: Vec::new(),
            now_ms: 1_000,
            epoch: 0,
            incarnation: 1,
            payload: 0,
        }
    }

    fn collect_row(&mut self) {
        if let Some((changes, ..)) = &mut self.checkpoint
            && self.collecting
        {
            self.collecting = !self.crashing.collect_part(1, changes);
        }
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Op(dice) => {
                let (header, op) = self.next(*dice);
                self.apply(header, op);
            }
            Step::Collect if self.checkpoint.is_none() => {
                self.checkpoint = Some((Changes::default(), self.applied.len(), false));
                self.collecting = true;
            }
            Step::Write => {
                while self.collecting {
                    self.collect_row();
                }
                if let Some((changes, _, written @ false)) = &mut self.checkpoint {
                    self.table.write(changes);
                    *written = true;
                    (self.saved_slots, self.base) = (self.slots, None);
                    let survey = InboxMachine::survey(self.slots, &self.table);
                    assert_eq!(survey.findings, [], "what a machine writes is right");
                }
            }
            Step::Saved => {
                if let Some((_, at, true)) = self.checkpoint {
                    while !self.crashing.saved_part(1) {}
                    self.saved = at;
                    self.checkpoint = None;
                }
            }
            Step::Crash => self.crash(),
            Step::Page(dice) => self.page(*dice),
            Step::Collect => {}
        }
        self.collect_row();
        self.compare_counts();
        self.compare_longest();
        self.look_at_queues();
    }

    /// A look finds all queues that hold something, once each.
    fn look_at_queues(&mut self) {
        let queues = self.model.inboxes.iter().filter(|of| !of.queue.is_empty());
        let mut expected: Vec<_> = queues
            .map(|of| (of.number, of.queue.len() as u32, of.bytes()))
            .collect();
        expected.sort_unstable();
        for machine in [&mut self.crashing, &mut self.steady] {
            let mut found = Vec::new();
            let mut pass = QueuePass::new(machine);
            let tell = |queue: QueueView<'_>| {
                found.push((queue.id().number.0, queue.messages(), queue.bytes()));
            };
            let mut tell = tell;
            while !pass.go_on(machine, 2, &mut tell) {}
            found.sort_unstable();
            assert_eq!(found, expected);
            for (class, longest) in machine.stock.longest.of_classes() {
                let queues = || machine.inboxes.iter().filter(|of| of.class == class);
                let messages = queues().map(|of| of.queue.len()).max();
                let bytes = queues().map(|of| of.queue.bytes()).max();
                assert_eq!((messages, bytes), (Some(longest.0), Some(longest.1)));
            }
        }
    }

    /// No queue is longer than is known of its class.
    fn compare_longest(&self) {
        for machine in [&self.crashing, &self.steady] {
            for inbox in machine.inboxes.iter().filter(|of| of.queue.len() > 0) {
                let mut longest = machine.stock.longest.of_classes();
                let known = longest.find(|(class, _)| *class == inbox.class);
                let (_, known) = known.expect("a queue of the class holds something");
                assert!(known.0 >= inbox.queue.len() && known.1 >= inbox.queue.bytes());
            }
        }
    }

    fn compare_counts(&self) {
        let inboxes = self.model.inboxes.iter().map(|of| &of.queue);
        let queues = || {
            inboxes
                .clone()
                .chain(self.model.legacies.iter().map(|of| &of.queue))
        };
        let of_broker = self.model.origins.iter().filter(|of| of.2 == 0);
        let of_broker: BTreeSet<_> = of_broker.map(|of| (&of.0, of.1)).collect();
        let released_origins = self.model.released.len();
        let counts = InboxCounts {
            origins: of_broker.len() - released_origins,
            released_origins,
            calls: self.model.calls.len(),
            fences: self.model.fences.len(),
            full: 0,
            filter_bytes: self.model.filter_bytes(),
            inboxes: self.model.inboxes.len(),
            attached: self
                .model
                .inboxes
                .iter()
                .filter(|of| of.is_attached())
                .count(),
            legacies: self.model.legacies.len(),
            messages: queues().map(|queue| queue.len() as u64).sum(),
            bytes: queues().flatten().map(|(_, item)| weight(item)).sum(),
        };
        for machine in [&self.crashing, &self.steady] {
            // Which queues are full is known from the drops since the machine was loaded.
            let found = InboxCounts {
                full: 0,
                ..machine.counts()
            };
            assert_eq!(found, counts);
        }
    }

    fn crash(&mut self) {
        if let Some((_, at, true)) = self.checkpoint {
            self.saved = at;
        }
        self.checkpoint = None;
        self.collecting = false;
        let table = self.base.as_ref().unwrap_or(&self.table);
        self.crashing = InboxMachine::load(self.saved_slots, table).unwrap();
        for logged in &self.applied[self.saved..] {
            let applied = match logged {
                Logged::Op(applied) => applied,
                Logged::Split(at, is_upper) => {
                    let upper = self.crashing.split_off(*at);
                    if *is_upper {
                        self.crashing = upper;
                    }
                    continue;
                }
            };
            let mut recorder = Recorder::default();
            let reply = self
                .crashing
                .apply(&applied.header, &applied.op, table, &mut recorder);
            assert_eq!(
                reply.as_ref(),
                Ok(&applied.reply),
                "again: {:?}",
                applied.op
            );
            let [again, before] = [&recorder.0, &applied.events].map(|of| without_filters(of));
            assert_eq!(again, before, "again: {:?}", applied.op);
        }
        let mut recorder = Recorder::default();
        self.crashing.tell_routes(&mut recorder);
        let listener = &mut self.listeners[0];
        (listener.told, listener.is_whole) = (Told::new(), false);
        listener.hear(&recorder.0);
        self.rebuild(0, 0);
        self.compare_filters();
    }

    /// What a step does, and when.
    pub(super) fn next(&mut self, (kind, dice): Dice) -> (Header, InboxOp) {
        self.now_ms += match dice[5] {
            0..4 => LINGER_MS / 2,
            n => u64::from(n % 4),
        };
        let op = self.op(kind, dice);
        (self.header(dice), op)
    }

    /// The slot must be one of this run's.
    pub(super) fn apply(&mut self, header: Header, op: InboxOp) -> InboxReply {
        let mut recorder = Recorder::default();
        let reply = loop {
            let part = self
                .crashing
                .apply_part(&header, &op, &self.table, &mut recorder);
            match part.unwrap() {
                Some(reply) => break reply,
                None => self.between_parts(),
            }
        };
        let mut steady = Recorder::default();
        let nothing = TestTable::default();
        let other = self
            .steady
            .apply(&header, &op, &nothing, &mut steady)
            .unwrap();
        assert_eq!(reply, other, "{op:?}");
        let [events, steady_events] = [&recorder.0, &steady.0].map(|of| without_filters(of));
        assert_eq!(events, steady_events, "{op:?}");
        for (listener, recorder) in self.listeners.iter_mut().zip([&recorder, &steady]) {
            listener.hear(&recorder.0);
        }
        let (expected, mut expected_events) = self.model.apply(&header, &op);
        assert_eq!(reply, expected, "{op:?}");
        expected_events.sort();
        for (listener, recorder) in self.listeners.iter().zip([&recorder, &steady]) {
            let (mut events, mut expected) = (recorder.0.clone(), expected_events.clone());
            if !listener.is_whole {
                (events, expected) = (without_filters(&events), without_filters(&expected));
            }
            events.sort();
            assert_eq!(events, expected, "{op:?}");
        }
        self.compare_filters();
        self.applied.push(Logged::Op(Box::new(Applied {
            header,
            op,
            reply: reply.clone(),
            events: recorder.0,
        })));
        reply
    }

    /// What an outlet knows has all that is true, and nothing else if nothing is left to be rebuilt.
    fn compare_filters(&self) {
        let filters = self.model.filters().into_iter();
        let truth: Told = filters
            .map(|(filter, detached)| (filter, (true, detached)))
            .collect();
        for Listener { told, is_whole } in &self.listeners {
            for (filter, (_, detached)) in &truth {
                let known = told.get(filter).copied().unwrap_or_default();
                assert!(known.0 && known.1 >= *detached, "{filter} in {told:?}");
            }
            assert!(!is_whole || *told == truth, "{told:?}, not {truth:?}");
        }
    }

    /// Both replicas go on with what a split has left to be rebuilt.
    pub(super) fn rebuild(&mut self, crashing: usize, steady: usize) {
        let nothing = TestTable::default();
        let replicas = [
            (&mut self.crashing, &self.table, crashing),
            (&mut self.steady, &nothing, steady),
        ];
        for (listener, (machine, table, entries)) in self.listeners.iter_mut().zip(replicas) {
            let mut recorder = Recorder::default();
            let is_all = machine.rebuild_part(entries, table, &mut recorder);
            listener.is_whole |= is_all.unwrap();
            listener.hear(&recorder.0);
        }
        self.compare_filters();
    }

    /// Both go on until they are whole, or wait for a checkpoint.
    fn rebuild_all(&mut self) {
        for listener in &mut self.listeners {
            listener.is_whole = false;
        }
        while !self.listeners.iter().all(|of| of.is_whole) {
            self.rebuild(usize::MAX, usize::MAX);
        }
    }

    /// The upper half of the shard.
    pub(super) fn split_off(&mut self, at: u16) -> Self {
        self.step(&Step::Write);
        self.step(&Step::Saved);
        let SlotRange { first, last } = self.slots.range;
        let base = self.base.take().unwrap_or_else(|| self.table.clone());
        for listener in &mut self.listeners {
            listener.is_whole = false;
        }
        let mut applied = self.applied.clone();
        applied.push(Logged::Split(at, true));
        self.applied.push(Logged::Split(at, false));
        let mut upper = Self {
            slots: Slots {
                range: SlotRange { first: at, last },
                ..self.slots
            },
            saved_slots: self.saved_slots,
            base: Some(base.clone()),
            crashing: self.crashing.split_off(at),
            table: base.clone(),
            saved: self.saved,
            checkpoint: None,
            collecting: false,
            steady: self.steady.split_off(at),
            model: self.model.split_off(at),
            applied,
            listeners: self.listeners.clone(),
            ..*self
        };
        self.base = Some(base);
        self.slots.range = SlotRange {
            first,
            last: at - 1,
        };
        for half in [self, &mut upper] {
            let range = half.slots.range;
            let rows = &mut half.table.rows;
            rows.retain(|key, _| InboxMachine::keeps(key, range));
            half.compare_counts();
            half.compare_filters();
        }
        upper
    }

    /// Goes on from where another shard is.
    pub(super) fn follow(&mut self, progress: [u64; 4]) {
        [self.now_ms, self.epoch, self.incarnation, self.payload] = progress;
    }

    /// The time, and the numbers that were given last; all only grow.
    pub(super) fn progress(&self) -> [u64; 4] {
        [self.now_ms, self.epoch, self.incarnation, self.payload]
    }

    /// A checkpoint goes on, clients read and queues are looked at while an operation is not done.
    fn between_parts(&mut self) {
        self.collect_row();
        let mut pass = QueuePass::new(&mut self.crashing);
        while !pass.go_on(&mut self.crashing, 2, |_| {}) {}
        if let Some((_, at, true)) = self.checkpoint
            && self.crashing.saved_part(1)
        {
            self.saved = at;
            self.checkpoint = None;
        }
        for of in &self.model.inboxes {
            let mut page = Vec::new();
            self.crashing
                .page(of.number, 0, 100, 1 << 30, &self.table, &mut page)
                .unwrap();
            let messages = page
                .iter()
                .filter(|(_, queued)| matches!(queued, Queued::Message(_)));
            let len = self.crashing.queue_len(of.number);
            assert_eq!(messages.count(), len as usize);
        }
    }

    fn header(&self, dice: [u8; 6]) -> Header {
        let pick = usize::from(dice[4]);
        Header {
            now_ms: self.now_ms,
            limits: Limits {
                queue: QueueLimits {
                    messages: [0, 3, 6, 6, 100, 100, 100][pick % 7],
                    bytes: [150, 500, 1_000, 1 << 20, 1 << 20][pick % 5],
                    full: [
                        QueueFull::DropOldest,
                        QueueFull::DropNewest,
                        QueueFull::REFUSE,
                        QueueFull::DropOldest,
                    ][pick / 7 % 4],
                    is_closed: pick % 13 == 0,
                },
                classes: match pick % 3 {
                    0 => ClassLimits::NONE,
                    // One of the two classes that clients have.
                    _ => [(
                        ClassId(1),
                        QueueLimits {
                            messages: [2, 9][pick % 2],
                            bytes: [400, 1 << 20][pick / 2 % 2],
                            full: [QueueFull::DropOldest, QueueFull::REFUSE][pick / 5 % 2],
                            is_closed: pick % 11 == 0,
                        },
                    )]
                    .into_iter()
                    .collect(),
                },
                qos0: [Qos0Inbox::Offline, Qos0Inbox::Always, Qos0Inbox::Never][pick / 11 % 3],
                ..HEADER.limits
            },
        }
    }

    fn op(&mut self, kind: u8, dice: [u8; 6]) -> InboxOp {
        let epoch = self.epoch.saturating_sub(u64::from(dice[3] % 3));
        match self.unfenced(kind, dice) {
            InboxOp::Publish {
                message,
                publisher,
                origin: Some(origin),
            } if kind & 128 != 0 => InboxOp::PublishFenced {
                message,
                publisher,
                origin,
                epoch,
            },
            InboxOp::Deliver {
                session,
                items,
                origin: Some(origin),
            } if kind & 128 != 0 => InboxOp::DeliverFenced {
                session,
                items,
                origin,
                epoch,
            },
            InboxOp::Release { origin } if kind & 128 != 0 => {
                InboxOp::ReleaseFenced { origin, epoch }
            }
            op => op,
        }
    }

    fn unfenced(&mut self, kind: u8, dice: [u8; 6]) -> InboxOp {
        let client = CLIENTS[usize::from(dice[0]) % 4];
        let epoch = self.epoch_of(client, dice[1]);
        let client: Box<str> = client.into();
        match kind % 42 {
            0 => {
                self.incarnation += u64::from(dice[2] % 2);
                InboxOp::NodeUp {
                    node: 1 + u64::from(dice[1] % 2),
                    incarnation: self.incarnation,
                }
            }
            1..=4 => {
                self.epoch += 1;
                let stale = dice[1].is_multiple_of(8);
                let last = epoch;
                let epoch = if stale {
                    epoch.saturating_sub(1)
                } else {
                    self.epoch
                };
                let node = 1 + u64::from(dice[2] % 2);
                let node_incarnation = self.incarnation - u64::from(dice[3].is_multiple_of(8));
                let resume = !dice[4].is_multiple_of(4);
                match dice[5] {
                    0..128 => InboxOp::Attach {
                        client,
                        epoch,
                        node,
                        node_incarnation,
                        resume,
                    },
                    _ => InboxOp::AttachAs {
                        client,
                        epoch,
                        node,
                        node_incarnation,
                        resume,
                        last: (dice[5] & 2 != 0).then_some((last, dice[5] & 4 != 0)),
                        class: ClassId(1 + u32::from(dice[5] & 1)),
                    },
                }
            }
            5..=6 => InboxOp::Detach {
                epoch,
                sent: self.some_sequence(&client, dice[2]),
                session: self.session(&client, dice),
            },
            7 => InboxOp::Remove {
                session: self.session(&client, dice),
                epoch,
            },
            8..=10 => InboxOp::Subscribe {
                session: self.session(&client, dice),
                epoch,
                subscriptions: vec![
                    self.subscription(dice[2], dice[3]),
                    self.subscription(dice[3], dice[2]),
                ],
            },
            11 => InboxOp::Unsubscribe {
                session: self.session(&client, dice),
                epoch,
                filters: vec![FILTERS[usize::from(dice[2]) % 7].into()],
            },
            20 if dice[2].is_multiple_of(2) => InboxOp::DeliverOnce {
                call: call(dice[3]),
                session: self.session(&client, dice),
                items: vec![self.item(dice), self.item(dice)],
            },
            19 if dice[2].is_multiple_of(2) => InboxOp::PublishOnce {
                call: call(dice[3]),
                message: self.message(dice),
                publisher: 0,
            },
            12..=19 => InboxOp::Publish {
                message: self.message(dice),
                publisher: [0, publisher_hash(&client)][usize::from(dice[3] & 1)],
                origin: self.origin(dice),
            },
            20..=21 => InboxOp::Deliver {
                session: self.session(&client, dice),
                items: vec![self.item(dice), self.item(dice)],
                origin: self.origin(dice),
            },
            22..=26 => InboxOp::Acknowledge {
                epoch,
                sent: self.some_sequence(&client, dice[2]),
                done: Done(vec![
                    self.some_sequence(&client, dice[3]),
                    self.some_sequence(&client, dice[4]),
                    self.some_sequence(&client, dice[5]),
                ]),
                session: self.session(&client, dice),
            },
            27..=29 => InboxOp::Receipt {
                epoch,
                sequence: self.some_sequence(&client, dice[2]),
                session: self.session(&client, dice),
            },
            30 if dice[3].is_multiple_of(2) => self.replay(client, epoch, dice),
            30 => InboxOp::Release {
                origin: self.some_origin(dice),
            },
            31 => InboxOp::Forget {
                incarnation: epoch,
                client: Self::name(&client, dice),
            },
            32..=33 => self.hand_over(dice),
            34..=35 => InboxOp::Linger {
                epoch,
                sent: self.some_sequence(&client, dice[2]),
                session: self.session(&client, dice),
            },
            36..=37 => {
                self.epoch += 1;
                let attached = self.model.find(&client).and_then(|of| of.attached);
                InboxOp::AttachAgain {
                    client,
                    epoch: self.epoch,
                    node: attached.map_or(1, |(node, _)| node),
                    node_incarnation: attached.map_or(1, |(_, incarnation)| incarnation),
                    last: epoch,
                    knows_owed: dice[5] & 1 != 0,
                }
            }
            38..=39 => InboxOp::Trim {
                from: match dice[5] % 4 {
                    0 => self.some_sequence(&client, dice[4]),
                    _ => 0,
                },
                below: self.some_sequence(&client, dice[2]) + u64::from(dice[3] % 4),
                limit: match (kind % 2, dice[4] % 6) {
                    (0, 0 | 1) => RetentionLimit::Age,
                    (0, 2 | 3) => RetentionLimit::Bytes,
                    (0, _) => RetentionLimit::Purge,
                    (_, of) => RetentionLimit::Away {
                        epoch: self.epoch_of(&client, dice[3]),
                        group: if of == 0 { "$share/h/#" } else { "$share/g/a" }.into(),
                    },
                },
                session: self.session(&client, dice),
            },
            _ => InboxOp::DeliverLate {
                session: self.session(&client, dice),
                epoch,
                detached: dice[5] & 1 != 0,
                item: Item {
                    group: None,
                    ..self.item(dice)
                },
            },
        }
    }

    /// Some of what a session has left, or of what none has.
    fn hand_over(&self, dice: [u8; 6]) -> InboxOp {
        let legacies = &self.model.legacies;
        let place = usize::from(dice[1]) % legacies.len().max(1);
        let legacy = legacies.get(place);
        let queued = legacy.into_iter().flat_map(|of| &of.queue);
        let done = queued.map(|(of, _)| *of).chain([u64::from(dice[5])]);
        let is_other = dice[2].is_multiple_of(16);
        InboxOp::HandOver {
            client: match legacy {
                Some(legacy) if !is_other => Self::name(&legacy.client, dice),
                _ => CLIENTS[usize::from(dice[0]) % 4].into(),
            },
            inbox: legacy.map_or(1, |of| of.number),
            done: Done(done.skip(usize::from(dice[3] % 4)).step_by(2).collect()),
        }
    }

    /// A page for each of the first owed filters, sometimes one that was given before.
    fn replay(&mut self, client: Box<str>, epoch: u64, dice: [u8; 6]) -> InboxOp {
        let owed = self.model.find(&client).map_or(&[][..], |of| &of.owed);
        let step = |owed: &Owed| Progress {
            filter: owed.filter.clone(),
            from: if dice[4].is_multiple_of(8) {
                [99].into()
            } else {
                owed.place.clone()
            },
            next: (dice[5] & 1 == 0).then(|| [dice[5]].into()),
        };
        let progress = owed.iter().take(usize::from(dice[2] % 3)).map(step);
        InboxOp::Replay {
            epoch,
            progress: progress.collect(),
            items: vec![self.item(dice)],
            session: self.session(&client, dice),
        }
    }

    /// A session by the number of its inbox, by the name of its client, or as earlier versions named it.
    fn session(&self, client: &str, dice: [u8; 6]) -> SessionName {
        let hash = NameHash::default();
        let inbox = self.model.find(client);
        match (dice.iter().fold(0, |sum, of| sum ^ of) % 4, inbox) {
            (0 | 1, Some(inbox)) => {
                SessionName::Inbox(InboxId::new(hash.slot_of(client), inbox.number))
            }
            (0, None) => SessionName::Inbox(InboxId::new(
                hash.slot_of(client),
                1 + u64::from(dice[0] % 8),
            )),
            (3, _) => client.into(),
            _ => SessionName::Client(ClientName::of(client, hash)),
        }
    }

    /// A client by its name, or as earlier versions named it.
    fn name(client: &str, dice: [u8; 6]) -> ClientName {
        match dice[0] % 2 {
            0 => client.into(),
            _ => ClientName::of(client, NameHash::default()),
        }
    }

    /// The epoch of the client's inbox, or an older one.
    fn epoch_of(&self, client: &str, dice: u8) -> u64 {
        let epoch = self.model.find(client).map_or(self.epoch, |of| of.epoch);
        epoch.saturating_sub(u64::from(dice % 8 == 1))
    }

    /// Often one that is queued, the low ones more often.
    fn some_sequence(&self, client: &str, dice: u8) -> u64 {
        let Some(inbox) = self.model.find(client) else {
            return 1;
        };
        let queued: Vec<u64> = inbox.page(0, 100, 1 << 30).iter().map(|of| of.0).collect();
        let place = usize::from(dice % 16);
        match dice % 8 {
            0 => inbox.next + u64::from(dice / 64),
            1 => u64::from(dice / 16),
            _ => queued.get(place / 3).copied().unwrap_or(inbox.next - 1),
        }
    }

    fn subscription(&self, filter: u8, options: u8) -> StoredSubscription {
        StoredSubscription {
            filter: FILTERS[usize::from(filter) % 7].into(),
            options: SubscriptionOptions {
                qos: QoS::from_u8(options % 3).unwrap(),
                no_local: options & 8 != 0 && !FILTERS[usize::from(filter) % 7].starts_with('$'),
                retain_as_published: options & 16 != 0,
                retain_handling: match options % 4 {
                    0 => RetainHandling::SendAtSubscribe,
                    1 => RetainHandling::SendIfNew,
                    _ => RetainHandling::DoNotSend,
                },
            },
            id: u32::from(options / 32 % 4),
        }
    }

    fn message(&mut self, dice: [u8; 6]) -> Arc<ApplicationMessage> {
        self.payload += 1;
        let long = "x".repeat(usize::from(dice[1] % 4) * 60);
        Arc::new(ApplicationMessage {
            body: MessageBody::new(
                TOPICS[usize::from(dice[2]) % 4],
                format!("{}{long}", self.payload).as_bytes(),
            ),
            qos: QoS::from_u8(dice[3] / 2 % 3).unwrap(),
            retain: dice[1] & 16 != 0,
            publisher: 0,
            publisher_hash: 0,
            expires_at: (dice[5] & 32 != 0).then(|| Timestamp(self.now_ms + 5)),
            taken_up: None,
        })
    }

    fn item(&mut self, dice: [u8; 6]) -> Item {
        let message = self.message(dice);
        Item {
            qos: message.qos,
            message,
            retain: dice[3] & 16 != 0,
            subscription_ids: [7, 9].into_iter().take(usize::from(dice[2] % 3)).collect(),
            group: (dice[2] & 8 != 0).then(|| "$share/g/a".into()),
        }
    }

    fn origin(&self, dice: [u8; 6]) -> Option<Origin> {
        (dice[1] & 64 != 0).then(|| self.some_origin(dice))
    }

    fn some_origin(&self, dice: [u8; 6]) -> Origin {
        let client = CLIENTS[usize::from(dice[5] / 8) % 4];
        let incarnation = self.model.find(client).map_or(1, |of| of.incarnation);
        Origin {
            client: Self::name(client, dice),
            incarnation: incarnation - u64::from(dice[4].is_multiple_of(16) && incarnation > 0),
            packet_id: u16::from(dice[4] % 3),
        }
    }

    fn page(&mut self, dice: [u8; 4]) {
        let at = usize::from(dice[0]) % CLIENTS.len();
        let Some(inbox) = self.model.find(CLIENTS[at]) else {
            return;
        };
        let from = u64::from(dice[1] % 8) * inbox.next / 8;
        let items = [1, 2, 5, 100][usize::from(dice[2]) % 4];
        let bytes = [1, 200, 500, 1 << 30][usize::from(dice[3]) % 4];
        let expected = inbox.page(from, items, bytes);
        let mut out = Vec::new();
        let next = self
            .crashing
            .page(inbox.number, from, items, bytes, &self.table, &mut out)
            .unwrap();
        let page: Vec<_> = out
            .iter()
            .map(|(sequence, queued)| match queued {
                Queued::Message(item) => (*sequence, Some(Seen::from(item))),
                Queued::Released => (*sequence, None),
            })
            .collect();
        assert_eq!(page, expected);
        let after = inbox.page(next, 100, 1 << 30);
        assert_eq!(
            expected.len() + after.len(),
            inbox.page(from, 100, 1 << 30).len()
        );
        assert!(next > page.last().map_or(0, |of| of.0));
        let number = inbox.number;
        assert_eq!(self.crashing.queue_len(number) as usize, inbox.queue.len());
        let first = self.crashing.first(number, &self.table).unwrap();
        assert_eq!(first, Some(inbox.lowest()));
    }

    /// A last checkpoint: the tables hold what they must, and nothing else.
    pub(super) fn end(&mut self) {
        self.rebuild_all();
        self.crash();
        self.rebuild_all();
        assert!(self.listeners.iter().all(|of| of.is_whole));
        loop {
            let mut changes = Changes::default();
            self.crashing.collect(&mut changes);
            self.table.write(&changes);
            self.crashing.saved();
            if !self.crashing.has_to_rebuild() {
                break;
            }
            self.rebuild_all();
        }
        assert_eq!(self.crashing.unsaved_bytes(), 0);
        let mut changes = Changes::default();
        self.crashing.collect(&mut changes);
        assert_eq!(changes.entries, []);
        let model = &self.model;
        assert_eq!(self.table.rows_of(b'I'), model.inboxes.len());
        assert_eq!(self.table.rows_of(b'L'), model.legacies.len());
        let left: usize = model.legacies.iter().map(|of| of.queue.len()).sum();
        let queued = model.inboxes.iter().map(|of| of.queue.len()).sum::<usize>() + left;
        assert_eq!(self.table.rows_of(b'Q'), queued);
        let mut references: BTreeMap<u64, u32> = BTreeMap::new();
        let mut own = 0;
        for (key, value) in self.table.rows.range(vec![b'Q']..vec![b'R']) {
            let row: QueueRow = row::decode(key, value).unwrap();
            match row.weight().body {
                0 => own += 1,
                body => *references.entry(body).or_default() += 1,
            }
        }
        assert_eq!(self.crashing.stock.bodies.recount_below(), 0);
        for kind in *b"BC" {
            let numbers = self.table.keys_of(kind).into_iter();
            let numbers: BTreeSet<u64> = numbers.filter_map(|key| number_of(&key)).collect();
            assert!(numbers.iter().eq(references.keys()));
        }
        for (body, count) in &references {
            let value = &self.table.rows[&count_key(*body)];
            let counted: u32 = row::decode(&[], value).unwrap();
            assert_eq!(counted, *count);
        }
        assert_eq!(own + references.values().sum::<u32>() as usize, queued);
        let of_clients = model.origins.iter().filter(|of| of.2 != 0);
        let pages: BTreeSet<_> = of_clients.map(|of| (&of.0, of.1, of.2 >> 8)).collect();
        assert_eq!(self.table.rows_of(b'N'), pages.len());
        let of_broker = model.origins.iter().filter(|of| of.2 == 0);
        let of_broker: BTreeSet<_> = of_broker.map(|of| (&of.0, of.1)).collect();
        assert_eq!(self.table.rows_of(b'K'), of_broker.len());
        let owed = model.inboxes.iter().map(|of| of.owed.len());
        assert_eq!(self.table.rows_of(b'G'), owed.sum::<usize>());
        assert_eq!(self.table.rows_of(b'O') + self.table.rows_of(b'R'), 0);
        assert_eq!(self.table.rows_of(b'E'), model.fences.len());
        let heaviest = model.inboxes.iter().flat_map(|of| &of.queue);
        assert!(heaviest.map(|(_, item)| weight(item)).max() < Some(1_000));
        self.announcements();
        let survey = InboxMachine::survey(self.slots, &self.table);
        assert_eq!(survey.findings, []);
    }

    fn announcements(&self) {
        let mut recorder = Recorder::default();
        self.crashing.tell_routes(&mut recorder);
        self.crashing.for_each_legacy(&mut recorder);
        recorder.0.sort();
        let mut expected: Vec<Event> = self
            .model
            .filters()
            .into_iter()
            .map(|(filter, detached)| Event::Filter(filter, true, detached))
            .collect();
        for inbox in &self.model.inboxes {
            for of in inbox
                .subscriptions
                .iter()
                .filter(|of| of.filter.starts_with('$'))
            {
                let options = Some((of.id, of.options.to_byte()));
                let (client, filter) = (inbox.client.to_string(), of.filter.to_string());
                expected.push(Event::Member(client, filter, options));
            }
        }
        for of in &self.model.legacies {
            expected.push(Event::LeftBehind(of.client.to_string(), of.number));
        }
        expected.sort();
        assert_eq!(recorder.0, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_machine_does_as_plain_lists_do(steps in prop::collection::vec(step(), 1..250)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
        }
        run.end();
    }
}
