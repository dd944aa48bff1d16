//! `GET /metrics` while runs go on: the figures so far, for Prometheus.
//!
//! Call order: [`Exposition::open`]; for each run [`Exposition::begin`], then [`Book::enter`] with all its
//! news.
//!
//! Invariant: a total only grows while a run goes on, and begins at 0 with the next run, as Prometheus
//! expects of a process that was started again. What a run ended with stays until then.
//!
//! The page is written when there is news; a request is answered with the last one, by a thread of its own.
//!
//! Deliberately absent: the final figures of a run, which are in its record.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use loadtest::{News, Progress};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use report::{Phase, Sample, Usage};
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;

use super::observers::{Announcement, current_phase, missing};
use crate::failure::Failure;

/// Of the page: OpenMetrics, which is what the library writes and Prometheus asks for.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All phases, by their names in records.
const PHASES: [(&str, Phase); 4] = [
    ("connect", Phase::Connect),
    ("warm-up", Phase::WarmUp),
    ("measure", Phase::Measure),
    ("drain", Phase::Drain),
];

/// The page, and the address that it is served at.
pub(super) struct Exposition {
    address: SocketAddr,
    page: watch::Sender<String>,
}

/// The figures of one run.
pub(super) struct Book<'a> {
    page: &'a watch::Sender<String>,
    figures: Figures,
}

impl Exposition {
    /// Serves an empty page at `address`; port 0 is one that is free.
    pub(super) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::Runtime(format!("metrics on {address}: {error}"));
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (page, pages) = watch::channel(String::from("# EOF\n"));
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let serving = move || serve(&runtime, listener, pages);
        let thread = thread::Builder::new().name("metrics".to_owned());
        // It ends with the process.
        thread.spawn(serving).map_err(failed)?;
        Ok(Self { address, page })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    pub(super) fn begin(&self, run: &Announcement) -> Book<'_> {
        let book = Book {
            page: &self.page,
            figures: Figures::new(run),
        };
        book.publish();
        book
    }
}

/// Answers requests for ever.
fn serve(
    runtime: &Runtime,
    listener: TcpListener,
    pages: watch::Receiver<String>,
) -> io::Result<()> {
    let router = Router::new().route("/metrics", get(answer));
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, router.with_state(pages)).await
    })
}

async fn answer(State(pages): State<watch::Receiver<String>>) -> impl IntoResponse {
    let page = pages.borrow().clone();
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], page)
}

impl Book<'_> {
    pub(super) fn enter(&mut self, news: &News<'_>) {
        self.figures.enter(news);
        self.publish();
    }

    fn publish(&self) {
        self.page.send_replace(self.figures.text());
    }
}

impl Drop for Book<'_> {
    fn drop(&mut self) {
        self.figures.phase = None;
        self.publish();
    }
}

/// What the page shows.
#[derive(Clone, Debug)]
struct Figures {
    scenario: String,
    label: String,
    /// `None` when the run has ended.
    phase: Option<Phase>,
    /// How long the measurement takes.
    measured: Duration,
    /// Connections that there will be.
    wanted: usize,
    progress: Progress,
    missing: u64,
    latency: Latency,
    tool_cpu_s: f64,
    systems: Vec<System>,
}

/// Of the last interval, by the record's headline latency.
#[derive(Clone, Copy, Debug, Default)]
struct Latency {
    mean_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
}

/// One of the broker's processes or nodes.
#[derive(Clone, Debug)]
struct System {
    name: String,
    /// User and system mode.
    cpu_s: f64,
    /// `None` if it could not be read.
    usage: Option<Usage>,
}

impl Figures {
    fn new(run: &Announcement) -> Self {
        let system = |name: &String| System {
            name: name.clone(),
            cpu_s: 0.0,
            usage: None,
        };
        Self {
            scenario: run.scenario.clone(),
            label: run.label.clone(),
            phase: Some(Phase::Connect),
            measured: run.measured,
            wanted: 0,
            progress: Progress::default(),
            missing: 0,
            latency: Latency::default(),
            tool_cpu_s: 0.0,
            systems: run.systems.iter().map(system).collect(),
        }
    }

    fn enter(&mut self, news: &News<'_>) {
        self.phase = Some(current_phase(news.remaining, self.measured));
        self.wanted = news.connections;
        self.progress = *news.progress;
        self.missing = missing(news);
        self.enter_sample(news.sample);
    }

    fn enter_sample(&mut self, sample: &Sample) {
        self.latency = Latency {
            mean_ms: sample.mean_ms,
            p99_ms: sample.p99_ms,
            max_ms: sample.max_ms,
        };
        self.tool_cpu_s += sample.tool_cpu_s;
        for (system, usage) in self.systems.iter_mut().zip(&sample.system) {
            system.usage = *usage;
            system.cpu_s += usage.map_or(0.0, |usage| usage.cpu_user_s + usage.cpu_system_s);
        }
    }

