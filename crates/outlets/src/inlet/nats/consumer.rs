//! The durable consumer of an inlet: what it is to be, and where it goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::Stream;

use crate::inlet::definition::NatsSourceDefinition;

/// Messages that the inlet has not acknowledged, at most.
pub(super) const MOST_OPEN: i64 = 1_000;

/// How long the server waits for an acknowledgement before it gives a message again. An inlet that runs says meanwhile that it
/// has the message, so the time counts only after it has ended.
pub(super) const ACK_WAIT: Duration = Duration::from_secs(30);

/// When the stream was made, in ns of Unix time: another stream of its name has another time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Made(pub(super) i128);

/// The place of a message in its stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Sequence(pub(super) u64);

/// What this process has got of a stream: if somebody deletes the consumer, another one begins at the first message that the inlet
/// has not acknowledged.
#[derive(Debug)]
pub(super) struct Progress {
    of: Made,
    unfinished: BTreeSet<Sequence>,
    /// Behind the last message that came.
    next: Option<Sequence>,
}

impl Progress {
    pub(super) fn new(of: Made) -> Self {
        Self {
            of,
            unfinished: BTreeSet::new(),
            next: None,
        }
    }

    pub(super) fn is_of(&self, made: Made) -> bool {
        self.of == made
    }

    pub(super) fn handle_message(&mut self, sequence: Sequence) {
        self.unfinished.insert(sequence);
        let behind = Sequence(sequence.0.saturating_add(1));
        self.next = self.next.max(Some(behind));
    }

    pub(super) fn handle_acknowledged(&mut self, sequence: Sequence) {
        self.unfinished.remove(&sequence);
    }

    /// Where another consumer begins; `None`: nothing has come.
    pub(super) fn start(&self) -> Option<Sequence> {
        self.unfinished.first().copied().or(self.next)
    }
}

/// The consumer, made if it is not there, changed if it is another one than the configuration says.
///
/// # Errors
/// Why there is none.
pub(super) async fn consumer(
    stream: &Stream,
    definition: &NatsSourceDefinition,
    start: Option<Sequence>,
) -> Result<PullConsumer, String> {
    let durable = &definition.durable;
    let failed = |error: &dyn std::fmt::Display| format!("the consumer {durable}: {error}");
    match stream.consumer_info(durable).await {
        Ok(info) => {
            problem(&info.config).map_or(Ok(()), |why| Err(failed(&why)))?;
            if fits(&info.config, definition) {
                let found = stream.get_consumer(durable).await;
                return found.map_err(|error| failed(&error));
            }
            let changed = stream.update_consumer(wanted(definition, info.config.deliver_policy));
            changed.await.map_err(|error| failed(&error))
        }
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {
            let policy = match start {
                Some(Sequence(start_sequence)) => DeliverPolicy::ByStartSequence { start_sequence },
                None if definition.is_from_beginning => DeliverPolicy::All,
                None => DeliverPolicy::New,
            };
            let made = stream.create_consumer_strict(wanted(definition, policy));
            made.await.map_err(|error| failed(&error))
        }
        Err(error) => Err(failed(&error)),
    }
}

fn wanted(definition: &NatsSourceDefinition, deliver_policy: DeliverPolicy) -> pull::Config {
    pull::Config {
        durable_name: Some(definition.durable.clone()),
        description: Some("inlet of HeraldMQ".to_owned()),
        deliver_policy,
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        filter_subjects: definition.subjects.clone(),
        max_ack_pending: MOST_OPEN,
        ..pull::Config::default()
    }
}

/// What is wrong with a consumer that somebody else has made.
fn problem(config: &consumer::Config) -> Option<&'static str> {
    if config.deliver_subject.is_some() {
        Some("it is a push consumer, and the inlet needs a pull consumer")
    } else if config.ack_policy != AckPolicy::Explicit {
        Some("its acknowledgements are not explicit")
    } else {
        None
    }
}

fn fits(config: &consumer::Config, definition: &NatsSourceDefinition) -> bool {
    let mut subjects = config.filter_subjects.clone();
    if !config.filter_subject.is_empty() {
        subjects.push(config.filter_subject.clone());
    }
    let sorted = |mut subjects: Vec<String>| {
        subjects.sort();
        subjects
    };
    sorted(subjects) == sorted(definition.subjects.clone())
        && config.ack_wait == ACK_WAIT
        && config.max_ack_pending == MOST_OPEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_consumer_begins_at_the_first_message_that_is_not_acknowledged() {
        let mut progress = Progress::new(Made(1));
        assert!(progress.is_of(Made(1)) && !progress.is_of(Made(2)));
        assert_eq!(progress.start(), None);
        for sequence in [7, 8, 9] {
            progress.handle_message(Sequence(sequence));
        }
        progress.handle_acknowledged(Sequence(8));
        assert_eq!(progress.start(), Some(Sequence(7)));
        progress.handle_acknowledged(Sequence(7));
        progress.handle_acknowledged(Sequence(9));
        assert_eq!(progress.start(), Some(Sequence(10)));
        // It came again.
        progress.handle_message(Sequence(3));
        progress.handle_acknowledged(Sequence(3));
        assert_eq!(progress.start(), Some(Sequence(10)));
    }
}
