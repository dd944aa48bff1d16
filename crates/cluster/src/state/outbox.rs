//! What waits to be sent on one connection, filled by any thread and emptied by the link.
//!
//! A thread that gives a frame while nothing waits and nobody writes may write it itself, so that the thread of the links
//! need not wake up for it; see [`Outbox::push_or_write`].
//!
//! Invariants: with no connection nothing waits; at most [`Channel::queue_limit`] bytes do. One thread at a time writes to
//! a connection, and begins where the last one stopped: bytes of frames do not mix.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::protocol::channel::Channel;
use crate::protocol::frame::{Frame, OVERHEAD};
use crate::state::stats::LinkCounters;

/// Bytes that are written at once. A longer frame is written alone.
pub(crate) const BATCH: usize = 256 * 1024;

/// Bytes of the longest frame that the thread that gives it writes itself: copying a longer one into the socket takes
/// longer than a wake-up.
const WRITTEN_AT_ONCE: usize = 32 * 1024;

/// A connection that any thread may write to.
pub(crate) trait Socket: std::fmt::Debug + Send + Sync {
    /// Writes what the system takes without waiting, and says how many bytes that were.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: it takes nothing now. Another one: the connection is lost.
    fn write_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
}

#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    /// Something waits where nothing did, or the connection has to be given up.
    changed: Notify,
    limit: usize,
}

#[derive(Debug, Default)]
struct Queue {
    state: State,
    /// The end of a frame that a thread has begun to write; before all frames.
    rest: Bytes,
    frames: VecDeque<Frame>,
    /// All bytes that wait, and those that a thread which has given them writes at the moment.
    bytes: usize,
    writing: Writing,
    /// Where threads may write what they give.
    socket: Option<Arc<dyn Socket>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    #[default]
    Closed,
    Open,
    /// The link has to close.
    Broken(Broken),
}

/// Who writes to the connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Writing {
    #[default]
    Nobody,
    /// The link: what it has taken, until it takes again.
    Link,
    /// A thread: what it gives.
    Giver,
}

/// Why a connection has to be given up; what waited is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    /// More was given than may wait.
    Overflow,
    /// A write failed.
    Write(io::ErrorKind),
}

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Overflow => Self::other("more was to be sent than may wait"),
            Broken::Write(kind) => kind.into(),
        }
    }
}

impl Queue {
    fn broken(reason: Broken) -> Self {
        Self {
            state: State::Broken(reason),
            ..Self::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.frames.is_empty()
    }
}

impl Outbox {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            queue: Mutex::default(),
            changed: Notify::new(),
            limit: channel.queue_limit(),
        }
    }

    /// The connection is up. Only the link writes to it, until [`Outbox::share`].
    pub(crate) fn open(&self) {
        *self.queue.lock() = Queue {
            state: State::Open,
            ..Queue::default()
        };
    }

    /// From now on threads that give frames may write to the socket of the connection, if it is up still.
    pub(crate) fn share(&self, socket: Arc<dyn Socket>) {
        let mut queue = self.queue.lock();
        if queue.state == State::Open {
            queue.socket = Some(socket);
        }
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
        self.admits(&mut queue, &frame) && self.append(&mut queue, frame)
    }

    /// The same, but if nothing waits and nobody writes, the calling thread writes the frame, as far as that needs no
    /// waiting. The link gets the rest. A frame that was given meanwhile stays behind it.
    ///
    /// Makes one system call at most, and none with a lock held.
    pub(crate) fn push_or_write(&self, frame: Frame, counters: &LinkCounters) -> bool {
        let mut queue = self.queue.lock();
        if !self.admits(&mut queue, &frame) {
            return false;
        }
        let is_free = queue.writing == Writing::Nobody && queue.is_empty();
        let socket = queue.socket.clone();
        let socket = socket.filter(|_| is_free && frame.size() <= WRITTEN_AT_ONCE);
        let Some(socket) = socket else {
            return self.append(&mut queue, frame);
        };
        queue.writing = Writing::Giver;
        queue.bytes += frame.size();
        drop(queue);
        counters.count_sent(1, frame.size());
        let mut head = [0; OVERHEAD];
        let mut room = &mut head[..];
        frame.encode_head(&mut room);
        let left = room.len();
        let head = &head[..OVERHEAD - left];
        let written = socket.write_now(&[IoSlice::new(head), IoSlice::new(&frame.payload)]);
        self.written(&socket, head, frame, written)
    }

    /// The thread that gave a frame has written that much of it.
    fn written(
        &self,
        socket: &Arc<dyn Socket>,
        head: &[u8],
        frame: Frame,
        written: io::Result<usize>,
    ) -> bool {
        let written = written.or_else(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
            kind => Err(kind),
        });
        let mut queue = self.queue.lock();
        let is_same = |current: &Arc<dyn Socket>| Arc::ptr_eq(current, socket);
        if !queue.socket.as_ref().is_some_and(is_same) {
            // The connection was lost meanwhile, and there may be another.
            return false;
        }
        let written = match written {
            Ok(written) => written,
            Err(kind) => {
                *queue = Queue::broken(Broken::Write(kind));
                self.changed.notify_one();
                return false;
            }
        };
        queue.writing = Writing::Nobody;
        queue.bytes -= frame.size();
        queue.rest = match written.checked_sub(head.len()) {
            Some(of_payload) => frame.payload.slice(of_payload.min(frame.payload.len())..),
            None => [&head[written..], &frame.payload].concat().into(),
        };
        queue.bytes += queue.rest.len();
        if !queue.is_empty() {
            self.changed.notify_one();
        }
        true
    }

    fn admits(&self, queue: &mut Queue, frame: &Frame) -> bool {
        if queue.state != State::Open {
            return false;
        }
        let fits = queue.bytes + frame.size() <= self.limit;
        if !fits {
            *queue = Queue::broken(Broken::Overflow);
            self.changed.notify_one();
        }
        fits
    }

    fn append(&self, queue: &mut Queue, frame: Frame) -> bool {
        // Whoever writes looks into the queue afterwards.
        if queue.is_empty() && queue.writing == Writing::Nobody {
            self.changed.notify_one();
        }
        queue.bytes += frame.size();
        queue.frames.push_back(frame);
        true
    }

    /// Moves the first frames, up to [`BATCH`] bytes but at least one, if there is any. What has to be written before them
    /// is returned. Whoever takes something is the one who writes, until the next call.
    pub(crate) fn take(&self, batch: &mut Vec<Frame>) -> Result<Bytes, Broken> {
        let mut queue = self.queue.lock();
        if let State::Broken(reason) = queue.state {
            return Err(reason);
        }
        if queue.writing == Writing::Giver {
            return Ok(Bytes::new());
        }
        let rest = std::mem::take(&mut queue.rest);
        let mut taken = rest.len();
        while let Some(frame) = queue.frames.front() {
            let size = frame.size();
            if taken > 0 && taken + size > BATCH {
                break;
            }
            taken += size;
            batch.extend(queue.frames.pop_front());
        }
        queue.bytes -= taken;
        queue.writing = match taken {
            0 => Writing::Nobody,
            _ => Writing::Link,
        };
        Ok(rest)
    }

    /// Whether the link may write a keep-alive: nothing waits, and nobody writes. It is the one who writes then, until it
    /// takes again.
    pub(crate) fn begin_keep_alive(&self) -> bool {
        let mut queue = self.queue.lock();
        let is_free =
            queue.state == State::Open && queue.writing == Writing::Nobody && queue.is_empty();
        if is_free {
            queue.writing = Writing::Link;
        }
        is_free
    }

    /// Returns soon after something was given.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests;
