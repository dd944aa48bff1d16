//! The pushes to the collector, one after the other.
//!
//! A push that fails is not sent again at once. The next snapshot of the metrics replaces the one that failed, because sums and
//! histograms are cumulative. Log lines that the collector could not take for now wait as one batch, and the ring keeps
//! those that come meanwhile.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use config::TelemetryConfig;
use http_body_util::Full;
use http_client::{HttpClient, HttpError, read_headers, retry_after};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricFamily;
use prost::Message;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::counts::{Counts, Failure, Signal};
use crate::log_lines::{Line, LogLines};
use crate::metrics::{Times, attribute, metrics_request};

/// How long one push may take, connecting and the answer included.
const DEADLINE: Duration = Duration::from_secs(10);

/// The longest pause after failures that the collector does not give a time for, unless the interval is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Bytes of a reason in the log; the rest is cut off.
const LONGEST_REASON: usize = 500;

/// Largest answer. One that tells of a partial success is a sentence.
const MAX_ANSWER: usize = 65_536;

/// What a node says of itself in each push.
#[derive(Clone, Debug)]
pub struct About {
    /// The version of the program.
    pub version: &'static str,
    /// The identifier of the node.
    pub node: String,
    /// The name of the machine.
    pub host: String,
    /// When the process started.
    pub started: SystemTime,
}

