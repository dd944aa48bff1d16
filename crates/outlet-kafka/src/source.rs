//! Records are messages of an inlet, read by a member of a group.
//!
//! Purpose: the member has a name of its own in the group (`group.instance.id`), so that a process that begins has the partitions of the one
//! before it at once, and Kafka refuses what that commits. Acknowledged records are committed every [`COMMITS`], and at the end.
//!
//! Deliberately absent: how far the group is (`group.rs`), and what a record becomes (`arrival.rs`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::{BoxFuture, FutureExt as _};
use outlet::Milliseconds;
use outlets::{
    Arrival, InletDefinition, Intake, KafkaServersDefinition, KafkaSourceDefinition, Source, Token,
};
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::Producer as _;
use rdkafka::{ClientConfig, TopicPartitionList};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use crate::arrival::item;
use crate::client::{Producer, address, connection};
use crate::group::{Generation, Group, Native, Partition, Place, begin};

/// How often what is acknowledged is committed.
const COMMITS: Duration = Duration::from_secs(1);

/// How long the inlet has no room before Kafka is asked for no more records; until then they wait in the library.
const FULL: Duration = Duration::from_secs(1);

/// Records of an answer at most.
const BATCH: usize = 500;

/// Bytes of the payloads of an answer at most, and one record more.
const BATCH_BYTES: usize = 4 << 20;

/// How long a member that says nothing keeps its partitions.
const SESSION_MS: &str = "10000";

#[derive(Clone, Debug)]
pub(crate) struct KafkaSource {
    definition: KafkaSourceDefinition,
    /// The name of the member.
    instance: String,
    address: String,
}

/// A member of the group.
struct KafkaIntake {
    member: Member,
    is_from_beginning: bool,
    time: Duration,
    /// The partitions that were given to it are being begun.
    beginning: Option<Beginning>,
    is_ready: bool,
    /// No records are asked for.
    is_paused: bool,
    /// Since when there is no room.
    full_since: Option<Instant>,
    commits_at: Instant,
    next: Token,
    /// Records that are not acknowledged, in their order.
    open: VecDeque<Open>,
}

struct Beginning {
    generation: Generation,
    list: JoinHandle<Result<TopicPartitionList, String>>,
}

struct Open {
    token: Token,
    partition: Partition,
    place: Place,
    generation: Generation,
}

/// The library's consumer, which takes some time to end.
struct Member(Option<Arc<Native>>);

impl Member {
    fn native(&self) -> &Arc<Native> {
        self.0
            .as_ref()
            .expect("it is taken when it is dropped only")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(native) = self.0.take() {
            std::thread::spawn(move || {
                let group = native.context();
                // What is not committed comes again.
                let _: KafkaResult<()> = group.commit(&*native, CommitMode::Async);
                group.leave(&*native);
                drop(native);
            });
        }
    }
}

impl KafkaSource {
    /// # Errors
    /// A file that cannot be read, a setting that the library does not take.
    pub(crate) fn new(
        inlet: &InletDefinition,
        definition: &KafkaSourceDefinition,
    ) -> Result<Self, String> {
        // The library reads certificates and keys here; it connects, and is left at once.
        let mut settings = connection(&definition.servers)?;
        settings.set("bootstrap.servers", "");
        drop(Producer::new(&settings)?);
        Ok(Self {
            instance: format!("heraldmq.{}.{}", inlet.cluster, inlet.name),
            address: address(&definition.servers.servers),
            definition: definition.clone(),
        })
    }

    /// Reads the files again, so that what was replaced counts.
    fn settings(&self) -> Result<ClientConfig, String> {
        let KafkaSourceDefinition { servers, group, .. } = &self.definition;
        let mut settings = connection(servers)?;
        let milliseconds = servers.timeout.as_millis();
        settings
            .set("group.id", group)
            .set("group.instance.id", &self.instance)
            .set("session.timeout.ms", SESSION_MS)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("isolation.level", "read_committed")
            // What was removed before it was read: the group goes on with the oldest that there is.
            .set("auto.offset.reset", "earliest")
            .set("allow.auto.create.topics", "false")
            .set("topic.metadata.refresh.interval.ms", "60000")
            .set("queued.min.messages", "1000")
            .set("queued.max.messages.kbytes", "16384")
            .set("fetch.max.bytes", "16777216")
            .set(
                "socket.timeout.ms",
                milliseconds.clamp(2_000, 300_000).to_string(),
            );
        Ok(settings)
    }

