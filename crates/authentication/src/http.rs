//! An HTTP server of the operator's own that decides about logins.
//!
//! Purpose: a POST with the client's credentials as JSON; status and body of the answer decide
//! (docs/operate/security.md has both).
//!
//! Invariants: only so many requests are under way at once; a server that keeps failing is left alone for
//! a while; answers are remembered no longer than both sides allow.

mod answer;
mod breaker;
mod cache;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use config::HttpAuthenticatorConfig;
use http_body_util::Full;
use http_client::HttpClient;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use crate::authenticator::{Asked, Authenticator, Opinion};
use crate::file;
use answer::{Answer, Reply};
use authentication_api::Credentials;
use breaker::Breaker;
use cache::Cache;

/// Bytes that an answer may have.
///
/// Limit: requests to an HTTP authenticator | {authentication.chain.http.maxConcurrent}; {:bytes} of answer | logins
/// wait, for {authentication.chain.http.timeoutMs}; the login fails
const MAX_ANSWER: usize = 64 << 10;

/// Bytes that the file with the token may have.
const MAX_TOKEN_BYTES: u64 = 8 << 10;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The server, and what is known of it.
#[derive(Debug)]
pub(crate) struct Http {
    name: String,
    client: HttpClient,
    /// `Bearer …`, marked so that nobody prints it.
    authorization: Option<HeaderValue>,
    timeout: Duration,
    requests: Semaphore,
    breaker: Mutex<Breaker>,
    cache: Option<Cache>,
}

/// What the server is told. The names are those that servers written for EMQX expect.
#[derive(Serialize)]
struct Question<'a> {
    clientid: &'a str,
    username: Option<&'a str>,
    password: Option<&'a str>,
    peerhost: Option<IpAddr>,
}

impl Http {
    /// Reads token and certificates.
    ///
    /// # Errors
    /// A setting that is missing or wrong, a file that cannot be read.
    pub(crate) fn open(name: String, config: &HttpAuthenticatorConfig) -> Result<Self, String> {
        let url = config.url.as_deref().ok_or("http.url is missing")?;
        let client = HttpClient::open(url, config.ca_file.as_deref(), MAX_ANSWER)
            .map_err(|reason| format!("http.{reason}"))?;
        let token_file = config.token_file.as_deref();
        let cache_entries = config.cache_entries as usize;
        Ok(Self {
            name,
            client,
            authorization: token_file.map(bearer).transpose()?,
            timeout: config.timeout,
            requests: Semaphore::new(usize::from(config.max_concurrent.get())),
            breaker: Mutex::new(Breaker::new(
                config.breaker_failures.get(),
                config.breaker_pause,
            )),
            cache: config
                .cache
                .map(|lifetime| Cache::new(cache_entries, lifetime))
                .transpose()?,
        })
    }

    async fn ask(&self, credentials: &Credentials) -> Result<Answer, String> {
        let Some(question) = Question::new(credentials) else {
            return Ok(Answer::Ignore);
        };
        let Some(cache) = &self.cache else {
            return Ok(self.ask_server(&question).await?.answer);
        };
        let fingerprint = cache.fingerprint(credentials);
        if let Some(answer) = cache.get(&fingerprint, Instant::now()) {
            return Ok(answer);
        }
        let reply = self.ask_server(&question).await?;
        cache.insert(fingerprint, &reply, Instant::now());
        Ok(reply.answer)
    }

    async fn ask_server(&self, question: &Question<'_>) -> Result<Reply, String> {
        let deadline = Instant::now() + self.timeout;
        let _permit = timeout_at(deadline, self.requests.acquire())
            .await
            .map_err(|_| "all requests that may be under way at once are")?;
        if !self.breaker.lock().admits(Instant::now()) {
            return Err("the server failed before and is left alone for a while".to_owned());
        }
        let reply = self.exchange(question, deadline).await;
        let mut breaker = self.breaker.lock();
        match &reply {
            Ok(_) => breaker.succeeded(),
            Err(_) => breaker.failed(Instant::now()),
        }
        reply
    }

    async fn exchange(&self, question: &Question<'_>, deadline: Instant) -> Result<Reply, String> {
        let response = self
            .client
            .send(self.request(question), deadline)
            .await
            .map_err(|error| error.to_string())?;
        Reply::read(&response, seconds_since_1970())
    }

    fn request(&self, question: &Question<'_>) -> Request<Full<Bytes>> {
        let body = serde_json::to_vec(question).expect("strings become JSON");
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, JSON);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        request
    }
}

impl Authenticator for Http {
    fn name(&self) -> &str {
        &self.name
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials) -> Asked<'a> {
        Box::pin(async {
            match self.ask(credentials).await {
                Ok(answer) => answer.about(credentials),
                Err(reason) => Opinion::Failed(reason),
            }
        })
    }
}

impl<'a> Question<'a> {
    /// `None`: the password is not text, which JSON cannot say.
    fn new(credentials: &'a Credentials) -> Option<Self> {
        let password = match &credentials.password {
            Some(password) => Some(str::from_utf8(password.bytes()).ok()?),
            None => None,
        };
        Some(Self {
            clientid: &credentials.client_id,
            username: credentials.username.as_deref(),
            password,
            peerhost: credentials.address,
        })
    }
}

/// The header that carries the token in a file.
fn bearer(file: &Path) -> Result<HeaderValue, String> {
    let token = file::read_text(file, MAX_TOKEN_BYTES)
        .map_err(|reason| format!("http.tokenFile {reason}"))?;
    let header = Zeroizing::new(format!("Bearer {}", token.trim()));
    let mut header = HeaderValue::from_str(&header)
        .ok()
        .filter(|_| !token.trim().is_empty())
        .ok_or_else(|| format!("http.tokenFile {}: holds no token", file.display()))?;
    header.set_sensitive(true);
    Ok(header)
}

fn seconds_since_1970() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