/// Why there is no exporter.
#[derive(Debug)]
pub enum OpenError {
    /// The URL, or the certificates of authorities.
    Client(String),
    /// The file of headers.
    Headers {
        /// Where it is.
        path: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(reason) => write!(f, "telemetry.otlp.{reason}"),
            Self::Headers { path, reason } => {
                write!(f, "telemetry.otlp.headersFile {}: {reason}", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// Pushes metrics and log lines to one collector.
#[derive(Debug)]
pub struct Exporter {
    target: RwLock<Arc<Target>>,
    interval: Duration,
    pushes_metrics: bool,
    lines: Option<Arc<LogLines>>,
    counts: Arc<Counts>,
    resource: Resource,
    scope: InstrumentationScope,
    user_agent: HeaderValue,
    started: SystemTime,
    /// What became of the last push of each signal, as the log has it.
    told: Mutex<[Option<Failure>; Signal::ALL.len()]>,
}

/// Where requests go to, and what they say.
#[derive(Debug)]
struct Target {
    metrics: HttpClient,
    logs: HttpClient,
    headers: HeaderMap,
}

impl Target {
    fn open(config: &TelemetryConfig) -> Result<Self, OpenError> {
        let otlp = &config.otlp;
        let url = otlp.url.as_deref().unwrap_or_default();
        let server = HttpClient::open(url, otlp.ca_file.as_deref(), MAX_ANSWER);
        let server = server.map_err(OpenError::Client)?;
        let client = |signal: Signal| server.below(signal.path()).map_err(OpenError::Client);
        let headers = match &otlp.headers_file {
            Some(path) => read_headers(path).map_err(|reason| OpenError::Headers {
                path: path.clone(),
                reason,
            })?,
            None => HeaderMap::new(),
        };
        Ok(Self {
            metrics: client(Signal::Metrics)?,
            logs: client(Signal::Logs)?,
            headers,
        })
    }
}

/// What became of a push.
enum Outcome {
    /// The collector has it, also in part.
    Taken,
    /// Later it may be taken: after a time that the collector has asked for, or when the exporter decides.
    Later(Option<Duration>),
    /// It is not taken, and would not be later.
    Refused,
}

/// Log lines that wait for the collector.
struct Batch {
    body: Bytes,
    lines: usize,
}

/// When the next push may be.
#[derive(Default)]
struct Pace {
    /// In a row, that the collector has given no other time for.
    failures: Failures,
    not_before: Option<Instant>,
}

type Failures = u32;

impl Exporter {
    /// An exporter to the collector that the configuration names; `None` if it names none. `lines`: the ring that the log fills.
    ///
    /// # Errors
    /// A URL that is none, a file that cannot be used.
    pub fn open(
        config: &TelemetryConfig,
        lines: Option<Arc<LogLines>>,
        about: About,
    ) -> Result<Option<Self>, OpenError> {
        if !config.otlp.is_enabled() {
            return Ok(None);
        }
        let target = Target::open(config)?;
        let counts = lines.as_ref().map(|lines| Arc::clone(lines.counts()));
        let mut attributes = vec![
            attribute("service.name", "heraldmq"),
            attribute("service.version", about.version),
            attribute("service.instance.id", &about.node),
            attribute("host.name", &about.host),
        ];
        for (name, value) in config.resource.iter() {
            attributes.retain(|own| own.key != name);
            attributes.push(attribute(name, value));
        }
        let user_agent = format!("heraldmq/{}", about.version);
        Ok(Some(Self {
            target: RwLock::new(Arc::new(target)),
            interval: config.otlp.interval,
            pushes_metrics: config.otlp.metrics,
            lines: lines.filter(|_| config.otlp.logs),
            counts: counts.unwrap_or_default(),
            resource: Resource {
                attributes,
                ..Resource::default()
            },
            scope: InstrumentationScope {
                name: "heraldmq".to_owned(),
                version: about.version.to_owned(),
                ..InstrumentationScope::default()
            },
            user_agent: HeaderValue::from_str(&user_agent)
                .unwrap_or(HeaderValue::from_static("heraldmq")),
            started: about.started,
            told: Mutex::default(),
        }))
    }

    /// Reads the files that the configuration names, and says what is wrong with them.
    ///
    /// # Errors
    /// As [`Exporter::open`].
    pub fn check(config: &TelemetryConfig) -> Result<(), OpenError> {
        match config.otlp.is_enabled() {
            true => Target::open(config).map(drop),
            false => Ok(()),
        }
    }

    /// Reads the headers and the certificates of authorities again. A push that is under way goes on with those of before.
    ///
    /// # Errors
    /// As [`Exporter::open`]; then everything stays as it is.
    pub fn reload(&self, config: &TelemetryConfig) -> Result<(), OpenError> {
        let target = Target::open(config)?;
        *self.target.write() = Arc::new(target);
        Ok(())
    }

    /// What became of the pushes.
    #[must_use]
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Pushes until it is dropped. `snapshot` gives the metrics of now, and is called in the task that this runs in.
    pub async fn run(&self, snapshot: impl Fn() -> Vec<MetricFamily>) {
        let mut interval = interval(self.interval);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pace = Pace::default();
        let mut waiting = None;
        loop {
            interval.tick().await;
            if let Some(at) = pace.not_before {
                sleep_until(at).await;
            }
            let outcome = self.round(&snapshot, &mut waiting).await;
            pace.handle(&outcome, self.interval);
        }
    }

    /// Pushes the metrics, and then the log lines unless the collector asks for a later push.
    async fn round(
        &self,
        snapshot: impl Fn() -> Vec<MetricFamily>,
        waiting: &mut Option<Batch>,
    ) -> Outcome {
        let mut outcome = Outcome::Taken;
        if self.pushes_metrics {
            outcome = self.push_metrics(snapshot()).await;
        }
        if matches!(outcome, Outcome::Later(_)) {
            return outcome;
        }
        let Some(lines) = &self.lines else {
            return outcome;
        };
        let Some(batch) = waiting.take().or_else(|| self.batch(lines.take())) else {
            return outcome;
        };
        match self.push_logs(batch.body.clone(), batch.lines).await {
            Outcome::Taken => outcome,
            Outcome::Later(after) => {
                *waiting = Some(batch);
                Outcome::Later(after)
            }
            Outcome::Refused => Outcome::Refused,
        }
    }

    async fn push_metrics(&self, families: Vec<MetricFamily>) -> Outcome {
        let times = Times {
            start: nanos(self.started),
            now: nanos(SystemTime::now()),
        };
        let (request, points) =
            metrics_request(families, self.resource.clone(), self.scope.clone(), times);
        let body = Bytes::from(request.encode_to_vec());
        drop(request);
        let rejected = |answer: Bytes| {
            let answer = ExportMetricsServiceResponse::decode(answer)?;
            Ok(answer
                .partial_success
                .map(|part| (part.rejected_data_points, part.error_message)))
        };
        let outcome = self.push(Signal::Metrics, body, rejected).await;
        if !matches!(outcome, Outcome::Taken) {
            self.counts.handle_drop(Signal::Metrics, points);
        }
        outcome
    }

    async fn push_logs(&self, body: Bytes, lines: usize) -> Outcome {
        let rejected = |answer: Bytes| {
            let answer = ExportLogsServiceResponse::decode(answer)?;
            Ok(answer
                .partial_success
                .map(|part| (part.rejected_log_records, part.error_message)))
        };
        let outcome = self.push(Signal::Logs, body, rejected).await;
        if matches!(outcome, Outcome::Refused) {
            self.counts.handle_drop(Signal::Logs, lines);
        }
        outcome
    }

    fn batch(&self, lines: Vec<Line>) -> Option<Batch> {
        let count = lines.len();
        if count == 0 {
            return None;
        }
        let mut scopes: Vec<ScopeLogs> = Vec::new();
        for Line { target, record } in lines {
            let of = |scope: &ScopeLogs| {
                scope
                    .scope
                    .as_ref()
                    .is_some_and(|scope| scope.name == target)
            };
            match scopes.iter_mut().find(|scope| of(scope)) {
                Some(scope) => scope.log_records.push(record),
                None => scopes.push(ScopeLogs {
                    scope: Some(InstrumentationScope {
                        name: target.to_owned(),
                        version: self.scope.version.clone(),
                        ..InstrumentationScope::default()
                    }),
                    log_records: vec![record],
                    ..ScopeLogs::default()
                }),
            }
        }
        let request = ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(self.resource.clone()),
                scope_logs: scopes,
                ..ResourceLogs::default()
            }],
        };
        Some(Batch {
            body: Bytes::from(request.encode_to_vec()),
            lines: count,
        })
    }

    async fn push(
        &self,
        signal: Signal,
        body: Bytes,
        rejected: impl Fn(Bytes) -> Result<Option<(i64, String)>, prost::DecodeError>,
    ) -> Outcome {
        let target = Arc::clone(&self.target.read());
        let client = match signal {
            Signal::Metrics => &target.metrics,
            Signal::Logs => &target.logs,
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, self.user_agent.clone());
        headers.extend(target.headers.clone());
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        let answer = client.send(request, Instant::now() + DEADLINE).await;
        let (failure, outcome, reason) = match answer {
            Ok(answer) if answer.status().is_success() => {
                self.counts.handle_push(signal);
                match rejected(answer.into_body()) {
                    Ok(None) => {
                        self.tell(signal, None, "");
                        return Outcome::Taken;
                    }
                    Ok(Some((0, message))) => {
                        self.tell(signal, None, &message);
                        return Outcome::Taken;
                    }
                    Ok(Some((count, message))) => {
                        let count = usize::try_from(count).unwrap_or_default();
                        self.counts.handle_drop(signal, count);
                        (
                            Failure::Partial,
                            Outcome::Taken,
                            format!("{count} not taken: {message}"),
                        )
                    }
                    Err(error) => (Failure::Answer, Outcome::Taken, error.to_string()),
                }
            }
            Ok(answer) => refused(&answer),
            Err(HttpError::Deadline) => (
                Failure::Deadline,
                Outcome::Later(None),
                HttpError::Deadline.to_string(),
            ),
            Err(error @ HttpError::TooLarge(_)) => {
                (Failure::Answer, Outcome::Refused, error.to_string())
            }
            Err(error @ HttpError::Exchange(_)) => (
                Failure::Unreachable,
                Outcome::Later(None),
                error.to_string(),
            ),
        };
        self.counts.handle_failure(failure);
        self.tell(signal, Some(failure), &reason);
        outcome
    }

    /// A change of what becomes of the pushes is in the log; further pushes with the same outcome are not.
    fn tell(&self, signal: Signal, failure: Option<Failure>, reason: &str) {
        let before = std::mem::replace(&mut self.told.lock()[signal as usize], failure);
        let reason = reason
            .get(..reason.floor_char_boundary(LONGEST_REASON))
            .unwrap_or_default();
        let signal = signal.name();
        match failure {
            Some(failure) if before != Some(failure) => {
                let failure = failure.name();
                tracing::warn!(
                    signal,
                    failure,
                    reason,
                    "pushes to the collector of OpenTelemetry fail"
                );
            }
            None if before.is_some() => {
                tracing::info!(signal, "the collector of OpenTelemetry takes pushes again");
            }
            Some(_) | None => {}
        }
    }
}

/// What an answer with another status than 2xx means.
fn refused(answer: &Response<Bytes>) -> (Failure, Outcome, String) {
    let status = answer.status();
    let reason = format!("the collector answers {status}");
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let after = retry_after(answer.headers(), SystemTime::now());
            (Failure::Busy, Outcome::Later(after), reason)
        }
        _ => (Failure::Refused, Outcome::Refused, reason),
    }
}

