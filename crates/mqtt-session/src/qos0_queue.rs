//! QoS 0 deliveries that wait for transmission.
//!
//! Invariant: a drained queue keeps its memory for the next message until it is told to free it, so that a queue that is
//! in use allocates for growth only.

use std::collections::VecDeque;

use crate::Delivery;

/// A QoS 0 delivery that waits.
#[derive(Debug)]
pub(crate) struct WaitingQos0 {
    pub(crate) delivery: Delivery,
    /// How many QoS 1 and 2 deliveries go before it, counted as the session counts those that left its queue.
    pub(crate) behind: u32,
}

/// The queue, eight bytes while nothing was ever in it.
#[derive(Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "most sessions have none most of the time"
)]
pub(crate) struct Qos0Queue(Option<Box<VecDeque<WaitingQos0>>>);

impl Qos0Queue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|queue| queue.is_empty())
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.len())
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&WaitingQos0> {
        self.0.as_ref()?.front()
    }

    #[inline]
    pub(crate) fn push_back(&mut self, waiting: WaitingQos0) {
        self.0.get_or_insert_default().push_back(waiting);
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<WaitingQos0> {
        self.0.as_mut()?.pop_front()
    }

    /// Those that wait, oldest first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = WaitingQos0> {
        self.0.iter_mut().flat_map(|queue| queue.drain(..))
    }

    /// Takes those out that are not kept.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&Delivery) -> bool) {
        if let Some(queue) = &mut self.0 {
            queue.retain(|waiting| is_kept(&waiting.delivery));
        }
    }

    /// Takes those out that are of a kind.
    pub(crate) fn take(&mut self, is_taken: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let is_taken = |waiting: &WaitingQos0| is_taken(&waiting.delivery);
        let mut taken = Vec::new();
        if let Some(queue) = &mut self.0
            && queue.iter().any(is_taken)
        {
            let (theirs, ours): (Vec<_>, Vec<_>) = queue.drain(..).partition(is_taken);
            **queue = ours.into();
            taken.extend(theirs.into_iter().map(|waiting| waiting.delivery));
        }
        taken
    }

    /// Frees what a drained queue keeps.
    pub(crate) fn release(&mut self) {
        self.0.take_if(|queue| queue.is_empty());
    }

    /// Frees what a drained queue keeps, if it is more than `spare` entries.
    #[inline]
    pub(crate) fn shrink_drained(&mut self, spare: usize) {
        if let Some(queue) = &mut self.0
            && queue.is_empty()
            && queue.capacity() > spare
        {
            **queue = VecDeque::new();
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| {
            size_of::<VecDeque<WaitingQos0>>() + queue.capacity() * size_of::<WaitingQos0>()
        })
    }
}
