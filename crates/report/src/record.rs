//! A run as it is kept: the content of the JSON file.
//!
//! Invariant: a file says its format; a reader refuses one that it does not know.

use serde::{Deserialize, Serialize};

/// The format that is written. A change that an older reader would misread raises it.
pub const FORMAT: u32 = 1;

/// Everything that is known of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`] when it was written.
    pub format: u32,
    /// The program that measured, with its version.
    pub tool: String,
    /// The scenario's name. Records of the same name are shown beside each other.
    pub scenario: String,
    /// Whose run it is, to tell it from others of the scenario: the broker's name.
    pub label: String,
    /// How the scenario was read, in a sentence; also says if it was scaled.
    pub reading: String,
    /// When the load began: RFC 3339, UTC.
    pub started_at: String,
    /// How the run was made, in the order to show: targets, duration, QoS, …
    pub settings: Vec<Setting>,
    /// Where the load came from.
    pub machine: Machine,
    /// The figures of the scenario's report, if the scenario is one of a report.
    pub published: Option<PublishedFigures>,
    /// Which columns the report has that describes such loads.
    #[serde(default)]
    pub columns: Columns,
    /// What each publisher sends, where all parts of the load agree.
    #[serde(default)]
    pub load: Load,
    /// Connections that were held.
    pub connections: u64,
    /// How long it took to connect and subscribe all of them.
    pub connect_seconds: f64,
    /// How long the measurement took, warm-up and drain aside.
    pub seconds: f64,
    /// Messages per second that should come out; 0 if nobody publishes.
    pub asked_per_second: f64,
    /// Messages per second that came out during the measurement, counted as the reports do: deliveries,
    /// or what the broker took where nobody subscribes.
    pub messages_per_second: f64,
    /// Of the whole run, warm-up and drain included.
    pub counts: Counts,
    /// Of the measurement: messages that were due in it.
    pub latencies: Latencies,
    /// Which of `latencies` the reports would show.
    pub headline: String,
    /// What the broker's processes used, in the order of `Sample::system`.
    pub system: Vec<SystemUsage>,
    /// What all processes of the tool used during the measurement.
    pub tool_cpu_user_s: f64,
    /// In the kernel.
    pub tool_cpu_system_s: f64,
    /// Processes that made the load.
    pub workers: u32,
    /// About once a second, from the first connect to the end of the drain, in order.
    pub samples: Vec<Sample>,
    /// Publishers of whose messages some were lost, duplicated or reordered, worst first; at most
    /// some thousands.
    pub publishers: Vec<PublisherCounts>,
    /// The parts of a load that has several, in order.
    #[serde(default)]
    pub parts: Vec<PartFigures>,
    /// What keeps the figures from meaning what they seem to, a sentence each.
    pub warnings: Vec<String>,
}

/// What each publisher sends; `None` where parts of the load differ, or nobody publishes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// Of publishing and of subscriptions.
    pub qos: Option<QosNumber>,
    /// Of each message.
    pub payload: Option<PayloadBytes>,
    /// Messages per second of each publisher.
    pub rate: Option<f64>,
}

/// 0, 1 or 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QosNumber(pub u8);

/// Bytes of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PayloadBytes(pub u64);

/// What part of a report's scenario was played.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Scaling {
    /// Share of the connections, above 0 and at most 1.
    pub connections: f64,
    /// Share of the messages per second of each publisher, and of connects per second.
    pub rate: f64,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            connections: 1.0,
            rate: 1.0,
        }
    }
}

/// The latencies that a report has beside the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Columns {
    /// Mean and p99 of the headline latency, as of BifroMQ and EMQX.
    #[default]
    Headline,
    /// Mean and p95 of delivery and of acknowledgement, as of TBMQ.
    DeliveryAndAcknowledgement,
}

/// One of several loads that went on at the same time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PartFigures {
    /// Of the part.
    pub name: String,
    /// Messages per second that should come out; 0 if nobody publishes.
    pub asked_per_second: f64,
    /// Of the whole run; disconnects are not told apart by part.
    pub counts: Counts,
    /// From due to acknowledged to the end; without buckets.
    pub acknowledge: Option<Latency>,
    /// From due to received by a subscriber; without buckets.
    pub deliver: Option<Latency>,
}

/// A line of what was set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Of the setting.
    pub name: String,
    /// As a person writes it.
    pub value: String,
}

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// As /proc/cpuinfo names it.
    pub cpu: String,
    /// Cores that a process may use.
    pub cores: u32,
    /// Of the machine.
    pub memory_bytes: u64,
    /// Its name and version.
    pub kernel: String,
    /// TCP's congestion control, which decides much of the latency on loopback.
    pub congestion_control: String,
}

/// What a report says of the scenario; `None` or empty where it says nothing. Whole-machine figures are of
/// machines of the report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PublishedFigures {
    /// The report and its machines.
    pub source: String,
    /// The broker.
    pub product: String,
    /// Of the broker.
    pub version: String,
    /// Of the report.
    pub section: String,
    /// Of all kinds.
    pub connections: Option<u64>,
    /// Messages.
    pub messages_per_second: Option<f64>,
    /// Connections.
    pub connects_per_second: Option<f64>,
    /// Latency.
    pub mean_ms: Option<f64>,
    /// Latency.
    pub p99_ms: Option<f64>,
    /// Of a whole machine.
    pub cpu_percent: Option<f64>,
    /// In GB: a figure, or a span such as `5-10`.
    pub memory_gb: String,
    /// What does not fit the columns.
    pub note: String,
    /// Latency.
    #[serde(default)]
    pub p95_ms: Option<f64>,
    /// From sending to acknowledgement.
    #[serde(default)]
    pub acknowledge_mean_ms: Option<f64>,
    /// From sending to acknowledgement.
    #[serde(default)]
    pub acknowledge_p95_ms: Option<f64>,
    /// What each publisher sends, in full size.
    #[serde(default)]
    pub load: Load,
    /// What part of it was played; the figures here are in full size.
    #[serde(default)]
    pub scaling: Scaling,
}

