//! What changes on this node without an event of its own: looked at each second and compared with the last time.
//!
//! Invariant: each drop is in one event `message.dropped`, by its client and reason or, of those that are too many, in a sum.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use admin::api::{EventKind, EventSubject, SubjectState};
use admin::cluster::{ClusterStatus, NodeId, NodeState, Reach, ShardStatus, StoreName, Version};
use authorization::Action;
use broker_core::inspect::INSPECTED;
use broker_core::{Drop, Drops, Reason};
use store_state::api::Slot;

use super::alarms;
use super::state::Inspect;
use crate::alarms::{Attention, Changed, Count, Raised, Seen, Waiting};
use crate::events::{Event, shown};

/// How often is looked.
const PAUSE: Duration = Duration::from_secs(1);

/// Events of drops at a time; what other clients and reasons have is one more.
const DROPS_TOLD: usize = 100;

/// Looks from one question to the loops who waits to the next.
const WAITING_ASKED_EVERY: u32 = 5;

/// How long the loops may take to answer it.
const WAITING_ANSWERED_WITHIN: Duration = Duration::from_millis(500);

/// Tells what changes, until the node ends.
pub(crate) async fn tell_changes(inspect: Arc<Inspect>) {
    let mut changes = Changes::new(inspect.node.drops.len());
    let mut interval = tokio::time::interval(PAUSE);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut waiting = None;
    let mut looks = 0_u32;
    loop {
        interval.tick().await;
        let is_asked = looks.is_multiple_of(WAITING_ASKED_EVERY);
        looks = looks.wrapping_add(1);
        if is_asked {
            let asked = alarms::waiting(&inspect.node, INSPECTED);
            // Loops that are too busy to answer leave what was known.
            if let Ok(Ok(found)) = tokio::time::timeout(WAITING_ANSWERED_WITHIN, asked).await {
                waiting = found;
            }
        }
        let inspect = Arc::clone(&inspect);
        // It waits for the locks of shards.
        let looked = tokio::task::spawn_blocking(move || {
            changes.look(&inspect, waiting);
            changes
        });
        changes = match looked.await {
            Ok(changes) => changes,
            Err(error) => {
                tracing::error!(%error, "this node no longer announces changes");
                return std::future::pending().await;
            }
        };
    }
}

/// What was seen the last time.
#[derive(Debug)]
struct Changes {
    members: Option<BTreeMap<NodeId, (NodeState, Reach)>>,
    /// By the names that people give shards.
    led: Option<BTreeMap<String, Led>>,
    /// Of each list the number of the next drop.
    drops: Vec<u64>,
    attention: Attention,
}

/// A shard that this node leads.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Led {
    store: StoreName,
    /// Grows with each split.
    version: Option<Version>,
    /// The last of its slots.
    last: Option<Slot>,
    voters: BTreeSet<NodeId>,
}

impl Led {
    fn of(shard: &ShardStatus) -> Self {
        Self {
            store: shard.store,
            version: shard.version,
            last: shard.last,
            voters: shard.voters.iter().copied().collect(),
        }
    }
}

impl Changes {
    fn new(lists: usize) -> Self {
        Self {
            members: None,
            led: None,
            drops: vec![0; lists],
            attention: Attention::default(),
        }
    }

    fn look(&mut self, inspect: &Inspect, waiting: Option<Waiting>) {
        let node = &inspect.node;
        let at_ms = node.rim.clock.now_ms();
        let mut told = self.handle_drops(&node.drops, at_ms);
        let status = inspect.control.status();
        told.extend(self.handle_status(&status, at_ms));
        let mut found = alarms::find(inspect, &status);
        let seen = Seen {
            dropped: Reason::all()
                .map(|reason| (reason.as_str(), node.dropped(reason)))
                .collect(),
            full_queues: Count(node.store().inspect().full_queues() as u64),
            waiting,
        };
        let (thresholds, now) = (inspect.alarms.thresholds(), inspect.started.elapsed());
        found.extend(self.attention.handle_seen(&seen, &thresholds, now));
        told.extend(of_alarms(inspect.alarms.handle_found(found, at_ms), at_ms));
        node.rim.events.handle_second(at_ms);
        for event in told {
            node.rim.events.push(event);
        }
    }

