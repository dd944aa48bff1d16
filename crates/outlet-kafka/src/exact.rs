//! Each batch is a transaction, which also notes up to which position the outlet's messages are there: in a record of a compacted topic
//! of positions. When the answer to a commit is lost, opening says whether the batch is there.
//!
//! A producer that begins fences the one before it, whose transactions are over then. Only after that the position is read: so it has all
//! that was written before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outlet::{Incarnation, OpenError, Position, Sequence};
use outlets::Epoch;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};

use crate::client::Producer;

/// The place in a batch of the record with the position.
pub(crate) const NOTE: usize = usize::MAX;

/// The partition of positions: with one, a reader needs no second one to know all.
const PARTITION: i32 = 0;

/// Bytes of a segment of the topic of positions: what is not the last one is compacted.
const SEGMENT: &str = "16777216";

/// How long one question of the reader may take.
const SLICE: Duration = Duration::from_millis(500);

/// Where the outlet's transactions are noted.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// The topic of positions.
    topic: String,
    /// The key of the outlet's records there, and what its transactions are known by.
    key: String,
}

/// What a record of the topic of positions says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Note {
    position: Position,
    epoch: Epoch,
}

impl Note {
    fn text(&self) -> String {
        let Self { position, epoch } = self;
        json!({
            "incarnation": position.incarnation.0,
            "sequence": position.sequence.0,
            "epoch": epoch.0,
        })
        .to_string()
    }

    /// `None`: it is none.
    fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let number = |name: &str| value.get(name)?.as_u64();
        Some(Self {
            position: Position {
                incarnation: Incarnation(number("incarnation")?),
                sequence: Sequence(number("sequence")?),
            },
            epoch: Epoch(number("epoch")?),
        })
    }
}

impl Ledger {
    pub(crate) fn new(topic: &str, cluster: &str, outlet: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            key: format!("{cluster}/{outlet}"),
        }
    }

    /// Clients' messages are not to get there.
    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// The producer's name, of which Kafka lets one write.
    pub(crate) fn transactional_id(&self) -> String {
        format!("heraldmq/{}", self.key)
    }

    /// Begins the outlet's transactions with a new producer. Gives what Kafka has of it.
    ///
    /// # Errors
    /// A later process has the outlet; Kafka does not answer in time, or refuses.
    pub(crate) async fn open(
        &self,
        settings: &ClientConfig,
        producer: &Producer,
        epoch: Epoch,
        time: Duration,
    ) -> Result<Option<Position>, OpenError> {
        let deadline = Instant::now() + time;
        let failed = |why: String| OpenError::Retry(why.into());
        self.make_topic(settings, time).await.map_err(failed)?;
        let native = producer.native.clone();
        let begun = tokio::task::spawn_blocking(move || native.init_transactions(time));
        match begun.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if is_fenced(&error) => return Err(OpenError::Fenced),
            Ok(Err(error)) => return Err(failed(producer.in_words(&in_words(&error)))),
            Err(error) => return Err(failed(error.to_string())),
        }
        let (ledger, settings) = (self.clone(), settings.clone());
        let reading = tokio::task::spawn_blocking(move || ledger.read(&settings, deadline));
        let read = reading.await.map_err(|error| failed(error.to_string()))?;
        let note = read.map_err(|why| failed(format!("topic {}: {why}", self.topic)))?;
        match note {
            Some(note) if note.epoch > epoch => Err(OpenError::Fenced),
            note => Ok(note.map(|note| note.position)),
        }
    }

    /// Has the position written in the transaction that is under way.
    ///
    /// # Errors
    /// The library does not take it.
    pub(crate) fn note(
        &self,
        producer: &Producer,
        position: Position,
        epoch: Epoch,
    ) -> Result<(), KafkaError> {
        let text = Note { position, epoch }.text();
        let record = BaseRecord::with_opaque_to(&self.topic, NOTE)
            .partition(PARTITION)
            .key(&self.key)
            .payload(&text);
        producer.native.send(record).map_err(|(error, _)| error)
    }

    async fn make_topic(&self, settings: &ClientConfig, time: Duration) -> Result<(), String> {
        let mut settings = connection(settings);
        settings.set("allow.auto.create.topics", "false");
        let admin: AdminClient<DefaultClientContext> =
            settings.create().map_err(|error| error.to_string())?;
        let (name, admin) = (self.topic.clone(), Arc::new(admin));
        let asked = Arc::clone(&admin);
        let found =
            tokio::task::spawn_blocking(move || asked.inner().fetch_metadata(Some(&name), time));
        let found = found.await.map_err(|error| error.to_string())?;
        let found = found.map_err(|error| error.to_string())?;
        let topic = found
            .topics()
            .iter()
            .find(|topic| topic.name() == self.topic);
        let missing = [
            RDKafkaErrorCode::UnknownTopic,
            RDKafkaErrorCode::UnknownTopicOrPartition,
        ];
        match topic
            .and_then(|topic| topic.error())
            .map(RDKafkaErrorCode::from)
        {
            None => return Ok(()),
            Some(code) if missing.contains(&code) => {}
            Some(code) => return Err(format!("topic {}: {code}", self.topic)),
        }
        let topic = NewTopic::new(&self.topic, 1, TopicReplication::Fixed(-1))
            .set("cleanup.policy", "compact")
            .set("segment.bytes", SEGMENT);
        let options = AdminOptions::new().operation_timeout(Some(time));
        let made = admin.create_topics([&topic], &options).await;
        let why = match made.map(|made| made.into_iter().next()) {
            Ok(None | Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)))) => {
                return Ok(());
            }
            Ok(Some(Err((_, code)))) => code.to_string(),
            Err(error) => error.to_string(),
        };
        let name = &self.topic;
        Err(format!(
            "the topic of positions cannot be made: {why}; somebody who may has to run: kafka-topics.sh --create --topic {name} --partitions 1 --config cleanup.policy=compact"
        ))
    }

    /// The last record of the outlet that is committed. Waits for it.
    fn read(&self, settings: &ClientConfig, deadline: Instant) -> Result<Option<Note>, String> {
        let reader = |isolation: &str| {
            let mut settings = connection(settings);
            settings
                .set("group.id", self.transactional_id())
                .set("enable.auto.commit", "false")
                .set("enable.partition.eof", "true")
                .set("isolation.level", isolation);
            let reader = settings.create::<BaseConsumer>();
            reader.map_err(|error| error.to_string())
        };
        let in_time = |what: &str| match Instant::now() < deadline {
            true => Ok(()),
            false => Err(format!("{what} in time")),
        };
        let ends = reader("read_uncommitted")?;
        let end = loop {
            match ends.fetch_watermarks(&self.topic, PARTITION, SLICE) {
                Ok((_, end)) => break end,
                Err(error) => {
                    in_time("Kafka does not answer").map_err(|why| format!("{why}: {error}"))?
                }
            }
        };
        let committed = reader("read_committed")?;
        // A transaction of another outlet hides what was committed behind its beginning.
        while !committed
            .fetch_watermarks(&self.topic, PARTITION, SLICE)
            .is_ok_and(|(_, stable)| stable >= end)
        {
            in_time("a transaction does not end")?;
        }
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(&self.topic, PARTITION, Offset::Beginning)
            .and_then(|()| committed.assign(&from))
            .map_err(|error| error.to_string())?;
        let mut note = None;
        loop {
            match committed.poll(SLICE) {
                Some(Ok(message)) if message.key() == Some(self.key.as_bytes()) => {
                    let read = Note::parse(message.payload().unwrap_or_default());
                    let at = message.offset();
                    note = Some(read.ok_or_else(|| format!("the record at {at} is no position"))?);
                }
                // That of another outlet.
                Some(Ok(_)) | None => {}
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(note),
                Some(Err(error)) => return Err(error.to_string()),
            }
            in_time("it cannot be read")?;
        }
    }
}

