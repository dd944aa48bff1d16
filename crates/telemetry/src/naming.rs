//! The names and units of metrics at OpenTelemetry.
//!
//! Rules: `heraldmq_` becomes the namespace `heraldmq.`; the suffixes `_total`, `_bytes`, `_seconds` and `_per_second` are left out,
//! because kind and unit say the same. A system that turns OTLP into metrics of Prometheus appends them again, so that such a system
//! has the names of `/metrics`, and the same dashboards and alerts work. Metrics of the process have the names of the semantic
//! conventions of OpenTelemetry 1.45 where these have one.

/// What a metric is at OpenTelemetry. All sums and histograms are cumulative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instrument {
    /// A sum that only grows.
    Counter,
    /// A sum that grows and shrinks.
    UpDownCounter,
    /// A value at a time.
    Gauge,
    /// Counts in buckets with explicit bounds.
    Histogram,
}

/// Kinds of metrics in the registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Name, unit and kind of a metric at OpenTelemetry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtlpMetric {
    /// Such as `heraldmq.connections_open`.
    pub name: String,
    /// In the notation of UCUM, such as `By`; empty: a state that has no unit.
    pub unit: String,
    /// What it is.
    pub instrument: Instrument,
}

/// Metrics of the process: the name in the registry, and what the semantic conventions say.
const PROCESS: [(&str, &str, &str, Instrument); 5] = [
    (
        "process_cpu_seconds_total",
        "process.cpu.time",
        "s",
        Instrument::Counter,
    ),
    (
        "process_resident_memory_bytes",
        "process.memory.usage",
        "By",
        Instrument::UpDownCounter,
    ),
    (
        "process_virtual_memory_bytes",
        "process.memory.virtual",
        "By",
        Instrument::UpDownCounter,
    ),
    (
        "process_open_fds",
        "process.unix.file_descriptor.count",
        "{file_descriptor}",
        Instrument::UpDownCounter,
    ),
    (
        "process_threads",
        "process.thread.count",
        "{thread}",
        Instrument::UpDownCounter,
    ),
];

/// What is counted, by a word in the name; the first word of a name that is here decides.
const COUNTED: &[(&str, &str)] = &[
    ("acknowledgements", "acknowledgement"),
    ("answers", "answer"),
    ("bans", "ban"),
    ("barriers", "barrier"),
    ("batches", "batch"),
    ("calls", "call"),
    ("checkpoints", "checkpoint"),
    ("clients", "client"),
    ("connections", "connection"),
    ("connects", "connect"),
    ("deliveries", "delivery"),
    ("descriptors", "file_descriptor"),
    ("entries", "entry"),
    ("errors", "error"),
    ("failures", "failure"),
    ("fds", "file_descriptor"),
    ("fences", "fence"),
    ("filters", "filter"),
    ("frames", "frame"),
    ("groups", "group"),
    ("handshakes", "handshake"),
    ("inboxes", "inbox"),
    ("links", "link"),
    ("logins", "login"),
    ("members", "member"),
    ("messages", "message"),
    ("misses", "miss"),
    ("packets", "packet"),
    ("patterns", "pattern"),
    ("pauses", "pause"),
    ("peers", "peer"),
    ("publishers", "publisher"),
    ("publishes", "message"),
    ("pushes", "push"),
    ("queues", "queue"),
    ("reads", "read"),
    ("refusals", "refusal"),
    ("replicas", "replica"),
    ("requests", "request"),
    ("routes", "route"),
    ("sessions", "session"),
    ("shards", "shard"),
    ("sockets", "connection"),
    ("splits", "split"),
    ("subscriptions", "subscription"),
    ("syncs", "sync"),
    ("takeovers", "takeover"),
    ("threads", "thread"),
    ("timeouts", "timeout"),
    ("topics", "topic"),
    ("turns", "turn"),
    ("violations", "violation"),
    ("voters", "voter"),
    ("waits", "wait"),
    ("wills", "will"),
    ("writes", "write"),
];

