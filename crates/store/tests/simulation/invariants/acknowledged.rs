//! A message that was acknowledged is given to every session that had subscribed before it was published.

use crate::history::History;
use crate::routes::matches;

pub(super) fn check(history: &History) -> Result<(), String> {
    for (number, message) in &history.published {
        if message.acknowledged.is_none() {
            continue;
        }
        for (client, filters) in &history.subscribed {
            let subscribed = filters
                .iter()
                .any(|(filter, since)| *since <= message.begun && matches(filter, &message.topic));
            if subscribed && !history.given.contains_key(&(*client, *number)) {
                return Err(format!(
                    "message {number} is lost for client {client}: {message:?}"
                ));
            }
        }
    }
    Ok(())
}
