//! P4: a message of QoS 2 is given to each session once, to one member of a shared group, and a will once.

use std::collections::BTreeMap;

use mqtt_proto::QoS;

use crate::clients::SHARED;
use crate::history::{History, Published, matches};

pub(super) fn check(history: &History) -> Result<(), String> {
    let mut members: BTreeMap<u64, u32> = BTreeMap::new();
    for ((client, number), given) in &history.given {
        let published = history.published.get(number);
        // Without a session, what is sent on a further connection is another message.
        let may_repeat =
            |m: &Published| m.qos != QoS::ExactlyOnce || !m.is_of_session && m.is_sent_again;
        if published.is_some_and(may_repeat) {
            continue;
        }
        if given.times > 1 {
            return Err(format!(
                "message {number} was given {} times to client {client}: {published:?}",
                given.times
            ));
        }
        // Sent again at another node, one may reach a second member (docs/decisions/0015-late-publications.md).
        if published.is_some_and(|m| matches(SHARED, &m.topic) && !m.is_sent_again) {
            let times = members.entry(*number).or_default();
            *times += given.times;
            if *times > 1 {
                return Err(format!(
                    "message {number} was given to two members of a shared group: {published:?}"
                ));
            }
        }
    }
    Ok(())
}