/// The name, unit and kind at OpenTelemetry of a metric that `GET /metrics` calls `name`, by the kind that it has there:
/// `counter`, `gauge` or `histogram`. `None`: another kind.
#[must_use]
pub fn otlp_metric(name: &str, kind: &str) -> Option<OtlpMetric> {
    let kind = match kind {
        "counter" => Kind::Counter,
        "gauge" => Kind::Gauge,
        "histogram" => Kind::Histogram,
        _ => return None,
    };
    Some(named(name, kind))
}

pub(crate) fn named(name: &str, kind: Kind) -> OtlpMetric {
    if let Some((_, name, unit, instrument)) = PROCESS.iter().find(|(own, ..)| *own == name) {
        return OtlpMetric {
            name: (*name).to_owned(),
            unit: (*unit).to_owned(),
            instrument: *instrument,
        };
    }
    let instrument = match kind {
        Kind::Counter => Instrument::Counter,
        Kind::Gauge => Instrument::Gauge,
        Kind::Histogram => Instrument::Histogram,
    };
    let bare = name.strip_suffix("_total").unwrap_or(name);
    let (namespace, bare) = match bare.split_once('_') {
        Some(("heraldmq", rest)) => ("heraldmq", rest),
        Some(("process", rest)) => ("heraldmq.process", rest),
        _ => ("heraldmq", bare),
    };
    let units = [
        ("_bytes", "By"),
        ("_per_second", "{message}/s"),
        ("_seconds", "s"),
    ];
    let unit = units
        .iter()
        .find_map(|(suffix, unit)| Some((bare.strip_suffix(suffix)?, (*unit).to_owned())));
    let (bare, unit) = unit.unwrap_or_else(|| (bare, counted(bare, kind)));
    OtlpMetric {
        name: format!("{namespace}.{bare}"),
        unit,
        instrument,
    }
}

fn counted(bare: &str, kind: Kind) -> String {
    let known = bare.split('_').find_map(|word| {
        let at = COUNTED
            .binary_search_by_key(&word, |(plural, _)| plural)
            .ok()?;
        Some(format!("{{{}}}", COUNTED.get(at)?.1))
    });
    known.unwrap_or_else(|| match kind {
        Kind::Counter => "{event}".to_owned(),
        // `1` would be a ratio.
        Kind::Gauge | Kind::Histogram => String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_unit_and_kind_say() {
        for (name, kind, expected, unit) in [
            (
                "heraldmq_packets_received_total",
                "counter",
                "heraldmq.packets_received",
                "{packet}",
            ),
            (
                "heraldmq_received_bytes_total",
                "counter",
                "heraldmq.received",
                "By",
            ),
            (
                "heraldmq_delivery_seconds",
                "histogram",
                "heraldmq.delivery",
                "s",
            ),
            (
                "heraldmq_session_queued_per_second",
                "gauge",
                "heraldmq.session_queued",
                "{message}/s",
            ),
            (
                "heraldmq_denied_total",
                "counter",
                "heraldmq.denied",
                "{event}",
            ),
            (
                "heraldmq_memory_pressure",
                "gauge",
                "heraldmq.memory_pressure",
                "",
            ),
            (
                "process_resident_memory_bytes",
                "gauge",
                "process.memory.usage",
                "By",
            ),
            (
                "process_max_fds",
                "gauge",
                "heraldmq.process.max_fds",
                "{file_descriptor}",
            ),
        ] {
            let found = otlp_metric(name, kind).unwrap();
            assert_eq!((&*found.name, &*found.unit), (expected, unit));
        }
        assert_eq!(otlp_metric("heraldmq_x", "summary"), None);
    }

    #[test]
    fn the_words_are_sorted() {
        assert!(COUNTED.is_sorted_by_key(|(plural, _)| plural));
    }
}