/// Nanoseconds since the Unix epoch.
fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Pace {
    /// After a failure, the pause is the interval, and doubles with each further one.
    fn handle(&mut self, outcome: &Outcome, interval: Duration) {
        let Outcome::Later(after) = outcome else {
            *self = Self::default();
            return;
        };
        let longest = LONGEST_PAUSE.max(interval);
        let pause = interval
            .saturating_mul(1 << self.failures.min(16))
            .min(longest);
        self.failures += 1;
        self.not_before = Some(Instant::now() + after.unwrap_or(pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_unless_the_collector_says() {
        let mut pace = Pace::default();
        let interval = Duration::from_secs(15);
        let mut pause = |outcome| {
            pace.handle(&outcome, interval);
            pace.not_before.map(|at| (at - Instant::now()).as_secs())
        };
        let later = || Outcome::Later(None);
        assert_eq!(
            [
                pause(later()),
                pause(later()),
                pause(later()),
                pause(later())
            ],
            [15, 30, 60, 60].map(Some)
        );
        assert_eq!(
            pause(Outcome::Later(Some(Duration::from_secs(90)))),
            Some(90)
        );
        assert_eq!(pause(Outcome::Refused), None);
        assert_eq!(pause(later()), Some(15));
    }

    #[test]
    fn nothing_configured_is_no_exporter() {
        let about = About {
            version: "1",
            node: "2".to_owned(),
            host: "h".to_owned(),
            started: SystemTime::now(),
        };
        let mut config = TelemetryConfig::default();
        assert!(
            Exporter::open(&config, None, about.clone())
                .unwrap()
                .is_none()
        );
        config.otlp.url = Some("http://127.0.0.1:4318".to_owned());
        assert!(
            Exporter::open(&config, None, about.clone())
                .unwrap()
                .is_some()
        );
        (config.otlp.metrics, config.otlp.logs) = (false, false);
        assert!(Exporter::open(&config, None, about).unwrap().is_none());
    }
}
