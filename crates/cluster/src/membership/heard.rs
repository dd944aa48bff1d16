//! Members of a cluster that have dialled this node before it belongs to one.
//!
//! They know its address from a node that was there before, perhaps this one with another data folder. They are asked to let
//! this node in, and while they dial no cluster is founded. Nothing of what they say is proven, so a stranger can have a node
//! wait that is about to found a cluster, for as long as it dials; the log says where that is. Dialled is nobody but who has
//! dialled.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::links::connect::host_of;
use crate::protocol::handshake::Identity;

/// Addresses at once; the oldest is forgotten.
const LIMIT: usize = 16;

/// How long one counts: members dial each second.
const COUNTS: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<Vec<Member>>);

#[derive(Clone, Debug)]
struct Member {
    at: SocketAddr,
    /// Whom its certificate must name.
    host: String,
    said: String,
    heard: Instant,
}

impl Heard {
    /// A node at this address has said that it is this member.
    pub(crate) fn note(&self, from: IpAddr, identity: &Identity) {
        let address = &identity.place.address;
        let port = address.rsplit_once(':').map(|(_, port)| port.parse());
        if let Some(Ok(port)) = port {
            self.note_at(from, port, identity);
        } else {
            tracing::warn!(%from, "a node that says it is a member of a cluster dials this one, and tells no port to ask it at");
        }
    }

    fn note_at(&self, from: IpAddr, port: u16, identity: &Identity) {
        let Identity { cluster, place, .. } = identity;
        let host = host_of(&place.address);
        // A machine has many loopback addresses, and dials from the first.
        let named = host.parse().ok().filter(IpAddr::is_loopback);
        let at = match named.filter(|_| from.is_loopback()) {
            Some(named) => SocketAddr::new(named, port),
            None => SocketAddr::new(from, port),
        };
        let mut members = self.0.lock();
        members.retain(|member| member.at != at);
        if members.len() >= LIMIT {
            members.remove(0);
        }
        members.push(Member {
            at,
            host: host.to_owned(),
            said: format!(
                "{at}: a node there that says it is a member of the cluster {cluster:016x} dials this one"
            ),
            heard: Instant::now(),
        });
    }

    fn counting(&self) -> Vec<Member> {
        let mut members = self.0.lock();
        members.retain(|member| member.heard.elapsed() < COUNTS);
        members.clone()
    }

    /// Where they are, with the names that their certificates must have.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (SocketAddr, String)> {
        let counting = self.counting().into_iter();
        counting.map(|member| (member.at, member.host))
    }

    /// What each of them says, in words.
    pub(crate) fn said(&self) -> impl Iterator<Item = String> {
        self.counting().into_iter().map(|member| member.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Versions;
    use crate::members::list::Place;

    fn member(address: &str) -> Identity {
        Identity {
            env: "Test".to_owned(),
            cluster: 7,
            place: Place {
                node: 2,
                incarnation: 1,
                address: address.to_owned(),
            },
            instance: 2,
            history: Default::default(),
            versions: Versions::FIRST,
            founds: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_dialled_is_asked_where_it_has_dialled_from() {
        let heard = Heard::default();
        let from = IpAddr::from([10, 0, 0, 2]);
        heard.note(from, &member("mq-2:8899"));
        heard.note(from, &member("mq-2:8899"));
        heard.note(from, &member("without-a-port"));
        let addresses: Vec<_> = heard.addresses().collect();
        assert_eq!(addresses, [((from, 8899).into(), "mq-2".to_owned())]);
        assert!(heard.said().all(|said| said.contains("0000000000000007")));
        let here = IpAddr::from([127, 0, 0, 1]);
        heard.note(here, &member("127.0.0.2:8899"));
        heard.note(here, &member("10.0.0.3:8899"));
        let addresses: Vec<_> = heard.addresses().map(|(at, _)| at.to_string()).collect();
        assert_eq!(addresses[1..], ["127.0.0.2:8899", "127.0.0.1:8899"]);
        tokio::time::advance(COUNTS).await;
        assert_eq!(heard.said().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_are_remembered_up_to_a_limit() {
        let heard = Heard::default();
        for port in 1..100 {
            heard.note(IpAddr::from([10, 0, 0, 2]), &member(&format!("a:{port}")));
        }
        assert_eq!(heard.addresses().count(), LIMIT);
    }
}
