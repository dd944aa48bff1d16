//! P4: what a client publishes to a topic is given to each session in the order in which it was published: the first
//! copy of each message. Messages of QoS 0 have an order within one connection of their publisher: what an earlier one sent
//! last may still be on its way to the session's node, from another one.

use std::collections::BTreeMap;

use mqtt_proto::QoS;

use crate::clients::SHARED;
use crate::history::{ConnectionNumber, History, matches};

/// The session, the publisher, the topic, the QoS, and of QoS 0 the publisher's connection.
type Stream<'a> = (usize, usize, &'a str, QoS, Option<ConnectionNumber>);

pub(super) fn check(history: &History) -> Result<(), String> {
    let mut last: BTreeMap<Stream<'_>, (u64, u64)> = BTreeMap::new();
    // Numbers ascend in the order of publication.
    for ((client, number), given) in &history.given {
        let Some(message) = history.published.get(number) else {
            continue;
        };
        let Some(publisher) = message.publisher else {
            continue;
        };
        // What a member did not get in time goes to another one; without a session nothing is known of what came before.
        let is_unconfirmed = message.qos == QoS::AtMostOnce;
        if matches(SHARED, &message.topic) || !message.is_of_session && !is_unconfirmed {
            continue;
        }
        // One that came before the client had subscribed may come again behind others.
        let mut subscribers = history.subscribers(|f| matches(f, &message.topic), message.begun);
        if !subscribers.any(|subscriber| subscriber == *client) {
            continue;
        }
        let connection = message.connection.filter(|_| is_unconfirmed);
        let stream = (*client, publisher, &*message.topic, message.qos, connection);
        if let Some((before, place)) = last.insert(stream, (*number, given.place))
            && place > given.place
        {
            return Err(format!(
                "client {client} was given {number} of {publisher} before {before}: {message:?}"
            ));
        }
    }
    Ok(())
}
