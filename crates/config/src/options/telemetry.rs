//! Options of what the node pushes to a collector of OpenTelemetry.

use std::{path::PathBuf, time::Duration};

use crate::{attributes::Attributes, declare::options};

options! {
    /// Metrics and log lines for OpenTelemetry. docs/operate/opentelemetry.md tells how they reach other systems.
    pub struct TelemetryConfig {
        group "otlp" => otlp: OtlpConfig;
        /// Resource attributes of all that is pushed, as a map or as `name=value` separated by commas, such as
        /// `deployment.environment.name: test`. They replace attributes of the same name that the node sets by itself:
        /// `service.name`, `service.version`, `service.instance.id` and `host.name`.
        fixed "resource" => resource: Attributes;
    }

    /// Where metrics and log lines are pushed to, by OTLP over HTTP with protocol buffers.
    pub struct OtlpConfig {
        /// The collector, as `https://HOST:PORT/PATH` or `http://HOST:PORT/PATH`, without `v1/metrics` or `v1/logs`, which the node
        /// appends. Unset: nothing is pushed.
        fixed "url" => url: Option<String>;
        /// Time between two pushes.
        fixed "intervalSeconds" => interval: Duration = Duration::from_secs(15), unit Seconds, range 1..=3600;
        /// Headers of each request, one `Name: value` a line: the content of this file, such as `Authorization: Bearer …`.
        live "headersFile" => headers_file: Option<PathBuf>;
        /// Authorities that sign the collector's certificate, PEM. Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// Whether metrics are pushed.
        fixed "metrics" => metrics: bool = true;
        /// Whether log lines at WARN and ERROR are pushed, of those that `log.level` lets through.
        fixed "logs" => logs: bool = true;
    }
}

impl OtlpConfig {
    /// Whether anything is pushed.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.url.is_some() && (self.metrics || self.logs)
    }
}