    /// The first time, what is there is no event.
    fn handle_status(&mut self, status: &ClusterStatus, at_ms: u64) -> Vec<Event> {
        let members = status.nodes.iter();
        let members = members.map(|member| (member.node, (member.state, member.reach)));
        let members: BTreeMap<_, _> = members.collect();
        let led = status.shards.iter();
        let led = led.filter(|shard| shard.leader == Some(status.node));
        let led: BTreeMap<String, Led> = led
            .map(|shard| (shard_name(shard), Led::of(shard)))
            .collect();
        let mut told = Vec::new();
        if let Some(before) = self.members.replace(members.clone()) {
            for (node, (state, reach)) in &members {
                if before.get(node) != Some(&(*state, *reach)) {
                    let state = SubjectState::of(*state, *reach);
                    told.push(of_member(status, *node, state, at_ms));
                }
            }
            for node in before.keys().filter(|node| !members.contains_key(node)) {
                told.push(of_member(status, *node, SubjectState::Gone, at_ms));
            }
        }
        if let Some(before) = self.led.replace(led.clone()) {
            for (name, is) in &led {
                match before.get(name) {
                    Some(was) => told.extend(of_shard(status, name, was, is, at_ms)),
                    None => told.push(Event {
                        detail: Some(name.as_str().into()),
                        ..Event::new(EventKind::ShardLeader, at_ms)
                    }),
                }
            }
        }
        told
    }

    fn handle_drops(&mut self, lists: &[Arc<Drops>], at_ms: u64) -> Vec<Event> {
        let (mut sums, mut denied, mut missed) = (Sums::default(), Sums::default(), 0);
        for (drops, from) in lists.iter().zip(&mut self.drops) {
            let found = drops.since(*from);
            missed += found.numbers.start - *from;
            *from = found.numbers.end;
            for drop in &found.drops {
                sums.add(drop, drop.reason);
                if let Some(action) = denied_action(drop.reason) {
                    denied.add(drop, action.as_str());
                }
            }
        }
        let mut told = denied.events(EventKind::RightDenied, 0, at_ms);
        told.extend(sums.events(EventKind::MessageDropped, missed, at_ms));
        told
    }
}

/// What is told of alarms.
fn of_alarms(Changed { raised, ended }: Changed, at_ms: u64) -> impl Iterator<Item = Event> {
    let event = move |kind, Raised { name, detail, .. }: Raised| Event {
        reason: Some(Cow::Owned(name)),
        detail: Some(detail.into()),
        ..Event::new(kind, at_ms)
    };
    let ended = ended.into_iter();
    let ended = ended.map(move |alarm| event(EventKind::AlarmCleared, alarm));
    let raised = raised.into_iter();
    ended.chain(raised.map(move |alarm| event(EventKind::AlarmRaised, alarm)))
}

/// How many, and the topic of the last one.
#[derive(Debug, Default)]
struct Sum(u64, Box<str>);

/// The action whose denial is the reason of a drop, if it is one.
fn denied_action(reason: &'static str) -> Option<Action> {
    let mut actions = Action::ALL.into_iter();
    actions.find(|action| Reason::Denied(*action).as_str() == reason)
}

/// Drops by client and reason.
#[derive(Debug, Default)]
struct Sums {
    by: HashMap<(Box<str>, &'static str), Sum>,
}

impl Sums {
    fn add(&mut self, drop: &Drop, reason: &'static str) {
        let key = (shown(&drop.client_id), reason);
        let Sum(count, topic) = self.by.entry(key).or_default();
        *count += 1;
        *topic = shown(&drop.topic);
    }

