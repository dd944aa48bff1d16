//! A connection to the HTTP port, as its requests see it: it has a place among all connections until one of its answers goes on,
//! and that of a stream from then on.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::places::{Number, Places, Work};

/// How long an answer that goes on does so.
pub(crate) const LONGEST_STREAM: Duration = Duration::from_secs(60 * 60);

/// A connection to the HTTP port, as its requests see it.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<State>);

#[derive(Debug)]
struct State {
    places: Arc<Places>,
    number: Number,
    /// What it has instead of a place when its answer goes on. It keeps that until it is closed: bytes of the stream may
    /// wait in it behind the last event.
    stream: Mutex<Option<OwnedSemaphorePermit>>,
    is_stream: AtomicBool,
    /// It speaks TLS.
    is_secure: bool,
}

impl Drop for State {
    fn drop(&mut self) {
        self.places.leave(self.number);
    }
}

impl Connection {
    /// One that was let in.
    pub(crate) fn new(places: Arc<Places>, number: Number, is_secure: bool) -> Self {
        Self(Arc::new(State {
            places,
            number,
            stream: Mutex::new(None),
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
    pub(crate) fn becomes_stream(&self, place: OwnedSemaphorePermit) {
        self.0.is_stream.store(true, Ordering::Relaxed);
        *self.0.stream.lock() = Some(place);
        self.0.places.leave(self.0.number);
    }

    /// It answers a request; `None`: there is no place for that.
    pub(crate) fn begin(&self, work: Work) -> Option<Answering> {
        let begins = self.0.places.begin(self.0.number, work);
        begins.then(|| Answering(self.clone()))
    }

    /// It waits for the rest of a request, and may be closed for another one meanwhile.
    pub(crate) fn waits(&self) {
        self.0.places.wait(self.0.number);
    }

    /// It has all of the request; false: there is no place to answer it.
    pub(crate) fn goes_on(&self) -> bool {
        self.0.places.begin(self.0.number, Work::Answer)
    }
}

/// A request is answered; when this is dropped, its connection waits.
#[derive(Debug)]
pub(crate) struct Answering(Connection);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.waits();
    }
}

impl Answering {
    /// An answer whose connection waits when all of it is on the way.
    pub(crate) fn until_sent(self, body: Body) -> Body {
        Body::new(Sent {
            body,
            _answering: self,
        })
    }
}

/// The body of an answer, and what is known until it is sent.
struct Sent {
    body: Body,
    _answering: Answering,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
