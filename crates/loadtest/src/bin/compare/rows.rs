//! The rows of the comparison, and how a cell is measured.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use host::{Cpu, Process, Waits};
use loadtest::workload::{Activity, Login, Messages, Pace, Part};
use loadtest::{
    Engine, EngineError, Outcome, Share, Target, Topology, Totals, Workload, monotonic_ns,
};
use mqtt_proto::{ProtocolVersion, QoS};

use crate::brokers::{Launcher, Running, Which};

/// Load before the measurement begins.
const WARM_UP: Duration = Duration::from_secs(1);

/// After connecting, until memory is read: buffers and thread caches have settled.
const SETTLE: Duration = Duration::from_millis(1_500);

/// Memory per connection is the slope between these two counts.
const FEW_CONNECTIONS: usize = 5_000;
const MANY_CONNECTIONS: usize = 15_000;

/// Why a cell was not measured.
#[derive(Debug)]
pub(crate) enum Failure {
    Start(String),
    Io(io::Error),
    Run(EngineError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(message) => write!(f, "cannot start a broker: {message}"),
            Self::Io(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Run(error)
    }
}

/// A figure's name and how it is shown.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    decimals: usize,
    /// Summed over rounds, where others have their median.
    pub(crate) is_fault: bool,
}

impl Column {
    const fn new(name: &'static str, decimals: usize) -> Self {
        Self {
            name,
            decimals,
            is_fault: false,
        }
    }

    const fn fault(name: &'static str) -> Self {
        Self {
            name,
            decimals: 0,
            is_fault: true,
        }
    }

    pub(crate) fn show(&self, value: f64) -> String {
        format!("{value:.*}", self.decimals)
    }
}

const MESSAGES: &[Column] = &[
    Column::new("CPU µs/msg", 2),
    Column::new("user", 2),
    Column::new("system", 2),
    Column::new("msg/s", 0),
    Column::new("p50 µs", 0),
    Column::new("p99 µs", 0),
    Column::fault("lost"),
    Column::fault("dup"),
    Column::fault("reordered"),
    Column::new("tool µs/msg", 2),
    Column::new("tool lag p99 µs", 0),
    Column::new("waits/msg", 2),
];

const CONNECTIONS: &[Column] = &[
    Column::new("bytes/connection", 0),
    Column::new("connects/s", 0),
    Column::new("CPU µs/connect", 1),
    Column::new("user", 1),
    Column::new("system", 1),
    Column::new("tool µs/connect", 1),
];

/// Which figures a row has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Columns {
    Messages,
    Connections,
}

impl Columns {
    pub(crate) fn list(self) -> &'static [Column] {
        match self {
            Self::Messages => MESSAGES,
            Self::Connections => CONNECTIONS,
        }
    }
}

/// A load to compare brokers under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Row {
    Pairs(QoS),
    Closed(QoS),
    FanOut(QoS),
    Shared,
    Durable(Rate),
    Idle,
}

/// How many durable messages come in each second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rate {
    /// 1,000: most messages have a sync of their own.
    Low,
    /// 5,000: several share one.
    Middle,
}

