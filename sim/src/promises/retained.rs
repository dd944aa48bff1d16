//! What is retained at the end is what was published last: no message that was acknowledged before another one began
//! that was acknowledged, too. The same holds for who asks for retained messages while things go wrong, as of the moment when
//! he asks.

use crate::history::{History, Published};

pub(super) fn check(history: &History) -> Result<(), String> {
    let Some(found) = &history.retained else {
        return Err("nobody has looked at what is retained".to_owned());
    };
    let retained = |message: &Published| message.topic.starts_with("r/");
    let kept: Vec<(&u64, &Published)> = history
        .published
        .iter()
        .filter(|(_, message)| retained(message) && message.acknowledged.is_some())
        .collect();
    for (number, message) in &kept {
        let Some(found) = found.get(&message.topic) else {
            return Err(format!(
                "nothing is retained where {number} was: {message:?}"
            ));
        };
        let Some(found_message) = history.published.get(found) else {
            return Err(format!("{found} is retained, and nobody published it"));
        };
        let end = found_message.acknowledged;
        if end.is_some_and(|end| end < message.begun) {
            return Err(format!(
                "{found} is retained, and {number} came later: {message:?}"
            ));
        }
    }
    Ok(())
}

/// What a client was given that asked meanwhile.
pub(super) fn check_looks(history: &History) -> Result<(), String> {
    for look in &history.looks {
        let Some(given) = history.published.get(&look.number) else {
            return Err(format!("{look:?}, and nobody published it"));
        };
        // A copy that is sent again may be kept later than it is acknowledged.
        let Some(end) = given.acknowledged.filter(|_| !given.is_sent_again) else {
            continue;
        };
        let newer = history.published.range(look.number..).find(|(_, message)| {
            let is_acknowledged = message.acknowledged.is_some_and(|at| at < look.asked);
            message.topic == look.topic && end < message.begun && is_acknowledged
        });
        if let Some((newer, message)) = newer {
            return Err(format!(
                "a client was given a retained message that {newer} had replaced before: {look:?}, {message:?}"
            ));
        }
    }
    Ok(())
}