/// Whether a later producer has taken the outlet.
pub(crate) fn is_fenced(error: &KafkaError) -> bool {
    let code = match error {
        KafkaError::Transaction(error) => Some(error.code()),
        error => error.rdkafka_error_code(),
    };
    code.is_some_and(fences)
}

/// Whether a code says that.
pub(crate) fn fences(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch
    )
}

/// An error of a transaction in words.
pub(crate) fn in_words(error: &KafkaError) -> String {
    match error {
        KafkaError::Transaction(error) => error.string(),
        error => error.to_string(),
    }
}

/// The settings of the connection alone, of those of a producer.
fn connection(settings: &ClientConfig) -> ClientConfig {
    let mut connection = ClientConfig::new();
    // The map has no secrets.
    for key in settings.config_map().into_keys() {
        let is_shared = [
            "bootstrap.",
            "client.",
            "socket.",
            "reconnect.",
            "security.",
            "sasl.",
            "ssl.",
        ];
        if is_shared.iter().any(|begins| key.starts_with(begins))
            && let Some(value) = settings.get(key)
        {
            connection.set(key, value);
        }
    }
    connection
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = Note {
            position: Position {
                incarnation: Incarnation(u64::MAX),
                sequence: Sequence(7),
            },
            epoch: Epoch(u64::MAX),
        };
        assert_eq!(Note::parse(note.text().as_bytes()), Some(note));
        for wrong in [
            "",
            "{}",
            "7",
            "{\"incarnation\":1,\"sequence\":-1,\"epoch\":1}",
        ] {
            assert_eq!(Note::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_reader_has_the_settings_of_the_connection_alone() {
        let mut settings = ClientConfig::new();
        settings
            .set("bootstrap.servers", "k1:9092")
            .set("sasl.password", "secret")
            .set("acks", "all")
            .set("transactional.id", "a");
        let found = connection(&settings);
        assert_eq!(found.get("sasl.password"), Some("secret"));
        assert_eq!(found.get("bootstrap.servers"), Some("k1:9092"));
        assert_eq!(
            (found.get("acks"), found.get("transactional.id")),
            (None, None)
        );
    }
}
