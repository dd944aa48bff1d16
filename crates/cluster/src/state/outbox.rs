//! What waits to be sent on one connection, filled by any thread and emptied by the link.
//!
//! Invariant: with no connection nothing waits; at most [`Channel::queue_limit`] bytes do.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::protocol::channel::Channel;
use crate::protocol::frame::Frame;

/// Bytes that are written at once. A longer frame is written alone.
pub(crate) const BATCH: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    /// Something waits where nothing did, or too much does.
    changed: Notify,
    limit: usize,
}

#[derive(Debug, Default)]
struct Queue {
    state: State,
    frames: VecDeque<Frame>,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    #[default]
    Closed,
    Open,
    /// More was given than may wait. The link has to close.
    Overflown,
}

/// More was given than may wait; all of it is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

impl Outbox {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            queue: Mutex::default(),
            changed: Notify::new(),
            limit: channel.queue_limit(),
        }
    }

    /// The connection is up.
    pub(crate) fn open(&self) {
        *self.queue.lock() = Queue {
            state: State::Open,
            ..Queue::default()
        };
    }

    /// The connection is lost, and with it what waits. Whether there was one.
    pub(crate) fn close(&self) -> bool {
        let closed = std::mem::take(&mut *self.queue.lock());
        closed.state != State::Closed
    }

    pub(crate) fn is_open(&self) -> bool {
        self.queue.lock().state == State::Open
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.lock().bytes
    }

    /// `false`: there is no connection, or there is none any more because of this frame.
    pub(crate) fn push(&self, frame: Frame) -> bool {
        let mut queue = self.queue.lock();
        if queue.state != State::Open {
            return false;
        }
        if queue.bytes + frame.size() > self.limit {
            *queue = Queue {
                state: State::Overflown,
                ..Queue::default()
            };
            self.changed.notify_one();
            return false;
        }
        queue.bytes += frame.size();
        queue.frames.push_back(frame);
        if queue.frames.len() == 1 {
            self.changed.notify_one();
        }
        true
    }

    /// Moves the first frames, up to [`BATCH`] bytes but at least one, if there is any.
    pub(crate) fn take(&self, batch: &mut Vec<Frame>) -> Result<(), Overflow> {
        let mut queue = self.queue.lock();
        if queue.state == State::Overflown {
            return Err(Overflow);
        }
        let mut taken = 0;
        while let Some(frame) = queue.frames.front() {
            let size = frame.size();
            if taken > 0 && taken + size > BATCH {
                break;
            }
            taken += size;
            batch.extend(queue.frames.pop_front());
        }
        queue.bytes -= taken;
        Ok(())
    }

    /// Returns soon after something was given.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn frame(bytes: usize) -> Frame {
        Frame::message(Bytes::from(vec![0; bytes]))
    }

    fn taken(outbox: &Outbox) -> usize {
        let mut batch = Vec::new();
        outbox.take(&mut batch).unwrap();
        batch.len()
    }

    #[test]
    fn without_a_connection_nothing_is_taken() {
        let outbox = Outbox::new(Channel::Raft);
        assert!(!outbox.push(frame(1)));
        outbox.open();
        assert!(outbox.push(frame(1)) && outbox.bytes() > 0);
        assert!(outbox.close() && !outbox.close());
        assert_eq!(outbox.bytes(), 0);
        outbox.open();
        assert_eq!(taken(&outbox), 0);
    }

    #[test]
    fn batches_are_bounded_and_long_frames_go_alone() {
        let outbox = Outbox::new(Channel::Raft);
        outbox.open();
        for size in [1, BATCH / 2, BATCH / 2, 2 * BATCH, 1] {
            assert!(outbox.push(frame(size)));
        }
        let batches: Vec<_> = (0..5).map(|_| taken(&outbox)).collect();
        assert_eq!(batches, [2, 1, 1, 1, 0]);
        assert_eq!(outbox.bytes(), 0);
    }

    #[tokio::test]
    async fn above_the_limit_the_connection_is_given_up() {
        let outbox = Outbox::new(Channel::Raft);
        outbox.open();
        assert!(outbox.push(frame(Channel::Raft.queue_limit() / 2)));
        assert!(!outbox.push(frame(Channel::Raft.queue_limit() / 2)));
        outbox.changed().await;
        assert_eq!(outbox.take(&mut Vec::new()), Err(Overflow));
        assert!(!outbox.push(frame(1)) && !outbox.is_open());
        assert_eq!(outbox.bytes(), 0);
    }
}
