//! Messages are published to NATS, and acknowledged by JetStream.
//!
//! Up to [`OPEN`] messages are on their way at a time. Each has an identifier made of its position, so that a stream leaves out a second
//! copy within its duplicate window.

mod message;

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::Arc;

use async_nats::connection::State;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use outlet::{Delivery, Item, OpenError};

use self::message::Form;
use crate::definition::NatsDefinition;
use crate::nats::{Link, OPEN, Servers};
use crate::report::Count;

#[derive(Debug)]
pub(crate) struct NatsTarget {
    definition: NatsDefinition,
    servers: Servers,
    form: Form,
    link: Option<Link>,
    /// Messages that have been here before, or have passed too many clusters.
    looped: Count,
}

impl NatsTarget {
    /// # Errors
    /// A URL, subject or stream that is none; a file that cannot be read; more than one way to log in.
    pub(crate) fn new(
        definition: &NatsDefinition,
        cluster: &str,
        outlet: &str,
    ) -> Result<Self, String> {
        let servers = Servers::new(&definition.servers)?;
        let NatsDefinition {
            subject, stream, ..
        } = definition;
        let names = (cluster, outlet, &*servers.address());
        Ok(Self {
            definition: definition.clone(),
            form: Form::new(subject.as_deref(), stream.as_deref(), names)?,
            servers,
            link: None,
            looped: Count(0),
        })
    }

    pub(crate) async fn open(&mut self) -> Result<(), OpenError> {
        self.connect()
            .await
            .map_err(|why| OpenError::Retry(why.into()))
    }

    /// Messages that were dropped since they went in a circle.
    pub(crate) fn looped(&self) -> Count {
        self.looped
    }

    async fn connect(&mut self) -> Result<(), String> {
        self.link = None;
        self.link = Some(self.servers.connect().await?);
        Ok(())
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

    async fn publish(&mut self, link: &mut Link, batch: &[Arc<Item>]) -> Progress {
        let mut progress = Progress::default();
        let mut open: VecDeque<(usize, PublishAckFuture)> = VecDeque::with_capacity(OPEN);
        let mut rest = batch.iter().enumerate();
        link.said.mark_unchanged();
        loop {
            while progress.again.is_none()
                && open.len() < OPEN
                && let Some((place, item)) = rest.next()
            {
                let Some(path) = self.form.path(item) else {
                    self.looped.0 += 1;
                    progress.done.push(place);
                    continue;
                };
                let subject = match self.form.subject(item) {
                    Ok(subject) => subject,
                    Err(why) => {
                        progress.refuse(place, why);
                        continue;
                    }
                };
                let sent = link
                    .context
                    .send_publish(subject, self.form.message(item, &path));
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

#[cfg(test)]
mod tests {
    use super::*;

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
