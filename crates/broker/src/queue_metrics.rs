//! `/metrics`: what waits for the sessions of each class of clients, and which sessions lag behind.
//!
//! Sessions are named only if they are of a class that the configuration has: an operator has chosen these. Devices choose their
//! identifiers themselves, and would make as many series as they like.

use mqtt_session::{ClassId, Timestamp};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use store::{ClassQueues, LargeQueue, class_queues};

use crate::node::Node;

/// Sessions that are named at most.
const NAMED: usize = 10;

/// What a series says of a class.
type OfClass = fn(&ClassQueues, Timestamp) -> Option<f64>;

/// What a series says of a session.
type OfQueue = fn(&LargeQueue, Timestamp) -> Option<f64>;

fn age_s(oldest: Option<Timestamp>, now: Timestamp) -> Option<f64> {
    oldest.map(|oldest| now.0.saturating_sub(oldest.0) as f64 / 1_000.0)
}

/// Of the shards that the node leads.
pub(crate) fn encode_queues(encoder: &mut DescriptorEncoder<'_>, node: &Node) -> std::fmt::Result {
    let store = node.opened_store();
    let held = store.map_or_else(Vec::new, class_queues);
    let settings = node.settings.read();
    let now = Timestamp(node.cluster_now_ms());
    let nothing = ClassQueues::default();
    let of = |id| held.iter().find(|class| class.class == id);
    let configured = settings.classes.iter();
    let named = configured.map(|class| (&*class.name, of(class.id).unwrap_or(&nothing)));
    let named: Vec<(&str, &ClassQueues)> = named.collect();
    let is_known = |class: &&ClassQueues| settings.class(class.class).is_some();
    let devices: Vec<_> = held.iter().filter(|class| !is_known(class)).collect();
    let classes: [(&str, &str, Option<&Unit>, OfClass); 4] = [
        (
            "class_waiting_sessions",
            "Sessions for which messages wait in the shards that this node leads, by class of clients",
            None,
            |class, _| Some(class.sessions.0 as f64),
        ),
        (
            "class_waiting_messages",
            "Messages that wait for these sessions, by class of clients",
            None,
            |class, _| Some(class.messages.0 as f64),
        ),
        (
            "class_waiting",
            "Size of the messages that wait for a class of clients, as limits.session.queueBytes counts it",
            Some(&Unit::Bytes),
            |class, _| Some(class.bytes.0 as f64),
        ),
        (
            "class_oldest_age",
            "For how long the oldest message of a class has waited, to a tenth, by class of clients; none while nothing waits",
            Some(&Unit::Seconds),
            |class, now| age_s(class.oldest, now),
        ),
    ];
    for (name, help, unit, pick) in classes {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        let device = devices.iter().filter_map(|class| pick(class, now));
        let device = match name {
            "class_oldest_age" => device.reduce(f64::max),
            _ => Some(device.sum()),
        };
        let of_classes = named.iter().map(|(name, class)| (*name, pick(class, now)));
        for (class, value) in of_classes.chain([(config::DEFAULT_CLASS, device)]) {
            if let Some(value) = value {
                ConstGauge::new(value).encode(family.encode_family(&[("class", class)])?)?;
            }
        }
    }
    let help = "Whether nothing is queued for clients of a class that are away, because the disk has less space left than limits.session.queueDiskFree, by class of clients; 0 or 1";
    let mut family = encoder.encode_descriptor("class_closed", help, None, MetricType::Gauge)?;
    let closed = node.rim.disk.closed();
    let of_classes = settings
        .classes
        .iter()
        .map(|class| (&*class.name, class.id));
    for (name, class) in of_classes.chain([(config::DEFAULT_CLASS, ClassId::DEFAULT)]) {
        let is_closed = ConstGauge::new(u64::from(closed.contains(&class)));
        is_closed.encode(family.encode_family(&[("class", name)])?)?;
    }
    let help = "Space left on the disk of the data folder";
    let family =
        encoder.encode_descriptor("disk_free", help, Some(&Unit::Bytes), MetricType::Gauge)?;
    if let Some(free) = node.rim.disk.free_bytes() {
        ConstGauge::new(free).encode(family)?;
    }
    let queues = named
        .iter()
        .flat_map(|(name, class)| class.largest.iter().map(move |queue| (*name, queue)));
    let mut queues: Vec<(&str, &LargeQueue)> = queues.collect();
    queues.sort_by_key(|(_, queue)| std::cmp::Reverse(queue.bytes));
    queues.truncate(NAMED);
    let sessions: [(&str, &str, Option<&Unit>, OfQueue); 5] = [
        (
            "session_waiting_messages",
            "Messages that wait for a session, by class and client identifier; of the 10 sessions of configured classes for which most bytes wait",
            None,
            |queue, _| Some(queue.messages.0 as f64),
        ),
        (
            "session_waiting",
            "Size of the messages that wait for a session, as limits.session.queueBytes counts it, by class and client identifier",
            Some(&Unit::Bytes),
            |queue, _| Some(queue.bytes.0 as f64),
        ),
        (
            "session_oldest_age",
            "For how long the oldest message of a session has waited, to a tenth, by class and client identifier",
            Some(&Unit::Seconds),
            |queue, now| age_s(queue.oldest, now),
        ),
        (
            "session_queued_per_second",
            "Messages per second that come into the queue of a session, by class and client identifier",
            None,
            |queue, _| Some(queue.rates?.in_per_s),
        ),
        (
            "session_taken_per_second",
            "Messages per second that leave the queue of a session, dropped ones included, by class and client identifier",
            None,
            |queue, _| Some(queue.rates?.out_per_s),
        ),
    ];
    for (name, help, unit, pick) in sessions {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (class, queue) in &queues {
            if let Some(value) = pick(queue, now) {
                let labels = [("class", *class), ("client", &*queue.client_id)];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}