    /// In the text format of OpenMetrics.
    fn text(&self) -> String {
        let labels = [("scenario", &self.scenario), ("label", &self.label)];
        let labels = labels.map(|(name, value)| (name.into(), value.clone().into()));
        let mut registry = Registry::with_prefix_and_labels("heraldmq_bench", labels.into_iter());
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        encode(&mut text, &registry).expect("writing to a string does not fail");
        text
    }
}

type Encoded = Result<(), fmt::Error>;

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let page = &mut Page(&mut encoder);
        self.encode_phase(page)?;
        self.encode_connections(page)?;
        self.encode_messages(page)?;
        self.encode_latency(page)?;
        let help = "CPU time of the load tool's processes";
        page.counter("tool_cpu", help, Some(&Unit::Seconds), self.tool_cpu_s)?;
        self.encode_systems(page)
    }
}

impl Figures {
    fn encode_phase(&self, page: &mut Page<'_, '_>) -> Encoded {
        let help = "1 for what goes on: connect, warm-up, measure or drain";
        let is_current = PHASES.map(|(name, phase)| (name, u64::from(self.phase == Some(phase))));
        let phases = is_current.map(|(name, is_current)| (name, ConstGauge::new(is_current)));
        page.family(("phase", help, None), MetricType::Gauge, "phase", phases)
    }

    fn encode_connections(&self, page: &mut Page<'_, '_>) -> Encoded {
        let progress = &self.progress;
        let help = "Clients connected and subscribed";
        page.gauge("connections", help, None, progress.ready)?;
        let help = "Clients that there will be";
        page.gauge("connections_wanted", help, None, self.wanted)?;
        let help = "Connections that broke off during the load";
        page.counter("disconnects", help, None, progress.disconnects)?;
        let bytes = Some(&Unit::Bytes);
        let help = "Bytes written to the broker";
        page.counter("sent", help, bytes, progress.bytes.out)?;
        let help = "Bytes read from the broker";
        page.counter("received", help, bytes, progress.bytes.received)
    }

    fn encode_messages(&self, page: &mut Page<'_, '_>) -> Encoded {
        let totals = &self.progress.totals;
        let help = "Messages handed to publishers' connections";
        page.counter("messages_sent", help, None, totals.sent)?;
        let help = "Messages acknowledged to the end, above QoS 0";
        page.counter("messages_acknowledged", help, None, totals.acknowledged)?;
        let help = "Messages received by subscribers, duplicates included";
        page.counter("messages_delivered", help, None, totals.delivered)?;
        let help = "Messages that the broker refused";
        page.counter("messages_refused", help, None, self.progress.refused)?;
        let help = "Deliveries of messages sent that have not come: under way, or lost";
        page.gauge("messages_missing", help, None, self.missing)
    }

    fn encode_latency(&self, page: &mut Page<'_, '_>) -> Encoded {
        let help = "Headline latency of what arrived since the news before: mean, p99 and max";
        let Latency {
            mean_ms,
            p99_ms,
            max_ms,
        } = self.latency;
        let figures = [("mean", mean_ms), ("p99", p99_ms), ("max", max_ms)];
        let seconds = |ms: f64| ConstGauge::new(ms / 1e3);
        let known = figures
            .into_iter()
            .filter_map(|(name, ms)| Some((name, seconds(ms?))));
        let described = ("latency", help, Some(&Unit::Seconds));
        page.family(described, MetricType::Gauge, "figure", known)
    }

    fn encode_systems(&self, page: &mut Page<'_, '_>) -> Encoded {
        let cpu = self.systems.iter().map(|system| {
            let counter = ConstCounter::new(system.cpu_s);
            (system.name.as_str(), counter)
        });
        let help = "CPU time of the broker since the run began";
        let described = ("broker_cpu", help, Some(&Unit::Seconds));
        page.family(described, MetricType::Counter, "system", cpu)?;

        let help = "Resident memory of the broker";
        let described = ("broker_resident_memory", help, Some(&Unit::Bytes));
        self.encode_usages(page, described, |usage| Some(usage.resident_bytes))?;
        let described = ("broker_descriptors", "Open descriptors of the broker", None);
        self.encode_usages(page, described, |usage| usage.descriptors.map(u64::from))?;
        let described = ("broker_threads", "Threads of the broker", None);
        self.encode_usages(page, described, |usage| usage.threads.map(u64::from))
    }

    /// A gauge of the systems that say it.
    fn encode_usages(
        &self,
        page: &mut Page<'_, '_>,
        described: Described<'_>,
        figure: fn(&Usage) -> Option<u64>,
    ) -> Encoded {
        let known = self.systems.iter().filter_map(|system| {
            let value = figure(system.usage.as_ref()?)?;
            Some((system.name.as_str(), ConstGauge::new(value)))
        });
        page.family(described, MetricType::Gauge, "system", known)
    }
}

/// A metric's name, help and unit.
type Described<'a> = (&'a str, &'a str, Option<&'a Unit>);

