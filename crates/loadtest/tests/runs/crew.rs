//! Workers as threads, and runs with them.

use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use loadtest::workload::{Activity, Login, Messages, Pace, Part};
use loadtest::{Crew, Plan, PlayError, Settings, Title, Topology, Workload, play, worker};
use mqtt_proto::QoS;
use report::{Machine, Record};
use transport::ClientTransport;

use crate::broker::{Broker, VERSION};

/// Both ends of a connection.
pub(crate) fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    for stream in [&ours, &theirs] {
        stream.set_nodelay(true).unwrap();
    }
    (ours, theirs)
}

/// A worker in a thread; the coordinator's end of the connection to it. `defect` may spoil what it says.
pub(crate) fn worker<W: Write + Send + 'static>(defect: impl FnOnce(TcpStream) -> W) -> TcpStream {
    let (ours, theirs) = connection();
    let output = defect(theirs.try_clone().unwrap());
    thread::spawn(move || {
        // What a worker makes of the end of its connection is no test's subject.
        let _ = worker::run(theirs, output);
    });
    ours
}

pub(crate) fn crew(workers: usize) -> Crew {
    Crew::connected((0..workers).map(|_| worker(|stream| stream))).unwrap()
}

/// What a worker writes, until it does not any more.
pub(crate) struct Failing {
    stream: TcpStream,
    /// Reports that still go out.
    reports: usize,
    then: Then,
}

pub(crate) enum Then {
    /// The connection is closed.
    Die,
    /// Nothing more is said.
    FallSilent,
}

impl Failing {
    pub(crate) fn after(reports: usize, then: Then) -> impl FnOnce(TcpStream) -> Self {
        move |stream| Self {
            stream,
            reports,
            then,
        }
    }
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.then {
            _ if self.reports > 0 => self.stream.write(bytes),
            Then::FallSilent => Ok(bytes.len()),
            Then::Die => {
                self.stream.shutdown(Shutdown::Both)?;
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// Comes after each report.
    fn flush(&mut self) -> io::Result<()> {
        self.reports = self.reports.saturating_sub(1);
        Ok(())
    }
}

pub(crate) fn messages(topology: Topology, qos: QoS, pace: Pace) -> Workload {
    activity(Activity::Messages(Messages {
        topology,
        payload_len: 32,
        qos,
        pace,
        clean_session: true,
        retain: false,
        read_rate: None,
    }))
}

/// A workload of one part.
pub(crate) fn activity(activity: Activity) -> Workload {
    Workload {
        parts: vec![Part::new("part", activity)],
        login: Login::new(VERSION),
    }
}

/// At so many messages per second, whatever the broker does.
pub(crate) fn open(per_second: f64) -> Pace {
    Pace::Open { per_second }
}

/// A run without warm-up.
pub(crate) fn settings(workload: Workload, broker: &Broker, duration: Duration) -> Settings {
    Settings {
        workload,
        listeners: vec![broker.address.into()],
        transport: ClientTransport::default(),
        sources: Vec::new(),
        warm_up: Duration::ZERO,
        duration,
        prefix: "test".to_owned(),
    }
}

pub(crate) fn title(plan: Option<Plan>) -> Title {
    Title {
        scenario: "test".to_owned(),
        label: "test".to_owned(),
        reading: String::new(),
        started_at: String::new(),
        settings: Vec::new(),
        machine: Machine::default(),
        plan,
    }
}

pub(crate) fn record(crew: Crew, settings: &Settings) -> Result<Record, PlayError> {
    let played = play(crew, settings, &mut [], &mut ())?;
    Ok(played.record(&settings.workload, title(None)))
}

/// A run of a workload with so many workers.
pub(crate) fn run(
    workers: usize,
    workload: Workload,
    broker: &Broker,
    duration: Duration,
) -> Record {
    record(crew(workers), &settings(workload, broker, duration)).unwrap()
}

/// Whether a warning has all of these words.
pub(crate) fn warns(record: &Record, words: &str) -> bool {
    record
        .warnings
        .iter()
        .any(|warning| warning.contains(words))
}
