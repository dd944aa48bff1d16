//! Changes of the control store are taken over: the rules for everybody are compiled, and all loops judge their clients anew.
//!
//! Invariant: a fifth of the time at most goes into changes, and one waits no longer than 200 ms for those before it.
//!
//! Deliberately absent: the node's view of the store (`control_changes.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker_core::Settings;

use crate::all_loops::reload_loops;
use crate::node::Node;

/// How long after a change the next one waits, in times of what taking it over has cost, and at most.
const PAUSE: (u32, Duration) = (4, Duration::from_millis(200));

/// Takes changes over as they come.
pub(crate) async fn run(node: &Arc<Node>) {
    loop {
        node.rim.control.changed.notified().await;
        let (taker, begun) = (Arc::clone(node), Instant::now());
        // Compiling takes some ms, and the loops are waited for.
        let taken = tokio::task::spawn_blocking(move || {
            replace(&taker, |node| Settings::clone(&node.settings.read()));
        });
        if let Err(error) = taken.await {
            tracing::error!(%error, "a change of the control store is not taken over");
        }
        let (times, most) = PAUSE;
        tokio::time::sleep((begun.elapsed() * times).min(most)).await;
    }
}

/// Gives a node other settings, with the rules for everybody, and has all loops apply them, if there are loops.
pub(crate) fn replace(node: &Node, settings: impl FnOnce(&Node) -> Settings) {
    let control = &node.rim.control;
    let mut list = control.list.lock();
    let revision = control.view.revision();
    *list = control.compiled(&list);
    let settings = settings(node);
    let authorization = settings.authorization.with_list(Arc::clone(&list));
    let settings = Arc::new(Settings {
        authorization,
        ..settings
    });
    *node.settings.write() = Arc::clone(&settings);
    if let Some(loops) = node.rim.running_loops() {
        reload_loops(loops, &settings);
    }
    control.waiting.taken(revision);
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use authorization::{Action, Client};
    use config::{Config, UnixListenerConfig};
    use control::{Changed, Revision, RuleList, Stored};
    use control_view::Standing;

    use super::*;
    use crate::Broker;

    /// Replaces the rules for everybody in the node's view.
    fn put(broker: &Broker, revision: u64, line: &str) {
        let revision = Revision(revision);
        let record = RuleList([line.into()].into());
        let rules = Some(Arc::new(Stored { revision, record }));
        let changed = Changed {
            revision,
            rules,
            ..Changed::default()
        };
        assert!(broker.node.rim.control.view.changed(&changed));
        broker.control_changed();
    }

    /// Whether anybody may publish to `t`.
    fn is_open(broker: &Broker) -> bool {
        let client = Client {
            client_id: "c",
            username: None,
            address: None,
        };
        let settings = broker.node.settings.read();
        let said = settings
            .authorization
            .explain(&client, Action::Publish, "t");
        said.is_allowed
    }

    fn wait_for(broker: &Broker, open: bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while is_open(broker) != open {
            assert!(Instant::now() < deadline, "not {open} in time");
            std::thread::yield_now();
        }
    }

    fn config(folder: &Path) -> Config {
        let mut config = Config {
            data_dir: folder.join("data"),
            event_loops: std::num::NonZeroU8::new(1).map(Into::into),
            ..Config::default()
        };
        config.http.enable = false;
        config.mqtt_server_config.tcp_listeners = Vec::new();
        config.mqtt_server_config.unix_listeners = vec![UnixListenerConfig {
            path: folder.join("mqtt"),
            ..UnixListenerConfig::default()
        }];
        config
    }

    /// Waits until these alarms about the control store are raised, and no others.
    fn wait_for_alarms(broker: &Broker, expected: &[(&str, &str)]) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let raised = broker.inspect.alarms.raised();
            let raised = raised.iter().map(|of| (&*of.name, &*of.subject));
            let raised: Vec<_> = raised
                .filter(|(name, _)| name.starts_with("control_"))
                .collect();
            if raised == expected {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{raised:?} in time, not {expected:?}"
            );
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_copy_that_may_be_out_of_date_is_an_alarm_and_refused_if_it_is_so_configured() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        let broker = Broker::start(&config).unwrap();
        let control = &broker.node.rim.control;
        // Somebody else has a store, and this node has never heard a leader of it.
        control.view.begun();
        control.age.look(Standing::Confirmed, true, 1);
        wait_for_alarms(&broker, &[("control_stale", "")]);
        assert!(!control.view.is_refused());
        config.control.refuse_stale_after = Some(Duration::from_secs(60));
        broker.reload(&config).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !control.view.is_refused() {
            assert!(Instant::now() < deadline, "logins are not refused in time");
            std::thread::yield_now();
        }
        config.control.refuse_stale_after = None;
        broker.reload(&config).unwrap();
        while control.view.is_refused() {
            assert!(Instant::now() < deadline, "logins are refused for ever");
            std::thread::yield_now();
        }
        broker.shutdown();
    }

    #[test]
    fn rules_for_everybody_count_from_their_change_on_and_over_a_reload() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let broker = Broker::start(&config).unwrap();
        assert!(is_open(&broker));
        put(&broker, 1, "deny all publish t");
        wait_for(&broker, false);
        broker.reload(&config).unwrap();
        assert!(!is_open(&broker));
        // What cannot be read changes nothing, whoever looks at it.
        put(&broker, 2, "forbid all publish t");
        broker.reload(&config).unwrap();
        assert!(!is_open(&broker));
        wait_for_alarms(&broker, &[("control_rules", "rules")]);
        put(&broker, 3, "allow all publish t");
        wait_for(&broker, true);
        wait_for_alarms(&broker, &[]);
        broker.shutdown();
    }
}
