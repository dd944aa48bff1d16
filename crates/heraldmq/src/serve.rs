//! `heraldmq serve`: loads the configuration, starts the broker, and lives until a signal ends it.
//!
//! SIGTERM and SIGINT shut down in order; a second one ends the process at once, whatever it is doing. SIGHUP loads the
//! configuration again and applies what can be applied to a running broker.

pub(crate) mod data_dir;
mod descriptors;
mod kernel;
pub(crate) mod logging;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use broker::{Broker, Ends, FolderWord, NotReady, OwnProcess};
use config::{AfterLeave, Config, ConfigError, Loaded};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::Signals,
};
use telemetry::LogLines;
use tracing::{error, info, warn};

use crate::failure::Failure;
use crate::layers::Layers;

/// Run the broker.
///
/// Without a configuration file the broker listens on 127.0.0.1:1883. Options come from defaults, the file, the
/// environment (HERALDMQ_LIMITS__SESSION__QUEUEMESSAGES=…), --set and --data-dir; each source overrides those before
/// it. docs/reference/configuration.md describes each option. The log goes to standard error. SIGTERM and SIGINT shut
/// the broker down, SIGHUP reloads the configuration.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Configuration file (YAML), for example conf/standalone.yml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    layers: Layers,
    /// Accept the data folder of a cluster node without confirmation by the other members, for this start.
    ///
    /// A node of a cluster takes part in shards after a majority of the members has confirmed that its data folder is
    /// not an old copy. With this option, the node does not wait for that majority, and discards what it has recorded
    /// about the other members' folders. Use it if the other members are gone for good, or on each member after all of
    /// them were restored from backups. Data that an old copy lacks is lost. See docs/operate/cluster.md.
    #[arg(long)]
    accept_folder: bool,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq serve
  heraldmq serve --config conf/standalone.yml --data-dir /var/lib/heraldmq
  heraldmq serve --set mqttServerConfig.tcpListener.port=1884 --set log.format=json

Exit codes: 0 shut down by a signal, 1 cannot run (port in use, unusable folder), 2 wrong configuration, or a
file that it names cannot be used, 3 the data folder is an old copy, which the cluster refuses.";

impl Arguments {
    fn load(&self) -> Result<Loaded, ConfigError> {
        self.layers.load(self.config.as_deref())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    data_dir::keep_private();
    let Loaded {
        mut config,
        warnings,
        listing,
    } = arguments
        .load()
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let otlp = &config.telemetry.otlp;
    let log_lines = (otlp.is_enabled() && otlp.logs).then(|| Arc::new(LogLines::new()));
    let log = logging::start(&config.log, log_lines.clone()).map_err(Failure::Usage)?;
    for warning in warnings {
        warn!("{warning}");
    }
    data_dir::prepare(&config.data_dir).map_err(Failure::Runtime)?;
    data_dir::warn_if_open(&config);
    descriptors::prepare();
    kernel::check(&config);

    // Before the start, so that no signal takes its default course once the broker is ready.
    let watch = |error: std::io::Error| Failure::Runtime(format!("cannot watch signals: {error}"));
    let give_up = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag unset and sets it, the second one finds it set. No
        // thread has to come round to anything in between, so that a process that is stuck ends as well.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&give_up)).map_err(watch)?;
        flag::register(signal, Arc::clone(&give_up)).map_err(watch)?;
    }
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(watch)?;

    let handle = signals.handle();
    let ends = Ends {
        commit: env!("HERALD_BUILD_COMMIT"),
        give_up: Arc::clone(&give_up),
        // No more signals are waited for.
        left: Box::new(move || handle.close()),
        log_lines,
        process: OwnProcess {
            #[cfg(feature = "jemalloc")]
            allocator: crate::allocator::figures,
            #[cfg(not(feature = "jemalloc"))]
            allocator: || None,
            functions: crate::profile::functions,
        },
    };
    let word = match arguments.accept_folder {
        true => FolderWord::Accepted,
        false => FolderWord::None,
    };
    let broker = match Broker::start_until(&config, word, ends) {
        Ok(broker) => broker,
        Err(_) if give_up.load(Ordering::Relaxed) => return Ok(()),
        Err(error) if error.is_old_folder() => return Err(Failure::OldFolder(error.to_string())),
        Err(error) if error.is_in_configuration() => return Err(Failure::Usage(error.to_string())),
        Err(error) => return Err(Failure::Runtime(error.to_string())),
    };
    broker.show_settings(listing);
    let mut has_left = true;
    for signal in signals.forever() {
        if signal == SIGHUP {
            reload(arguments, &mut config, &log, &broker);
            continue;
        }
        info!(signal = signal_name(signal), "signal received");
        has_left = false;
        break;
    }
    broker.shutdown();
    match has_left && config.cluster_config.after_leave == AfterLeave::Wait {
        true => wait_after_leaving(&config, &give_up),
        false => Ok(()),
    }
}

/// The node has left its cluster, and its process stays until a signal ends it.
fn wait_after_leaving(config: &Config, is_ended: &AtomicBool) -> Result<(), Failure> {
    let _port = NotReady::answer(config).map_err(|error| Failure::Runtime(error.to_string()))?;
    let watch = |error: std::io::Error| Failure::Runtime(format!("cannot watch signals: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(watch)?;
    info!("this node has left its cluster and waits to be stopped");
    // One that came before these signals were watched has set the flag.
    if !is_ended.load(Ordering::Relaxed) {
        let signal = signals.forever().next();
        let signal = signal.map_or("none", signal_name);
        info!(signal, "signal received");
    }
    Ok(())
}

/// Loads the configuration again. If anything is wrong with it, everything stays as it is.
fn reload(arguments: &Arguments, config: &mut Config, log: &logging::Handle, broker: &Broker) {
    let loaded = match arguments.load() {
        Ok(loaded) => loaded,
        Err(problems) => {
            for problem in problems.problems {
                error!(%problem, "configuration not reloaded");
            }
            return;
        }
    };
    let level = &loaded.config.log.level;
    let applied = logging::filter(level)
        .and_then(|_| {
            broker
                .reload(&loaded.config)
                .map_err(|error| error.to_string())
        })
        .and_then(|reread| log.set_level(level).map(|()| reread));
    let reread = match applied {
        Ok(reread) => reread,
        Err(problem) => {
            for problem in problem.lines() {
                error!(problem, "configuration not reloaded");
            }
            return;
        }
    };
    for warning in loaded.warnings {
        warn!("{warning}");
    }
    let diff = Config::reload_diff(config, &loaded.config);
    // The next comparison is again with what this one found, so that an option that waits for a
    // restart is named once, not at each SIGHUP.
    *config = loaded.config;
    broker.show_settings(loaded.listing);
    info!(
        applied = diff.applied.join(", "),
        needs_restart = diff.needs_restart.join(", "),
        files_read = reread.read,
        files_failed = reread.failed,
        "configuration reloaded"
    );
}

fn signal_name(signal: i32) -> &'static str {
    signal_hook::low_level::signal_name(signal).unwrap_or("unknown")
}