impl Row {
    pub(crate) const ALL: [Self; 10] = [
        Self::Pairs(QoS::AtMostOnce),
        Self::Pairs(QoS::AtLeastOnce),
        Self::Closed(QoS::AtMostOnce),
        Self::Closed(QoS::AtLeastOnce),
        Self::FanOut(QoS::AtMostOnce),
        Self::FanOut(QoS::AtLeastOnce),
        Self::Shared,
        Self::Durable(Rate::Low),
        Self::Durable(Rate::Middle),
        Self::Idle,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pairs(QoS::AtMostOnce) => "pairs-qos0",
            Self::Pairs(_) => "pairs-qos1",
            Self::Closed(QoS::AtMostOnce) => "closed-qos0",
            Self::Closed(_) => "closed-qos1",
            Self::FanOut(QoS::AtMostOnce) => "fanout-qos0",
            Self::FanOut(_) => "fanout-qos1",
            Self::Shared => "shared-qos1",
            Self::Durable(Rate::Low) => "durable-1k",
            Self::Durable(Rate::Middle) => "durable-5k",
            Self::Idle => "idle",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Pairs(QoS::AtMostOnce) => "500 pairs, 10,000/s, QoS 0",
            Self::Pairs(_) => "500 pairs, 10,000/s, QoS 1",
            Self::Closed(QoS::AtMostOnce) => "50 pairs, window 32, QoS 0",
            Self::Closed(_) => "50 pairs, window 32, QoS 1",
            Self::FanOut(QoS::AtMostOnce) => "1 to 1,000, 10/s, QoS 0",
            Self::FanOut(_) => "1 to 1,000, 10/s, QoS 1",
            Self::Shared => "200 to 10 shared, 5,000/s, QoS 1",
            Self::Durable(Rate::Low) => "50 durable pairs, 1,000/s, QoS 1",
            Self::Durable(Rate::Middle) => "50 durable pairs, 5,000/s, QoS 1",
            Self::Idle => "idle, one subscription, 5,000 to 15,000",
        }
    }

    pub(crate) fn columns(self) -> Columns {
        match self {
            Self::Idle => Columns::Connections,
            _ => Columns::Messages,
        }
    }

    /// Whether a broker can do it, and its figure would mean anything. Mosquitto acknowledges before it writes, so durable
    /// rows are not for it.
    pub(crate) fn suits(self, which: Which) -> bool {
        match which {
            Which::Heraldmq => true,
            Which::Mosquitto => !matches!(self, Self::Durable(_)),
            Which::Relay => !matches!(self, Self::Shared | Self::Durable(_) | Self::Idle),
            Which::SyncedRelay => matches!(self, Self::Durable(_)),
        }
    }

    fn workload(self) -> Workload {
        let (topology, qos, pace) = match self {
            Self::Pairs(qos) => (
                Topology::Pairs { pairs: 500 },
                qos,
                Pace::Open {
                    per_second: 10_000.0,
                },
            ),
            Self::Closed(qos) => (
                Topology::Pairs { pairs: 50 },
                qos,
                Pace::Closed { window: 32 },
            ),
            Self::FanOut(qos) => {
                let topology = Topology::FanOut {
                    publishers: 1,
                    subscribers: 1_000,
                };
                (topology, qos, Pace::Open { per_second: 10.0 })
            }
            Self::Shared => {
                let topology = Topology::Shared {
                    publishers: 200,
                    members: 10,
                };
                (
                    topology,
                    QoS::AtLeastOnce,
                    Pace::Open {
                        per_second: 5_000.0,
                    },
                )
            }
            Self::Durable(rate) => {
                let per_second = match rate {
                    Rate::Low => 1_000.0,
                    Rate::Middle => 5_000.0,
                };
                let topology = Topology::Pairs { pairs: 50 };
                (topology, QoS::AtLeastOnce, Pace::Open { per_second })
            }
            Self::Idle => {
                let topology = Topology::Idle {
                    connections: MANY_CONNECTIONS,
                };
                (topology, QoS::AtMostOnce, Pace::Open { per_second: 1.0 })
            }
        };
        let messages = Messages {
            topology,
            payload_len: 32,
            qos,
            pace,
            clean_session: !matches!(self, Self::Durable(_)),
            retain: false,
            read_rate: None,
        };
        Workload {
            parts: vec![Part::new("load", Activity::Messages(messages))],
            login: Login::new(ProtocolVersion::V3_1_1),
        }
    }

    /// Starts a broker and measures it; the figures are in the order of the columns.
    pub(crate) fn measure(
        self,
        which: Which,
        launcher: &mut Launcher,
        duration: Duration,
    ) -> Result<Vec<f64>, Failure> {
        let broker = launcher.start(which)?;
        // Several addresses: the kernel's search for a free port grows slow when most are taken.
        let sources = match self {
            Self::Idle => (1..=4)
                .map(|last| IpAddr::from(Ipv4Addr::new(127, 0, 0, last)))
                .collect(),
            _ => Vec::new(),
        };
        let target = Target {
            sources,
            ..Target::new(broker.address)
        };
        let workload = self.workload();
        let engine = Engine::new(workload, Share::WHOLE, target, "bench", monotonic_ns())?;
        match self {
            Self::Idle => measure_connections(engine, &broker),
            _ => measure_messages(engine, &broker, duration),
        }
    }
}

