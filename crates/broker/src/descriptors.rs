//! File descriptors: log, tables, links to other nodes and HTTP have theirs before clients get any.
//!
//! Invariant: what is kept back depends on the configuration and the limit on open files only. Connections of clients
//! have the rest, and wait in their listeners beyond it, so that clients cannot take a file from the log.

use std::sync::Arc;

use config::Config;
use net::{Descriptors, Places};
use rustix::process::{Resource, getrlimit};
use store::Options;
use store_state::api::StoreId;

/// Without a limit of the system, files are no reason to let anybody wait.
const NO_LIMIT: u64 = u64::MAX;

/// Of each event loop: epoll, what wakes it, and one to spare.
const OF_LOOP: u64 = 4;

/// Files of the log: those that are written, and those that keep entries, of 64 MiB each.
const OF_LOG: u64 = 16;

/// And of each shard, for what replicas that lag still need.
const OF_SHARD: u64 = 2;

/// Files of the tables of one store that are kept open, at most.
const OF_TABLES: u64 = 256;

/// Files that a checkpoint, a merge and a read of one store may have beside these.
const OF_CHECKPOINT: u64 = 8;

/// Connections of the HTTP port, at most.
const OF_HTTP: u64 = 128;

/// Connections to other members, of three kinds both ways, and to the cluster's port before the handshake.
const OF_LINKS: u64 = 64 * 3 * 2 + 128;

/// For all else: standard streams, the files of users and rules that are read again, authenticators.
const OTHER: u64 = 48;

/// A small process leaves its clients most of what it may have: of this many descriptors one is for the tables of a
/// store, and one for HTTP.
const SHARE: u64 = 16;

/// And one of these is for links.
const LINKS_SHARE: u64 = 8;

/// Clients have so many places in any case.
///
/// Limit: connections of clients | the descriptors of the process less what log, tables, links and HTTP need; {} in
/// any case | new ones wait in the listener, counted, with an alarm
const LEAST: u64 = 16;

/// Connections of the HTTP port; for a further one, one that waits is closed.
pub(crate) fn of_http() -> usize {
    usize::try_from(http_share(limit())).unwrap_or(usize::MAX)
}

fn http_share(limit: u64) -> u64 {
    OF_HTTP.min(limit / SHARE).max(LEAST)
}

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(NO_LIMIT)
}

/// How the descriptors of this process are shared out.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Those that the process may have.
    pub(crate) limit: Descriptors,
    /// Those that clients do not get.
    pub(crate) kept_back: Descriptors,
    /// Files of the tables of each store that are kept open.
    pub(crate) of_tables: Descriptors,
    /// What clients get.
    pub(crate) places: Arc<Places>,
}

impl Shares {
    /// Those of this process.
    pub(crate) fn new(config: &Config, loops: usize, stores: &Options) -> Self {
        Self::of(Descriptors(limit()), config, loops, stores)
    }

    fn of(limit: Descriptors, config: &Config, loops: usize, stores: &Options) -> Self {
        let Descriptors(all) = limit;
        let of_tables = OF_TABLES.min(all / SHARE).max(LEAST);
        let of_http = http_share(all);
        let links = match stores.cluster {
            Some(_) => OF_LINKS.min(all / LINKS_SHARE),
            None => 0,
        };
        let of_names = StoreId::OF_NAMES;
        let shards = of_names.map(|store| u64::from(stores.shards[store]));
        let listeners = config.mqtt_server_config.listeners().len() as u64;
        let kept_back = [
            OTHER,
            loops as u64 * OF_LOOP,
            listeners,
            OF_LOG + shards.iter().sum::<u64>() * OF_SHARD,
            of_names.len() as u64 * (of_tables + OF_CHECKPOINT),
            OF_SHARD + store::CONTROL_OPEN_FILES as u64 + OF_CHECKPOINT,
            of_http,
            links,
        ];
        let kept_back = kept_back.iter().sum::<u64>();
        let places = match all {
            NO_LIMIT => NO_LIMIT,
            all => all.saturating_sub(kept_back).max(LEAST),
        };
        Self {
            limit,
            kept_back: Descriptors(kept_back),
            of_tables: Descriptors(of_tables),
            places: Places::new(Descriptors(places)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(limit: u64, shards: u16) -> Shares {
        let stores = Options {
            shards: store_state::api::PerStore::all(shards),
            ..Options::default()
        };
        Shares::of(Descriptors(limit), &Config::default(), 2, &stores)
    }

    #[test]
    fn a_small_process_leaves_its_clients_a_third() {
        let few = shares(300, 1);
        let Descriptors(kept_back) = few.kept_back;
        assert_eq!(few.places.most(), Descriptors(300 - kept_back));
        assert!((100..=200).contains(&kept_back), "{kept_back}");
    }

    #[test]
    fn what_is_kept_back_grows_with_the_stores_and_not_with_the_limit() {
        let (few, many) = (shares(100_000, 1), shares(100_000, 8));
        assert_eq!(many.kept_back.0 - few.kept_back.0, 7 * 3 * OF_SHARD);
        assert_eq!(shares(1_000_000, 1).kept_back, few.kept_back);
        assert_eq!(shares(10, 1).places.most(), Descriptors(LEAST));
        assert_eq!(shares(NO_LIMIT, 1).places.most(), Descriptors(NO_LIMIT));
    }
}
