//! The clusters that a message has passed, so that it goes in no circle of brokers.
//!
//! The User Property [`PATH`] has elements separated by commas: the name of each cluster whose outlet has sent the message on, and
//! for each inlet that has brought it in a mark of the cluster and the broker that it came from. By the mark, an outlet of this
//! cluster to the same broker does not send the message back, also where that broker keeps no User Properties.

use aws_lc_rs::digest::{SHA256, digest};

/// The User Property.
pub const PATH: &str = "hmq-path";

/// A message that has passed so many clusters goes no further, nor one with so many marks.
const LONGEST_PATH: usize = 8;

/// Before a mark: no name of a cluster begins with it.
const MARK: char = '~';

/// The mark of the messages that an inlet of a cluster has brought in. `address`: host and port of the broker that they came from.
#[must_use]
pub fn mark(cluster: &str, address: &str) -> String {
    let text = format!("{cluster} {}", address.to_ascii_lowercase());
    let digest = digest(&SHA256, text.as_bytes());
    let first = digest.as_ref().iter().take(6);
    let digits = first.map(|byte| format!("{byte:02x}"));
    std::iter::once(MARK.to_string()).chain(digits).collect()
}

/// The path of a message with `added` behind it: the name of this cluster, if an outlet sends the message on, or the mark of an
/// inlet. `None`: the message has been in this cluster before, has come from the broker of this mark, or has passed as many as it may.
#[must_use]
pub fn extended<'a>(
    mut properties: impl Iterator<Item = (&'a str, &'a str)>,
    cluster: &str,
    mark: &str,
    added: &str,
) -> Option<String> {
    let passed = properties.find(|(name, _)| *name == PATH);
    let passed = passed.map_or("", |(_, value)| value);
    let elements = || passed.split(',').filter(|one| !one.is_empty());
    let marks = elements().filter(|one| one.starts_with(MARK)).count();
    let clusters = elements().count() - marks;
    let is_circle = elements().any(|one| one == cluster || one == mark);
    if is_circle || clusters >= LONGEST_PATH || marks >= LONGEST_PATH {
        return None;
    }
    let all: Vec<&str> = elements().chain([added]).collect();
    Some(all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(passed: &str, mark: &str, added: &str) -> Option<String> {
        let pairs = [("unit", "K"), (PATH, passed), (PATH, "me")];
        extended(pairs.into_iter(), "me", mark, added)
    }

    #[test]
    fn a_message_passes_a_cluster_once_and_eight_at_most() {
        let sent_on = |passed| of(passed, "~there", "me");
        assert_eq!(sent_on("").as_deref(), Some("me"));
        assert_eq!(sent_on("x,you").as_deref(), Some("x,you,me"));
        assert_eq!(sent_on("x,me,you"), None);
        assert_eq!(
            sent_on("1,2,3,4,5,6,7").as_deref(),
            Some("1,2,3,4,5,6,7,me")
        );
        assert_eq!(sent_on("1,2,3,4,5,6,7,8"), None);
        assert_eq!(extended([].into_iter(), "me", "~a", "me").unwrap(), "me");
    }

    #[test]
    fn a_message_does_not_go_back_to_the_broker_that_it_came_from() {
        let (there, elsewhere) = (mark("me", "site:1883"), mark("me", "other:1883"));
        let came = of("x", &there, &there).unwrap();
        assert_eq!(came, format!("x,{there}"));
        assert_eq!(of(&came, &there, "me"), None);
        let on = of(&came, &elsewhere, "me");
        assert_eq!(on, Some(format!("x,{there},me")));
        // The same inlet again: the other broker has an inlet, too.
        assert_eq!(of(&came, &there, &there), None);
    }

    #[test]
    fn marks_are_not_clusters_and_are_bounded_too() {
        let passed = "1,2,3,4,5,6,7,~a,~b";
        assert_eq!(of(passed, "~c", "me").unwrap(), format!("{passed},me"));
        assert_eq!(of("~1,~2,~3,~4,~5,~6,~7,~8", "~c", "~c"), None);
    }

    #[test]
    fn a_mark_tells_clusters_and_brokers_apart() {
        let one = mark("me", "Site:1883");
        assert_eq!(one.len(), 13);
        assert_eq!(one, mark("me", "site:1883"));
        assert_ne!(one, mark("me", "site:1884"));
        assert_ne!(one, mark("you", "site:1883"));
    }
}
