//! Servers of NATS, as outlets and inlets connect to them.
//!
//! The library reconnects by itself, and would go on with what it has kept. So each connection belongs to one client of the library,
//! which is refused to log in once more: what is not acknowledged comes again on another connection, in its order.

pub(crate) mod header;
mod login;

use std::fmt;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::jetstream::context::{Context, ContextBuilder};
use async_nats::{AuthError, Client, ConnectErrorKind, ConnectOptions, Event};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::sync::watch;
use tokio::time::timeout;

use self::login::Login;
use crate::definition::NatsServersDefinition;

/// Messages that are not acknowledged yet, at most.
pub(crate) const OPEN: usize = 1_000;

/// Silence after which the server is asked whether it is there. After three such questions without an answer the connection is over.
const SILENCE: Duration = Duration::from_secs(10);

/// The servers of a definition.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    definition: NatsServersDefinition,
    /// Which one the next connection is tried with first, of all copies.
    next: Arc<AtomicUsize>,
}

/// A connection.
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) context: Context,
    /// The last error that the server has told beside its answers.
    pub(crate) said: watch::Receiver<Option<Arc<str>>>,
    ended: watch::Receiver<bool>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    /// Ends when the connection is over. May be dropped.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.clone();
        async move {
            // An error: the client of the library is gone.
            let _: Result<_, _> = ended.wait_for(|is_ended| *is_ended).await;
        }
    }
}

impl Servers {
    /// # Errors
    /// A URL that is none; a file that cannot be read; more than one way to log in.
    pub(crate) fn new(definition: &NatsServersDefinition) -> Result<Self, String> {
        for url in &definition.urls {
            check_url(url)?;
        }
        let servers = Self {
            definition: definition.clone(),
            next: Arc::default(),
        };
        Login::read(definition)?;
        servers.tls()?;
        Ok(servers)
    }

    /// Hosts and ports of all of them, in an order that does not depend on that in the configuration.
    pub(crate) fn address(&self) -> String {
        let urls = self.definition.urls.iter();
        let addresses = urls.map(|url| url.split_once("://").map_or(&**url, |(_, rest)| rest));
        let mut addresses: Vec<&str> = addresses.collect();
        addresses.sort_unstable();
        addresses.join(",")
    }

