//! What changes on this node without an event of its own: looked at each second and compared with the last time.
//!
//! Invariant: each drop is in one event, by its client and reason or, of those that are too many, in a sum.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use admin::api::{Alarm, EventKind};
use admin::cluster::{ClusterStatus, NodeId, NodeState, Reach};
use broker_core::{Drop, Drops};

use super::state::Inspect;
use crate::events::{Event, shown};

/// How often is looked.
const PAUSE: Duration = Duration::from_secs(1);

/// Events of drops at a time; what other clients and reasons have is one more.
const DROPS_TOLD: usize = 100;

/// Tells what changes, until the node ends.
pub(crate) async fn tell_changes(inspect: Arc<Inspect>) {
    let mut changes = Changes::new(inspect.node.drops.len());
    let mut interval = tokio::time::interval(PAUSE);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let inspect = Arc::clone(&inspect);
        // It waits for the locks of shards.
        let looked = tokio::task::spawn_blocking(move || {
            changes.look(&inspect);
            changes
        });
        changes = match looked.await {
            Ok(changes) => changes,
            Err(error) => {
                tracing::error!(%error, "changes of this node are told no more");
                return std::future::pending().await;
            }
        };
    }
}

/// What was seen the last time.
#[derive(Debug)]
struct Changes {
    /// By name and detail.
    alarms: Option<BTreeSet<(String, String)>>,
    members: Option<BTreeMap<NodeId, (NodeState, Reach)>>,
    /// Shards as people name them.
    led: Option<BTreeSet<String>>,
    /// Of each list the number of the next drop.
    drops: Vec<u64>,
}

impl Changes {
    fn new(lists: usize) -> Self {
        Self {
            alarms: None,
            members: None,
            led: None,
            drops: vec![0; lists],
        }
    }

    fn look(&mut self, inspect: &Inspect) {
        let node = &inspect.node;
        let at_ms = node.rim.clock.now_ms();
        let mut told = self.handle_drops(&node.drops, at_ms);
        told.extend(self.handle_status(&inspect.control.status(), at_ms));
        told.extend(self.handle_alarms(&inspect.alarms(), at_ms));
        for event in told {
            node.rim.events.push(event);
        }
    }

    fn handle_alarms(&mut self, alarms: &[Alarm], at_ms: u64) -> Vec<Event> {
        let now = alarms
            .iter()
            .map(|alarm| (alarm.name.clone(), alarm.detail.clone()));
        let now: BTreeSet<(String, String)> = now.collect();
        let before = self.alarms.replace(now.clone()).unwrap_or_default();
        let event = |kind, (name, detail): &(String, String)| Event {
            reason: Some(Cow::Owned(name.clone())),
            detail: Some(detail.as_str().into()),
            ..Event::new(kind, at_ms)
        };
        let raised = now.difference(&before);
        let cleared = before.difference(&now);
        let raised = raised.map(|alarm| event(EventKind::AlarmRaised, alarm));
        let cleared = cleared.map(|alarm| event(EventKind::AlarmCleared, alarm));
        cleared.chain(raised).collect()
    }

    /// The first time, what is there is no event.
    fn handle_status(&mut self, status: &ClusterStatus, at_ms: u64) -> Vec<Event> {
        let members = status.nodes.iter();
        let members = members.map(|member| (member.node, (member.state, member.reach)));
        let members: BTreeMap<_, _> = members.collect();
        let led = status.shards.iter();
        let led = led.filter(|shard| shard.leader == Some(status.node));
        let led: BTreeSet<String> = led
            .map(|shard| format!("{} {}", shard.store, shard.shard))
            .collect();
        let mut told = Vec::new();
        if let Some(before) = self.members.replace(members.clone()) {
            for (node, (state, reach)) in &members {
                if before.get(node) != Some(&(*state, *reach)) {
                    told.push(of_member(status, *node, &state_text(*state, *reach), at_ms));
                }
            }
            for node in before.keys().filter(|node| !members.contains_key(node)) {
                told.push(of_member(status, *node, "gone", at_ms));
            }
        }
        if let Some(before) = self.led.replace(led.clone()) {
            for shard in led.difference(&before) {
                told.push(Event {
                    detail: Some(shard.as_str().into()),
                    ..Event::new(EventKind::ShardLeader, at_ms)
                });
            }
        }
        told
    }

