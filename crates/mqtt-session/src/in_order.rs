//! Things that are done in any order and answered in the order in which they were asked for.

use std::collections::VecDeque;

/// What waits, oldest first, and whether it is done.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    waiting: VecDeque<(T, bool)>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
        }
    }
}

impl<T: Copy + PartialEq> InOrder<T> {
    pub(crate) fn push(&mut self, item: T) {
        self.waiting.push_back((item, false));
    }

    pub(crate) fn contains(&self, item: T) -> bool {
        self.waiting.iter().any(|(waiting, _)| *waiting == item)
    }

    /// `item` is done. One that does not wait changes nothing.
    pub(crate) fn complete(&mut self, item: T) {
        let found = self
            .waiting
            .iter_mut()
            .find(|(waiting, _)| *waiting == item);
        if let Some((_, done)) = found {
            *done = true;
        }
    }

    /// Takes the oldest if it is done.
    pub(crate) fn pop_done(&mut self) -> Option<T> {
        self.waiting
            .pop_front_if(|(_, done)| *done)
            .map(|(item, _)| item)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<(T, bool)>()
    }

    /// Frees what a drained queue keeps.
    pub(crate) fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_leave_in_the_order_of_the_questions() {
        let mut in_order = InOrder::default();
        in_order.push(3);
        in_order.push(1);
        in_order.complete(1);
        in_order.complete(2);
        assert_eq!(in_order.pop_done(), None);
        assert!(in_order.contains(1) && !in_order.contains(2));
        in_order.complete(3);
        assert_eq!(in_order.pop_done(), Some(3));
        assert_eq!(in_order.pop_done(), Some(1));
        assert_eq!(in_order.pop_done(), None);
    }
}
