//! What handlers share, and how many questions are under way at once.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::access::Access;
use crate::backend::{Broker, MetricsFormat};
use crate::pace::Pace;
use crate::problem::{Kind, Problem};
use crate::serve::Peer;

/// Questions to other loops, shards and nodes that are under way at once.
pub(crate) const QUERIES: usize = 16;

/// Questions that wait for their turn.
pub(crate) const WAITING: usize = 64;

/// Pages of lists that are read or wait, fewer than [`QUERIES`]: one who walks with many requests leaves places for others.
pub(crate) const LISTS: usize = 8;

/// Logins that are checked or wait for that, and those of one address among them.
const LOGINS: usize = 16;
const LOGINS_OF_ADDRESS: usize = 4;

/// Streams of a node at once.
///
/// Limit: streams of events of a node; events that it keeps | {}, {connection::LONGEST_STREAM} each; {ring::EVENTS},
/// {events::ring::BYTES:bytes} | 429; the oldest are forgotten, and who reads on behind them learns how many
pub(crate) const STREAMS: usize = 32;

/// What handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    broker: Arc<dyn Broker>,
    access: Arc<dyn Access>,
    /// Of [`QUERIES`].
    queries: Arc<Semaphore>,
    /// Of [`QUERIES`] and [`WAITING`] together.
    places: Arc<Semaphore>,
    /// Of [`LISTS`].
    lists: Arc<Semaphore>,
    /// Where those come from that are checked or wait for that.
    logins: Arc<Mutex<Vec<Option<IpAddr>>>>,
    /// Of [`STREAMS`].
    streams: Arc<Semaphore>,
    pace: Arc<Pace>,
    /// One text of the metrics is made at a time.
    metrics: Arc<Semaphore>,
    /// One export at a time holds all records.
    exports: Arc<Semaphore>,
}

impl Api {
    pub(crate) fn new(broker: Arc<dyn Broker>, access: Arc<dyn Access>) -> Self {
        Self {
            broker,
            access,
            queries: Arc::new(Semaphore::new(QUERIES)),
            places: Arc::new(Semaphore::new(QUERIES + WAITING)),
            lists: Arc::new(Semaphore::new(LISTS)),
            logins: Arc::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            pace: Arc::default(),
            metrics: Arc::new(Semaphore::new(1)),
            exports: Arc::new(Semaphore::new(1)),
        }
    }

    pub(crate) fn access(&self) -> Arc<dyn Access> {
        Arc::clone(&self.access)
    }

    /// The place of a stream, if there is one.
    pub(crate) fn stream(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = Arc::clone(&self.streams).try_acquire_owned();
        place.map_err(|_| {
            let why = format!("this node already serves {STREAMS} streams, which is its limit");
            Problem::new(Kind::TooManyRequests, why).with("limit", "streams")
        })
    }

    /// The metrics, made on a thread for what takes long.
    pub(crate) async fn metrics(&self, format: MetricsFormat) -> Result<Vec<u8>, String> {
        let turn = Arc::clone(&self.metrics).acquire_owned().await;
        let turn = turn.expect("nobody closes this semaphore");
        let broker = Arc::clone(&self.broker);
        // Whoever leaves before the answer has it made nevertheless.
        let made = spawn_blocking(move || {
            let made = broker.metrics(format).map_err(|error| error.to_string());
            drop(turn);
            made
        });
        made.await.map_err(|error| error.to_string())?
    }

    /// The right to ask, if there is a place.
    async fn turn(&self) -> Result<Turn, Problem> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| full("queries"))?;
        let query = Arc::clone(&self.queries).acquire_owned().await;
        let query = query.expect("nobody closes this semaphore");
        Ok(Turn {
            _place: place,
            _query: query,
        })
    }
}

fn full(limit: &str) -> Problem {
    let why = "this node already answers as many requests as it takes at once";
    Problem::new(Kind::TooManyRequests, why).with("limit", limit)
}

impl FromRef<Api> for Arc<dyn Broker> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.broker)
    }
}

impl FromRef<Api> for Arc<dyn Access> {
    fn from_ref(api: &Api) -> Self {
        api.access()
    }
}

/// The right to have a password checked. It ends with the answer.
pub(crate) struct LoginTurn {
    logins: Arc<Mutex<Vec<Option<IpAddr>>>>,
    address: Option<IpAddr>,
}

impl Drop for LoginTurn {
    fn drop(&mut self) {
        let mut logins = self.logins.lock();
        let place = logins.iter().position(|of| *of == self.address);
        logins.swap_remove(place.expect("a turn stands in the list until it ends"));
    }
}

impl FromRequestParts<Api> for LoginTurn {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<Peer>();
        let address = peer.map(|peer| peer.0.ip().to_canonical());
        let mut logins = api.logins.lock();
        let of_address = logins.iter().filter(|of| **of == address).count();
        if logins.len() >= LOGINS || of_address >= LOGINS_OF_ADDRESS {
            return Err(full("logins"));
        }
        logins.push(address);
        drop(logins);
        Ok(Self {
            logins: Arc::clone(&api.logins),
            address,
        })
    }
}

/// The right to hold all records of the control store. It ends with the answer.
pub(crate) struct ExportTurn {
    _export: OwnedSemaphorePermit,
}

impl FromRequestParts<Api> for ExportTurn {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let export = Arc::clone(&api.exports).try_acquire_owned();
        let export = export.map_err(|_| full("exports"))?;
        Ok(Self { _export: export })
    }
}

/// The right to ask loops, shards and nodes something. It ends with the answer.
pub(crate) struct Turn {
    _place: OwnedSemaphorePermit,
    _query: OwnedSemaphorePermit,
}

impl FromRequestParts<Api> for Turn {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, api: &Api) -> Result<Self, Problem> {
        api.turn().await
    }
}

/// The same for a page of a list that somebody may walk over.
pub(crate) struct ListTurn {
    _list: OwnedSemaphorePermit,
    _turn: Turn,
}

impl FromRequestParts<Api> for ListTurn {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let list = Arc::clone(&api.lists).try_acquire_owned();
        let list = list.map_err(|_| full("lists"))?;
        api.pace.wait().await;
        Ok(Self {
            _list: list,
            _turn: api.turn().await?,
        })
    }
}
