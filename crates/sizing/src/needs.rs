//! What a demand takes of each resource, term by term.

use crate::demand::{Demand, Quality};
use crate::slopes::{Batched, Slopes};

/// Bytes of Ethernet, IP and TCP headers of a segment.
const SEGMENT: f64 = 78.0;

/// Bytes of MQTT's headers of a PUBLISH, without topic and payload.
const PUBLISH: f64 = 7.0;

/// Terms of what nodes send each other.
const FORWARDED: &str = "messages between nodes";
const REPLICAS: &str = "replicas";

/// Bytes of an acknowledgement, with its segment.
const ACK: f64 = SEGMENT + 4.0;

/// What is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Resource {
    /// Cores, of all nodes.
    Cores,
    /// Bytes of memory, of all nodes.
    Memory,
    /// Bytes of disk, of all nodes.
    Disk,
    /// Bytes per second written to disks, of all nodes.
    DiskWrites,
    /// Bytes per second from clients and other nodes, of all nodes.
    NetworkIn,
    /// Bytes per second to clients and other nodes, of all nodes.
    NetworkOut,
}

/// A part of what is used of a resource.
#[derive(Clone, PartialEq, Debug)]
pub struct Term {
    /// Of which.
    pub resource: Resource,
    /// What for.
    pub what: &'static str,
    /// How many there are of it: per second, or at a time.
    pub count: f64,
    /// The formula of the count, in words of the demand.
    pub formula: &'static str,
    /// What each takes, in the resource's unit.
    pub each: f64,
    /// Where `each` is from: a slope, or a constant of packets.
    pub slope: &'static str,
}

impl Term {
    /// In the resource's unit.
    #[must_use]
    pub fn amount(&self) -> f64 {
        self.count * self.each
    }
}

/// All terms, without those that are zero.
#[derive(Clone, PartialEq, Debug)]
pub struct Needs(pub Vec<Term>);

impl Needs {
    /// What a demand takes of a cluster of so many nodes.
    #[must_use]
    pub fn of(demand: &Demand, slopes: &Slopes, nodes: f64) -> Self {
        let mut terms = cpu(demand, slopes, nodes);
        terms.extend(memory(demand, slopes, nodes));
        terms.extend(disk(demand, slopes, nodes));
        terms.extend(network(demand, nodes));
        terms.retain(|term| term.amount() > 0.0);
        Self(terms)
    }

    /// The sum of a resource.
    #[must_use]
    pub fn sum(&self, resource: Resource) -> f64 {
        let terms = self.0.iter().filter(|term| term.resource == resource);
        terms.map(Term::amount).sum()
    }

    /// Bytes per second that nodes send each other, of all nodes.
    pub(crate) fn between_nodes(&self) -> f64 {
        let sent = |term: &&Term| term.resource == Resource::NetworkOut;
        let terms = self.0.iter().filter(sent);
        let terms = terms.filter(|term| [FORWARDED, REPLICAS].contains(&term.what));
        terms.map(Term::amount).sum()
    }

    /// Messages per second written to disks, of all nodes.
    pub(crate) fn durable_writes(&self) -> f64 {
        let terms = self.0.iter();
        let terms = terms.filter(|term| term.resource == Resource::DiskWrites);
        terms.map(|term| term.count).sum()
    }
}

