//! Whether a node that may found a cluster does so, by what all addresses have answered that it knows of others. No I/O.
//!
//! A node with an empty data folder cannot know by itself whether there is a cluster already: it may have lost its folder.
//! So it founds one only if each address that it is given has proven to be a node without a cluster, or is this node's own.
//! An address that is silent, refuses, or has no node yet may be a member that is down: it is waited for. The exception are nodes on one
//! machine, for trying: at a loopback address that refuses connections there is nobody.
//!
//! Of several nodes that may found one, and know each other, the one with the lowest address does.
//!
//! Where no other node is known by address, members of an existing cluster may know this one's: a node that has lost its folder
//! is dialled by them within a second. It listens for so long.

use std::time::Duration;

use crate::members::list::Place;

/// A node that belongs to no cluster yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) place: Place,
    /// It may found a cluster.
    pub(crate) founds: bool,
}

/// What an address has answered that has not let this node in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It is this node.
    Itself,
    /// It has proven to belong to no cluster either.
    Waits(Waiting),
    /// It is a loopback address, and no process listens there.
    Nobody,
    /// There may be a member of a cluster: why it has let nobody in.
    Unknown(String),
}

/// Why no cluster is founded now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// The node may found none.
    NotAllowed,
    /// These addresses have not answered.
    Unknown(Vec<String>),
    /// This one founds it.
    Other(Waiting),
    /// Members of a cluster may still dial this node.
    Listens,
}

/// Judges one round of answers. `listened`: since when members could dial this node, of `found_after`.
pub(crate) fn judge(
    own: &Waiting,
    answers: &[Answer],
    listened: Duration,
    found_after: Duration,
) -> Result<(), Hold> {
    if !own.founds {
        return Err(Hold::NotAllowed);
    }
    let unknown = answers.iter().filter_map(|answer| match answer {
        Answer::Unknown(why) => Some(why.clone()),
        Answer::Itself | Answer::Nobody | Answer::Waits(_) => None,
    });
    let unknown: Vec<String> = unknown.collect();
    if !unknown.is_empty() {
        return Err(Hold::Unknown(unknown));
    }
    let others = || {
        answers.iter().filter_map(|answer| match answer {
            Answer::Waits(other) => Some(other),
            Answer::Itself | Answer::Nobody | Answer::Unknown(_) => None,
        })
    };
    let place = |waiting: &Waiting| (waiting.place.address.clone(), waiting.place.node);
    let founders = others().filter(|other| other.founds);
    let first = founders.min_by_key(|other| place(other));
    if let Some(first) = first.filter(|first| place(first) < place(own)) {
        return Err(Hold::Other(first.clone()));
    }
    let is_sure = others().next().is_some() && !answers.contains(&Answer::Nobody);
    if !is_sure && listened < found_after {
        return Err(Hold::Listens);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Duration = Duration::from_secs(2);

    fn waiting(node: u64, founds: bool) -> Waiting {
        Waiting {
            place: Place {
                node,
                incarnation: 1,
                address: format!("mq-{node}:8899"),
            },
            founds,
        }
    }

    fn judged(own: &Waiting, answers: &[Answer]) -> Result<(), Hold> {
        judge(own, answers, Duration::ZERO, LATE)
    }

    #[test]
    fn a_cluster_is_founded_when_all_others_wait() {
        let own = waiting(1, true);
        let waits = |node| Answer::Waits(waiting(node, false));
        let answers = [Answer::Itself, waits(2), waits(3)];
        assert_eq!(judged(&own, &answers), Ok(()));
        assert_eq!(judged(&waiting(1, false), &answers), Err(Hold::NotAllowed));
    }

    #[test]
    fn an_address_that_has_not_answered_may_be_a_member() {
        let silent = "mq-3:8899: it does not answer in time".to_owned();
        let waits = Answer::Waits(waiting(2, false));
        let answers = [Answer::Itself, waits, Answer::Unknown(silent.clone())];
        let held = judge(&waiting(1, true), &answers, LATE, LATE);
        assert_eq!(held, Err(Hold::Unknown(vec![silent])));
    }

    #[test]
    fn one_of_all_that_may_founds_the_cluster() {
        let all: Vec<Waiting> = (1..=3).map(|node| waiting(node, true)).collect();
        let founders = all.iter().filter(|own| {
            let answers = all.iter().map(|other| match other == *own {
                true => Answer::Itself,
                false => Answer::Waits(other.clone()),
            });
            judged(own, &answers.collect::<Vec<_>>()).is_ok()
        });
        assert_eq!(founders.collect::<Vec<_>>(), [&all[0]]);
    }

    #[test]
    fn who_knows_nobody_listens_first() {
        let own = waiting(1, true);
        let waits = Answer::Waits(waiting(2, false));
        for answers in [
            &[][..],
            &[Answer::Itself],
            &[Answer::Itself, Answer::Nobody],
            &[Answer::Nobody, waits],
        ] {
            assert_eq!(judged(&own, answers), Err(Hold::Listens));
            assert_eq!(judge(&own, answers, LATE, LATE), Ok(()));
        }
    }
}
