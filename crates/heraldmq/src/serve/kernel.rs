//! Whether the kernel's settings let the broker hold the connections that it is to hold.

use config::Config;
use host::Kernel;
use host::kernel::{Need, Severity, Side};
use tracing::{info, warn};

/// Bytes of the process for an idle connection (docs/internals/measurements.md).
const CONNECTION_BYTES: u64 = 1_000;

/// Says which settings stand in the way. Without a wanted number of connections nothing is amiss, and only
/// what slows them down is worth a word.
pub(super) fn check(config: &Config) {
    let Some(connections) = config.limits.node.connections else {
        return;
    };
    let listeners = &config.mqtt_server_config.tcp_listeners;
    let need = Need {
        bytes_per_connection: CONNECTION_BYTES,
        listening_port: listeners.first().map(|listener| listener.port),
        ..Need::new(Side::Broker, connections.get().into())
    };
    for finding in Kernel::read().check(&need) {
        let complaint = &finding.complaint;
        let setting = finding.setting;
        let (now, wanted, why) = (&finding.now, &finding.wanted, &complaint.why);
        let remedy = complaint
            .remedy
            .as_ref()
            .map_or("", |remedy| &remedy.command);
        match complaint.severity {
            Severity::Limits => {
                warn!(
                    setting,
                    now, wanted, why, remedy, "limits.node.connections cannot be reached"
                );
            }
            Severity::Slows => {
                warn!(
                    setting,
                    now, wanted, why, remedy, "limits.node.connections is reached slowly"
                );
            }
            Severity::Note => info!(setting, now, wanted, why, remedy, "kernel setting"),
        }
    }
}
