//! A connection to the HTTP port, as its requests see it: it has a place among all connections until one of its answers goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

/// How long an answer that goes on does so.
pub(crate) const LONGEST_STREAM: Duration = Duration::from_secs(60 * 60);

/// A connection to the HTTP port, as its requests see it.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<State>);

#[derive(Debug)]
struct State {
    /// One of those that connections have.
    place: Mutex<Option<OwnedSemaphorePermit>>,
    is_stream: AtomicBool,
    /// It speaks TLS.
    is_secure: bool,
}

impl Connection {
    pub(crate) fn new(place: OwnedSemaphorePermit, is_secure: bool) -> Self {
        Self(Arc::new(State {
            place: Mutex::new(Some(place)),
            is_stream: AtomicBool::new(false),
            is_secure,
        }))
    }

    /// Whether nobody on the way reads it.
    pub(crate) fn is_secure(&self) -> bool {
        self.0.is_secure
    }

    /// Whether one of its answers goes on.
    pub(crate) fn is_stream(&self) -> bool {
        self.0.is_stream.load(Ordering::Relaxed)
    }

    /// One of its answers goes on: others get its place.
    pub(crate) fn becomes_stream(&self) {
        self.0.is_stream.store(true, Ordering::Relaxed);
        self.0.place.lock().take();
    }
}