/// Messages counted one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Handed to publishers' connections.
    pub sent: u64,
    /// Acknowledged to the end, above QoS 0.
    pub acknowledged: u64,
    /// Received by subscribers, duplicates included.
    pub delivered: u64,
    /// Deliveries that should have come and did not.
    pub lost: u64,
    /// Received again.
    pub duplicated: u64,
    /// Received after a later message of the same publisher.
    pub reordered: u64,
    /// Received by one who should not have it.
    pub stray: u64,
    /// Connections that broke during the load.
    pub disconnects: u64,
}

/// Whole-run distributions; `None` where nothing was measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// From opening a connection to CONNACK.
    pub connect: Option<Latency>,
    /// From SUBSCRIBE to SUBACK.
    pub subscribe: Option<Latency>,
    /// From due to acknowledged to the end, above QoS 0.
    pub acknowledge: Option<Latency>,
    /// From due to received by a subscriber.
    pub deliver: Option<Latency>,
    /// From due to the moment that the tool came round to it: what the tool alone added.
    pub tool_lateness: Option<Latency>,
    /// From due to sent: what the tool, or a full in-flight window, added.
    pub due_to_sent: Option<Latency>,
}

/// A distribution of times.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Times recorded.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// Half are at most this.
    pub p50_ms: f64,
    /// 95 of 100 are at most this.
    pub p95_ms: f64,
    /// 99 of 100 are at most this.
    pub p99_ms: f64,
    /// 999 of 1,000 are at most this.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// All buckets that are not empty, ascending: highest time in ns, count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets_ns: Vec<(u64, u64)>,
}

/// What a broker's process, or node, used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SystemUsage {
    /// `pid 123 (mosquitto)` or the address of its metrics.
    pub name: String,
    /// In user mode during the measurement.
    pub cpu_user_s: f64,
    /// In the kernel during the measurement.
    pub cpu_system_s: f64,
    /// While the clients connected, both modes.
    pub connecting_cpu_s: f64,
    /// Before the first connection.
    pub resident_bytes_before: u64,
    /// At the end of the measurement.
    pub resident_bytes: u64,
    /// The most that a sample showed.
    pub resident_bytes_max: u64,
}

/// The part of a run that a sample is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Clients connect.
    Connect,
    /// Load that is not measured.
    WarmUp,
    /// What the figures are of.
    Measure,
    /// No more is sent; what is under way arrives.
    Drain,
}

/// What happened since the sample before.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// When it was taken, in seconds since the first connect.
    pub at_s: f64,
    /// How long it covers.
    pub seconds: f64,
    /// When it was taken.
    pub phase: Phase,
    /// Connected and subscribed now.
    pub connections: u64,
    /// Messages.
    pub sent: u64,
    /// Messages.
    pub acknowledged: u64,
    /// Messages.
    pub delivered: u64,
    /// Written to the broker by all clients, without TCP and IP.
    pub bytes_out: u64,
    /// Read from the broker by all clients.
    pub bytes_in: u64,
    /// Of what arrived meanwhile, by the record's headline latency; `None` if nothing did.
    pub mean_ms: Option<f64>,
    /// As `mean_ms`.
    pub p99_ms: Option<f64>,
    /// As `mean_ms`.
    pub max_ms: Option<f64>,
    /// The broker's processes or nodes; `None` for one that could not be read.
    pub system: Vec<Option<Usage>>,
    /// `None` if no node of the broker tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<Shards>,
    /// CPU time of the tool's processes.
    pub tool_cpu_s: f64,
    /// Load average of the machine of the tool over a minute, if it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_load: Option<f64>,
}

/// Shards of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct ShardCount(pub u32);

/// Shards that were split.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SplitCount(pub u64);

/// The shards of the whole broker: each counts once, however many nodes keep a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Shards {
    /// Now, of the store of sessions.
    pub session: ShardCount,
    /// Now, of the store of inboxes.
    pub inbox: ShardCount,
    /// Now, of the store of retained messages.
    pub retain: ShardCount,
    /// Splits that nodes decided on by themselves since the last sample that has shards. Splits by hand
    /// only show in the numbers of shards.
    pub splits: SplitCount,
}

/// What a process used since the sample before, and holds now.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// In user mode.
    pub cpu_user_s: f64,
    /// In the kernel.
    pub cpu_system_s: f64,
    /// Resident memory now.
    pub resident_bytes: u64,
    /// Now.
    pub threads: Option<u32>,
    /// Open now.
    pub descriptors: Option<u32>,
    /// Received by the process, or by its network namespace where only that is known.
    pub network_in_bytes: Option<u64>,
    /// Sent, likewise.
    pub network_out_bytes: Option<u64>,
}

/// One publisher's messages, over the whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PublisherCounts {
    /// Its number in the scenario.
    pub publisher: u32,
    /// Handed to its connection.
    pub sent: u64,
    /// Acknowledged to the end.
    pub acknowledged: u64,
    /// Received by all its receivers, duplicates included.
    pub delivered: u64,
    /// At all its receivers.
    pub lost: u64,
    /// At all its receivers.
    pub duplicated: u64,
    /// At all its receivers.
    pub reordered: u64,
}