    /// How long an answer may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.definition.timeout
    }

    /// Tries one server after the other, each once.
    ///
    /// # Errors
    /// Why the last one is not connected to.
    pub(crate) async fn connect(&self) -> Result<Link, String> {
        let urls = &self.definition.urls;
        let share = u32::try_from(urls.len());
        let share = share.map_or(Duration::ZERO, |count| self.timeout() / count.max(1));
        let mut why = "there is no server".to_owned();
        let first = self.next.load(Ordering::Relaxed);
        for url in urls
            .iter()
            .cycle()
            .skip(first % urls.len().max(1))
            .take(urls.len())
        {
            let attempt = timeout(share, self.attempt(url, share));
            match attempt.await {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(error)) => why = format!("{url}: {error}"),
                Err(_) => why = format!("{url}: the server does not answer in time"),
            }
            self.next.fetch_add(1, Ordering::Relaxed);
        }
        Err(why)
    }

    async fn attempt(&self, url: &str, longest: Duration) -> Result<Link, String> {
        let login = Login::read(&self.definition)?;
        let is_begun = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&is_begun);
        let (tell, said) = watch::channel(None);
        let (end, ended) = watch::channel(false);
        let mut options = ConnectOptions::with_auth_callback(move |nonce| {
            ready(match begun.load(Ordering::Relaxed) {
                false => login.auth(&nonce),
                true => Err(AuthError::new("the connection is over")),
            })
        })
        .event_callback(move |event| {
            match event {
                Event::ServerError(error) => {
                    tell.send_replace(Some(error.to_string().into()));
                }
                Event::Disconnected | Event::Closed => {
                    end.send_replace(true);
                }
                _ => {}
            }
            ready(())
        })
        .name("heraldmq")
        .connection_timeout(longest)
        .request_timeout(Some(self.timeout()))
        .ping_interval(SILENCE)
        .client_capacity(OPEN)
        .ignore_discovered_servers()
        .max_reconnects(1);
        if let Some(tls) = self.tls()? {
            // A server without TLS is none that has the certificate.
            options = options.tls_client_config(tls).require_tls(true);
        }
        let connected = options.connect(url).await;
        is_begun.store(true, Ordering::Relaxed);
        let client = connected.map_err(|error| match error.kind() {
            ConnectErrorKind::AuthorizationViolation => {
                format!("the server refuses the login: {error}")
            }
            ConnectErrorKind::TimedOut => "the server does not answer in time".to_owned(),
            _ => error.to_string(),
        })?;
        let context = ContextBuilder::new()
            .timeout(self.timeout())
            .max_ack_inflight(OPEN)
            .build(client.clone());
        Ok(Link {
            client,
            context,
            said,
            ended,
        })
    }

    /// How TLS is spoken; `None`: not at all, unless the server wants it. Reads the files again, as they may have been replaced.
    fn tls(&self) -> Result<Option<ClientConfig>, String> {
        let NatsServersDefinition {
            urls,
            ca_file,
            cert_file,
            key_file,
            ..
        } = &self.definition;
        let is_wanted = urls.iter().any(|url| url.starts_with("tls://"));
        if !is_wanted && ca_file.is_none() && cert_file.is_none() && key_file.is_none() {
            return Ok(None);
        }
        let authorities = http_client::authorities(ca_file.as_deref())?;
        let mut config = http_client::tls_client(authorities);
        match (cert_file, key_file) {
            (Some(certificate), Some(key)) => {
                let own = own_certificate(certificate, key, &config)?;
                config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(own));
            }
            (None, None) => {}
            _ => return Err("`certFile` and `keyFile` go together".to_owned()),
        }
        Ok(Some(config))
    }
}

fn check_url(url: &str) -> Result<(), String> {
    let rest = url
        .strip_prefix("nats://")
        .or_else(|| url.strip_prefix("tls://"));
    let is_place = |rest: &&str| !rest.is_empty() && !rest.contains(['/', '@', '?', '#']);
    if rest.filter(is_place).is_none() || url.parse::<async_nats::ServerAddr>().is_err() {
        return Err(format!(
            "{url} is no nats://HOST:PORT or tls://HOST:PORT, without path, user name and password"
        ));
    }
    Ok(())
}

fn own_certificate(
    certificate: &Path,
    key: &Path,
    config: &ClientConfig,
) -> Result<CertifiedKey, String> {
    let named = |path: &Path, why: String| format!("{}: {why}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| named(certificate, error.to_string()))?;
    let private = PrivateKeyDer::from_pem_file(key);
    let private = private.map_err(|error| named(key, error.to_string()))?;
    CertifiedKey::from_der(chain, private, config.crypto_provider())
        .map_err(|error| named(certificate, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server() {
        for right in ["nats://n1:4222", "tls://n1", "nats://[::1]:4222"] {
            assert_eq!(check_url(right), Ok(()));
        }
        for wrong in [
            "n1:4222",
            "ws://n1",
            "nats://",
            "nats://u:p@n1",
            "nats://n1/x",
            "nats://n1:x",
        ] {
            check_url(wrong).unwrap_err();
        }
    }

    #[test]
    fn an_address_does_not_depend_on_the_order() {
        let of = |urls: &[&str]| {
            let urls = urls.iter().map(|url| (*url).to_owned());
            let definition = NatsServersDefinition {
                urls: urls.collect(),
                user: None,
                password_file: None,
                token_file: None,
                credentials_file: None,
                ca_file: None,
                cert_file: None,
                key_file: None,
                timeout: SILENCE,
            };
            Servers::new(&definition).map(|servers| servers.address())
        };
        let wanted = Ok("n1:4222,n2".to_owned());
        assert_eq!(of(&["nats://n2", "nats://n1:4222"]), wanted);
        assert_eq!(of(&["nats://n1:4222", "nats://n2"]), wanted);
    }
}
