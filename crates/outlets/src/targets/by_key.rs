//! Which messages of a batch may be sent at the same time: those of one key go one after the other, in their order.

use std::collections::{HashMap, VecDeque};

/// The messages of a batch that are not finished.
#[derive(Debug)]
pub(super) struct ByKey {
    /// Of each message the next one with its key.
    next: Vec<Option<usize>>,
    /// Messages that may be sent.
    ready: VecDeque<usize>,
}

impl ByKey {
    /// `keys`: of the messages, by their places in the batch.
    pub(super) fn new(keys: impl IntoIterator<Item = String>) -> Self {
        let (mut next, mut ready) = (Vec::new(), VecDeque::new());
        let mut last: HashMap<String, usize> = HashMap::new();
        for (place, key) in keys.into_iter().enumerate() {
            next.push(None);
            match last.insert(key, place) {
                Some(before) => next[before] = Some(place),
                None => ready.push_back(place),
            }
        }
        Self { next, ready }
    }

    /// The place of a message that may be sent now; each is given once.
    pub(super) fn poll(&mut self) -> Option<usize> {
        self.ready.pop_front()
    }

    /// A message is finished, so that the next one of its key may be sent.
    pub(super) fn handle_finished(&mut self, place: usize) {
        self.ready.extend(self.next[place]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_key_go_one_after_the_other() {
        let mut order = ByKey::new(["a", "b", "a", "a", "c"].map(str::to_owned));
        let ready =
            |order: &mut ByKey| -> Vec<usize> { std::iter::from_fn(|| order.poll()).collect() };
        assert_eq!(ready(&mut order), [0, 1, 4]);
        order.handle_finished(1);
        order.handle_finished(0);
        assert_eq!(ready(&mut order), [2]);
        order.handle_finished(4);
        assert!(ready(&mut order).is_empty());
        order.handle_finished(2);
        assert_eq!(ready(&mut order), [3]);
        order.handle_finished(3);
        assert!(ready(&mut order).is_empty());
    }
}