    /// Those with most drops, and the sum of the rest. `missed`: of which nothing else is known.
    fn events(self, kind: EventKind, missed: u64, at_ms: u64) -> Vec<Event> {
        let mut by: Vec<_> = self.by.into_iter().collect();
        by.sort_unstable_by(|(a, Sum(of_a, _)), (b, Sum(of_b, _))| of_b.cmp(of_a).then(a.cmp(b)));
        let rest = by.split_off(by.len().min(DROPS_TOLD));
        let others = missed + rest.iter().map(|(_, Sum(count, _))| count).sum::<u64>();
        let told = by
            .into_iter()
            .map(|((client, reason), Sum(count, topic))| Event {
                client_id: Some(client),
                reason: Some(Cow::Borrowed(reason)),
                topic: Some(topic),
                count: Some(count),
                ..Event::new(kind, at_ms)
            });
        let others = (others > 0).then(|| Event {
            count: Some(others),
            detail: Some("of further clients and reasons".into()),
            ..Event::new(kind, at_ms)
        });
        told.chain(others).collect()
    }
}

fn name_of(status: &ClusterStatus, node: NodeId) -> Option<&str> {
    let name = status.nodes.iter().find(|member| member.node == node);
    let name = name.map(|member| member.name.as_str());
    name.filter(|name| !name.is_empty())
}

fn named(status: &ClusterStatus, node: NodeId) -> String {
    name_of(status, node).map_or_else(|| node.to_string(), str::to_owned)
}

fn of_member(status: &ClusterStatus, node: NodeId, state: SubjectState, at_ms: u64) -> Event {
    let named = named(status, node);
    let text = state.name();
    Event {
        reason: Some(Cow::Borrowed(text)),
        detail: Some(format!("{named} is {text}").into()),
        subject: Some(Box::new(EventSubject {
            node,
            node_name: name_of(status, node).unwrap_or_default().to_owned(),
            state,
        })),
        ..Event::new(EventKind::NodeState, at_ms)
    }
}

/// How people name a shard.
fn shard_name(shard: &ShardStatus) -> String {
    format!("{} {}", shard.store, shard.shard)
}

/// What is told of a shard that this node has led for a while.
fn of_shard(status: &ClusterStatus, name: &str, was: &Led, is: &Led, at_ms: u64) -> Vec<Event> {
    let event = |kind, detail: String| Event {
        detail: Some(detail.into()),
        ..Event::new(kind, at_ms)
    };
    let mut told = Vec::new();
    if was
        .version
        .zip(is.version)
        .is_some_and(|(was, is)| was < is)
    {
        // The shard that the split has made ends where the divided one ended.
        let made = status.shards.iter().find(|shard| {
            shard.store == is.store && shard.last == was.last && shard_name(shard) != name
        });
        let made = made.filter(|_| was.last.is_some());
        let made = made.map_or(String::new(), |shard| {
            format!(" into it and {}", shard_name(shard))
        });
        told.push(event(EventKind::ShardSplit, format!("{name}{made}")));
    }
    if was.voters != is.voters {
        let voters: Vec<String> = is.voters.iter().map(|node| named(status, *node)).collect();
        let detail = format!("{name} to {}", voters.join(", "));
        told.push(event(EventKind::ShardMoved, detail));
    }
    told
}

#[cfg(test)]
mod tests {
    use mqtt_proto::QoS;

    use super::*;

    fn drops(of: &[(&str, u64)], kept: usize) -> Arc<Drops> {
        let drops = Drops::new(kept);
        for (client, count) in of {
            for _ in 0..*count {
                let reason = Reason::NoGroupMember;
                drops.record(5, client, "t", reason, QoS::AtMostOnce, 1);
            }
        }
        drops
    }

    fn counts(events: &[Event]) -> Vec<(Option<&str>, u64)> {
        let count = |event: &Event| event.count.expect("drops are counted");
        events
            .iter()
            .map(|event| (event.client_id.as_deref(), count(event)))
            .collect()
    }

    #[test]
    fn each_drop_is_in_one_event() {
        let lists = [
            drops(&[("a", 1), ("b", 3)], 10),
            drops(&[("a", 1), ("c", 4)], 3),
        ];
        let mut changes = Changes::new(lists.len());
        let told = changes.handle_drops(&lists, 7);
        // Of `a` one drop, and of `c` one, are not in the second list any more.
        let expected = [(Some("b"), 3), (Some("c"), 3), (Some("a"), 1), (None, 2)];
        assert_eq!(counts(&told), expected);
        assert_eq!(told[0].topic.as_deref(), Some("t"));
        assert_eq!(told[0].reason.as_deref(), Some("no_group_member"));
        assert_eq!(changes.handle_drops(&lists, 8), []);
    }

    #[test]
    fn what_rules_deny_is_told_with_the_action() {
        let drops = Drops::new(9);
        for action in [Action::Subscribe, Action::Publish, Action::Subscribe] {
            let reason = Reason::Denied(action);
            drops.record(5, "a", "t", reason, QoS::AtMostOnce, 1);
        }
        let told = Changes::new(1).handle_drops(&[drops], 7);
        let denied = told.iter().filter(|of| of.kind == EventKind::RightDenied);
        let denied = denied.map(|of| (of.reason.as_deref().unwrap_or_default(), of.count));
        let denied: Vec<_> = denied.collect();
        assert_eq!(denied, [("subscribe", Some(2)), ("publish", Some(1))]);
    }

