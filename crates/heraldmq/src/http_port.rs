//! The HTTP port of a running broker, as the commands that ask it see it.
//!
//! Deliberately absent: what is asked for, and how an answer is shown.

use std::cell::OnceCell;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use admin::problem::Document;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::config::ConfigBuilder;
use ureq::http::{Response, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::typestate::AgentScope;
use ureq::{Agent, Body, RequestBuilder};

use crate::context::{self, Choice, Contexts};
use crate::failure::Failure;

/// How long the broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A broker, and the right to change something there.
#[derive(clap::Args)]
pub(crate) struct HttpPort {
    /// The broker's HTTP port. Without it: that of --context, HERALDMQ_URL, the context that HERALDMQ_CONTEXT names, the context in
    /// use, or http://127.0.0.1:8091.
    #[arg(long, conflicts_with = "context")]
    url: Option<String>,
    /// The broker of this context, with its key and authorities; see `heraldmq context`.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// File with a key that `heraldmq api-key add` printed, or with the token in the broker's `http.tokenFile`. Without
    /// it: that of the context, if the URL is that of the context, or HERALDMQ_KEY_FILE.
    #[arg(long, visible_alias = "token-file", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Certificates of the authorities that the broker's certificate is verified with (PEM), for https://. Without it:
    /// those of the context, if the URL is that of the context, or those of the system.
    #[arg(long = "ca-file", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// What these come to.
    #[arg(skip)]
    choice: OnceCell<Choice>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<'a> {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub(crate) method: &'static str,
    /// Such as `/api/v1/bans`.
    pub(crate) path: &'a str,
    /// Names and values.
    pub(crate) query: &'a [(&'static str, String)],
    /// A header that says what the request must find.
    pub(crate) condition: Option<(&'static str, &'a str)>,
    /// A JSON body.
    pub(crate) body: Option<&'a Value>,
}

