//! What a person should see to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admin::cluster::{ClusterStatus, NodeId, Reach};
use admin::page::MissingReason;
use broker_core::{Pressure, Share};
use control_view::Standing;
use inspection::{Alarm, At, UnixMs};
use transport::CertificateFacts;

use super::loops;
use super::rows::{self, Own};
use super::state::Inspect;
use crate::alarms::{Alarms, Count, Found, Raised, Waiting};
use crate::control;
use crate::disk_space::class_name;
use crate::node::Node;
use crate::split_scripts;

/// What a person should see to now, as this node knows.
pub(super) fn find(inspect: &Inspect, status: &ClusterStatus) -> Vec<Found> {
    let own = inspect.own();
    let alarm_of = |name: &'static str, subject: String, detail: String| Found {
        name,
        subject,
        detail,
    };
    let alarm = |name: &'static str, detail: String| alarm_of(name, String::new(), detail);
    let mut alarms = Vec::new();
    for (node, name) in unreached(status) {
        let detail = format!("{name} is down: {} does not hear it", own.name);
        alarms.push(alarm_of("node_down", node.to_string(), detail));
    }
    for (store, shard) in control::without_leader(&inspect.node) {
        let detail = format!("no node leads shard {shard} of the {store} store");
        alarms.push(alarm_of("no_leader", format!("{store} {shard}"), detail));
    }
    if control::control_age(&inspect.node) >= CONTROL_STALE {
        alarms.push(alarm("control_stale", stale(&inspect.node)));
    }
    if let Some(mistake) = inspect.node.rim.control.mistake() {
        let detail = format!(
            "this node cannot read the rules for everybody, and keeps those before: {mistake}"
        );
        alarms.push(alarm_of("control_rules", "rules".to_owned(), detail));
    }
    if let Some(reason) = inspect.node.rim.authentication.unreadable_rules() {
        let detail = format!("this node refuses users of the control store: {reason}");
        alarms.push(alarm_of("control_rules", "users".to_owned(), detail));
    }
    match inspect.node.pressure() {
        Pressure::None => {}
        Pressure::StopReading => alarms.push(alarm(
            "memory",
            "memory is scarce: publishers are not read".to_owned(),
        )),
        Pressure::Refuse => alarms.push(alarm(
            "memory",
            "memory is scarce: new connections are refused".to_owned(),
        )),
    }
    let places = &inspect.node.rim.descriptors.places;
    if places.have_run_out() {
        let detail = format!(
            "all {} file descriptors for connections are taken: new ones wait until others end",
            places.most().0
        );
        alarms.push(alarm("descriptors", detail));
    }
    if inspect.node.store().is_full() {
        let detail = "the disk is full: what has to be stored is refused";
        alarms.push(alarm("disk_full", detail.to_owned()));
    }
    let closed = inspect.node.rim.disk.closed();
    if !closed.is_empty() {
        let settings = inspect.node.settings.read();
        let names: Vec<&str> = closed
            .iter()
            .map(|class| class_name(&settings, *class))
            .collect();
        let names = names.join(", ");
        let detail = format!(
            "the disk has little space left: nothing is queued for clients that are away of the classes {names}"
        );
        alarms.push(alarm("disk_high_water", detail));
    }
    let now = Duration::from_millis(inspect.node.rim.clock.now_ms());
    for listening in &inspect.listeners {
        if let Some(facts) = &*listening.certificate.read()
            && let Some(why) = ends_soon(facts, now)
        {
            let (kind, address) = (listening.kind.name(), &listening.address);
            let detail = format!("the certificate of the {kind} listener at {address} {why}");
            alarms.push(alarm_of("certificate", format!("{kind} {address}"), detail));
        }
        if let Some(facts) = &*listening.certificate.read()
            && let Some(why) = is_stale(facts, now)
        {
            let (kind, address) = (listening.kind.name(), &listening.address);
            let detail = format!("a revocation list of the {kind} listener at {address} {why}");
            alarms.push(alarm_of(
                "revocation_list",
                format!("{kind} {address}"),
                detail,
            ));
        }
    }
    for (subject, detail) in inspect.upgrade.faults() {
        alarms.push(alarm_of("replica_unusable", subject, detail));
    }
    for (subject, detail) in inspect.upgrade.differences() {
        alarms.push(alarm_of("replica_differs", subject, detail));
    }
    for (subject, detail) in split_scripts::faults(inspect.node.opened_store()) {
        alarms.push(alarm_of("split_script", subject, detail));
    }
    for (subject, detail) in inspect.outlets.failing() {
        alarms.push(alarm_of("outlet_failing", subject, detail));
    }
    if let Some(detail) = inspect.upgrade.mixed() {
        alarms.push(alarm("level_mixed", detail));
    }
    if let Some(clustered) = inspect.node.rim.clustered()
        && clustered.cluster().is_open()
    {
        let detail = "the cluster has neither secret nor TLS: whoever reaches its port is a member";
        alarms.push(alarm("open_cluster", detail.to_owned()));
    }
    alarms
}

