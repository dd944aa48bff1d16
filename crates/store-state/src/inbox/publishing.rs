//! A publication while it is applied: who gets the message, and how far it is.
//!
//! A message can be for all sessions of a shard. It is queued for some of them in each part, so that heartbeats
//! and other shards have their turn in between.
//!
//! Invariants: the parts together do what one pass does. Whether a publication came before is looked up in its first
//! part and remembered in its last one; no other operation comes between the two, and no checkpoint begins there
//! ([`Machine::apply_part`](crate::Machine::apply_part)). So the body that queues refer to is made last, with all its
//! references: until then no queue writes a reference, lets go of one, or forgets the message itself.
//!
//! Deliberately absent: how a queue takes the message or drops it, which is in `publish`.

use std::sync::Arc;

use mqtt_session::ApplicationMessage;

use super::matching::Target;
use super::{Call, InboxOp, InboxReply, Origin, publisher_hash};

/// What one part of a publication does at most: a queue that gets the message counts, and each message that makes room
/// for it there. About a millisecond, if the tables need not be read. Tests have few sessions, and parts all the same.
///
/// Limit: queues that one part of a publication puts its message in, and older messages dropped to make room there |
/// {} together | the next part follows
pub(super) const AT_ONCE: usize = if cfg!(test) { 2 } else { 1_024 };

/// What an operation that publishes says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Publication<'a> {
    pub(super) message: &'a Arc<ApplicationMessage>,
    pub(super) publisher: Publisher,
    pub(super) once: Once<'a>,
}

/// Who publishes, for No Local.
#[derive(Clone, Copy, Debug)]
pub(super) struct Publisher(u64);

impl Publisher {
    pub(super) fn is(self, client: &str) -> bool {
        publisher_hash(client) == self.0
    }
}

/// By what a publication is known if it is asked for again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Once<'a> {
    /// It is not known.
    No,
    PublicationId(&'a Origin),
    /// The epoch of the connection, too: nothing is published of one that is over.
    Fenced(&'a Origin, u64),
    Call(&'a Call),
}

impl<'a> Publication<'a> {
    /// `None`: the operation does not publish.
    pub(super) fn of(op: &'a InboxOp) -> Option<Self> {
        let (message, publisher, once) = match op {
            InboxOp::Publish {
                message,
                publisher,
                origin,
            } => (
                message,
                publisher,
                origin.as_ref().map_or(Once::No, Once::PublicationId),
            ),
            InboxOp::PublishOnce {
                call,
                message,
                publisher,
            } => (message, publisher, Once::Call(call)),
            InboxOp::PublishFenced {
                message,
                publisher,
                origin,
                epoch,
            } => (message, publisher, Once::Fenced(origin, *epoch)),
            _ => return None,
        };
        Some(Self {
            message,
            publisher: Publisher(*publisher),
            once,
        })
    }
}

/// What became of a message for one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Queued,
    /// Queued, in a queue of an attached inbox that is three quarters full.
    Pressing,
    /// Dropped, because the queue of an attached inbox is full.
    Overflowed,
    Dropped,
    Refused,
}

/// What became of a message for all sessions of the shard.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) matched: u32,
    pub(super) refused: u32,
    pub(super) pressing: u32,
    pub(super) queued: u32,
    /// The inbox that queued it last.
    pub(super) last: u64,
}

impl Tally {
    pub(super) fn count(&mut self, inbox: u64, outcome: Outcome) {
        match outcome {
            Outcome::Queued | Outcome::Pressing => {
                self.queued += 1;
                self.pressing += u32::from(outcome == Outcome::Pressing);
                self.last = inbox;
            }
            Outcome::Refused => self.refused += 1,
            // Who holds its publisher back loses no more.
            Outcome::Overflowed => self.pressing += 1,
            Outcome::Dropped => {}
        }
    }

    pub(super) const fn reply(&self) -> InboxReply {
        InboxReply::Published {
            matched: self.matched,
            refused: self.refused,
            pressing: self.pressing,
        }
    }
}

/// A publication that was begun.
#[derive(Debug)]
pub(super) struct Publishing {
    targets: Arc<[Target]>,
    /// The first target that has yet to get the message.
    next: usize,
    pub(super) tally: Tally,
}

impl Publishing {
    pub(super) fn new(targets: Arc<[Target]>) -> Self {
        Self {
            targets,
            next: 0,
            tally: Tally::default(),
        }
    }

    /// More than one queue may refer to the message.
    pub(super) fn is_shared(&self) -> bool {
        self.targets.len() > 1
    }

    /// Gives the message to one target after the other, until all have it or a part is full. `give` says how many
    /// messages made room, beside what becomes of the message.
    ///
    /// # Errors
    /// That of `give`.
    pub(super) fn go_on<E>(
        &mut self,
        mut give: impl FnMut(&Target, &mut Tally) -> Result<usize, E>,
    ) -> Result<(), E> {
        let mut done = 0;
        for target in self.targets.iter().skip(self.next) {
            if done >= AT_ONCE {
                break;
            }
            done += 1 + give(target, &mut self.tally)?;
            self.next += 1;
        }
        Ok(())
    }

    /// All targets have the message.
    pub(super) fn is_done(&self) -> bool {
        self.next >= self.targets.len()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use mqtt_proto::SubscriptionOptions;
    use mqtt_session::Wanted;

    use super::*;

    fn publishing(sessions: u64) -> Publishing {
        let wanted = Wanted::new(SubscriptionOptions::default(), 0);
        let matching = (1..=sessions).map(|session| (session, wanted)).collect();
        Publishing::new(Target::merge(matching).into())
    }

    /// How many sessions get the message in each part, if so many messages make room in each queue.
    fn parts(sessions: u64, made_room: usize) -> Vec<usize> {
        let mut publishing = publishing(sessions);
        let (mut parts, mut given) = (Vec::new(), Vec::new());
        loop {
            let before = given.len();
            let Ok(()) = publishing.go_on(|target, _| {
                given.push(target.session);
                Ok::<_, Infallible>(made_room)
            });
            parts.push(given.len() - before);
            if publishing.is_done() {
                assert!(given.into_iter().eq(1..=sessions), "each once, in order");
                return parts;
            }
        }
    }

    #[test]
    fn a_part_is_full_after_so_many_queues() {
        assert_eq!(parts(0, 0), [0]);
        assert_eq!(parts(1, 0), [1]);
        assert_eq!(parts(AT_ONCE as u64, 0), [AT_ONCE]);
        assert_eq!(parts(AT_ONCE as u64 + 1, 0), [AT_ONCE, 1]);
    }

    #[test]
    fn what_makes_room_counts() {
        assert_eq!(parts(AT_ONCE as u64, 1), [AT_ONCE / 2, AT_ONCE / 2]);
        assert_eq!(parts(3, AT_ONCE), [1, 1, 1]);
    }
}
