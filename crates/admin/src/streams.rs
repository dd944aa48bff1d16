//! Answers that go on: each takes a place of its own, and gives that of its connection back when it begins. A request for one that is
//! refused keeps the place of its connection.

use std::net::SocketAddr;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use tokio::sync::OwnedSemaphorePermit;

use crate::api_state::Api;
use crate::connection::Connection;
use crate::problem::Problem;
use crate::rights::Gate;
use crate::serve::Peer;

/// The place of a stream, and whose it is. It ends with the stream.
pub(crate) struct StreamTurn {
    /// Until the connection has it.
    place: Option<OwnedSemaphorePermit>,
    connection: Option<Connection>,
    gate: Gate,
    headers: HeaderMap,
    peer: Option<SocketAddr>,
}

impl StreamTurn {
    /// The stream begins.
    pub(crate) fn begin(&mut self) {
        if let Some(connection) = &self.connection
            && let Some(place) = self.place.take()
        {
            connection.becomes_stream(place);
        }
    }

    /// Whether the one whose stream it is could begin it now: keys end, and are taken back.
    pub(crate) async fn check(&self) -> Result<(), Problem> {
        let caller = self.gate.check(&self.headers, self.peer).await;
        caller.map(drop)
    }
}

impl FromRequestParts<Api> for StreamTurn {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let place = api.stream()?;
        let gate = parts.extensions.get::<Gate>();
        let gate = gate.expect("paths that read have passed the check of rights");
        Ok(Self {
            place: Some(place),
            connection: parts.extensions.get::<Connection>().cloned(),
            gate: gate.clone(),
            headers: parts.headers.clone(),
            peer: parts.extensions.get::<Peer>().map(|peer| peer.0),
        })
    }
}