/// How long a node does not know whether its copy of the control store is current until people are told.
const CONTROL_STALE: Duration = Duration::from_secs(30);

/// What is said of a copy of the control store that may be out of date.
fn stale(node: &Node) -> String {
    let view = &node.rim.control.view;
    let logins = match view.standing() {
        _ if view.is_refused() => "its users cannot log in here",
        Standing::Unconfirmed => {
            "its users cannot log in here until this node has heard the leader"
        }
        Standing::Unused | Standing::Confirmed => "users are judged by the copy",
    };
    format!(
        "this node has not heard the leader of the control store for 30 s or more, so its copy of users, groups and rules may be \
         out of date: {logins}, and changes are refused"
    )
}

/// Who has waited for half of the last minute or more, of the first `most` clients of each loop.
pub(super) async fn waiting(
    node: &Arc<Node>,
    most: usize,
) -> Result<Option<Waiting>, MissingReason> {
    let rows = loops::longest_held(node, most).await?;
    let is_least = rows.len() >= most;
    let held = rows.into_iter().filter_map(|row| row.held);
    let long = held.filter(|held| held.share >= Share(500));
    let mut reasons: BTreeMap<&'static str, u64> = BTreeMap::new();
    for held in long {
        *reasons.entry(held.reason.as_str()).or_default() += 1;
    }
    let most = reasons.iter().max_by_key(|(_, count)| **count);
    Ok(most.map(|(reason, _)| Waiting {
        publishers: Count(reasons.values().sum()),
        is_least,
        reason,
    }))
}

/// The alarms that are raised, as nodes tell each other.
pub(super) fn raised(own: &Own, alarms: &Alarms) -> Vec<Alarm> {
    let raised = alarms.raised().into_iter();
    raised.map(|alarm| row(own, alarm, None)).collect()
}

/// The alarms that have ended, the latest first.
pub(super) fn ended(own: &Own, alarms: &Alarms) -> Vec<Alarm> {
    let ended = alarms.ended().into_iter();
    ended.map(|of| row(own, of.alarm, Some(of.until))).collect()
}

fn row(own: &Own, alarm: Raised, until: Option<UnixMs>) -> Alarm {
    Alarm {
        name: alarm.name,
        node: own.node,
        node_name: own.name.clone(),
        subject: alarm.subject,
        detail: alarm.detail,
        since: Some(At::unix_ms(alarm.since.0)),
        until: until.map(|until| At::unix_ms(until.0)),
    }
}

/// Members that count as gone, by name, if this node is the one that tells of them: the first that is left.
fn unreached(status: &ClusterStatus) -> Vec<(NodeId, String)> {
    let is_down = |reach: Reach| reach == Reach::Down;
    let left = status.nodes.iter().filter(|member| !is_down(member.reach));
    if left.map(|member| member.node).min() != Some(status.node) {
        return Vec::new();
    }
    let down = status.nodes.iter().filter(|member| is_down(member.reach));
    let named = down.map(|member| match member.name.as_str() {
        "" => (member.node, member.node.to_string()),
        name => (member.node, name.to_owned()),
    });
    named.collect()
}