fn measure_messages(
    mut engine: Engine,
    broker: &Running,
    duration: Duration,
) -> Result<Vec<f64>, Failure> {
    engine.connect(usize::MAX, |_| Ok(None))?;
    engine.load(WARM_UP, false)?;
    let before: Totals = engine.totals();
    let usage = Usage::start(broker)?;
    engine.load(duration, true)?;
    let (spent, elapsed) = usage.since()?;
    let delivered = (engine.totals().delivered - before.delivered) as f64;
    engine.drain()?;
    let Outcome {
        faults,
        deliver,
        due_to_sent,
        ..
    } = engine.outcome();
    let us_per_message = |time: Duration| time.as_secs_f64() * 1e6 / delivered;
    Ok(vec![
        us_per_message(spent.broker.total()),
        us_per_message(spent.broker.user),
        us_per_message(spent.broker.system),
        delivered / elapsed.as_secs_f64(),
        deliver.value_at_quantile(0.5) as f64 / 1e3,
        deliver.value_at_quantile(0.99) as f64 / 1e3,
        (faults.lost + faults.stray) as f64,
        faults.duplicated as f64,
        faults.reordered as f64,
        us_per_message(spent.tool.total()),
        due_to_sent.value_at_quantile(0.99) as f64 / 1e3,
        spent.waits.0 as f64 / delivered,
    ])
}

fn measure_connections(mut engine: Engine, broker: &Running) -> Result<Vec<f64>, Failure> {
    engine.connect(FEW_CONNECTIONS, |_| Ok(None))?;
    std::thread::sleep(SETTLE);
    let few = broker.process().resident_bytes()?;
    let usage = Usage::start(broker)?;
    engine.connect(MANY_CONNECTIONS, |_| Ok(None))?;
    let (spent, elapsed) = usage.since()?;
    std::thread::sleep(SETTLE);
    let many = broker.process().resident_bytes()?;
    let connections = (MANY_CONNECTIONS - FEW_CONNECTIONS) as f64;
    let us_per_connect = |time: Duration| time.as_secs_f64() * 1e6 / connections;
    Ok(vec![
        (many as f64 - few as f64) / connections,
        connections / elapsed.as_secs_f64(),
        us_per_connect(spent.broker.total()),
        us_per_connect(spent.broker.user),
        us_per_connect(spent.broker.system),
        us_per_connect(spent.tool.total()),
    ])
}

/// CPU time of broker and tool over an interval.
struct Usage {
    broker: Process,
    before: Spent,
    since: Instant,
}

#[derive(Clone, Copy)]
struct Spent {
    broker: Cpu,
    tool: Cpu,
    /// How often threads of the broker gave up their core to wait.
    waits: Waits,
}

impl Usage {
    fn start(broker: &Running) -> io::Result<Self> {
        let broker = broker.process();
        Ok(Self {
            broker,
            before: Self::read(broker)?,
            since: Instant::now(),
        })
    }

    fn read(broker: Process) -> io::Result<Spent> {
        Ok(Spent {
            broker: broker.cpu()?,
            tool: Process::own().cpu()?,
            waits: Waits(
                broker
                    .threads()?
                    .iter()
                    .filter_map(|thread| thread.waits)
                    .map(|Waits(waits)| waits)
                    .sum(),
            ),
        })
    }

    fn since(&self) -> io::Result<(Spent, Duration)> {
        let elapsed = self.since.elapsed();
        let now = Self::read(self.broker)?;
        let spent = Spent {
            broker: now.broker - self.before.broker,
            tool: now.tool - self.before.tool,
            waits: Waits(now.waits.0.saturating_sub(self.before.waits.0)),
        };
        Ok((spent, elapsed))
    }
}
