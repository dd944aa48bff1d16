//! Plays a plan against a broker from beginning to end, and watches the broker's process and its own.
//!
//! Invariant: what is measured lies between the end of the warm-up and the end of the load. Only counts
//! and faults are of the whole run, because a message of the warm-up may be lost too.
//!
//! Deliberately absent: starting brokers, and printing; `measure/figures.rs` makes tables and JSON.

mod figures;

use std::time::Duration;
use std::{fmt, io};

use mqtt_proto::ProtocolVersion;

use crate::clock::monotonic_ns;
use crate::engine::{Engine, EngineError, Target};
use crate::plan::Plan;
use crate::process::{Cpu, Process};
use crate::scenario::Topology;
use crate::traffic::{Outcome, Totals};

/// What a run has besides its plan.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The broker's listener.
    pub target: Target,
    /// Of all connections.
    pub version: ProtocolVersion,
    /// Load before the measurement; zero is allowed.
    pub warm_up: Duration,
    /// Of the measurement.
    pub duration: Duration,
    /// The broker's process, if it runs on this machine.
    pub broker: Option<Process>,
}

/// Why a run came to nothing.
#[derive(Debug)]
pub enum MeasureError {
    /// The load ended early.
    Engine(EngineError),
    /// The broker's process cannot be watched, or this one.
    Process(io::Error),
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Process(error) => write!(f, "cannot watch the process: {error}"),
        }
    }
}

impl std::error::Error for MeasureError {}

impl From<EngineError> for MeasureError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// What the broker's process used.
#[derive(Clone, Copy, Debug)]
pub struct BrokerUsage {
    /// While the clients connected.
    pub connecting: Cpu,
    /// During the measurement.
    pub measuring: Cpu,
    /// Resident bytes before the first connection.
    pub resident_before: u64,
    /// Resident bytes at the end of the measurement.
    pub resident: u64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What was played.
    pub plan: Plan,
    /// Counts and faults of the whole run, latencies of the measurement.
    pub outcome: Outcome,
    /// Counts of the measurement.
    pub totals: Totals,
    /// How long the measurement took.
    pub time: Duration,
    /// How long it took to connect and subscribe all clients.
    pub connect_time: Duration,
    /// If it could be watched.
    pub broker: Option<BrokerUsage>,
    /// CPU time of this process during the measurement.
    pub tool: Cpu,
}

/// Plays `plan`.
///
/// # Errors
/// The broker cannot be reached or breaks the protocol, or a connection is lost; a process cannot be
/// watched.
pub fn measure(plan: &Plan, settings: &Settings) -> Result<Measured, MeasureError> {
    let own = Process::own();
    let cpu_of_broker = || settings.broker.map(|broker| broker.cpu()).transpose();
    let resident_of_broker = || {
        let resident = settings.broker.map(|broker| broker.resident_bytes());
        resident.transpose()
    };
    let resident_before = resident_of_broker().map_err(MeasureError::Process)?;
    // Runs at the same time or one after another must not see each other's messages.
    let prefix = format!("bench-{:x}-{:x}", std::process::id(), monotonic_ns());
    let scenario = plan.scenario(settings.version, prefix);
    let mut engine = Engine::new(scenario, settings.target.clone())?;

    let cpu_before = cpu_of_broker().map_err(MeasureError::Process)?;
    let start_ns = monotonic_ns();
    engine.connect(plan.connections())?;
    let connect_time = Duration::from_nanos(monotonic_ns() - start_ns);
    let cpu_connected = cpu_of_broker().map_err(MeasureError::Process)?;

    engine.load(settings.warm_up, false)?;

    let cpu_warm = cpu_of_broker().map_err(MeasureError::Process)?;
    let tool_warm = own.cpu().map_err(MeasureError::Process)?;
    let totals_warm = engine.totals();
    let start_ns = monotonic_ns();
    engine.load(settings.duration, true)?;
    let time = Duration::from_nanos(monotonic_ns() - start_ns);
    let totals = engine.totals() - totals_warm;
    let tool = own.cpu().map_err(MeasureError::Process)? - tool_warm;
    let cpu_end = cpu_of_broker().map_err(MeasureError::Process)?;
    let resident = resident_of_broker().map_err(MeasureError::Process)?;

    engine.drain()?;
    let outcome = engine.outcome();
    engine.close()?;
    let broker = (|| {
        Some(BrokerUsage {
            connecting: cpu_connected? - cpu_before?,
            measuring: cpu_end? - cpu_warm?,
            resident_before: resident_before?,
            resident: resident?,
        })
    })();
    Ok(Measured {
        plan: plan.clone(),
        outcome,
        totals,
        time,
        connect_time,
        broker,
        tool,
    })
}

impl Measured {
    /// Messages of the measurement, as the reports count them: deliveries, or where nobody subscribes
    /// what the broker took (at QoS 0: what was sent, which nobody confirms).
    #[must_use]
    pub fn messages(&self) -> u64 {
        match self.plan.topology {
            Topology::FanIn { .. } if self.plan.qos.as_u8() == 0 => self.totals.sent,
            Topology::FanIn { .. } => self.totals.acknowledged,
            _ => self.totals.delivered,
        }
    }

    /// Messages per second of the measurement.
    #[must_use]
    pub fn messages_per_second(&self) -> f64 {
        self.messages() as f64 / self.time.as_secs_f64()
    }
}
