//! P6: a will is published if its connection ended without DISCONNECT, and not while it is open, or if it ended with
//! one. It comes before what its client sends by a later connection, or not at all. That it is published once is
//! `p04_once.rs`.

use std::collections::BTreeMap;

use crate::history::{ConnectionNumber, History, WillFate, matches};

pub(super) fn check(history: &History) -> Result<(), String> {
    for (number, will) in &history.wills {
        let mut given = history.given.keys().filter(|(_, given)| given == number);
        let topic = &*will.topic;
        match will.fate {
            WillFate::Connected | WillFate::Discarded => {
                if let Some((client, _)) = given.next() {
                    return Err(format!(
                        "will {number} was given to client {client}: {will:?}"
                    ));
                }
            }
            WillFate::Due => {
                for client in history.subscribers(|filter| matches(filter, topic), will.begun) {
                    if !history.given.contains_key(&(client, *number)) {
                        return Err(format!(
                            "will {number} is lost for client {client}: {will:?}"
                        ));
                    }
                }
            }
            WillFate::Unknown => {}
        }
    }
    Ok(())
}

/// The connection that it was sent by, its number, and its place among what its receiver was given.
type Presence = (ConnectionNumber, u64, u64);

/// No will comes after what a later connection of its client has sent.
pub(super) fn check_order(history: &History) -> Result<(), String> {
    // By receiver and topic: the presences that it was given, by their connections.
    let mut presences: BTreeMap<(usize, &str), Vec<Presence>> = BTreeMap::new();
    for ((client, number), given) in &history.given {
        if let Some(connection) = history.presences.get(number)
            && let Some(message) = history.published.get(number)
        {
            let of_topic = presences.entry((*client, &message.topic)).or_default();
            of_topic.push((*connection, *number, given.place));
        }
    }
    let wills = history.given.iter();
    let wills = wills.filter_map(|(of, given)| Some((of, given, history.wills.get(&of.1)?)));
    for ((client, number), given, will) in wills {
        let of_topic = presences.get(&(*client, &*will.topic));
        let mut later = of_topic.into_iter().flatten();
        let is_before = |(connection, _, place): &&Presence| {
            *connection > will.connection && *place < given.place
        };
        if let Some((_, presence, _)) = later.find(is_before) {
            return Err(format!(
                "client {client} was given will {number} after {presence} of a later connection: {will:?}"
            ));
        }
    }
    Ok(())
}