/// Days before its end at which a certificate is an alarm.
const ENDS_SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// What is said of a certificate that is not valid, or will soon not be.
fn ends_soon(facts: &CertificateFacts, now: Duration) -> Option<String> {
    let at = |time: Duration| rows::at(time);
    if now < facts.not_before {
        Some(format!("is valid only from {}", at(facts.not_before)))
    } else if now > facts.not_after {
        Some(format!("has ended {}", at(facts.not_after)))
    } else if now + ENDS_SOON > facts.not_after {
        Some(format!("ends {}", at(facts.not_after)))
    } else {
        None
    }
}

/// What is said of a revocation list that its authority has replaced by now. It counts all the same: an authority
/// that is late shuts out nobody.
fn is_stale(facts: &CertificateFacts, now: Duration) -> Option<String> {
    let next = facts.next_update.filter(|next| *next < now)?;
    let at = rows::at(next);
    Some(format!(
        "is older than its nextUpdate, {at}: certificates that were revoked since are taken"
    ))
}

#[cfg(test)]
mod tests {
    use admin::cluster::{NodeState, NodeStatus};

    use super::*;

    #[test]
    fn one_node_tells_of_another_that_is_gone() {
        let member = |number: u64, name: &str, reach| NodeStatus {
            node: NodeId(number),
            name: name.to_owned(),
            address: String::new(),
            state: NodeState::Up,
            reach,
            version: String::new(),
            commit: None,
            levels: None,
            incarnation: 1,
            connections: None,
            unusable_replicas: None,
            clock_offset_ms: None,
        };
        let status = |own: u64, first: Reach| ClusterStatus {
            level: None,
            damaged: Vec::new(),
            cluster: None,
            env: String::new(),
            node: NodeId(own),
            nodes: vec![
                member(1, "a", first),
                member(2, "b", Reach::Up),
                member(3, "", Reach::Down),
            ],
            shards: Vec::new(),
        };
        let third = (NodeId(3), NodeId(3).to_string());
        let first = (NodeId(1), "a".to_owned());
        assert_eq!(
            unreached(&status(1, Reach::Up)),
            *std::slice::from_ref(&third)
        );
        assert!(unreached(&status(2, Reach::Suspect)).is_empty());
        assert_eq!(unreached(&status(2, Reach::Down)), [first, third]);
        // A node that is alone has no members.
        let alone = ClusterStatus {
            nodes: Vec::new(),
            ..status(1, Reach::Up)
        };
        assert!(unreached(&alone).is_empty());
    }

    #[test]
    fn a_certificate_is_an_alarm_two_weeks_before_its_end() {
        let day = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        let facts = CertificateFacts {
            subject: String::new(),
            issuer: String::new(),
            names: Vec::new(),
            not_before: day(100),
            not_after: day(200),
            next_update: None,
        };
        for (now, said) in [
            (99, Some("is valid only from 1970-04-11T00:00:00.000Z")),
            (100, None),
            (185, None),
            (187, Some("ends 1970-07-20T00:00:00.000Z")),
            (201, Some("has ended 1970-07-20T00:00:00.000Z")),
        ] {
            assert_eq!(ends_soon(&facts, day(now)).as_deref(), said, "{now}");
        }
    }

    #[test]
    fn a_revocation_list_is_an_alarm_once_its_next_update_has_passed() {
        let day = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        let facts = CertificateFacts {
            subject: String::new(),
            issuer: String::new(),
            names: Vec::new(),
            not_before: day(0),
            not_after: day(1_000),
            next_update: Some(day(200)),
        };
        assert_eq!(is_stale(&facts, day(200)), None);
        let said = is_stale(&facts, day(201)).expect("an alarm");
        assert!(
            said.contains("nextUpdate, 1970-07-20T00:00:00.000Z"),
            "{said}"
        );
        let without = CertificateFacts {
            next_update: None,
            ..facts
        };
        assert_eq!(is_stale(&without, day(201)), None);
    }
}
