//! Messages are published to NATS, and acknowledged by JetStream.
//!
//! Up to [`OPEN`] messages are on their way at a time. Each has an identifier made of its position, so that a stream leaves out a second
//! copy within its duplicate window.
//!
//! The library reconnects by itself, and would publish then what it has kept. So each connection belongs to one client of the library,
//! which is refused to log in once more ([`Link`]): what is not acknowledged is the pump's to give again, in its order.

mod login;
mod message;

use std::collections::VecDeque;
use std::error::Error as _;
use std::fmt;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{
    Context, ContextBuilder, PublishAckFuture, PublishError, PublishErrorKind,
};
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{AuthError, Client, ConnectErrorKind, ConnectOptions, Event};
use outlet::{Delivery, Item, OpenError};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::sync::watch;
use tokio::time::timeout;

use self::login::Login;
use self::message::Form;
use crate::definition::NatsDefinition;

/// Messages that are not acknowledged yet, at most.
const OPEN: usize = 1_000;

/// Silence after which the server is asked whether it is there. After three such questions without an answer the connection is over.
const SILENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct NatsTarget {
    definition: NatsDefinition,
    form: Form,
    /// Which server the next connection is tried with first.
    server: usize,
    link: Option<Link>,
}

/// A connection.
struct Link {
    client: Client,
    context: Context,
    /// The last error that the server has told beside the acknowledgements.
    said: watch::Receiver<Option<Arc<str>>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl NatsTarget {
    /// # Errors
    /// A URL, subject or stream that is none; a file that cannot be read; more than one way to log in.
    pub(crate) fn new(
        definition: &NatsDefinition,
        cluster: &str,
        outlet: &str,
    ) -> Result<Self, String> {
        for url in &definition.urls {
            check_url(url)?;
        }
        let NatsDefinition {
            subject, stream, ..
        } = definition;
        let form = Form::new(subject.as_deref(), stream.as_deref(), (cluster, outlet))?;
        let target = Self {
            definition: definition.clone(),
            form,
            server: 0,
            link: None,
        };
        Login::read(definition)?;
        target.tls()?;
        Ok(target)
    }

    pub(crate) async fn open(&mut self) -> Result<(), OpenError> {
        self.connect()
            .await
            .map_err(|why| OpenError::Retry(why.into()))
    }

    /// Tries one server after the other, each once.
    async fn connect(&mut self) -> Result<(), String> {
        self.link = None;
        let count = self.definition.urls.len();
        let share = u32::try_from(count).map_or(Duration::ZERO, |n| self.definition.timeout / n);
        let mut why = "there is no server".to_owned();
        for _ in 0..count {
            let url = &self.definition.urls[self.server % count];
            let attempt = timeout(share, self.attempt(url, share));
            match attempt.await {
                Ok(Ok(link)) => {
                    self.link = Some(link);
                    return Ok(());
                }
                Ok(Err(error)) => why = format!("{url}: {error}"),
                Err(_) => why = format!("{url}: the server does not answer in time"),
            }
            self.server += 1;
        }
        Err(why)
    }

    async fn attempt(&self, url: &str, longest: Duration) -> Result<Link, String> {
        let login = Login::read(&self.definition)?;
        let is_begun = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&is_begun);
        let (tell, said) = watch::channel(None);
        let mut options = ConnectOptions::with_auth_callback(move |nonce| {
            ready(match begun.load(Ordering::Relaxed) {
                false => login.auth(&nonce),
                true => Err(AuthError::new("the connection is over")),
            })
        })
        .event_callback(move |event| {
            if let Event::ServerError(error) = event {
                tell.send_replace(Some(error.to_string().into()));
            }
            ready(())
        })
        .name("heraldmq")
        .connection_timeout(longest)
        .request_timeout(Some(self.definition.timeout))
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
            .timeout(self.definition.timeout)
            .max_ack_inflight(OPEN)
            .build(client.clone());
        Ok(Link {
            client,
            context,
            said,
        })
    }

