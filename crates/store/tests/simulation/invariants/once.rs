//! What has an origin, of QoS 2 or a will, is queued once for each session, and for one member of a shared group.
//!
//! A will may be queued as often as it is fired: each node that leads its client's shard fires it until it is
//! recorded, and the origin is released then, though another node may still have it on its way.

use crate::history::History;
use crate::load::GROUP;

pub(super) fn check(history: &History) -> Result<(), String> {
    for ((client, number), sequences) in &history.given {
        let published = history.published.get(number);
        let member = published.and_then(|message| message.topic.strip_prefix(GROUP));
        if member.is_some_and(|member| member != client.to_string()) {
            return Err(format!("client {client} has {number}, of another member"));
        }
        let has_origin = published.is_none_or(|message| message.once);
        let times = history.fired.get(number).map_or(1, Vec::len);
        if has_origin && sequences.len() > times {
            return Err(format!(
                "message {number} was queued twice for client {client}: {sequences:?}"
            ));
        }
    }
    Ok(())
}
