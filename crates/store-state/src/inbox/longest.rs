//! How long the longest queue of each class is, at most: what a limit that shrinks must leave alone.
//!
//! A batch says which limits hold for it. If these are lower than what a queue holds, one message that comes would have all
//! that is too much dropped for it. So whoever proposes a batch says a limit that no queue is beyond
//! ([`leave_alone`](super::leave_alone)): one message makes room for one.
//!
//! Replicas need not agree on it.
//!
//! Invariant: no queue of a class is longer than is known of its class. What is known sinks to what the last whole look at
//! all queues ([`QueuePass`](super::QueuePass)) has found, and what was queued meanwhile.

use mqtt_session::ClassId;

/// What a queue holds: messages and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Extent(pub(super) u32, pub(super) u64);

impl Extent {
    fn raise(&mut self, Self(messages, bytes): Self) {
        self.0 = self.0.max(messages);
        self.1 = self.1.max(bytes);
    }
}

/// Which look it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LookNumber(u64);

/// What is known of the queues of each class.
#[derive(Clone, Debug, Default)]
pub(super) struct Longest {
    /// There are few classes.
    classes: Vec<(ClassId, Known)>,
    look: LookNumber,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    most: Extent,
    /// Since the present look began.
    seen: Extent,
}

impl Longest {
    /// A queue holds so much.
    pub(super) fn handle_queue(&mut self, class: ClassId, holds: Extent) {
        let place = self.classes.iter().position(|(known, _)| *known == class);
        let place = place.unwrap_or_else(|| {
            self.classes.push((class, Known::default()));
            self.classes.len() - 1
        });
        let known = &mut self.classes[place].1;
        known.most.raise(holds);
        known.seen.raise(holds);
    }

    /// A look at all queues begins, each of which it will tell of.
    pub(super) fn handle_look(&mut self) -> LookNumber {
        for (_, known) in &mut self.classes {
            known.seen = Extent::default();
        }
        self.look.0 += 1;
        self.look
    }

    /// A look is over. It counts if no other one has begun since, and it has looked at the queues of this machine.
    pub(super) fn handle_looked(&mut self, look: LookNumber) {
        if look == self.look {
            for (_, known) in &mut self.classes {
                known.most = known.seen;
            }
            self.classes
                .retain(|(_, known)| known.most != Extent::default());
        }
    }

    /// What no queue of a class is beyond, by class.
    pub(super) fn of_classes(&self) -> impl Iterator<Item = (ClassId, Extent)> {
        self.classes
            .iter()
            .map(|(class, known)| (*class, known.most))
    }

    /// What the child of a split knows.
    pub(super) fn of_child(&self) -> Self {
        Self {
            classes: self.classes.clone(),
            look: LookNumber::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClassId = ClassId(1);

    fn holds(messages: u32) -> Extent {
        Extent(messages, u64::from(messages) * 10)
    }

    fn of(longest: &Longest, class: ClassId) -> u32 {
        let mut all = longest.of_classes();
        all.find(|(known, _)| *known == class)
            .map_or(0, |(_, most)| most.0)
    }

    #[test]
    fn it_sinks_when_all_queues_were_looked_at() {
        let mut longest = Longest::default();
        longest.handle_queue(ONE, holds(9));
        longest.handle_queue(ClassId::DEFAULT, holds(3));
        let look = longest.handle_look();
        longest.handle_queue(ONE, holds(4));
        assert_eq!(of(&longest, ONE), 9, "it is not over");
        longest.handle_queue(ONE, holds(5));
        longest.handle_looked(look);
        assert_eq!((of(&longest, ONE), of(&longest, ClassId::DEFAULT)), (5, 0));
    }

    #[test]
    fn a_look_at_another_machine_or_before_another_look_does_not_count() {
        let mut longest = Longest::default();
        longest.handle_queue(ONE, holds(9));
        let first = longest.handle_look();
        longest.handle_look();
        longest.handle_looked(first);
        assert_eq!(of(&longest, ONE), 9);
        let mut child = longest.of_child();
        child.handle_looked(first);
        assert_eq!(of(&child, ONE), 9);
    }
}
