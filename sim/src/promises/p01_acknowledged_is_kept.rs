//! P1, P3: a message that was acknowledged is given to every session that had subscribed before it was published, and
//! one for a shared group to a member.

use mqtt_proto::QoS;

use crate::clients::{GROUP, SHARED};
use crate::history::{History, matches};

pub(crate) fn check(history: &History) -> Result<(), String> {
    for (number, message) in &history.published {
        if message.acknowledged.is_none() || message.is_for_own_node {
            continue;
        }
        let topic = &*message.topic;
        for client in history.subscribers(|filter| matches(filter, topic), message.begun) {
            let place = (client, *number);
            if !history.given.contains_key(&place) && !history.trimmed.contains_key(&place) {
                return Err(format!(
                    "message {number} is lost for client {client}: {message:?}"
                ));
            }
        }
        // One of QoS 2 that a member may have received goes to no other when the member's session ends [MQTT-4.8.2-5].
        if message.qos == QoS::ExactlyOnce {
            continue;
        }
        if history.trimmed.keys().any(|(_, of)| of == number) {
            continue;
        }
        let is_member = |filter: &str| filter == GROUP && matches(SHARED, topic);
        let mut members = history.subscribers(is_member, message.begun).peekable();
        if members.peek().is_some() && !history.given.keys().any(|(_, given)| given == number) {
            return Err(format!(
                "message {number} is lost for the shared group: {message:?}"
            ));
        }
    }
    Ok(())
}
