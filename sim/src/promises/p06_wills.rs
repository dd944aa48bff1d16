//! P6: a will is published if its connection ended without DISCONNECT, and not while it is open, or if it ended with
//! one. That it is published once is `p04_once.rs`.

use crate::history::{History, WillFate, matches};

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