    async fn connected(&self) -> Result<KafkaIntake, String> {
        self.look().await?;
        let KafkaSourceDefinition {
            servers,
            topics,
            is_from_beginning,
            ..
        } = &self.definition;
        let created = self.settings()?.create_with_context(Group::default());
        let native: Native = created.map_err(|error| error.to_string())?;
        let member = Member(Some(Arc::new(native)));
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let subscribed = member.native().subscribe(&topics);
        subscribed.map_err(|error| error.to_string())?;
        Ok(KafkaIntake {
            member,
            is_from_beginning: *is_from_beginning,
            time: servers.timeout,
            beginning: None,
            is_ready: false,
            is_paused: false,
            full_since: None,
            commits_at: Instant::now() + COMMITS,
            next: Token::default(),
            open: VecDeque::new(),
        })
    }

    /// Says what Kafka has.
    async fn look(&self) -> Result<String, String> {
        let KafkaSourceDefinition {
            servers, topics, ..
        } = &self.definition;
        let mut settings = connection(servers)?;
        // Asking for a topic may make it otherwise.
        settings.set("allow.auto.create.topics", "false");
        let producer = Producer::new(&settings)?;
        let looked = look(&producer, servers, topics).await;
        // The library takes some time to end one that does not reach its server.
        std::thread::spawn(move || drop(producer));
        looked
    }
}

async fn look(
    producer: &Producer,
    servers: &KafkaServersDefinition,
    topics: &[String],
) -> Result<String, String> {
    let deadline = Instant::now() + servers.timeout;
    producer.connected(servers.timeout).await?;
    let mut said = Vec::new();
    for topic in topics {
        let time = deadline.saturating_duration_since(Instant::now());
        let (native, asked_for) = (producer.native.clone(), topic.clone());
        let asked = spawn_blocking(move || native.client().fetch_metadata(Some(&asked_for), time));
        let metadata = asked.await.map_err(|error| error.to_string())?;
        let metadata = metadata.map_err(|error| producer.in_words(&error.to_string()))?;
        if said.is_empty() {
            said.push(format!("Kafka has brokers: {}", metadata.brokers().len()));
        }
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let Some(found) = found else {
            return Err(format!("Kafka says nothing of the topic {topic}"));
        };
        if let Some(code) = found.error().map(RDKafkaErrorCode::from) {
            return Err(about_topic(code, topic));
        }
        let count = found.partitions().len();
        said.push(format!("the topic {topic} has partitions: {count}"));
    }
    Ok(said.join("; "))
}

/// An error in words.
fn about_topic(code: RDKafkaErrorCode, topic: &str) -> String {
    match code {
        RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition => {
            format!("Kafka has no topic {topic}")
        }
        RDKafkaErrorCode::TopicAuthorizationFailed => {
            format!("the user may not read the topic {topic}")
        }
        code => format!("topic {topic}: {code}"),
    }
}

impl Source for KafkaSource {
    /// Of all servers.
    fn address(&self) -> &str {
        &self.address
    }

    fn open(&self) -> BoxFuture<'static, Result<Box<dyn Intake>, String>> {
        let source = self.clone();
        async move {
            let intake: Box<dyn Intake> = Box::new(source.connected().await?);
            Ok(intake)
        }
        .boxed()
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, String>> {
        let source = self.clone();
        async move { source.look().await }.boxed()
    }
}

