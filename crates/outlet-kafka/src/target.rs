//! Messages are records of Kafka. Each attempt has one deadline.
//!
//! With `exactlyOnce` a batch is a transaction (`exact.rs`). Otherwise the producer is idempotent: what the library sends again itself is neither doubled nor out of order. What is not acknowledged at the
//! deadline is taken back from it, and it is given up; the next attempt has a new one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use outlet::{Delivery, Item, OpenError, Position, Refusal};
use outlets::{Count, Definition, Epoch, KafkaDefinition, Size, Target};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::ToBytes as _;
use rdkafka::producer::{BaseRecord, Producer as _, PurgeConfig};
use tokio::time::{Instant, timeout_at};

use crate::client::{Producer, Retired, Told, address, settings};
use crate::exact::{Ledger, fences, in_words, is_fenced};
use crate::record::Form;

/// Reasons that the dead letters of a transaction name at most.
const MOST_REASONS: usize = 4;

/// Topics that one producer has seen at most: the library keeps something of each, and clients may choose them.
const MOST_TOPICS: usize = 10_000;

/// How long the end of a transaction may take beyond the deadline of its records.
const COMMIT: Duration = Duration::from_secs(1);

/// How long the library may take to give back what was taken back from it.
const PURGE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct KafkaTarget {
    definition: KafkaDefinition,
    batch_bytes: Size,
    form: Form,
    /// Where transactions are noted, if there are any.
    ledger: Option<Ledger>,
    epoch: Epoch,
    producer: Option<Producer>,
    /// Those that the producer has seen.
    topics: BTreeSet<String>,
    retired: Retired,
    /// Messages that were dropped as they went in a circle.
    looped: Count,
}

impl KafkaTarget {
    /// # Errors
    /// A template that is none, a file that cannot be read, a setting that the library does not take.
    pub(crate) fn new(outlet: &Definition, kafka: &KafkaDefinition) -> Result<Self, String> {
        let target = Self {
            definition: kafka.clone(),
            batch_bytes: outlet.batch_bytes,
            form: Form::new(
                (&kafka.topic, &kafka.key, &kafka.positions_topic),
                (&outlet.cluster, &address(&kafka.servers.servers)),
            )?,
            ledger: kafka
                .exactly_once
                .then(|| Ledger::new(&kafka.positions_topic, &outlet.cluster, &outlet.name)),
            epoch: Epoch(0),
            producer: None,
            topics: BTreeSet::new(),
            retired: Retired::default(),
            looped: Count(0),
        };
        // The library reads certificates and keys here; it connects, and is left at once.
        let mut settings = target.settings()?;
        settings.set("bootstrap.servers", "");
        let producer = Producer::new(&settings)?;
        drop(producer);
        Ok(target)
    }

    /// Reads the files again, so that what was replaced counts.
    fn settings(&self) -> Result<ClientConfig, String> {
        let mut settings = settings(&self.definition, self.batch_bytes.0)?;
        if let Some(ledger) = &self.ledger {
            let longest = (self.definition.servers.timeout.as_millis() * 2).clamp(10_000, 900_000);
            settings
                .set("transactional.id", ledger.transactional_id())
                .set("transaction.timeout.ms", longest.to_string())
                .set("message.timeout.ms", longest.to_string());
        }
        Ok(settings)
    }

    fn give_up(&mut self) {
        if let Some(producer) = self.producer.take() {
            self.retired.retire(producer);
        }
        self.topics.clear();
    }

    /// Begins a producer, and waits until a server has answered. Gives what Kafka says that it has, with transactions.
    async fn connect(&mut self) -> Result<Option<Position>, OpenError> {
        self.give_up();
        let failed = |why: String| OpenError::Retry(why.into());
        let settings = self.settings().map_err(failed)?;
        let producer = Producer::new(&settings).map_err(failed)?;
        let time = self.definition.servers.timeout;
        let connected = producer.connected(time).await.map_err(failed);
        let opened = match (connected, &self.ledger) {
            (Ok(()), Some(ledger)) => ledger.open(&settings, &producer, self.epoch, time).await,
            (Ok(()), None) => Ok(None),
            (Err(error), _) => Err(error),
        };
        match opened {
            Ok(_) => self.producer = Some(producer),
            Err(_) => self.retired.retire(producer),
        }
        opened
    }