/// What is being written.
struct Page<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Page<'_, '_> {
    fn counter(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl EncodeCounterValue,
    ) -> Encoded {
        let kind = MetricType::Counter;
        let metric = self.0.encode_descriptor(name, help, unit, kind)?;
        ConstCounter::new(value).encode(metric)
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl EncodeGaugeValue,
    ) -> Encoded {
        let metric = self
            .0
            .encode_descriptor(name, help, unit, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    /// A metric of several values, told apart by a label.
    fn family<'a>(
        &mut self,
        (name, help, unit): Described<'_>,
        kind: MetricType,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, impl EncodeMetric)>,
    ) -> Encoded {
        let mut family = self.0.encode_descriptor(name, help, unit, kind)?;
        for (value, metric) in values {
            metric.encode(family.encode_family(&[(label, value)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};

    use super::super::observers::fixture::{Second, systems};
    use super::*;

    const ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

    fn run() -> Announcement {
        Announcement {
            scenario: "2k_2k".to_owned(),
            label: "a \"broker\"".to_owned(),
            measured: Duration::from_secs(100),
            systems: systems(),
        }
    }

    /// The value of the only sample of this name that has this among its labels.
    fn value(page: &str, name: &str, label: &str) -> Option<f64> {
        let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|l| l.starts_with('{'));
        let mut samples = page.lines().filter(of_name).filter(|l| l.contains(label));
        let sample = samples.next()?;
        assert_eq!(samples.next(), None, "{name} {label}");
        sample.rsplit(' ').next()?.parse().ok()
    }

    #[test]
    fn totals_are_those_of_the_progress_and_deltas_are_added_up() {
        let mut figures = Figures::new(&run());
        let mut second = Second::measured();
        figures.enter(&second.news());
        second.progress.totals.sent += 5_000;
        second.sample.system[0] = None;
        figures.enter(&second.news());
        let page = figures.text();
        let value = |name: &str, label| value(&page, &format!("heraldmq_bench_{name}"), label);
        let of_broker = r#"system="pid 7 (mosquitto)""#;
        for (name, label, expected) in [
            ("messages_sent_total", "", Some(45_000.0)),
            ("messages_delivered_total", "", Some(39_991.0)),
            ("messages_missing", "", Some(12.0)),
            ("disconnects_total", "", Some(1.0)),
            ("sent_bytes_total", "", Some(800.0)),
            ("received_bytes_total", "", Some(700.0)),
            ("connections", "", Some(1_999.0)),
            ("connections_wanted", "", Some(2_000.0)),
            ("tool_cpu_seconds_total", "", Some(0.25)),
            ("broker_cpu_seconds_total", of_broker, Some(0.75)),
            ("broker_cpu_seconds_total", "(gone)", Some(0.0)),
            ("broker_resident_memory_bytes", of_broker, None),
            ("latency_seconds", r#"figure="p99""#, Some(0.001_25)),
            ("phase", r#"phase="measure""#, Some(1.0)),
            ("phase", r#"phase="warm-up""#, Some(0.0)),
        ] {
            assert_eq!(value(name, label), expected, "{name} {label}\n{page}");
        }
        assert!(page.contains(r#"scenario="2k_2k",label="a \"broker\"""#));
    }

    #[test]
    fn what_a_broker_holds_is_told_where_it_says_so() {
        let mut figures = Figures::new(&run());
        figures.enter(&Second::measured().news());
        let page = figures.text();
        let value = |name| value(&page, name, "pid 7");
        let memory = value("heraldmq_bench_broker_resident_memory_bytes");
        assert_eq!(memory, Some(12_000_000.0));
        assert_eq!(value("heraldmq_bench_broker_threads"), Some(4.0));
        assert_eq!(value("heraldmq_bench_broker_descriptors"), None);
    }

    /// What a GET of `path` is answered with.
    fn get_page(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_page_is_of_the_last_news_and_stays_when_a_run_has_ended() {
        let exposition = Exposition::open(ANY_PORT.into()).unwrap();
        let address = exposition.address;
        assert!(get_page(address, "/metrics").ends_with("\r\n\r\n# EOF\n"));
        let mut book = exposition.begin(&run());
        book.enter(&Second::measured().news());
        let page = get_page(address, "/metrics");
        assert!(page.contains(CONTENT_TYPE), "{page}");
        let sent = "heraldmq_bench_messages_sent_total";
        let measuring = r#"phase="measure""#;
        assert_eq!(value(&page, sent, ""), Some(40_000.0));
        assert_eq!(value(&page, "heraldmq_bench_phase", measuring), Some(1.0));
        drop(book);
        let page = get_page(address, "/metrics");
        assert_eq!(value(&page, sent, ""), Some(40_000.0));
        assert_eq!(value(&page, "heraldmq_bench_phase", measuring), Some(0.0));
        let _next = exposition.begin(&run());
        assert_eq!(value(&get_page(address, "/metrics"), sent, ""), Some(0.0));
        assert!(get_page(address, "/").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn an_address_in_use_is_a_failure_that_names_it() {
        let holder = TcpListener::bind(ANY_PORT).unwrap();
        let taken = holder.local_addr().unwrap();
        match Exposition::open(taken).map(|exposition| exposition.address) {
            Err(Failure::Runtime(message)) => {
                assert!(message.contains(&taken.to_string()), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
}
