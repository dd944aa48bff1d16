//! Where members may be found, whoever they are: the seeds and the domain of the configuration, what was added since, and who
//! has dialled this node.

use std::collections::HashSet;
use std::net::SocketAddr;

use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::links::connect::host_of;
use crate::links::names::Names;
use crate::membership::heard::Heard;
use crate::options::Options;

/// Seeds that can be added, at most.
const MORE_LIMIT: usize = 64;

#[derive(Debug)]
pub(crate) struct Seeds {
    configured: Vec<String>,
    more: Mutex<Vec<String>>,
    pub(crate) names: Names,
    pub(crate) heard: Heard,
    /// Where the others reach this node, as it was when it was started.
    own: Mutex<Vec<SocketAddr>>,
}

impl Seeds {
    pub(crate) fn new(options: &Options) -> Self {
        let domain = options.domain.iter();
        let domain = domain.map(|domain| format!("{domain}:{}", options.port));
        Self {
            configured: options.seeds.iter().cloned().chain(domain).collect(),
            more: Mutex::default(),
            names: Names::default(),
            heard: Heard::default(),
            own: Mutex::default(),
        }
    }

    /// The oldest of more than [`MORE_LIMIT`] is forgotten.
    pub(crate) fn add(&self, endpoint: &str) {
        let mut more = self.more.lock();
        more.retain(|seed| seed != endpoint);
        if more.len() >= MORE_LIMIT {
            more.remove(0);
        }
        more.push(endpoint.to_owned());
    }

    /// This node is reached at these.
    pub(crate) fn set_own(&self, addresses: Vec<SocketAddr>) {
        *self.own.lock() = addresses;
    }

    pub(crate) fn is_own(&self, address: &SocketAddr) -> bool {
        self.own.lock().contains(address)
    }

    /// The addresses of all, each once, with the names that their certificates must have: of an address that several names
    /// have, the first. All names are looked up at once. `problems` gets those that have no address.
    pub(crate) async fn resolve(&self, problems: &mut Vec<String>) -> Vec<(SocketAddr, String)> {
        let mut endpoints = self.configured.clone();
        endpoints.extend(self.more.lock().iter().cloned());
        let looks = endpoints.iter().map(|name| self.names.look_up(name));
        let looks = join_all(looks).await;
        let mut found: Vec<(SocketAddr, String)> = Vec::new();
        for (endpoint, look) in endpoints.iter().zip(looks) {
            match look {
                Ok(addresses) => {
                    let host = host_of(endpoint);
                    found.extend(addresses.iter().map(|address| (*address, host.to_owned())));
                }
                Err(error) => problems.push(format!("{endpoint}: {error}")),
            }
        }
        found.extend(self.heard.addresses());
        let mut seen = HashSet::new();
        found.retain(|(address, _)| seen.insert(*address));
        found
    }
}
