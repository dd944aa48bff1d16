//! Connections to the HTTP port: so many, so long, and so much of each, that no client can keep others out
//! for longer than its own time.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::connection::{Connection, LONGEST_STREAM};

/// Time for a TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// Time for the header of a request, which is also how long an idle connection is kept.
const HEADER_TIME: Duration = Duration::from_secs(5);

/// Time for a request, from its header to the answer.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(10);

/// How long a connection lives, unless its answer is a stream. A request that is under way then has [`REQUEST_TIME`] to end.
const CONNECTION_TIME: Duration = Duration::from_secs(60);

/// Bytes of a request's header, and fields in it.
const HEADER_BYTES: usize = 16 * 1024;
const HEADER_FIELDS: usize = 64;

/// Pause after a connection could not be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub SocketAddr);

/// What TLS on the port begins with; what it is replaced by counts for new connections.
#[derive(Clone, Debug)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// With certificates that were read.
    #[must_use]
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self(Arc::new(RwLock::new(config)))
    }

    /// The certificates were read again.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *self.0.write() = config;
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.read()))
    }
}

/// Serves until it is dropped; with TLS if there is any. `connections`: so many at once; further ones wait in the kernel.
pub async fn serve(listener: TcpListener, router: Router, tls: Option<Tls>, connections: usize) {
    let places = Arc::new(Semaphore::new(connections));
    // A semaphore that nobody closes always has a place in the end.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone();
                match tls.as_ref().map(Tls::acceptor) {
                    None => {
                        let whose = Connection::new(place, false);
                        drop(tokio::spawn(serve_connection(stream, peer, router, whose)));
                    }
                    Some(acceptor) => drop(tokio::spawn(async move {
                        match timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => {
                                let whose = Connection::new(place, true);
                                serve_connection(stream, peer, router, whose).await;
                            }
                            Ok(Err(error)) => {
                                tracing::debug!(%peer, %error, "a TLS handshake on the HTTP port failed");
                            }
                            Err(_) => {
                                tracing::debug!(%peer, "a TLS handshake on the HTTP port took too long");
                            }
                        }
                    })),
                }
            }
            Err(error) => {
                tracing::debug!(%error, "an HTTP connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    router: Router,
    whose: Connection,
) {
    let of_requests = whose.clone();
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(of_requests.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_headers(HEADER_FIELDS)
        .max_header_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = sleep(CONNECTION_TIME) => {
            connection.as_mut().graceful_shutdown();
            let rest = match whose.is_stream() {
                true => LONGEST_STREAM,
                false => REQUEST_TIME,
            };
            timeout(rest, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "an HTTP connection ended");
    }
}
