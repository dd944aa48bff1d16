//! One part of a workload while it is played: its clients' roles, its topics, its schedule and its books.
//!
//! Deliberately absent: sockets. The engine has the clients; a part knows where in the engine's list its
//! own begin.

use std::collections::VecDeque;
use std::ops::Range;

use mqtt_proto::QoS;

use crate::listed::{Listed, SubscriberGroup};
use crate::meter::Times;
use crate::readings::Readings;
use crate::schedule::Schedule;
use crate::topology::{Topology, share};
use crate::traffic::{Totals, Traffic};
use crate::verify::Run;
use crate::workload::{Activity, Messages, Pace, Part, Wills};

/// What a client is in its part. Numbers are those of the whole part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Stays and receives.
    Subscriber(usize),
    /// Stays and publishes.
    Publisher(usize),
    /// Stays.
    Background(usize),
    /// Comes and goes.
    Visitor(usize),
    /// Comes and breaks off, leaving a will.
    Willed(usize),
    /// Comes for retained messages, and goes.
    Reader(usize),
    /// Publishes what readers come for.
    Seeder,
}

/// What happened, as far as a part counts it.
#[derive(Debug)]
pub(super) enum Books {
    Traffic(Box<Traffic>),
    Readings(Box<Readings>),
    /// Only connects are timed.
    None,
}

/// A publisher's topic and backlog.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(super) topic: String,
    /// Due times of messages that had no room yet.
    pub(super) waiting: VecDeque<u64>,
}

#[derive(Debug)]
pub(super) struct Playing {
    pub(super) part: Part,
    /// This worker's share of the publishers, or of those that come and go.
    pub(super) actors: Range<usize>,
    /// Where in the engine's list those begin.
    pub(super) first_actor: usize,
    /// By publisher of the share.
    pub(super) publishers: Vec<Publisher>,
    /// Messages in all `waiting` queues.
    pub(super) waiting: usize,
    pub(super) books: Books,
    /// Retained messages that the seeder has published.
    pub(super) seeded: usize,
    pub(super) schedule: Option<Schedule>,
    /// When the schedule is followed.
    pub(super) window_ns: Range<u64>,
    /// First levels of its topics.
    pub(super) prefix: String,
    /// This worker and all.
    index: usize,
    of: usize,
}

impl Playing {
    /// The part, with the roles of its clients in the order in which they connect. `first_slot` is where
    /// they will stand in the engine's list.
    pub(super) fn new(
        part: Part,
        first_slot: usize,
        (index, of): (usize, usize),
        prefix: &str,
        epoch_ns: u64,
    ) -> (Self, Vec<Role>) {
        let run = Run::named(prefix);
        let prefix = format!("{prefix}/{}", part.name);
        let mut publishers = Vec::new();
        let mut books = Books::None;
        let mut roles: Vec<Role> = Vec::new();
        let actors = match &part.activity {
            Activity::Messages(messages) => {
                let slice = messages.topology.slice(index, of);
                roles.extend(slice.subscribers.clone().map(Role::Subscriber));
                let topic = |n| messages.topology.topic(&prefix, n);
                publishers.extend(slice.publishers.clone().map(topic).map(Publisher::new));
                let actors = slice.publishers.clone();
                let traffic = Traffic::new(&messages.topology, slice, run, epoch_ns)
                    .with_template(messages.template());
                books = Books::Traffic(Box::new(traffic));
                actors
            }
            Activity::Wills(wills) => {
                let topology = will_topology(wills, of);
                let slice = topology.slice(index, of);
                roles.extend(slice.subscribers.clone().map(Role::Subscriber));
                let actors = slice.publishers.clone();
                let traffic = Traffic::new(&topology, slice, run, epoch_ns);
                books = Books::Traffic(Box::new(traffic));
                actors
            }
            Activity::Retained(retained) => {
                if index == 0 {
                    roles.push(Role::Seeder);
                }
                let actors = share(retained.readers, index, of);
                let readings = Readings::new(retained.topics, actors.clone());
                books = Books::Readings(Box::new(readings));
                actors
            }
            Activity::Background { connections } => share(*connections, index, of),
            Activity::Churn(churn) => share(churn.connections, index, of),
        };
        let first_actor = first_slot + roles.len();
        roles.extend(actors.clone().map(|number| match part.activity {
            Activity::Messages(_) => Role::Publisher(number),
            Activity::Background { .. } => Role::Background(number),
            Activity::Churn(_) => Role::Visitor(number),
            Activity::Wills(_) => Role::Willed(number),
            Activity::Retained(_) => Role::Reader(number),
        }));
        let playing = Self {
            part,
            actors,
            first_actor,
            publishers,
            waiting: 0,
            books,
            seeded: 0,
            schedule: None,
            window_ns: 0..0,
            prefix,
            index,
            of,
        };
        (playing, roles)
    }

