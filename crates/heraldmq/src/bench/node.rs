//! A node of HeraldMQ under load: what its page of metrics says.
//!
//! Invariant: a page is fetched and gone through once for each reading. It may have thousands of lines,
//! several for each shard.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use loadtest::{NodeShards, Reading, StoreShards, System};
use report::{ShardCount, SplitCount};
use ureq::Agent;

/// How long a node may take to answer with its metrics.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a page: thousands of shards have a kilobyte each.
const PAGE_MOST: u64 = 64 << 20;

/// By store, the shards of the whole cluster.
const KNOWN: &str = "heraldmq_store_shards";

/// One of the metrics that each shard has that the node leads.
const OF_EACH_LED: &str = "heraldmq_shard_requests_total";

/// By store and outcome.
const SPLITS: &str = "heraldmq_splits_total";

/// A node of HeraldMQ, which tells all of this itself.
pub(super) struct Node {
    url: String,
    agent: Agent,
}

/// Persistent sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sessions(pub(super) u64);

/// Retained messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RetainedMessages(pub(super) u64);

/// What a node keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Holdings {
    /// Persistent sessions that have inboxes, of the inbox shards that the node leads.
    pub(super) sessions: Sessions,
    /// Without those of `$SYS`; of the retain shards that the node leads.
    pub(super) retained: RetainedMessages,
    /// `None` while its store is not open.
    pub(super) shards: Option<NodeShards>,
}

impl Node {
    pub(super) fn new(url: &str) -> Self {
        let config = Agent::config_builder().timeout_global(Some(PATIENCE));
        Self {
            url: url.to_owned(),
            agent: config.build().into(),
        }
    }

    /// Asks for what it keeps.
    ///
    /// # Errors
    /// It does not answer, or not with the metrics of HeraldMQ.
    pub(super) fn holdings(&self) -> io::Result<Holdings> {
        Page::new(&self.fetch()?).holdings()
    }

    /// Voters of each shard of its cluster, by the name of the store; `url` is that of `/api/v1/cluster`. A node that runs alone lists
    /// none beside itself.
    ///
    /// # Errors
    /// It does not answer, or with something else.
    pub(super) fn voters(&self) -> io::Result<Vec<(String, usize)>> {
        #[derive(serde::Deserialize)]
        struct Status {
            shards: Vec<Shard>,
        }
        #[derive(serde::Deserialize)]
        struct Shard {
            store: String,
            voters: Vec<serde::de::IgnoredAny>,
        }
        let status: Status = serde_json::from_str(&self.fetch()?)?;
        let of_shard = |shard: Shard| (shard.store, shard.voters.len().max(1));
        Ok(status.shards.into_iter().map(of_shard).collect())
    }

    fn fetch(&self) -> io::Result<String> {
        let answer = self.agent.get(&self.url).call();
        let body = answer.and_then(|mut answer| {
            let body = answer.body_mut().with_config();
            body.limit(PAGE_MOST).read_to_string()
        });
        body.map_err(io::Error::other)
    }
}

impl System for Node {
    fn name(&self) -> String {
        self.url.clone()
    }

    fn read(&mut self) -> io::Result<Reading> {
        Page::new(&self.fetch()?).reading()
    }
}

/// A page of metrics, as far as it is of use here.
struct Page<'a> {
    /// Of the metrics without labels.
    values: HashMap<&'a str, &'a str>,
    shards: NodeShards,
}

impl<'a> Page<'a> {
    fn new(text: &'a str) -> Self {
        let mut page = Self {
            values: HashMap::new(),
            shards: NodeShards::default(),
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for (series, value) in lines.filter_map(|line| line.rsplit_once(' ')) {
            match series.split_once('{') {
                None => drop(page.values.insert(series, value)),
                Some((name, labels)) => page.enter_shards(name, labels, value),
            }
        }
        page
    }

    /// Takes what is told by store; other lines, and stores that this program does not know, are left out.
    fn enter_shards(&mut self, name: &str, labels: &str, value: &str) {
        let is_told = [KNOWN, OF_EACH_LED, SPLITS].contains(&name);
        let store = is_told.then(|| label(labels, "store")).flatten();
        if let Some(store) = store.and_then(|store| self.shards.store_mut(store)) {
            enter(store, name, labels, value);
        }
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.parse().ok()
    }

    fn needed(&self, name: &str) -> io::Result<f64> {
        let missing = || io::Error::other(format!("{name} is not among the metrics of HeraldMQ"));
        self.value(name).ok_or_else(missing)
    }

    fn seconds(&self, name: &str) -> io::Result<Duration> {
        let seconds = Duration::try_from_secs_f64(self.needed(name)?);
        seconds.map_err(|error| io::Error::other(format!("{name}: {error}")))
    }

    /// An open store has a shard of each kind at least.
    fn shards(&self) -> Option<NodeShards> {
        let is_open = self
            .shards
            .stores()
            .iter()
            .all(|(_, store)| store.known.0 > 0);
        is_open.then(|| self.shards.clone())
    }

    fn reading(&self) -> io::Result<Reading> {
        let count = |name: &str| self.value(name).map(|value| value as u64);
        let small = |name: &str| self.value(name).map(|value| value as u32);
        Ok(Reading {
            cpu_user: self.seconds("heraldmq_cpu_user_seconds_total")?,
            cpu_system: self.seconds("heraldmq_cpu_system_seconds_total")?,
            resident_bytes: self.needed("heraldmq_resident_memory_bytes")? as u64,
            threads: small("heraldmq_threads"),
            descriptors: small("heraldmq_descriptors_open"),
            network_in_bytes: count("heraldmq_received_bytes_total"),
            network_out_bytes: count("heraldmq_sent_bytes_total"),
            shards: self.shards(),
        })
    }

    fn holdings(&self) -> io::Result<Holdings> {
        Ok(Holdings {
            sessions: Sessions(self.needed("heraldmq_inboxes")? as u64),
            retained: RetainedMessages(self.needed("heraldmq_retained_messages")? as u64),
            shards: self.shards(),
        })
    }
}

/// Takes a line of a store.
fn enter(store: &mut StoreShards, name: &str, labels: &str, value: &str) {
    if name == KNOWN {
        store.known = ShardCount(value.parse().unwrap_or(0));
    } else if name == OF_EACH_LED {
        let shard = label(labels, "shard").and_then(|shard| shard.parse::<u16>().ok());
        store.led.extend(shard);
    } else if label(labels, "outcome") == Some("done") {
        store.splits = SplitCount(value.parse().unwrap_or(0));
    }
}

/// A label's value, of values that need no escapes.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = labels.trim_end_matches('}').split(',');
    pairs.find_map(|pair| {
        let value = pair.strip_prefix(name)?.strip_prefix("=\"")?;
        value.strip_suffix('"')
    })
}