    async fn publish(&mut self, batch: &[Arc<Item>]) -> Delivery {
        if self.topics.len() > MOST_TOPICS {
            return later("the producer has seen many topics: a new one begins".to_owned());
        }
        let Some(mut producer) = self.producer.take() else {
            return later("there is no producer".to_owned());
        };
        let deadline = Instant::now() + self.definition.servers.timeout;
        if let Some(ledger) = self.ledger.clone() {
            let delivery = self.transact(&ledger, &mut producer, batch, deadline).await;
            self.producer = Some(producer);
            if matches!(delivery, Delivery::Retry { .. } | Delivery::Fenced) {
                self.give_up();
            }
            return delivery;
        }
        let mut progress = Progress::default();
        let all: Vec<usize> = (0..batch.len()).collect();
        let mut large = self
            .send(&mut producer, batch, &all, deadline, &mut progress)
            .await;
        if let [alone] = large[..]
            && all.len() == 1
        {
            progress.refuse(alone, too_large());
            large.clear();
        }
        // A server refuses all records that went to it together; one that goes alone is judged alone.
        large.sort_unstable();
        for place in large {
            let alone = [place];
            let sent = self.send(&mut producer, batch, &alone, deadline, &mut progress);
            for place in sent.await {
                progress.refuse(place, too_large());
            }
        }
        self.producer = Some(producer);
        self.looped.0 += progress.looped.0;
        if progress.is_over {
            self.give_up();
        }
        progress.delivery(batch.len())
    }

    /// Has a batch written in one transaction, or the messages before one that cannot be a record.
    async fn transact(
        &mut self,
        ledger: &Ledger,
        producer: &mut Producer,
        batch: &[Arc<Item>],
        deadline: Instant,
    ) -> Delivery {
        let formed = batch.iter().map(|item| self.form.check(item));
        let wrong = formed
            .enumerate()
            .find_map(|(place, formed)| Some((place, formed.err()?)));
        let count = wrong.as_ref().map_or(batch.len(), |(place, _)| *place);
        let written = match &batch[..count] {
            [] => Ok(()),
            batch => self.transaction(ledger, producer, batch, deadline).await,
        };
        match (written, wrong) {
            (Ok(()), None) => Delivery::All,
            (Ok(()), Some((place, why))) => Delivery::Refused {
                which: Refusal::At(place),
                why: why.into(),
            },
            (Err(delivery), _) => delivery,
        }
    }

    /// All or nothing.
    async fn transaction(
        &mut self,
        ledger: &Ledger,
        producer: &mut Producer,
        batch: &[Arc<Item>],
        deadline: Instant,
    ) -> Result<(), Delivery> {
        producer
            .native
            .begin_transaction()
            .map_err(|error| failure(&error))?;
        let mut progress = Progress::default();
        let position = batch.iter().rev().find_map(|item| item.position);
        let noted = position.map(|position| ledger.note(producer, position, self.epoch));
        let mut open = 0;
        match noted {
            Some(Ok(())) => open += 1,
            Some(Err(error)) => progress.later(error.to_string(), true),
            None => {}
        }
        let places: Vec<usize> = (0..batch.len()).collect();
        let mut large = Vec::new();
        open += self.enqueue(producer, batch, &places, &mut progress, &mut large);
        self.settle(producer, batch, open, deadline, &mut progress, &mut large)
            .await;
        if progress.is_fenced {
            return Err(Delivery::Fenced);
        }
        if let Some(why) = progress.again {
            return Err(later(why));
        }
        let native = producer.native.clone();
        let time = deadline.saturating_duration_since(Instant::now()) + COMMIT;
        let is_refused = !large.is_empty() || !progress.refused.is_empty();
        let ended = tokio::task::spawn_blocking(move || match is_refused {
            true => native.abort_transaction(time),
            false => native.commit_transaction(time),
        });
        match ended.await {
            Ok(Ok(())) if !is_refused => {
                self.looped.0 += progress.looped.0;
                Ok(())
            }
            Ok(Ok(())) => {
                if !large.is_empty() {
                    progress.refuse(0, too_large());
                }
                Err(Delivery::Refused {
                    which: match batch.len() {
                        1 => Refusal::At(0),
                        _ => Refusal::One,
                    },
                    why: progress.refusals().into(),
                })
            }
            Ok(Err(error)) => Err(failure(&error)),
            Err(error) => Err(later(error.to_string())),
        }
    }

