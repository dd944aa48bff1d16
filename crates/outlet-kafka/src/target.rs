//! Messages are records of Kafka. Each attempt has one deadline.
//!
//! The producer is idempotent: what the library sends again itself is neither doubled nor out of order. What is not acknowledged at the
//! deadline is taken back from it, and it is given up; the next attempt has a new one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use outlet::{Delivery, Item, OpenError, Position};
use outlets::{Definition, Epoch, KafkaDefinition, Size, Target};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::ToBytes as _;
use rdkafka::producer::{BaseRecord, Producer as _, PurgeConfig};
use tokio::time::{Instant, timeout_at};

use crate::client::{Producer, Retired, Told, settings};
use crate::record::Form;

/// Reasons that the dead letters of a batch name at most.
const MOST_REASONS: usize = 4;

/// Topics that one producer has seen at most: the library keeps something of each, and clients may choose them.
const MOST_TOPICS: usize = 10_000;

/// How long the library may take to give back what was taken back from it.
const PURGE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct KafkaTarget {
    definition: KafkaDefinition,
    batch_bytes: Size,
    form: Form,
    producer: Option<Producer>,
    /// Those that the producer has seen.
    topics: BTreeSet<String>,
    retired: Retired,
}

impl KafkaTarget {
    /// # Errors
    /// A template that is none, a file that cannot be read, a setting that the library does not take.
    pub(crate) fn new(outlet: &Definition, kafka: &KafkaDefinition) -> Result<Self, String> {
        let target = Self {
            definition: kafka.clone(),
            batch_bytes: outlet.batch_bytes,
            form: Form::new(&kafka.topic, &kafka.key)?,
            producer: None,
            topics: BTreeSet::new(),
            retired: Retired::default(),
        };
        // The library reads certificates and keys here; it connects, and is left at once.
        let mut settings = settings(kafka, outlet.batch_bytes.0)?;
        settings.set("bootstrap.servers", "");
        let producer = Producer::new(&settings)?;
        drop(producer);
        Ok(target)
    }

    fn give_up(&mut self) {
        if let Some(producer) = self.producer.take() {
            self.retired.retire(producer);
        }
        self.topics.clear();
    }

    /// Begins a producer, and waits until a server has answered.
    async fn connect(&mut self) -> Result<(), String> {
        self.give_up();
        let settings = settings(&self.definition, self.batch_bytes.0)?;
        let producer = Producer::new(&settings)?;
        match producer.connected(self.definition.timeout).await {
            Ok(()) => {
                self.producer = Some(producer);
                Ok(())
            }
            Err(why) => {
                self.retired.retire(producer);
                Err(why)
            }
        }
    }

    async fn publish(&mut self, batch: &[Arc<Item>]) -> Delivery {
        if (self.producer.is_none() || self.topics.len() > MOST_TOPICS)
            && let Err(why) = self.connect().await
        {
            return later(why);
        }
        let Some(mut producer) = self.producer.take() else {
            return later("there is no producer".to_owned());
        };
        let deadline = Instant::now() + self.definition.timeout;
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
        if progress.is_over {
            self.give_up();
        }
        progress.delivery(batch.len())
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
        let (mut large, mut open) = (Vec::new(), 0_usize);
        if progress.is_over {
            return large;
        }
        for &place in places {
            let item = &batch[place];
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
                .headers(Form::headers(item))
                .timestamp(i64::try_from(item.received.0).unwrap_or(i64::MAX));
            match producer.native.send(record) {
                Ok(()) => open += 1,
                Err((error, _)) => judge(&error, place, &topic, producer, progress, &mut large),
            }
            if !self.topics.contains(&topic) {
                self.topics.insert(topic);
            }
        }
        while open > 0 {
            let told = match timeout_at(deadline, producer.told.recv()).await {
                Ok(Some(told)) => told,
                Ok(None) => {
                    progress.later("the library has ended".to_owned(), true);
                    return large;
                }
                Err(_) => {
                    let why = producer.in_words("Kafka does not acknowledge in time");
                    progress.later(why, true);
                    take_back(producer, open, progress).await;
                    return large;
                }
            };
            open -= 1;
            let Told { place, error } = told;
            match error {
                None => progress.done.push(place),
                Some(error) => {
                    let topic = self.form.topic(&batch[place]).unwrap_or_default();
                    judge(&error, place, &topic, producer, progress, &mut large);
                }
            }
        }
        large
    }

    async fn look(&mut self) -> Result<String, String> {
        let mut settings = settings(&self.definition, self.batch_bytes.0)?;
        // Asking for a topic may make it otherwise.
        settings.set("allow.auto.create.topics", "false");
        let producer = Producer::new(&settings)?;
        let topic = self.form.fixed_topic().map(str::to_owned);
        let looked = look(&producer, topic, self.definition.timeout).await;
        self.retired.retire(producer);
        looked
    }
}

impl Target for KafkaTarget {
    fn open(&mut self, _: Epoch) -> BoxFuture<'_, Result<Option<Position>, OpenError>> {
        let opening = self.connect();
        opening
            .map(|opened| match opened {
                Ok(()) => Ok(None),
                Err(why) => Err(OpenError::Retry(why.into())),
            })
            .boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Arc<Item>]) -> BoxFuture<'a, Delivery> {
        self.publish(batch).boxed()
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
    if let Some(why) = producer.fatal() {
        progress.later(why, true);
        return;
    }
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
    refused: Vec<usize>,
    /// Why, without repetition.
    refusals: Vec<String>,
    /// Why at least one message is to be tried again.
    again: Option<String>,
    /// The producer is not to be used any more.
    is_over: bool,
}

impl Progress {
    fn refuse(&mut self, place: usize, why: String) {
        self.refused.push(place);
        if self.refusals.len() < MOST_REASONS && !self.refusals.contains(&why) {
            self.refusals.push(why);
        }
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
        self.refused.sort_unstable();
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
                // The dead letters of a batch have one text.
                why: self.refusals.join("; or ").into(),
            },
            (None, true) => Delivery::All,
        }
    }
}
