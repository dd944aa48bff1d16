//! A message that was acknowledged is given to every session that had subscribed before it was published, and one for
//! a shared group to the member that was chosen.

use crate::history::History;
use crate::load::GROUP;
use crate::routes::matches;

pub(super) fn check(history: &History) -> Result<(), String> {
    for (number, message) in &history.published {
        if message.acknowledged.is_none() {
            continue;
        }
        let member = message.topic.strip_prefix(GROUP);
        let member: Option<usize> = member.and_then(|index| index.parse().ok());
        if let Some(member) = member
            && !history.given.contains_key(&(member, *number))
        {
            return Err(format!(
                "message {number} is lost for member {member}: {message:?}"
            ));
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