    /// Has records delivered. Gives those that were too large together.
    async fn send(
        &mut self,
        producer: &mut Producer,
        batch: &[Arc<Item>],
        places: &[usize],
        deadline: Instant,
        progress: &mut Progress,
    ) -> Vec<usize> {
        let mut large = Vec::new();
        if progress.is_over {
            return large;
        }
        let open = self.enqueue(producer, batch, places, progress, &mut large);
        self.settle(producer, batch, open, deadline, progress, &mut large)
            .await;
        large
    }

    /// Gives records to the library. Says how many it reports of.
    fn enqueue(
        &mut self,
        producer: &Producer,
        batch: &[Arc<Item>],
        places: &[usize],
        progress: &mut Progress,
        large: &mut Vec<usize>,
    ) -> usize {
        let mut open = 0;
        for &place in places {
            let item = &batch[place];
            let Some(path) = self.form.path(item) else {
                progress.looped.0 += 1;
                progress.done.push(place);
                continue;
            };
            let formed = self
                .form
                .topic(item)
                .and_then(|topic| Ok((topic, self.form.key(item)?)));
            let (topic, key) = match formed {
                Ok(formed) => formed,
                Err(why) => {
                    progress.refuse(place, why);
                    continue;
                }
            };
            let record = BaseRecord::with_opaque_to(&topic, place)
                .key(&key)
                .payload(item.payload.to_bytes())
                .headers(Form::headers(item, &path))
                .timestamp(i64::try_from(item.received.0).unwrap_or(i64::MAX));
            match producer.native.send(record) {
                Ok(()) => open += 1,
                Err((error, _)) => judge(&error, place, &topic, producer, progress, large),
            }
            if !self.topics.contains(&topic) {
                self.topics.insert(topic);
            }
        }
        open
    }

    /// Waits until the library has reported of all.
    async fn settle(
        &mut self,
        producer: &mut Producer,
        batch: &[Arc<Item>],
        mut open: usize,
        deadline: Instant,
        progress: &mut Progress,
        large: &mut Vec<usize>,
    ) {
        while open > 0 {
            let told = match timeout_at(deadline, producer.told.recv()).await {
                Ok(Some(told)) => told,
                Ok(None) => {
                    progress.later("the library has ended".to_owned(), true);
                    return;
                }
                Err(_) => {
                    let why = producer.in_words("Kafka does not acknowledge in time");
                    progress.later(why, true);
                    take_back(producer, open, progress).await;
                    return;
                }
            };
            open -= 1;
            let Told { place, error } = told;
            match error {
                None => progress.done.push(place),
                Some(error) => {
                    let topic = batch.get(place).map(|item| self.form.topic(item));
                    let topic = match (topic, &self.ledger) {
                        (Some(topic), _) => topic.unwrap_or_default(),
                        (None, Some(ledger)) => ledger.topic().to_owned(),
                        (None, None) => String::new(),
                    };
                    judge(&error, place, &topic, producer, progress, large);
                }
            }
        }
    }

    async fn look(&mut self) -> Result<String, String> {
        let mut settings = self.settings()?;
        // Asking for a topic may make it otherwise.
        settings.set("allow.auto.create.topics", "false");
        let producer = Producer::new(&settings)?;
        let topic = self.form.fixed_topic().map(str::to_owned);
        let looked = look(&producer, topic, self.definition.servers.timeout).await;
        self.retired.retire(producer);
        looked
    }
}

impl Target for KafkaTarget {
    fn open(&mut self, epoch: Epoch) -> BoxFuture<'_, Result<Option<Position>, OpenError>> {
        self.epoch = epoch;
        self.connect().boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Arc<Item>]) -> BoxFuture<'a, Delivery> {
        self.publish(batch).boxed()
    }

    fn looped(&self) -> Count {
        self.looped
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<String, String>> {
        self.look().boxed()
    }
}