    /// Follows the schedule from now on: warm-up from `start_ns`, measurement `measured_ns`.
    pub(super) fn begin(&mut self, start_ns: u64, measured_ns: &Range<u64>) {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let from = match self.part.from_s {
            0.0 => start_ns,
            from_s => measured_ns.start + ns(from_s),
        };
        let until = self.part.for_s.map_or(measured_ns.end, |for_s| {
            let from = measured_ns.start + ns(self.part.from_s);
            measured_ns.end.min(from + ns(for_s))
        });
        self.window_ns = from..until;
        self.schedule = self.schedule_from(from);
    }

    fn schedule_from(&self, from_ns: u64) -> Option<Schedule> {
        let (per_second, all) = match &self.part.activity {
            Activity::Messages(messages) => match messages.pace {
                Pace::Open { per_second } => (per_second, messages.topology.publishers()),
                Pace::Closed { .. } => return None,
            },
            Activity::Background { .. } => return None,
            Activity::Churn(churn) => (churn.per_second, churn.connections),
            Activity::Wills(wills) => (wills.per_second, wills.connections),
            Activity::Retained(retained) => (retained.per_second, retained.readers),
        };
        let own = self.actors.len();
        (own > 0).then(|| {
            let share = per_second * own as f64 / all as f64;
            // Workers take turns: each begins a little later than the one before.
            let phase = 1e9 / share * self.index as f64 / self.of as f64;
            Schedule::new(from_ns + phase as u64, share, own)
        })
    }