/// Pages for tests.
#[cfg(test)]
pub(super) mod fixture {
    use std::fmt::Write;

    /// Of a node that knows of `known` inbox shards, leads some and has decided on `splits`.
    pub(crate) fn page(known: u32, led: &[u16], splits: u64) -> String {
        let mut page = format!(
            "# HELP heraldmq_threads Threads\n\
             heraldmq_threads 4\n\
             heraldmq_cpu_user_seconds_total 1.5\n\
             heraldmq_cpu_system_seconds_total 0.25\n\
             heraldmq_received_bytes_total 77\n\
             heraldmq_resident_memory_bytes 1000000\n\
             heraldmq_store_shards{{store=\"session\"}} 1\n\
             heraldmq_store_shards{{store=\"inbox\"}} {known}\n\
             heraldmq_store_shards{{store=\"retain\"}} 1\n\
             heraldmq_store_shards_led{{store=\"inbox\"}} 77\n\
             heraldmq_splits_total{{store=\"inbox\",outcome=\"done\"}} {splits}\n\
             heraldmq_splits_total{{store=\"inbox\",outcome=\"refused\"}} 99\n"
        );
        for shard in led {
            let series =
                format!("heraldmq_shard_requests_total{{store=\"inbox\",shard=\"{shard}\"}}");
            writeln!(page, "{series} 12345").unwrap();
        }
        page
    }

    /// What a node keeps beside shards.
    pub(crate) fn kept(sessions: u64, retained: u64) -> String {
        format!("heraldmq_inboxes {sessions}\nheraldmq_retained_messages {retained}\n")
    }
}

#[cfg(test)]
mod tests {
    use loadtest::ShardBook;

    use super::fixture::{kept, page};
    use super::*;

    #[test]
    fn a_page_of_metrics_is_read_and_a_strange_one_refused() {
        let text = page(1, &[0], 0);
        let reading = Page::new(&text).reading().unwrap();
        assert_eq!(reading.cpu_user, Duration::from_millis(1_500));
        assert_eq!(reading.cpu_system, Duration::from_millis(250));
        assert_eq!(reading.resident_bytes, 1_000_000);
        assert_eq!(reading.threads, Some(4));
        assert_eq!(reading.network_in_bytes, Some(77));
        assert_eq!(reading.network_out_bytes, None);
        let error = Page::new("up 1\n").reading().unwrap_err();
        assert!(error.to_string().contains("heraldmq_cpu_user"), "{error}");
    }

    #[test]
    fn a_split_between_two_samples_of_two_nodes_shows_once() {
        let sample = |pages: [String; 2]| pages.map(|page| Page::new(&page).reading().ok());
        let mut book = ShardBook::default();
        let mut count = |pages| {
            let shards = book.count(&sample(pages)).unwrap();
            (
                shards.session.0,
                shards.inbox.0,
                shards.retain.0,
                shards.splits.0,
            )
        };
        assert_eq!(count([page(1, &[0], 0), page(1, &[], 4)]), (1, 1, 1, 0));
        // The other node leads the new shard, and both know of it.
        let split = [page(2, &[0], 1), page(2, &[32_768], 4)];
        assert_eq!(count(split), (1, 2, 1, 1));
        let shared = [page(2, &[0, 32_768], 1), page(2, &[32_768], 4)];
        assert_eq!(count(shared), (1, 2, 1, 0));
    }

    #[test]
    fn a_store_that_is_not_open_or_of_another_broker_has_no_shards() {
        let text = page(0, &[], 0) + kept(0, 0).as_str();
        let page = Page::new(&text);
        assert_eq!(page.reading().unwrap().shards, None);
        assert_eq!(page.holdings().unwrap().shards, None);
        assert!(Page::new("up 1\n").holdings().is_err());
    }

    #[test]
    fn what_a_node_keeps_is_read() {
        let text = page(2, &[0, 1], 0) + kept(30_000, 5).as_str();
        let holdings = Page::new(&text).holdings().unwrap();
        assert_eq!((holdings.sessions.0, holdings.retained.0), (30_000, 5));
        let shards = holdings.shards.unwrap();
        assert_eq!((shards.inbox.known.0, shards.inbox.led.len()), (2, 2));
    }
}