impl Drop for KafkaTarget {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Says what Kafka has, perhaps with a topic.
async fn look(
    producer: &Producer,
    topic: Option<String>,
    time: Duration,
) -> Result<String, String> {
    producer.connected(time).await?;
    let (native, asked_for) = (producer.native.clone(), topic.clone());
    let asked = tokio::task::spawn_blocking(move || {
        native.client().fetch_metadata(asked_for.as_deref(), time)
    });
    let metadata = asked.await.map_err(|error| error.to_string())?;
    let metadata = metadata.map_err(|error| producer.in_words(&error.to_string()))?;
    let count = metadata.brokers().len();
    let servers = format!("Kafka has brokers: {count}");
    let Some(topic) = topic else {
        return Ok(servers);
    };
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let Some(found) = found else {
        return Err(format!("{servers}; nothing is said of the topic {topic}"));
    };
    match found.error().map(RDKafkaErrorCode::from) {
        None => {
            let count = found.partitions().len();
            Ok(format!(
                "{servers}; the topic {topic} has partitions: {count}"
            ))
        }
        Some(code) => Err(format!("{servers}; {}", about_topic(code, &topic))),
    }
}

/// Takes back what is not delivered, and hears what became of it: some of it may be there.
async fn take_back(producer: &mut Producer, mut open: usize, progress: &mut Progress) {
    producer
        .native
        .purge(PurgeConfig::default().queue().inflight());
    let deadline = Instant::now() + PURGE;
    while open > 0
        && let Ok(Some(told)) = timeout_at(deadline, producer.told.recv()).await
    {
        open -= 1;
        if told.error.is_none() {
            progress.done.push(told.place);
        }
    }
}

/// What an error says of a record.
fn judge(
    error: &KafkaError,
    place: usize,
    topic: &str,
    producer: &Producer,
    progress: &mut Progress,
    large: &mut Vec<usize>,
) {
    let code = error.rdkafka_error_code();
    let code = code.unwrap_or(RDKafkaErrorCode::Unknown);
    if let Some((code, why)) = producer.fatal() {
        progress.is_fenced |= fences(code);
        progress.later(why, true);
        return;
    }
    progress.is_fenced |= fences(code);
    match code {
        RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge => {
            large.push(place);
        }
        RDKafkaErrorCode::InvalidRecord
        | RDKafkaErrorCode::InvalidTimestamp
        | RDKafkaErrorCode::InvalidTopic
        | RDKafkaErrorCode::UnsupportedForMessageFormat => {
            progress.refuse(
                place,
                format!("Kafka refuses it: {}", about_topic(code, topic)),
            );
        }
        code => {
            let why = about_topic(code, topic);
            progress.later(producer.in_words(&why), false);
        }
    }
}

/// An error in words.
fn about_topic(code: RDKafkaErrorCode, topic: &str) -> String {
    match code {
        RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition => {
            format!("Kafka has no topic {topic}")
        }
        RDKafkaErrorCode::TopicAuthorizationFailed => {
            format!("the user may not write to the topic {topic}")
        }
        code => format!("topic {topic}: {code}"),
    }
}

fn too_large() -> String {
    "it is larger than the max.message.bytes of the topic".to_owned()
}

/// What an error of a transaction says of a batch.
fn failure(error: &KafkaError) -> Delivery {
    match is_fenced(error) {
        true => Delivery::Fenced,
        false => later(in_words(error)),
    }
}

fn later(why: String) -> Delivery {
    Delivery::Retry {
        after: None,
        why: why.into(),
    }
}

/// What became of the messages of a batch.
#[derive(Debug, Default)]
struct Progress {
    done: Vec<usize>,
    /// Their places, and why.
    refused: Vec<(usize, Arc<str>)>,
    /// How many are dropped as they go in a circle.
    looped: Count,
    /// Why at least one message is to be tried again.
    again: Option<String>,
    /// The producer is not to be used any more.
    is_over: bool,
    /// A later process has the outlet.
    is_fenced: bool,
}

impl Progress {
    fn refuse(&mut self, place: usize, why: String) {
        self.refused.push((place, why.into()));
    }

    /// Why messages are refused, without repetition.
    fn refusals(&self) -> String {
        let mut reasons: Vec<&str> = Vec::new();
        for (_, why) in &self.refused {
            if reasons.len() < MOST_REASONS && !reasons.contains(&&**why) {
                reasons.push(why);
            }
        }
        reasons.join("; or ")
    }

    fn later(&mut self, why: String, is_over: bool) {
        self.is_over |= is_over;
        if self.again.is_none() {
            self.again = Some(why);
        }
    }

    /// What the pump is told. A message that was refused beside one that is tried again is tried again, too.
    fn delivery(mut self, count: usize) -> Delivery {
        self.done.sort_unstable();
        self.refused.sort_unstable_by_key(|(place, _)| *place);
        match (self.again, self.refused.is_empty()) {
            // All was there when the time was over.
            (Some(_), _) if self.done.len() == count => Delivery::All,
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
