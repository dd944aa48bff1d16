//! The log: lines or JSON objects on standard error, with a level that can change while running.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use config::{LogConfig, LogFormat};
use telemetry::{LogLayer, LogLines};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter::LevelFilter, fmt, layer::SubscriberExt, reload,
    util::SubscriberInitExt,
};

/// Libraries whose daily business is no operator's.
const QUIET: &str = "openraft=error,raft_engine=warn,lsm_tree=warn";

/// Changes the level of the running log.
pub(crate) struct Handle(reload::Handle<EnvFilter, Registry>);

/// Starts the log of this process. `kept`: where lines at WARN and ERROR are kept as well, if anywhere.
///
/// # Errors
/// What is wrong with `log.level`.
pub(super) fn start(config: &LogConfig, kept: Option<Arc<LogLines>>) -> Result<Handle, String> {
    let (filter, handle) = reload::Layer::new(filter(&config.level)?);
    // Without `log_internal_errors(false)`, a log that nobody reads any more would end the process:
    // the complaint about the failed write is itself printed with a macro that panics.
    let lines = match config.format {
        LogFormat::Text => fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .log_internal_errors(false)
            .boxed(),
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(io::stderr)
            .log_internal_errors(false)
            .boxed(),
    };
    let lines = match kept {
        Some(kept) => lines.and_then(LogLayer::new(kept)).boxed(),
        None => lines,
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(|error| error.to_string())?;
    Ok(Handle(handle))
}

impl Handle {
    /// # Errors
    /// What is wrong with the level; the old one then stays.
    pub(super) fn set_level(&self, level: &str) -> Result<(), String> {
        let filter = filter(level)?;
        self.0.reload(filter).map_err(|error| error.to_string())
    }
}

/// The filter that `log.level` describes.
///
/// # Errors
/// What is wrong with it. A word that is no level is refused, although `EnvFilter` would take it for
/// the name of a target: a mistyped level would silence everything else.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, String> {
    for part in level.split(',') {
        let is_level = !part.is_empty() && part.parse::<LevelFilter>().is_ok();
        if !is_level && !part.contains('=') {
            return Err(format!(
                "log.level: expected error, warn, info, debug, trace, off or target=level, \
                 found \"{part}\""
            ));
        }
    }
    // First, so that who names these targets is heard.
    let all = format!("{QUIET},{level}");
    EnvFilter::try_new(all).map_err(|error| format!("log.level: \"{level}\": {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_level_is_refused() {
        for level in ["info", "off", "WARN", "info,herald_broker_core=debug"] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["", "inof", "info,debugg", "info,herald_broker_core=loud"] {
            let problem = filter(level).expect_err(level);
            assert!(problem.starts_with("log.level: "), "{problem}");
            assert_eq!(problem.lines().count(), 1);
        }
    }
}
