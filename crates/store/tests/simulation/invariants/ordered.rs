//! What a client publishes to a topic is queued for each session in the order in which it was published: the first copy
//! of each message.

use std::collections::BTreeMap;

use crate::history::History;

pub(super) fn check(history: &History) -> Result<(), String> {
    let mut last: BTreeMap<(usize, usize, &str, bool), (u64, u64)> = BTreeMap::new();
    // Numbers ascend in the order of publication.
    for ((client, number), sequences) in &history.given {
        let Some(message) = history.published.get(number) else {
            continue;
        };
        let (Some(publisher), Some(first)) = (message.publisher, sequences.first()) else {
            continue;
        };
        let stream = (*client, publisher, &*message.topic, message.once);
        if let Some((before, sequence)) = last.insert(stream, (*number, *first))
            && sequence > *first
        {
            return Err(format!(
                "client {client} has {before} of {publisher} under {sequence}, and {number} under {first}"
            ));
        }
    }
    Ok(())
}