    fn handle_drops(&mut self, lists: &[Arc<Drops>], at_ms: u64) -> Vec<Event> {
        let (mut sums, mut missed) = (Sums::default(), 0);
        for (drops, from) in lists.iter().zip(&mut self.drops) {
            let found = drops.since(*from);
            missed += found.numbers.start - *from;
            *from = found.numbers.end;
            for drop in &found.drops {
                sums.add(drop);
            }
        }
        sums.events(missed, at_ms)
    }
}

/// How many, and the topic of the last one.
#[derive(Debug, Default)]
struct Sum(u64, Box<str>);

/// Drops by client and reason.
#[derive(Debug, Default)]
struct Sums {
    by: HashMap<(Box<str>, &'static str), Sum>,
}

impl Sums {
    fn add(&mut self, drop: &Drop) {
        let key = (shown(&drop.client_id), drop.reason);
        let Sum(count, topic) = self.by.entry(key).or_default();
        *count += 1;
        *topic = shown(&drop.topic);
    }

    /// Those with most drops, and the sum of the rest. `missed`: of which nothing else is known.
    fn events(self, missed: u64, at_ms: u64) -> Vec<Event> {
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
                ..Event::new(EventKind::MessageDropped, at_ms)
            });
        let others = (others > 0).then(|| Event {
            count: Some(others),
            detail: Some("of further clients and reasons".into()),
            ..Event::new(EventKind::MessageDropped, at_ms)
        });
        told.chain(others).collect()
    }
}

fn of_member(status: &ClusterStatus, node: NodeId, text: &str, at_ms: u64) -> Event {
    let name = status.nodes.iter().find(|member| member.node == node);
    let name = name.map(|member| member.name.as_str());
    let name = name.filter(|name| !name.is_empty());
    let named = name.map_or_else(|| node.to_string(), str::to_owned);
    Event {
        reason: Some(Cow::Owned(text.to_owned())),
        detail: Some(format!("{named} is {text}").into()),
        ..Event::new(EventKind::NodeState, at_ms)
    }
}

/// What a node says of itself, if it is heard of.
fn state_text(state: NodeState, reach: Reach) -> String {
    match reach {
        Reach::Up => state.to_string(),
        Reach::Suspect => "silent".to_owned(),
        Reach::Down => "down".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use broker_core::Reason;
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
    fn an_alarm_is_raised_once_and_cleared_once() {
        let alarm = |name: &str| Alarm {
            name: name.to_owned(),
            node: NodeId(1),
            node_name: String::new(),
            detail: "why".to_owned(),
            since: None,
        };
        let mut changes = Changes::new(0);
        let mut see = |names: &[&str]| {
            let alarms: Vec<Alarm> = names.iter().map(|name| alarm(name)).collect();
            let told = changes.handle_alarms(&alarms, 7);
            let told = told.into_iter();
            told.map(|event| (event.kind, event.reason.unwrap_or_default().into_owned()))
                .collect::<Vec<_>>()
        };
        let raised = |name: &str| (EventKind::AlarmRaised, name.to_owned());
        let cleared = |name: &str| (EventKind::AlarmCleared, name.to_owned());
        assert_eq!(see(&["memory"]), [raised("memory")]);
        assert_eq!(see(&["memory"]), []);
        assert_eq!(
            see(&["disk_full"]),
            [cleared("memory"), raised("disk_full")]
        );
        assert_eq!(see(&[]), [cleared("disk_full")]);
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