fn cpu(demand: &Demand, slopes: &Slopes, nodes: f64) -> Vec<Term> {
    let us = |what, count, formula, us: f64, slope| Term {
        resource: Resource::Cores,
        what,
        count,
        formula,
        each: us / 1e6,
        slope,
    };
    let clean = demand.deliveries_per_s - demand.durable_per_s;
    let replicas = demand.durable_per_s * (demand.voters - 1.0);
    let crossing = demand.crossing_per_s(nodes);
    let batched = |cost: &Batched, per_s: f64| cost.at(per_s / nodes, slopes.rate);
    let (connect_us, connect) = if demand.tls {
        (slopes.connect_tls_us, "connect_tls_us")
    } else {
        (slopes.connect_us, "connect_us")
    };
    vec![
        us(
            "messages from publishers",
            demand.publishes_per_s,
            "publishes/s",
            slopes.publish_us.of(demand.quality),
            "publish_us",
        ),
        us(
            "messages to clean sessions",
            clean,
            "deliveries/s - durable/s",
            slopes.deliver_us.of(demand.quality),
            "deliver_us",
        ),
        us(
            "messages to persistent sessions",
            demand.durable_per_s,
            "durable/s",
            batched(&slopes.durable_us, demand.durable_per_s),
            "durable_us",
        ),
        us(
            "further replicas of these",
            replicas,
            "durable/s x (voters - 1)",
            batched(&slopes.replica_us, replicas),
            "replica_us",
        ),
        us(
            "messages between nodes",
            crossing,
            "publishes/s x other nodes with receivers",
            batched(&slopes.crossing_us, crossing),
            "crossing_us",
        ),
        us(
            "keep alive",
            demand.connections / demand.keep_alive_s.max(1.0),
            "connections / keep alive",
            slopes.ping_us,
            "ping_us",
        ),
        us(
            "connecting",
            demand.connects_per_s,
            "connects/s",
            connect_us,
            connect,
        ),
    ]
}

fn memory(demand: &Demand, slopes: &Slopes, nodes: f64) -> Vec<Term> {
    let bytes = |what, count, formula, each, slope| Term {
        resource: Resource::Memory,
        what,
        count,
        formula,
        each,
        slope,
    };
    let (connection, of_connection) = if demand.tls {
        (slopes.connection_tls_bytes, "connection_tls_bytes")
    } else {
        (slopes.connection_bytes, "connection_bytes")
    };
    vec![
        bytes(
            "connections, process",
            demand.connections,
            "connections",
            connection,
            of_connection,
        ),
        bytes(
            "connections, kernel",
            demand.connections,
            "connections",
            slopes.socket_bytes,
            "socket_bytes",
        ),
        bytes(
            "persistent sessions",
            demand.sessions * demand.voters,
            "sessions x voters",
            slopes.session_bytes,
            "session_bytes",
        ),
        bytes(
            "retained messages",
            demand.retained * demand.voters,
            "retained x voters",
            slopes.retained_bytes + demand.payload_bytes + demand.topic_bytes,
            "retained_bytes + payload + topic",
        ),
        bytes(
            "nodes themselves",
            nodes,
            "nodes",
            slopes.node_bytes,
            "node_bytes",
        ),
    ]
}

fn disk(demand: &Demand, slopes: &Slopes, nodes: f64) -> Vec<Term> {
    let bytes = |what, count, formula, each, slope| Term {
        resource: Resource::Disk,
        what,
        count,
        formula,
        each,
        slope,
    };
    vec![
        bytes(
            "persistent sessions",
            demand.sessions * demand.voters,
            "sessions x voters",
            slopes.session_disk_bytes,
            "session_disk_bytes",
        ),
        bytes(
            "messages that wait",
            demand.queued * demand.voters,
            "queued x voters",
            slopes.queued_disk_bytes + demand.payload_bytes,
            "queued_disk_bytes + payload",
        ),
        bytes(
            "retained messages",
            demand.retained * demand.voters,
            "retained x voters",
            slopes.queued_disk_bytes + demand.payload_bytes + demand.topic_bytes,
            "queued_disk_bytes + payload + topic",
        ),
        bytes(
            "logs",
            nodes,
            "nodes",
            slopes.node_disk_bytes,
            "node_disk_bytes",
        ),
        Term {
            resource: Resource::DiskWrites,
            what: "logs of durable messages",
            count: demand.durable_per_s * demand.voters,
            formula: "durable/s x voters",
            each: slopes.log_bytes + demand.payload_bytes,
            slope: "log_bytes + payload",
        },
    ]
}