impl KafkaIntake {
    async fn turn(&mut self, reads: bool) -> Result<Vec<Arrival>, String> {
        let native = Arc::clone(self.member.native());
        let group = native.context();
        if let Some(why) = group.failed() {
            return Err(why);
        }
        self.steer(&native, reads)
            .map_err(|error| error.to_string())?;
        if self.commits_at <= Instant::now() {
            self.commits_at = Instant::now() + COMMITS;
            let committed = group.commit(&*native, CommitMode::Async);
            committed.map_err(|error| error.to_string())?;
        }
        if let Some(given) = group.take_given() {
            let (native, time) = (Arc::clone(&native), self.time);
            let is_from_beginning = self.is_from_beginning;
            self.beginning = Some(Beginning {
                generation: group.generation(),
                list: spawn_blocking(move || begin(&native, &given, is_from_beginning, time)),
            });
        }
        if let Some(beginning) = &mut self.beginning {
            let list = (&mut beginning.list).await;
            let generation = beginning.generation;
            self.beginning = None;
            let list = list.map_err(|error| error.to_string())??;
            if generation == group.generation() {
                let assigned = native.assign(&list);
                assigned.map_err(|error| error.to_string())?;
                self.is_paused = false;
            }
            let is_first = !std::mem::replace(&mut self.is_ready, true);
            return Ok(is_first.then_some(Arrival::Ready).into_iter().collect());
        }
        let pauses_at = self.full_since.map(|since| since + FULL);
        let polls = self.full_since.is_none() || self.is_paused;
        let wakes_at = match pauses_at.filter(|_| !polls) {
            Some(pauses_at) => pauses_at.min(self.commits_at),
            None => self.commits_at,
        };
        let first = tokio::select! {
            biased;
            record = native.recv(), if polls => record,
            () = group.changed() => return Ok(Vec::new()),
            () = sleep_until(wakes_at) => return Ok(Vec::new()),
        };
        let mut arrivals = Vec::new();
        let mut bytes = 0;
        let mut record = first;
        loop {
            match record {
                Ok(record) => {
                    bytes += record.payload_len();
                    let item = item(&record, now());
                    let token = self.next.advance();
                    self.open.push_back(Open {
                        token,
                        partition: Partition {
                            topic: record.topic().to_owned(),
                            number: record.partition(),
                        },
                        place: Place(record.offset()),
                        generation: group.generation(),
                    });
                    arrivals.push(Arrival::Message(Box::new(item), Some(token)));
                }
                Err(error) => judge(group, &error)?,
            }
            if arrivals.len() >= BATCH || bytes >= BATCH_BYTES {
                return Ok(arrivals);
            }
            match native.recv().now_or_never() {
                Some(another) => record = another,
                None => return Ok(arrivals),
            }
        }
    }

    /// Asks Kafka for no more records when there has been no room for them, and for more again.
    fn steer(&mut self, native: &Native, reads: bool) -> KafkaResult<()> {
        if reads {
            self.full_since = None;
            if std::mem::take(&mut self.is_paused) {
                native.resume(&native.assignment()?)?;
            }
            return Ok(());
        }
        let since = *self.full_since.get_or_insert_with(Instant::now);
        if !self.is_paused && since + FULL <= Instant::now() {
            self.is_paused = true;
            native.pause(&native.assignment()?)?;
        }
        Ok(())
    }
}

/// What an error of the library says of the connection.
fn judge(group: &Group, error: &KafkaError) -> Result<(), String> {
    match error.rdkafka_error_code() {
        // The library connects again; when no server is left, it says so.
        Some(
            RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::Resolve
            | RDKafkaErrorCode::OperationTimedOut,
        ) => Ok(()),
        Some(RDKafkaErrorCode::AllBrokersDown) => {
            Err(group.in_words("no server of Kafka can be reached"))
        }
        Some(RDKafkaErrorCode::FencedInstanceId) => {
            Err("another process is this member of the group now".to_owned())
        }
        Some(code) => Err(group.in_words(&code.to_string())),
        None => Err(group.in_words(&error.to_string())),
    }
}

impl Intake for KafkaIntake {
    fn next(&mut self, reads: bool) -> BoxFuture<'_, Result<Vec<Arrival>, String>> {
        self.turn(reads).boxed()
    }

    fn acknowledge(&mut self, token: Token) {
        let open = self.open.pop_front();
        let open = open.filter(|open| open.token == token);
        let open = open.expect("records are acknowledged once, in their order");
        let group = self.member.native().context();
        group.finish(open.partition, open.place, open.generation);
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            let native = Arc::clone(self.member.native());
            // What is not committed comes again.
            let committing =
                spawn_blocking(move || native.context().commit(&*native, CommitMode::Sync));
            let _: Result<KafkaResult<()>, _> = committing.await;
        }
        .boxed()
    }
}

fn now() -> Milliseconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_millis();
    Milliseconds(u64::try_from(since).unwrap_or(u64::MAX))
}
