//! The broker under load, for the record: what it is, which version, and how it is set.
//!
//! Invariant: what cannot be found out is left out; no run fails for it.

use std::time::Duration;

use admin::api::{NodeRow, SettingRow};
use admin::page::Page;
use host::Process;
use report::Setting;
use serde::de::DeserializeOwned;
use ureq::Agent;

use super::run::setting;

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of settings, and of a command line, that a record has at most.
const MOST: usize = 4_000;

/// What names of options have in them whose values are nobody's business.
const SECRETS: [&str; 5] = ["password", "passwd", "secret", "token", "cookie"];

/// What is known of the broker: what the user says, its command lines, and what nodes of HeraldMQ answer at the ports of their
/// metrics.
pub(super) fn broker(said: Option<&str>, pids: &[u32], metrics: &[String]) -> Vec<Setting> {
    let mut rows = Vec::new();
    let node = metrics.first().and_then(|url| Node::of(url));
    let version = node.as_ref().and_then(Node::version);
    let named = said.map(str::to_owned);
    let named = named.or_else(|| version.map(|version| format!("HeraldMQ {version}")));
    rows.extend(named.map(|name| setting("broker", name)));
    let commands = pids.iter().filter_map(|pid| command(*pid));
    let commands: Vec<String> = commands.collect();
    if !commands.is_empty() {
        rows.push(setting("broker's command", short(&commands.join("; "))));
    }
    let settings = node.as_ref().and_then(Node::settings);
    rows.extend(settings.map(|settings| setting("broker's settings", short(&settings))));
    rows
}

/// The command line of a process.
fn command(pid: u32) -> Option<String> {
    let words = Process::new(pid).command().ok()?;
    (!words.is_empty()).then(|| without_secrets(&words).join(" "))
}

/// Words of a command line, without what stands behind an option that asks for a password.
fn without_secrets(words: &[String]) -> Vec<String> {
    let asks = |name: &str| {
        let name = name.to_ascii_lowercase();
        SECRETS.iter().any(|secret| name.contains(secret))
    };
    let mut is_secret = false;
    let shown = words.iter().map(|word| {
        let shown = match word.split_once('=') {
            _ if is_secret => "…".to_owned(),
            Some((name, _)) if asks(name) => format!("{name}=…"),
            _ => word.clone(),
        };
        is_secret = word.starts_with('-') && !word.contains('=') && asks(word);
        shown
    });
    shown.collect()
}

fn short(text: &str) -> String {
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The HTTP port of a node.
struct Node {
    url: String,
    agent: Agent,
}

impl Node {
    /// By the address of its metrics.
    fn of(metrics: &str) -> Option<Self> {
        let url = metrics.strip_suffix("/metrics")?.to_owned();
        let config = Agent::config_builder().timeout_global(Some(PATIENCE));
        let agent = config.build().into();
        Some(Self { url, agent })
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Option<Page<T>> {
        let mut answer = self.agent.get(format!("{}{path}", self.url)).call().ok()?;
        let text = answer.body_mut().read_to_string().ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Of all nodes; several during an upgrade.
    fn version(&self) -> Option<String> {
        let nodes: Page<NodeRow> = self.get("/api/v1/nodes")?;
        let mut versions: Vec<String> = nodes.items.into_iter().map(|n| n.version).collect();
        versions.sort();
        versions.dedup();
        Some(versions.join(", "))
    }

    /// Those that somebody has set, but for addresses and folders, which say nothing of the load.
    fn settings(&self) -> Option<String> {
        let settings: Page<SettingRow> = self.get("/api/v1/settings")?;
        let is_told = |row: &&SettingRow| {
            let is_set = row.setting.origin != "default";
            is_set && row.key != "dataDir" && !row.key.starts_with("http.")
        };
        let told = settings.items.iter().filter(is_told);
        let told = told.map(|row| {
            let value = row.setting.value.as_deref().unwrap_or("null");
            format!("{}={value}", row.key)
        });
        let told: Vec<String> = told.collect();
        Some(match told.is_empty() {
            true => "as delivered".to_owned(),
            false => told.join(" "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_behind_options_that_ask_for_secrets_are_left_out() {
        for (line, shown) in [
            ("mosquitto -c a.conf -p 1883", "mosquitto -c a.conf -p 1883"),
            ("b --password p --port 1", "b --password … --port 1"),
            (
                "b --set http.apiToken=t --x=1",
                "b --set http.apiToken=… --x=1",
            ),
            ("beam -setcookie c -name n", "beam -setcookie … -name n"),
            ("b --Secret=s", "b --Secret=…"),
            ("b --password", "b --password"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(without_secrets(&words).join(" "), shown);
        }
    }

    #[test]
    fn what_a_broker_was_started_with_is_told() {
        let rows = broker(Some("mosquitto 2.0.18"), &[std::process::id()], &[]);
        assert_eq!(rows[0].value, "mosquitto 2.0.18");
        let own: Vec<String> = std::env::args().collect();
        assert!(rows[1].value.starts_with(&own[0]), "{rows:?}");
        assert_eq!(
            broker(None, &[], &["http://127.0.0.1:1/metrics".to_owned()]),
            []
        );
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(short(&"x".repeat(MOST)), "x".repeat(MOST));
        let cut = short(&"é".repeat(MOST + 1));
        assert_eq!(cut.chars().count(), MOST + 1);
        assert!(cut.ends_with('…'));
    }
}
