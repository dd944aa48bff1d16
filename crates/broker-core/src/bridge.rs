//! Notifications of Mosquitto's bridges: a bridge publishes whether its connection is up, on a topic of the broker's own,
//! and leaves a will there that says that it is down.
//!
//! Invariant: such a message is dropped and counted, and its client is served: bridges notify unless told otherwise.
//! Deliberately absent: a state of bridges on these topics. The broker's log and metrics say who is connected.

use mqtt_proto::{Connect, LastWill};

/// What the topics of notifications begin with; the name of the bridge's connection follows, of one level or more.
const BEFORE_NAME: &[u8] = b"$SYS/broker/connection/";

/// What they end with.
const BEHIND_NAME: &[u8] = b"/state";

/// Whether a topic name is that of a bridge's notifications: `$SYS/broker/connection/NAME/state`.
pub(crate) fn is_notification(topic: &[u8]) -> bool {
    topic
        .strip_prefix(BEFORE_NAME)
        .and_then(|rest| rest.strip_suffix(BEHIND_NAME))
        .is_some_and(|name| !name.is_empty())
}

/// A CONNECT without its will, if that is a notification; and the will that was taken out.
pub(crate) fn take_notification<'a>(connect: &Connect<'a>) -> (Connect<'a>, Option<LastWill<'a>>) {
    let mut connect = *connect;
    let taken = connect
        .will
        .take_if(|will| is_notification(will.topic.as_bytes()));
    (connect, taken)
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{ConnectProperties, ProtocolVersion, QoS, WillProperties};

    use super::*;

    #[test]
    fn notifications_have_a_name_between_two_fixed_parts() {
        for topic in [
            "$SYS/broker/connection/edge/state",
            "$SYS/broker/connection/edge.centre/state",
            "$SYS/broker/connection/site/1/state",
            "$SYS/broker/connection/state/state",
        ] {
            assert!(is_notification(topic.as_bytes()), "{topic}");
        }
        for topic in [
            "$SYS/broker/connection/state",
            "$SYS/broker/connection//state",
            "$SYS/broker/connection/edge",
            "$SYS/broker/connection/edge/status",
            "$SYS/broker/connection/edge/state/",
            "$SYS/broker/connections/edge/state",
            "a/$SYS/broker/connection/edge/state",
            "$SYS/broker/uptime",
            "$SYS",
            "",
        ] {
            assert!(!is_notification(topic.as_bytes()), "{topic}");
        }
    }

    #[test]
    fn only_a_will_that_is_a_notification_is_taken_out() {
        let check = |topic, is_taken: bool| {
            let will = LastWill {
                topic,
                payload: b"0",
                qos: QoS::AtLeastOnce,
                retain: true,
                properties: WillProperties::default(),
            };
            let connect = Connect {
                version: ProtocolVersion::V3_1_1,
                is_bridge: true,
                clean_start: true,
                keep_alive: 60,
                client_id: "edge.centre",
                will: Some(will),
                username: None,
                password: None,
                properties: ConnectProperties::default(),
            };
            let (kept, taken) = take_notification(&connect);
            assert_eq!(kept.will, (!is_taken).then_some(will), "{topic}");
            assert_eq!(taken, is_taken.then_some(will), "{topic}");
        };
        check("$SYS/broker/connection/edge.centre/state", true);
        check("$SYS/broker/uptime", false);
        check("edge/state", false);
    }
}
