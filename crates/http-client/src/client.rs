//! An HTTP/1.1 client for one address.
//!
//! Purpose: a request is answered, or has failed at its deadline.
//!
//! Invariants: an answer is no larger than the limit; a server's certificate is verified; a redirect is an
//! answer as any other, never followed. Errors name no part of a request.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::http::uri::Scheme;
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use tokio::time::{Instant, timeout_at};

use crate::causes::with_causes;
use crate::tls::{authorities, tls_client};

/// How long a connection is kept for the next request: less than the five seconds after which common
/// servers close it, so that a request does not meet the close.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// A client for one address. Must be used within a tokio runtime.
#[derive(Debug)]
pub struct HttpClient {
    url: Uri,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    max_answer: usize,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum HttpError {
    /// It was not complete at the deadline.
    Deadline,
    /// It is larger than so many bytes.
    TooLarge(usize),
    /// The server cannot be reached, or does not speak HTTP.
    Exchange(String),
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("no complete answer in time"),
            Self::TooLarge(limit) => write!(f, "the answer is larger than {limit} bytes"),
            Self::Exchange(reason) => f.write_str(reason),
        }
    }
}

impl HttpClient {
    /// A client for `url` that takes answers of up to `max_answer` bytes.
    ///
    /// # Errors
    /// A `url` that is none, or of another scheme, or has a user name in it; a `caFile` that cannot be read.
    pub fn open(url: &str, ca_file: Option<&Path>, max_answer: usize) -> Result<Self, String> {
        let url: Uri = url.parse().map_err(|error| format!("url: {error}"))?;
        if url
            .authority()
            .is_none_or(|authority| authority.as_str().contains('@'))
        {
            return Err("url: must name a server, without user name and password".to_owned());
        }
        let trusted = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => authorities(ca_file)?,
            Some(scheme) if *scheme == Scheme::HTTP => RootCertStore::empty(),
            _ => return Err("url: must begin with https:// or http://".to_owned()),
        };
        Ok(Self {
            url,
            client: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(KEEP_ALIVE)
                .build(connector(trusted)),
            max_answer,
        })
    }

    /// The client of another address on the same server, with the same connections: `path` is appended to that of this
    /// client, with one `/` between them.
    ///
    /// # Errors
    /// The result is no URL.
    pub fn below(&self, path: &str) -> Result<Self, String> {
        let base = self.url.to_string();
        let url = format!("{}/{path}", base.trim_end_matches('/'));
        Ok(Self {
            url: url.parse().map_err(|error| format!("url: {error}"))?,
            client: self.client.clone(),
            max_answer: self.max_answer,
        })
    }

    /// Sends a request to the address; its own URI does not count.
    ///
    /// # Errors
    /// [`HttpError`]
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<Bytes>, HttpError> {
        request.uri_mut().clone_from(&self.url);
        timeout_at(deadline, self.exchange(request))
            .await
            .unwrap_or(Err(HttpError::Deadline))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, HttpError> {
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| HttpError::Exchange(with_causes(&error)))?;
        let (head, body) = response.into_parts();
        match Limited::new(body, self.max_answer).collect().await {
            Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(HttpError::TooLarge(self.max_answer))
            }
            Err(error) => Err(HttpError::Exchange(with_causes(&*error))),
        }
    }
}

fn connector(trusted: RootCertStore) -> HttpsConnector<HttpConnector> {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    HttpsConnectorBuilder::new()
        .with_tls_config(tls_client(trusted))
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp)
}
