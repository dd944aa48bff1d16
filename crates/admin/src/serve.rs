//! Connections to the HTTP port: so many, so long, and so much of each, that no client can keep others out
//! for longer than its own time.
//!
//! Invariant: what is accepted, what monitors ask and what is sent is done on the thread that serves; answers are made on another one
//! (`worker.rs`), and how busy that is delays no probe.

use std::io;
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
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connection::{Connection, LONGEST_STREAM};
use crate::places::{Admitted, Places, is_probe};
use crate::unread::{self, Unread};
use crate::worker::{self, Worker};

/// Time for a TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// Time for the header of a request, which is also how long an idle connection is kept.
const HEADER_TIME: Duration = Duration::from_secs(5);

/// Time for a request, from its header to the answer.
///
/// Limit: the HTTP port | {descriptors::OF_HTTP} connections, or 1/{broker::descriptors::SHARE} of the descriptors,
/// {HEADER_BYTES} of header, {admin::LARGEST_BODY:bytes} of body, {} a request | wait; 431, 413, 408
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

/// Serves until it is dropped; with TLS if there is any. `connections`: so many at once, beside streams; for a further one, one that
/// waits is closed.
///
/// # Errors
/// The system gives no thread for answers.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Tls>,
    connections: usize,
) -> io::Result<()> {
    let places = Places::new(connections);
    let worker = Worker::start()?;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                unread::limit(&stream);
                let Admitted {
                    number,
                    gives_way,
                    replaces,
                } = places.admit(peer.ip());
                let acceptor = tls.as_ref().map(Tls::acceptor);
                let whose = Connection::new(Arc::clone(&places), number, acceptor.is_some());
                let (router, answers) = (router.clone(), worker.handle().clone());
                let serves = async move {
                    let stream = Unread::new(stream);
                    match acceptor {
                        None => serve_connection(stream, peer, router, answers, whose).await,
                        Some(acceptor) => {
                            if let Some(stream) = handshake(stream, peer, acceptor).await {
                                serve_connection(stream, peer, router, answers, whose).await;
                            }
                        }
                    }
                };
                drop(tokio::spawn(async move {
                    tokio::select! {
                        () = serves => {}
                        () = gives_way.notified() => {
                            tracing::debug!(%peer, "an HTTP connection that waited is closed for another one");
                        }
                    }
                }));
                if replaces {
                    // The one that is closed gives its descriptor back before another one is accepted.
                    yield_now().await;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "an HTTP connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
) -> Option<TlsStream<S>> {
    match timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "a TLS handshake on the HTTP port failed");
            None
        }
        Err(_) => {
            tracing::debug!(%peer, "a TLS handshake on the HTTP port took too long");
            None
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    router: Router,
    answers: Handle,
    whose: Connection,
) {
    let of_requests = whose.clone();
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(of_requests.clone());
        let is_here = is_probe(request.uri().path());
        let answer = router.call(request);
        let answers = answers.clone();
        async move {
            match is_here {
                true => answer.await.map_err(|never| match never {}),
                false => worker::run(&answers, answer)
                    .await
                    .map(|Ok(response)| response),
            }
        }
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::mpsc;

    use axum::routing::get;
    use tokio::task::spawn_blocking;

    use super::*;

    fn ask(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    fn answer(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[tokio::test]
    async fn a_probe_is_answered_while_an_answer_is_made() {
        let (begins, begun) = mpsc::channel();
        let (ends, ended) = mpsc::channel::<()>();
        let ended = Arc::new(parking_lot::Mutex::new(ended));
        let slow = move || {
            begins.send(()).unwrap();
            // It blocks its thread.
            let _ = ended.lock().recv();
            async { "slow" }
        };
        let router = Router::new()
            .route("/api/v1/slow", get(slow))
            .route("/healthz", get(|| async { "ok" }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serves = tokio::spawn(serve(listener, router, None, 16));
        let client = spawn_blocking(move || {
            let slow = ask(address, "/api/v1/slow");
            begun.recv().unwrap();
            let probed = answer(ask(address, "/healthz"));
            drop(ends);
            (probed, answer(slow))
        });
        let (probed, slow) = client.await.unwrap();
        assert!(probed.ends_with("\r\n\r\nok"), "{probed}");
        assert!(slow.ends_with("\r\n\r\nslow"), "{slow}");
        serves.abort();
    }
}
