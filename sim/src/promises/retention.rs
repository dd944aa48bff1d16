//! A queue lets go of a message for its age only when it is that old (P7: every drop has a reason, and the reason is true).

use mqtt_session::DropReason;

use crate::history::History;
use crate::settings::KEPT_MS;

/// How far clocks of nodes are apart, and how long it takes until a node hears of a drop, in ms.
const SLACK_MS: u64 = 600;

pub(super) fn check(history: &History) -> Result<(), String> {
    for (&(client, number), &(at, reason)) in &history.trimmed {
        let message = history.published.get(&number);
        let age = message.map(|message| at.saturating_sub(message.begun));
        let is_old = age.is_none_or(|age| age + SLACK_MS >= KEPT_MS);
        if reason == DropReason::RetentionAge && !is_old {
            return Err(format!(
                "message {number} was dropped for client {client} by its age, which is {age:?} ms: {message:?}"
            ));
        }
    }
    Ok(())
}
