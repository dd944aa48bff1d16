//! P4: a message of QoS 2 is given to each session once, to one member of a shared group, and a will once.
//!
//! A message for a shared group that its publisher has sent again at another node may have reached two members
//! (docs/decisions/0015-late-publications.md). When the session of one ends, its copy may go to the one that has the other.

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
        // What a session that ends leaves may go to a member that has a copy by another node (decision 15).
        let has_copies =
            |m: &Published| m.is_of_session && m.is_sent_again && matches(SHARED, &m.topic);
        let most = if published.is_some_and(has_copies) {
            1 + history.ended_members
        } else {
            1
        };
        if given.times as usize > most {
            return Err(format!(
                "message {number} was given {} times to client {client}: {published:?}",
                given.times
            ));
        }
        // Sent again at another node, one may reach a second member.
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

/// P4: a message of QoS 0 is given to a session once, if nothing has gone wrong since a time before it was published. While shards
/// have no leader, or nodes do not reach each other, it may come by both of its ways
/// (docs/decisions/0031-qos0-of-durable-sessions.md).
pub(crate) fn check_unconfirmed(history: &mut History, of: (usize, u64), settled_since: u64) {
    let (client, number) = of;
    let is_judged = history
        .published
        .get(&number)
        .is_some_and(|message| message.qos == QoS::AtMostOnce && settled_since <= message.begun);
    let times = history.given.get(&of).map_or(0, |given| given.times);
    if is_judged && times > 1 {
        history.wrong(format!(
            "client {client} was given {number} of QoS 0 {times} times (P4)"
        ));
    }
}