fn network(demand: &Demand, nodes: f64) -> Vec<Term> {
    let message = SEGMENT + PUBLISH + demand.topic_bytes + demand.payload_bytes;
    let acks = match demand.quality {
        Quality::AtMostOnce => 0.0,
        Quality::AtLeastOnce => 1.0,
        Quality::ExactlyOnce => 3.0,
    };
    let replicas = demand.durable_per_s * (demand.voters - 1.0);
    let packets = "packet of payload + topic + 85";
    let term = |resource, what, count, formula, each, slope| Term {
        resource,
        what,
        count,
        formula,
        each,
        slope,
    };
    let mut terms = vec![
        term(
            Resource::NetworkIn,
            "messages from publishers",
            demand.publishes_per_s,
            "publishes/s",
            message,
            packets,
        ),
        term(
            Resource::NetworkIn,
            "acknowledgements of subscribers",
            demand.deliveries_per_s * acks,
            "deliveries/s x 0, 1 or 3",
            ACK,
            "packet of 82",
        ),
        term(
            Resource::NetworkOut,
            "messages to subscribers",
            demand.deliveries_per_s,
            "deliveries/s",
            message,
            packets,
        ),
        term(
            Resource::NetworkOut,
            "acknowledgements to publishers",
            demand.publishes_per_s * acks,
            "publishes/s x 0, 1 or 3",
            ACK,
            "packet of 82",
        ),
    ];
    for resource in [Resource::NetworkIn, Resource::NetworkOut] {
        terms.push(term(
            resource,
            FORWARDED,
            demand.crossing_per_s(nodes),
            "publishes/s x other nodes with receivers",
            message,
            packets,
        ));
        terms.push(term(
            resource,
            REPLICAS,
            replicas,
            "durable/s x (voters - 1)",
            message,
            packets,
        ));
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::tests::slopes;

    fn sums(demand: &Demand, nodes: f64) -> [f64; 6] {
        let needs = Needs::of(demand, &slopes(), nodes);
        [
            Resource::Cores,
            Resource::Memory,
            Resource::Disk,
            Resource::DiskWrites,
            Resource::NetworkIn,
            Resource::NetworkOut,
        ]
        .map(|resource| needs.sum(resource).round())
    }

    #[test]
    fn each_resource_is_the_sum_of_its_terms() {
        let idle = Demand {
            connections: 1_000.0,
            ..Demand::default()
        };
        assert_eq!(sums(&idle, 1.0), [0.0, 6_001_000.0, 500.0, 0.0, 0.0, 0.0]);
        let clean = Demand {
            publishes_per_s: 1_000_000.0,
            deliveries_per_s: 1_000_000.0,
            payload_bytes: 100.0,
            topic_bytes: 15.0,
            ..Demand::default()
        };
        // 10 us in and 20 us out; 200 bytes each way.
        assert_eq!(sums(&clean, 1.0), [30.0, 1_000.0, 500.0, 0.0, 2e8, 2e8]);
        // Three quarters of the messages cross between four nodes, 40 us each.
        assert_eq!(
            sums(&clean, 4.0),
            [60.0, 4_000.0, 2_000.0, 0.0, 3.5e8, 3.5e8]
        );
        let durable = Demand {
            durable_per_s: 1_000_000.0,
            quality: Quality::AtLeastOnce,
            voters: 3.0,
            ..clean
        };
        // 11 us in, 50 us durable, twice 60 us of replicas, 40 us for two of three.
        let cores = (11.0 + 50.0 + 120.0 + 40.0 * 2.0 / 3.0_f64).round();
        let sums = sums(&durable, 3.0);
        assert_eq!(sums[0], cores);
        assert_eq!(sums[3], 3e6 * 150.0);
    }

    #[test]
    fn terms_of_nothing_are_left_out() {
        let needs = Needs::of(&Demand::default(), &slopes(), 1.0);
        let what: Vec<&str> = needs.0.iter().map(|term| term.what).collect();
        assert_eq!(what, ["nodes themselves", "logs"]);
    }
}