impl<'a> Sent<'a> {
    /// One without query, condition and body.
    pub(crate) fn of(method: &'static str, path: &'a str) -> Self {
        Self {
            method,
            path,
            query: &[],
            condition: None,
            body: None,
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The text.
    pub(crate) body: String,
    /// Its ETag.
    pub(crate) tag: Option<String>,
}

impl HttpPort {
    /// The answer to a request.
    pub(crate) fn send(&self, sent: &Sent<'_>) -> Result<Answer, Failure> {
        let url = self.url(sent.path)?;
        let agent = self.agent()?;
        let query = || sent.query.iter().map(|(name, value)| (*name, value));
        let answer = match sent.method {
            method @ ("GET" | "DELETE") => {
                let request = match method {
                    "GET" => agent.get(&url),
                    _ => agent.delete(&url),
                };
                let request = self.authorized(request)?.query_pairs(query());
                with_condition(request, sent.condition).call()
            }
            method => {
                let request = match method {
                    "PUT" => agent.put(&url),
                    _ => agent.post(&url),
                };
                let request = self.authorized(request)?.query_pairs(query());
                let request = request.content_type("application/json");
                let body = sent.body.map(ToString::to_string);
                with_condition(request, sent.condition).send(body.unwrap_or_default())
            }
        };
        let tag = answer.as_ref().ok().and_then(tag);
        let body = self.read(&url, answer)?;
        Ok(Answer { body, tag })
    }

    /// The body at a path, such as `/api/v1/bans`.
    pub(crate) fn get(&self, path: &str) -> Result<String, Failure> {
        self.get_with(path, &[])
    }

    /// The same with a query.
    pub(crate) fn get_with(&self, path: &str, query: &[(&str, String)]) -> Result<String, Failure> {
        let url = self.url(path)?;
        let request = self.authorized(self.agent()?.get(&url))?;
        let request = request.query_pairs(query.iter().map(|(name, value)| (*name, value)));
        self.read(&url, request.call())
    }

    /// An answer that goes on, until it ends or `lasts` is over.
    pub(crate) fn stream(
        &self,
        path: &str,
        query: &[(&str, String)],
        lasts: Option<Duration>,
    ) -> Result<impl BufRead + use<>, Failure> {
        let answer = self.begin(path, query, lasts)?;
        Ok(BufReader::new(answer.into_body().into_reader()))
    }

    /// An answer that may be long, of `longest` bytes at most.
    pub(crate) fn long(
        &self,
        path: &str,
        query: &[(&str, String)],
        longest: u64,
    ) -> Result<Answer, Failure> {
        let mut answer = self.begin(path, query, None)?;
        let tag = tag(&answer);
        let body = answer.body_mut().with_config().limit(longest);
        let body = body.read_to_string();
        let body = body.map_err(|error| Failure::Runtime(format!("{path}: {error}")))?;
        Ok(Answer { body, tag })
    }

    /// The head of an answer that may take long.
    fn begin(
        &self,
        path: &str,
        query: &[(&str, String)],
        lasts: Option<Duration>,
    ) -> Result<Response<Body>, Failure> {
        let url = self.url(path)?;
        let request = self.authorized(self.agent()?.get(&url))?;
        let request = request.query_pairs(query.iter().map(|(name, value)| (*name, value)));
        let limits = request.config().timeout_global(lasts);
        let limits = limits.timeout_recv_response(Some(PATIENCE));
        let answer = limits.build().call();
        let answer = answer.map_err(|error| Failure::Runtime(format!("{url}: {error}")))?;
        if !answer.status().is_success() {
            self.read(&url, Ok(answer))?;
            unreachable!("an answer that is no success is a failure");
        }
        Ok(answer)
    }

    /// The answer to a JSON body.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<String, Failure> {
        let url = self.url(path)?;
        let request = self.authorized(self.agent()?.post(&url))?;
        let request = request.content_type("application/json");
        self.read(&url, request.send(body.to_string()))
    }

    /// The answer to a request without a body that takes so long, and of which `longest` bytes may come.
    pub(crate) fn post_long(
        &self,
        path: &str,
        takes: Duration,
        longest: u64,
    ) -> Result<String, Failure> {
        let url = self.url(path)?;
        let request = self.authorized(self.agent()?.post(&url))?;
        let request = request.config().timeout_global(Some(takes + PATIENCE));
        let answer = request.build().send_empty();
        let mut answer = answer.map_err(|error| Failure::Runtime(format!("{url}: {error}")))?;
        if !answer.status().is_success() {
            return self.read(&url, Ok(answer));
        }
        let body = answer.body_mut().with_config().limit(longest);
        let body = body.read_to_string();
        body.map_err(|error| Failure::Runtime(format!("{url}: {error}")))
    }

    /// Deletes what is at a path.
    pub(crate) fn delete(&self, path: &str) -> Result<String, Failure> {
        let url = self.url(path)?;
        let request = self.authorized(self.agent()?.delete(&url))?;
        self.read(&url, request.call())
    }

    /// The broker that is asked.
    fn choice(&self) -> Result<&Choice, Failure> {
        if let Some(choice) = self.choice.get() {
            return Ok(choice);
        }
        let options = context::Options {
            url: self.url.clone(),
            context: self.context.clone(),
            key_file: self.key_file.clone(),
            ca_file: self.ca_file.clone(),
        };
        let choice = Choice::new(&options, context::variable, Contexts::read)?;
        Ok(self.choice.get_or_init(|| choice))
    }

    fn url(&self, path: &str) -> Result<String, Failure> {
        let url = &self.choice()?.url;
        Ok(format!("{}{path}", url.trim_end_matches('/')))
    }

    fn agent(&self) -> Result<Agent, Failure> {
        let choice = self.choice()?;
        if !choice.url.starts_with("https://") {
            return Ok(agent_config().build().new_agent());
        }
        agent_of(choice.ca_file.as_ref())
    }

    /// With the token, if there is one.
    fn authorized<B>(&self, request: RequestBuilder<B>) -> Result<RequestBuilder<B>, Failure> {
        let Some(path) = &self.choice()?.key_file else {
            return Ok(request);
        };
        let token = fs::read_to_string(path)
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        Ok(request.header("authorization", format!("Bearer {}", token.trim())))
    }

    /// The body of an answer; one that is no success is a failure with the broker's words.
    fn read(
        &self,
        url: &str,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<String, Failure> {
        let context = self.choice()?.context.as_ref();
        let of = context.map_or(String::new(), |name| format!(" (context {name})"));
        let unanswered = |error| Failure::Runtime(format!("{url}{of}: {error}"));
        let mut answer = answer.map_err(unanswered)?;
        let status = answer.status();
        let body = answer.body_mut().read_to_string().map_err(unanswered)?;
        if !status.is_success() {
            let words = words(&body);
            let message = format!("{}{of}: {status}: {words}", self.choice()?.url);
            return Err(match status {
                StatusCode::NOT_FOUND => Failure::NotFound(message),
                StatusCode::PRECONDITION_FAILED => Failure::Changed(message),
                _ => Failure::Runtime(message),
            });
        }
        Ok(body)
    }
}

/// The ETag of an answer.
fn tag(answer: &Response<Body>) -> Option<String> {
    let tag = answer.headers().get("etag")?;
    tag.to_str().ok().map(str::to_owned)
}

fn with_condition<B>(
    request: RequestBuilder<B>,
    condition: Option<(&str, &str)>,
) -> RequestBuilder<B> {
    match condition {
        Some((name, value)) => request.header(name, value),
        None => request,
    }
}

/// Whose certificates count.
fn agent_config() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .user_agent(concat!("heraldmq/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
}

/// Who asks a server of HTTPS whose certificate one of these authorities has signed; `None`: one of the system's.
pub(crate) fn agent_of(ca_file: Option<&PathBuf>) -> Result<Agent, Failure> {
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .root_certs(authorities(ca_file)?)
        .build();
    Ok(agent_config().tls_config(tls).build().new_agent())
}

fn authorities(ca_file: Option<&PathBuf>) -> Result<RootCerts, Failure> {
    let unusable = |path: &PathBuf, error: &dyn fmt::Display| {
        Failure::Usage(format!("{}: {error}", path.display()))
    };
    let certificates: Vec<Vec<u8>> = match ca_file {
        Some(path) => {
            let read = CertificateDer::pem_file_iter(path);
            let read = read.and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let read = read.map_err(|error| unusable(path, &error))?;
            if read.is_empty() {
                return Err(unusable(path, &"there is no certificate in it"));
            }
            read.iter().map(|der| der.to_vec()).collect()
        }
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            found.iter().map(|der| der.to_vec()).collect()
        }
    };
    let certificates = certificates.iter();
    let owned = certificates.map(|der| Certificate::from_der(der).to_owned());
    Ok(RootCerts::from(owned))
}

/// The sentence of a problem document, or else the body as it is.
fn words(body: &str) -> String {
    let document: Result<Document, _> = serde_json::from_str(body);
    document.map_or_else(|_| body.trim().to_owned(), |document| document.detail)
}

/// What an answer says.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::Runtime(format!("the answer is not understood: {error}")))
}
