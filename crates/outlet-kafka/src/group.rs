//! What a member of a group has of the topics, and how far it is.
//!
//! Invariants: only what the node has is committed, and only while the member has the partition. Where the group begins is committed
//! before the first record is read, so that nothing is left out that comes after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::Notify;

/// The library's consumer.
pub(crate) type Native = StreamConsumer<Group>;

/// A partition of a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Partition {
    pub(crate) topic: String,
    pub(crate) number: i32,
}

/// Which assignment of partitions, ascending.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Generation(u64);

/// The place of a record in its partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place(pub(crate) i64);

#[derive(Debug, Default)]
struct State {
    generation: Generation,
    /// Partitions that the member is given, and has not begun yet.
    given: Option<TopicPartitionList>,
    /// Behind the last record that the node has, of partitions that the member has.
    finished: BTreeMap<Partition, Place>,
    /// Whether that is to be committed.
    is_due: bool,
    is_leaving: bool,
    /// Why the member cannot go on.
    failed: Option<String>,
    /// What the library last said of a connection.
    said: Option<String>,
}

/// What the library calls.
#[derive(Debug, Default)]
pub(crate) struct Group {
    state: Mutex<State>,
    changed: Notify,
}

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The assignment that counts.
    pub(crate) fn generation(&self) -> Generation {
        self.state().generation
    }

    /// Partitions that the member is given, once; [`begin`] says where it begins, and it has to assign them.
    pub(crate) fn take_given(&self) -> Option<TopicPartitionList> {
        self.state().given.take()
    }

    /// Waits until there is something for [`Self::take_given`] or [`Self::failed`].
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Why the member cannot go on, if it cannot.
    pub(crate) fn failed(&self) -> Option<String> {
        self.state().failed.clone()
    }

    /// An error with what the library has said beside it.
    pub(crate) fn in_words(&self, what: &str) -> String {
        match &self.state().said {
            Some(said) => format!("{what}: {said}"),
            None => what.to_owned(),
        }
    }

    /// The node has a record, or it is dropped. The records of a partition come in their order.
    pub(crate) fn finish(&self, partition: Partition, place: Place, generation: Generation) {
        let mut state = self.state();
        // Another member has it otherwise, perhaps.
        if state.generation == generation {
            state.finished.insert(partition, Place(place.0 + 1));
            state.is_due = true;
        }
    }

    /// No more partitions are taken. Without it, the library would wait until those that were given are assigned.
    pub(crate) fn leave(&self, consumer: &impl Consumer<Self>) {
        self.state().is_leaving = true;
        // What fails here ends with the consumer.
        let _: KafkaResult<()> = consumer.unassign();
    }

    /// Commits what is finished, if there is something new.
    ///
    /// # Errors
    /// The library does not take it, or, with [`CommitMode::Sync`], Kafka does not.
    pub(crate) fn commit(
        &self,
        consumer: &impl Consumer<Self>,
        mode: CommitMode,
    ) -> KafkaResult<()> {
        let list = {
            let mut state = self.state();
            if !std::mem::take(&mut state.is_due) {
                return Ok(());
            }
            let mut list = TopicPartitionList::new();
            for (partition, place) in &state.finished {
                let Partition { topic, number } = partition;
                list.add_partition_offset(topic, *number, Offset::Offset(place.0))?;
            }
            list
        };
        consumer.commit(&list, mode)
    }
}

impl ClientContext for Group {
    // The node's log has what the inlet says; the library repeats itself each second.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        // It says only that there is an error, which was said before.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            self.state().said = Some(reason.to_owned());
        }
    }
}

impl ConsumerContext for Group {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            let mut state = self.state();
            if !state.is_leaving {
                state.given = Some(list.clone());
                self.changed.notify_one();
                return;
            }
        } else if let Err(error) = self.commit(consumer, CommitMode::Async) {
            // It comes again to the next member.
            self.state().said = Some(error.to_string());
        }
        let mut state = self.state();
        state.generation.0 += 1;
        state.given = None;
        state.finished.clear();
        state.is_due = false;
        drop(state);
        if let Err(error) = consumer.unassign() {
            self.state().failed = Some(error.to_string());
            self.changed.notify_one();
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            self.handle_commit_error(&error);
        }
    }
}

impl Group {
    fn handle_commit_error(&self, error: &KafkaError) {
        let mut state = self.state();
        match error.rdkafka_error_code() {
            Some(
                code @ (RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::FencedInstanceId
                | RDKafkaErrorCode::OffsetMetadataTooLarge),
            ) => {
                state.failed = Some(format!("what is finished cannot be committed: {code}"));
                self.changed.notify_one();
            }
            Some(RDKafkaErrorCode::NoOffset) => {}
            // It is committed again later.
            _ => state.is_due = !state.finished.is_empty(),
        }
    }
}

/// Where the member begins to read what it is given. A group that has nothing of a topic begins at its end, which is committed, or with
/// what the topic has; a partition that the group has nothing of is a new one, and read from its beginning. Waits.
///
/// # Errors
/// Kafka does not answer in time, or refuses.
pub(crate) fn begin(
    consumer: &Native,
    given: &TopicPartitionList,
    is_from_beginning: bool,
    time: Duration,
) -> Result<TopicPartitionList, String> {
    let group = consumer.context();
    let failed = |error: KafkaError| group.in_words(&error.to_string());
    let elements = given.elements();
    let topics: BTreeSet<&str> = elements.iter().map(|element| element.topic()).collect();
    let mut list = TopicPartitionList::new();
    for topic in topics {
        let mut all = TopicPartitionList::new();
        let metadata = consumer.fetch_metadata(Some(topic), time).map_err(failed)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        for partition in found.into_iter().flat_map(|found| found.partitions()) {
            all.add_partition(topic, partition.id());
        }
        let committed = consumer.committed_offsets(all, time).map_err(failed)?;
        let committed = committed.elements();
        let known = committed
            .iter()
            .filter_map(|element| match element.offset() {
                Offset::Offset(place) => Some((element.partition(), place)),
                _ => None,
            });
        let mut known: BTreeMap<i32, i64> = known.collect();
        if known.is_empty() && !is_from_beginning {
            let mut ends = TopicPartitionList::new();
            for element in &committed {
                let number = element.partition();
                let (_, end) = consumer
                    .fetch_watermarks(topic, number, time)
                    .map_err(failed)?;
                ends.add_partition_offset(topic, number, Offset::Offset(end))
                    .map_err(failed)?;
                known.insert(number, end);
            }
            consumer.commit(&ends, CommitMode::Sync).map_err(failed)?;
        }
        for element in elements.iter().filter(|element| element.topic() == topic) {
            let number = element.partition();
            let place = known.get(&number).map(|place| Offset::Offset(*place));
            list.add_partition_offset(topic, number, place.unwrap_or(Offset::Beginning))
                .map_err(failed)?;
        }
    }
    Ok(list)
}