    /// How TLS is spoken; `None`: not at all, unless the server wants it. Reads the files again, as they may have been replaced.
    fn tls(&self) -> Result<Option<ClientConfig>, String> {
        let NatsDefinition {
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

    pub(crate) async fn deliver(&mut self, batch: &[Arc<Item>]) -> Delivery {
        let is_connected = |link: &Link| link.client.connection_state() == State::Connected;
        if !self.link.as_ref().is_some_and(is_connected)
            && let Err(why) = self.connect().await
        {
            // It has ended while there was nothing to do.
            return Delivery::Retry {
                after: None,
                why: why.into(),
            };
        }
        let Some(mut link) = self.link.take() else {
            return Delivery::Retry {
                after: None,
                why: "there is no connection".into(),
            };
        };
        let progress = self.publish(&mut link, batch).await;
        if progress.again.is_none() {
            self.link = Some(link);
        }
        progress.delivery()
    }

    async fn publish(&self, link: &mut Link, batch: &[Arc<Item>]) -> Progress {
        let mut progress = Progress::default();
        let mut open: VecDeque<(usize, PublishAckFuture)> = VecDeque::with_capacity(OPEN);
        let mut rest = batch.iter().enumerate();
        link.said.mark_unchanged();
        loop {
            while progress.again.is_none()
                && open.len() < OPEN
                && let Some((place, item)) = rest.next()
            {
                let subject = match self.form.subject(item) {
                    Ok(subject) => subject,
                    Err(why) => {
                        progress.refuse(place, why);
                        continue;
                    }
                };
                let sent = link.context.send_publish(subject, self.form.message(item));
                match sent.await {
                    Ok(ack) => open.push_back((place, ack)),
                    Err(error) => self.handle_error(&mut progress, (place, item), &error),
                }
            }
            let Some((place, ack)) = open.pop_front() else {
                return progress;
            };
            let item = &batch[place];
            tokio::select! {
                biased;
                answer = ack.into_future() => match answer {
                    Ok(_) => progress.done.push(place),
                    Err(error) => {
                        self.handle_error(&mut progress, (place, item), &error);
                        // What does not answer one does not answer others: all are waited for together.
                        if is_silent(&error) {
                            return progress;
                        }
                    }
                },
                // A message that was not allowed gets no other answer.
                Ok(()) = link.said.changed() => {
                    let said = link.said.borrow_and_update().clone();
                    let said = said.unwrap_or_else(|| "an error".into());
                    progress.again = Some(format!("the server says: {said}"));
                    return progress;
                }
            }
        }
    }

    fn handle_error(
        &self,
        progress: &mut Progress,
        (place, item): (usize, &Item),
        error: &PublishError,
    ) {
        let refused = error.source().and_then(|source| source.downcast_ref());
        let refused = refused.filter(|error: &&jetstream::Error| {
            [
                ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
                ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
                ErrorCode::STREAM_NOT_MATCH,
            ]
            .contains(&error.error_code())
        });
        match (error.kind(), refused) {
            (PublishErrorKind::MaxPayloadExceeded, _) => progress.refuse(place, error.to_string()),
            (_, Some(refused)) => progress.refuse(place, refused.to_string()),
            (PublishErrorKind::StreamNotFound, _) => {
                let subject = self.form.subject(item).unwrap_or_default();
                progress.again = Some(format!("no stream of JetStream takes {subject}"));
            }
            (PublishErrorKind::TimedOut, _) => {
                progress.again = Some("the server does not acknowledge in time".to_owned());
            }
            (PublishErrorKind::BrokenPipe, _) => {
                progress.again = Some("the server has ended the connection".to_owned());
            }
            _ => progress.again = Some(error.to_string()),
        }
    }

    /// Connects, and says what is there.
    pub(crate) async fn probe(&mut self) -> Result<String, String> {
        self.connect().await?;
        let Some(link) = self.link.take() else {
            return Err("there is no connection".to_owned());
        };
        let version = link.client.server_info().version;
        let account = link.context.query_account().await;
        account.map_err(|error| format!("NATS {version} without JetStream: {error}"))?;
        let pattern = self.form.pattern();
        if let Some(stream) = &self.definition.stream {
            let found = link.context.get_stream(stream).await;
            found.map_err(|error| format!("NATS {version}, stream {stream}: {error}"))?;
            return Ok(format!(
                "NATS {version} has JetStream and the stream {stream}"
            ));
        }
        match link.context.stream_by_subject(pattern.clone()).await {
            Ok(stream) => Ok(format!(
                "NATS {version} has JetStream, and the stream {stream} for subjects of {pattern}"
            )),
            Err(error) => Err(format!(
                "NATS {version} has JetStream, but no stream for {pattern}: {error}"
            )),
        }
    }
}

/// What became of the messages of a batch.
#[derive(Debug, Default)]
struct Progress {
    done: Vec<usize>,
    /// With the reason of each.
    refused: Vec<(usize, Arc<str>)>,
    /// Why at least one message is to be tried again.
    again: Option<String>,
}

impl Progress {
    fn refuse(&mut self, place: usize, why: String) {
        self.refused.push((place, why.into()));
    }

    /// What the pump is told. A message that was refused beside one that is tried again is tried again, too.
    fn delivery(mut self) -> Delivery {
        self.done.sort_unstable();
        self.refused.sort_unstable_by_key(|(place, _)| *place);
        match (self.again, self.refused.is_empty()) {
            (Some(why), _) => Delivery::Part {
                done: self.done,
                after: None,
                why: why.into(),
            },
            (None, false) => Delivery::Except {
                refused: self.refused,
            },
            (None, true) => Delivery::All,
        }
    }
}

fn is_silent(error: &PublishError) -> bool {
    matches!(
        error.kind(),
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe
    )
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
    fn what_the_stream_has_is_told_beside_what_it_is_to_be_given_again() {
        let of = |done: &[usize], refused: &[usize], again: Option<&str>| {
            let mut progress = Progress {
                done: done.to_vec(),
                again: again.map(str::to_owned),
                ..Progress::default()
            };
            for place in refused {
                let why = if *place == 2 { "large" } else { "no" };
                progress.refuse(*place, why.to_owned());
            }
            progress.delivery()
        };
        assert_eq!(of(&[0, 1], &[], None), Delivery::All);
        let except = Delivery::Except {
            refused: vec![(0, "no".into()), (2, "large".into()), (3, "no".into())],
        };
        assert_eq!(of(&[1], &[2, 0, 3], None), except);
        let part = Delivery::Part {
            done: vec![1],
            after: None,
            why: "later".into(),
        };
        assert_eq!(of(&[1], &[0], Some("later")), part);
    }
}