    #[test]
    fn many_clients_make_few_events() {
        let names: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        let each: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 2)).collect();
        let lists = [drops(&each, 2_000)];
        let told = Changes::new(1).handle_drops(&lists, 7);
        assert_eq!(told.len(), DROPS_TOLD + 1);
        let sum: u64 = counts(&told).iter().map(|(_, count)| count).sum();
        assert_eq!(sum, 1_000);
    }

    #[test]
    fn alarms_that_begin_and_end_are_told() {
        let alarm = |name: &str| Raised {
            name: name.to_owned(),
            subject: String::new(),
            detail: "why".to_owned(),
            since: inspection::UnixMs(3),
        };
        let changed = Changed {
            raised: vec![alarm("disk_full")],
            ended: vec![alarm("memory")],
        };
        let told = of_alarms(changed, 7);
        let told = told.map(|event| (event.kind, event.reason, event.detail));
        let of = |kind, name| (kind, Some(Cow::Borrowed(name)), Some("why".into()));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                of(EventKind::AlarmCleared, "memory"),
                of(EventKind::AlarmRaised, "disk_full")
            ]
        );
    }

    #[test]
    fn splits_and_moves_of_led_shards_are_told() {
        let status = |shards: &[(u64, u64, u16, &[u64])]| -> ClusterStatus {
            let shards = shards.iter().map(|(shard, version, last, voters)| {
                let voters: Vec<String> = voters.iter().map(|node| format!("{node:016x}")).collect();
                serde_json::json!({"store": "inbox", "shard": shard, "version": version, "first": 0, "last": last,
                                   "leader": "1", "voters": voters, "learners": [], "term": 4})
            });
            let shards: Vec<_> = shards.collect();
            let status = serde_json::json!({"cluster": null, "env": "Test", "node": "1", "nodes": [], "shards": shards});
            serde_json::from_value(status).unwrap()
        };
        let mut changes = Changes::new(0);
        let mut see = |shards: &[(u64, u64, u16, &[u64])]| {
            let told = changes.handle_status(&status(shards), 7).into_iter();
            told.map(|event| (event.kind, event.detail.unwrap_or_default().into()))
                .collect::<Vec<(EventKind, String)>>()
        };
        assert_eq!(see(&[(4, 1, 99, &[1])]), []);
        assert_eq!(
            see(&[(4, 2, 49, &[1]), (9, 2, 99, &[1])]),
            [
                (
                    EventKind::ShardSplit,
                    "inbox 4 into it and inbox 9".to_owned()
                ),
                (EventKind::ShardLeader, "inbox 9".to_owned())
            ]
        );
        assert_eq!(
            see(&[(4, 2, 49, &[1, 2]), (9, 2, 99, &[1])]),
            [(
                EventKind::ShardMoved,
                "inbox 4 to 0000000000000001, 0000000000000002".to_owned()
            )]
        );
        assert_eq!(see(&[(4, 2, 49, &[1, 2]), (9, 2, 99, &[1])]), []);
    }

    #[test]
    fn members_and_led_shards_are_told_when_they_change() {
        let member = |node: u64, reach: &str, state: &str| {
            serde_json::json!({"node": format!("{node:016x}"), "name": format!("mq-{node}"), "address": "10.0.0.1:8899",
                               "state": state, "reach": reach, "version": "0.1.0", "incarnation": 3})
        };
        let status = |nodes: Vec<serde_json::Value>, leader: u64| -> ClusterStatus {
            let leader = format!("{leader:016x}");
            let shard = serde_json::json!({"store": "inbox", "shard": 4, "leader": leader, "voters": [], "learners": [], "term": 4});
            let status = serde_json::json!({"cluster": null, "env": "Test", "node": "1", "nodes": nodes, "shards": [shard]});
            serde_json::from_value(status).unwrap()
        };
        let mut changes = Changes::new(0);
        let mut see = |status: ClusterStatus| {
            let told = changes.handle_status(&status, 7).into_iter();
            let told = told.inspect(|event| match &event.subject {
                Some(subject) => {
                    assert_eq!(
                        (event.kind, subject.node),
                        (EventKind::NodeState, NodeId(2))
                    );
                    assert_eq!(event.reason.as_deref(), Some(subject.state.name()));
                }
                None => assert_eq!(event.kind, EventKind::ShardLeader),
            });
            told.map(|event| event.detail.unwrap_or_default().into())
                .collect::<Vec<String>>()
        };
        let up = |node| member(node, "up", "up");
        assert!(see(status(vec![up(1), up(2)], 2)).is_empty());
        assert!(see(status(vec![up(1), up(2)], 2)).is_empty());
        assert_eq!(
            see(status(vec![up(1), member(2, "down", "up")], 1)),
            ["mq-2 is down", "inbox 4"]
        );
        assert_eq!(
            see(status(vec![up(1), member(2, "up", "draining")], 1)),
            ["mq-2 is draining"]
        );
        assert_eq!(see(status(vec![up(1)], 2)), ["0000000000000002 is gone"]);
        assert_eq!(see(status(vec![up(1)], 1)), ["inbox 4"]);
    }
}