    /// When something of this part is due next, while its schedule is followed.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        let due_ns = match (&self.schedule, &self.books) {
            (Some(schedule), _) => schedule.next_due_ns(),
            // A closed loop's windows are filled for the first time.
            (None, Books::Traffic(traffic)) if !traffic.freed.is_empty() => self.window_ns.start,
            (None, _) => return None,
        };
        (due_ns < self.window_ns.end).then_some(due_ns)
    }

    /// The next actor that is due, by its place in the share, and when it was.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<(usize, u64)> {
        let before_ns = self.window_ns.end.min(now_ns + 1);
        self.schedule.as_mut()?.take(before_ns)
    }

    pub(super) fn messages(&self) -> Option<&Messages> {
        match &self.part.activity {
            Activity::Messages(messages) => Some(messages),
            _ => None,
        }
    }

    /// Topics whose retained message the seeder has not published yet.
    pub(super) fn unseeded(&self) -> Range<usize> {
        match &self.part.activity {
            Activity::Retained(retained) => self.seeded..retained.topics,
            _ => 0..0,
        }
    }

    pub(super) fn traffic(&mut self) -> Option<&mut Traffic> {
        match &mut self.books {
            Books::Traffic(traffic) => Some(traffic),
            Books::Readings(_) | Books::None => None,
        }
    }

    /// What a client of this role subscribes with.
    pub(super) fn subscription_qos(&self, role: Role) -> QoS {
        match self.subscriber_group(role) {
            Some(group) => group.qos,
            None => self.qos(),
        }
    }

    /// The listed group of a subscriber.
    fn subscriber_group(&self, role: Role) -> Option<&SubscriberGroup> {
        match (self.listed(), role) {
            (Some(listed), Role::Subscriber(number)) => listed.group_of(number),
            _ => None,
        }
    }

    fn listed(&self) -> Option<&Listed> {
        match &self.messages()?.topology {
            Topology::Listed(listed) => Some(listed),
            _ => None,
        }
    }

    /// A client identifier that is listed.
    pub(super) fn listed_id(&self, role: Role) -> Option<String> {
        match role {
            Role::Subscriber(number) => self.listed()?.subscriber_id(number),
            Role::Publisher(number) => self.listed()?.publisher_id(number),
            _ => None,
        }
    }

    /// QoS of its messages, and of its subscriptions unless they are listed.
    pub(super) fn qos(&self) -> QoS {
        match &self.part.activity {
            Activity::Messages(messages) => messages.qos,
            Activity::Wills(wills) => wills.qos,
            Activity::Retained(retained) => retained.qos,
            Activity::Background { .. } | Activity::Churn(_) => QoS::AtMostOnce,
        }
    }

    pub(super) fn payload_len(&self) -> usize {
        match &self.part.activity {
            Activity::Messages(messages) => messages.payload_len,
            Activity::Wills(wills) => wills.payload_len,
            Activity::Retained(retained) => retained.payload_len,
            Activity::Background { .. } | Activity::Churn(_) => 0,
        }
    }

    /// What a client of this role subscribes to.
    pub(super) fn filter(&self, role: Role) -> Option<String> {
        let prefix = &self.prefix;
        match (&self.part.activity, role) {
            (Activity::Messages(messages), Role::Subscriber(number)) => {
                Some(messages.topology.filter(prefix, number))
            }
            (Activity::Wills(wills), Role::Subscriber(number)) => {
                Some(will_topology(wills, self.of).filter(prefix, number))
            }
            (Activity::Retained(_), Role::Reader(_)) => Some(format!("{prefix}/+")),
            (Activity::Churn(churn), Role::Visitor(number)) if churn.subscribe => {
                Some(format!("{prefix}/{number}"))
            }
            _ => None,
        }
    }

    /// Where a client's will goes.
    pub(super) fn will_topic(&self, number: usize) -> Option<String> {
        match &self.part.activity {
            Activity::Wills(wills) => {
                Some(will_topology(wills, self.of).topic(&self.prefix, number))
            }
            _ => None,
        }
    }

    /// Whether a client's session ends with its connection.
    pub(super) fn is_clean(&self, role: Role) -> bool {
        match (&self.part.activity, role) {
            (Activity::Messages(messages), Role::Subscriber(_)) => {
                let group = self.subscriber_group(role);
                group.map_or(messages.clean_session, |group| group.clean_session)
            }
            // Only within a session is a message that is sent again the same message.
            (Activity::Messages(messages), Role::Publisher(_)) => {
                messages.clean_session || messages.qos < QoS::ExactlyOnce
            }
            (Activity::Churn(churn), _) => churn.clean_session,
            _ => true,
        }
    }

    /// Bytes per second that a client of this role reads at most.
    pub(super) fn read_rate(&self, role: Role) -> Option<u32> {
        match (&self.part.activity, role) {
            (Activity::Messages(messages), Role::Subscriber(_)) => messages.read_rate,
            _ => None,
        }
    }

    pub(super) fn totals(&self) -> Totals {
        match &self.books {
            Books::Traffic(traffic) => traffic.totals,
            Books::Readings(readings) => readings.totals,
            Books::None => Totals::default(),
        }
    }

    /// Messages that wait to be sent or, above QoS 0, for their acknowledgement.
    pub(super) fn unfinished(&self) -> usize {
        let Totals {
            sent, acknowledged, ..
        } = self.totals();
        match self.qos() {
            QoS::AtMostOnce => self.waiting,
            _ => self.waiting + sent.saturating_sub(acknowledged) as usize,
        }
    }

    /// Messages as the reports count them: deliveries, or what the broker took where nobody subscribes (at
    /// QoS 0 what was sent, which nobody confirms).
    pub(super) fn counted(&self) -> u64 {
        let totals = self.totals();
        match self.messages() {
            Some(messages) if messages.topology.subscribers() == 0 => match messages.qos {
                QoS::AtMostOnce => totals.sent,
                _ => totals.acknowledged,
            },
            _ => totals.delivered,
        }
    }

    pub(super) fn times(&self) -> Option<&Times> {
        match &self.books {
            Books::Traffic(traffic) => Some(&traffic.times),
            Books::Readings(readings) => Some(&readings.times),
            Books::None => None,
        }
    }

    /// Deliveries that this worker's messages should cause, and those that it saw.
    pub(super) fn expected_and_distinct(&self) -> (u64, u64) {
        match &self.books {
            Books::Traffic(traffic) => (traffic.expected(), traffic.distinct()),
            Books::Readings(readings) => (readings.expected(), readings.distinct()),
            Books::None => (0, 0),
        }
    }
}

impl Publisher {
    fn new(topic: String) -> Self {
        Self {
            topic,
            waiting: VecDeque::new(),
        }
    }
}

/// Each worker has one who watches for the wills of its own clients.
fn will_topology(wills: &Wills, workers: usize) -> Topology {
    Topology::Groups {
        publishers: wills.connections,
        groups: workers,
    }
}
