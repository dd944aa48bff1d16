//! Gossip: chitchat over UDP packets that carry an HMAC-SHA256 of what is in them.
//!
//! The key is made of the secret, the environment and what only members of the cluster are told, so packets
//! of another cluster or environment have a wrong tag. They are dropped and counted.
//!
//! Deliberately absent: encryption. What nodes tell each other here can be read on its way.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::hmac;
use chitchat::transport::{Socket, Transport};
use chitchat::{
    ChitchatConfig, ChitchatHandle, ChitchatId, ChitchatMessage, Deserializable as _,
    FailureDetectorConfig, NodeState, Serializable as _, spawn_chitchat,
};
use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::time::sleep;

use crate::folder::stamps::Stamp;
use crate::links::listen::canonical;
use crate::members::list::{Details, Place, State};
use crate::options::Security;
use crate::state::connect_error::ConnectError;
use crate::state::shared::Shared;

/// Bytes of a tag, which stands before what it is of.
const TAG: usize = 32;

/// The longest UDP packet.
const PACKET: usize = 65_507;

/// After an error of receiving.
const RECEIVE_PAUSE: Duration = Duration::from_millis(10);

const PURPOSE: &[u8] = b"HeraldMQ gossip";

const ADDRESS: &str = "address";
const STATE: &str = "state";
const VERSION: &str = "version";
const INFO: &str = "info:";
const EVICTED: &str = "evicted:";
/// What is remembered of a node, as one or two stamps: incarnation, count and mark, in hexadecimal digits.
const STAMPS: &str = "stamps:";

/// How long chitchat remembers a node that it does not hear. The list of members remembers it longer.
const MEMORY: Duration = Duration::from_secs(24 * 60 * 60);

/// What gossip says of one node.
pub(crate) struct Rumour {
    pub(crate) place: Place,
    pub(crate) details: Details,
    pub(crate) evicted: Vec<u64>,
    /// What the node remembers of others.
    pub(crate) stamps: Vec<(u64, Vec<Stamp>)>,
}

/// Begins to gossip. `address`: where other nodes send their packets.
pub(crate) async fn start(
    shared: &Arc<Shared>,
    socket: UdpSocket,
    address: SocketAddr,
) -> Result<ChitchatHandle, String> {
    let place = shared.place();
    let membership = shared.membership().expect("gossip begins in a cluster");
    let config = ChitchatConfig {
        chitchat_id: ChitchatId::new(format!("{:016x}", place.node), place.incarnation, address),
        cluster_id: format!("{}/{:016x}", shared.options.env, membership.cluster),
        gossip_interval: shared.options.timings.gossip,
        listen_addr: address,
        seed_nodes: Vec::new(),
        failure_detector_config: FailureDetectorConfig {
            dead_node_grace_period: MEMORY,
            ..FailureDetectorConfig::default()
        },
        marked_for_deletion_grace_period: MEMORY,
        catchup_callback: None,
        extra_liveness_predicate: None,
    };
    let transport = Sealed {
        shared: shared.clone(),
        key: key(shared, &membership.gossip_key),
        is_v6: socket.local_addr().is_ok_and(|local| local.is_ipv6()),
        socket: Mutex::new(Some(socket)),
    };
    let handle = spawn_chitchat(config, Vec::new(), &transport).await;
    handle.map_err(|error| format!("{error:#}"))
}

/// Two steps: each part has its place, whatever bytes it has.
fn key(shared: &Shared, gossip_key: &[u8; 32]) -> hmac::Key {
    let secret = shared.options.security.secret.as_ref();
    let secret = hmac::Key::new(
        hmac::HMAC_SHA256,
        secret.map_or(&[], |secret| secret.bytes()),
    );
    let mut context = hmac::Context::with_key(&secret);
    context.update(PURPOSE);
    context.update(gossip_key);
    context.update(shared.options.env.as_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref())
}

/// Says what this node is now. What has not changed is not sent again.
pub(crate) async fn tell(handle: &ChitchatHandle, shared: &Shared) {
    let place = shared.place();
    let details = shared.details.lock().clone();
    let evicted = shared.roster.lock().evicted().clone();
    let stamps: Vec<(u64, Vec<Stamp>)> = shared.stamps.lock().seen().collect();
    let tell = |chitchat: &mut chitchat::Chitchat| {
        let me = chitchat.self_node_state();
        me.set(ADDRESS, &place.address);
        me.set(STATE, details.state.name());
        me.set(VERSION, &details.version);
        for (key, value) in &details.info {
            me.set(format!("{INFO}{key}"), value);
        }
        for node in &evicted {
            me.set(format!("{EVICTED}{node:016x}"), "");
        }
        for (node, stamps) in &stamps {
            me.set(format!("{STAMPS}{node:016x}"), text_of(stamps));
        }
    };
    handle.with_chitchat(tell).await;
}

/// What is known of all nodes, this one included.
pub(crate) async fn listen(handle: &ChitchatHandle) -> Vec<Rumour> {
    let listen = |chitchat: &mut chitchat::Chitchat| {
        let states = chitchat.node_states().iter();
        states.filter_map(|(id, state)| rumour(id, state)).collect()
    };
    handle.with_chitchat(listen).await
}

/// `None`: it has not told enough yet.
fn rumour(id: &ChitchatId, state: &NodeState) -> Option<Rumour> {
    let with_prefix = |prefix: &'static str| {
        let found = state.iter_prefix(prefix);
        found.filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, &*value.value)))
    };
    let info: BTreeMap<_, _> = with_prefix(INFO)
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    Some(Rumour {
        place: Place {
            node: u64::from_str_radix(&id.node_id, 16).ok()?,
            incarnation: id.generation_id,
            address: state.get(ADDRESS)?.to_owned(),
        },
        details: Details {
            state: State::named(state.get(STATE)?)?,
            version: state.get(VERSION)?.to_owned(),
            info,
        },
        evicted: with_prefix(EVICTED)
            .filter_map(|(node, _)| u64::from_str_radix(node, 16).ok())
            .collect(),
        stamps: with_prefix(STAMPS)
            .filter_map(|(node, text)| {
                Some((u64::from_str_radix(node, 16).ok()?, stamps_of(text)?))
            })
            .collect(),
    })
}

fn text_of(stamps: &[Stamp]) -> String {
    let stamps = stamps.iter().map(|stamp| {
        let Stamp {
            incarnation,
            count,
            mark,
        } = stamp;
        format!("{incarnation:x}.{count:x}.{mark:x}")
    });
    stamps.collect::<Vec<_>>().join(" ")
}

fn stamps_of(text: &str) -> Option<Vec<Stamp>> {
    let stamps = text.split(' ').map(|stamp| {
        let mut numbers = stamp
            .split('.')
            .map(|number| u64::from_str_radix(number, 16).ok());
        Some(Stamp {
            incarnation: numbers.next()??,
            count: numbers.next()??,
            mark: numbers.next()??,
        })
    });
    stamps.collect()
}

/// Gives its socket to chitchat, once.
struct Sealed {
    shared: Arc<Shared>,
    key: hmac::Key,
    is_v6: bool,
    socket: Mutex<Option<UdpSocket>>,
}

#[async_trait]
impl Transport for Sealed {
    async fn open(&self, _listen: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let socket = self.socket.lock().take();
        Ok(Box::new(SealedSocket {
            shared: self.shared.clone(),
            key: self.key.clone(),
            is_v6: self.is_v6,
            socket: socket.ok_or_else(|| io::Error::from(io::ErrorKind::AlreadyExists))?,
            packet: vec![0; PACKET].into(),
        }))
    }
}

struct SealedSocket {
    shared: Arc<Shared>,
    key: hmac::Key,
    /// The socket is of IPv6, and takes addresses of IPv4 in its form.
    is_v6: bool,
    socket: UdpSocket,
    packet: Box<[u8]>,
}

#[async_trait]
impl Socket for SealedSocket {
    /// A packet that cannot be sent is lost, as any packet may be: an error would end gossip for ever.
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        if !self.shared.options.security.admits(to.ip()) {
            let about = format!("gossip to {to}");
            let error = ConnectError::PublicAddress;
            self.shared.complain(&about, error.name(), &error);
            return Ok(());
        }
        let packet = seal(&self.key, &message);
        let at = match to {
            SocketAddr::V4(v4) if self.is_v6 => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            at => at,
        };
        if let Err(error) = self.socket.send_to(&packet, at).await {
            let about = format!("gossip to {to}");
            self.shared.complain(&about, "gossip", &error);
        }
        Ok(())
    }

    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        loop {
            // Errors are those of packets that were sent, or there is no memory for a moment.
            let Ok((length, from)) = self.socket.recv_from(&mut self.packet).await else {
                sleep(RECEIVE_PAUSE).await;
                continue;
            };
            let from = canonical(from);
            let packet = self.packet.get(..length).unwrap_or_default();
            let security = &self.shared.options.security;
            let (reason, statement) = match open(security, &self.key, from, packet) {
                Ok(message) => return Ok((from, message)),
                Err(dropped) => dropped,
            };
            self.shared.gossip_dropped.fetch_add(1, Relaxed);
            let about = format!("gossip from {}", from.ip());
            self.shared.complain(&about, reason, statement);
        }
    }
}

fn seal(key: &hmac::Key, message: &ChitchatMessage) -> Vec<u8> {
    let mut packet = vec![0; TAG];
    message.serialize(&mut packet);
    let (head, body) = packet.split_at_mut(TAG);
    head.copy_from_slice(hmac::sign(key, body).as_ref());
    packet
}

/// What a packet says, or why it is dropped, by name and in words.
fn open(
    security: &Security,
    key: &hmac::Key,
    from: SocketAddr,
    packet: &[u8],
) -> Result<ChitchatMessage, (&'static str, &'static str)> {
    if !security.admits(from.ip()) {
        let statement = "it comes from a public address, and there is no secret; it is dropped";
        return Err((ConnectError::PublicAddress.name(), statement));
    }
    unseal(key, packet).ok_or((
        "gossip",
        "it is not of this cluster, or its secret is another; it is dropped",
    ))
}

fn unseal(key: &hmac::Key, packet: &[u8]) -> Option<ChitchatMessage> {
    let (tag, mut body) = packet.split_at_checked(TAG)?;
    hmac::verify(key, body, tag).ok()?;
    ChitchatMessage::deserialize(&mut body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Secret;

    #[test]
    fn stamps_are_read_as_they_were_told() {
        let stamp = |incarnation, count, mark| Stamp {
            incarnation,
            count,
            mark,
        };
        let stamps = [stamp(1, 0, u64::MAX), stamp(u64::MAX, 16, 0)];
        for stamps in [&stamps[..1], &stamps] {
            assert_eq!(stamps_of(&text_of(stamps)).as_deref(), Some(stamps));
        }
        for text in ["", "1", "1.2", "1.2.x", "1.2.3 "] {
            assert_eq!(stamps_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_packet_of_a_public_address_is_dropped_where_nothing_else_keeps_strangers_out() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"key");
        let packet = seal(&key, &ChitchatMessage::BadCluster);
        let mut security = Security {
            secret: None,
            tls: None,
            open_to: |address| address.is_loopback(),
        };
        let reason = |security: &Security, from: &str| {
            let opened = open(security, &key, from.parse().unwrap(), &packet);
            opened.err().map(|(reason, _)| reason)
        };
        assert_eq!(reason(&security, "127.0.0.1:1"), None);
        assert_eq!(reason(&security, "192.0.2.1:1"), Some("publicAddress"));
        security.secret = Some(Secret::new(b"secret".to_vec()));
        assert_eq!(reason(&security, "192.0.2.1:1"), None);
    }

    #[test]
    fn packets_are_taken_only_with_the_key() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"key");
        let other = hmac::Key::new(hmac::HMAC_SHA256, b"other");
        let packet = seal(&key, &ChitchatMessage::BadCluster);
        assert_eq!(unseal(&key, &packet), Some(ChitchatMessage::BadCluster));
        assert_eq!(unseal(&other, &packet), None);
        for at in 0..packet.len() {
            let mut damaged = packet.clone();
            damaged[at] ^= 1;
            assert_eq!(unseal(&key, &damaged), None, "{at}");
            assert_eq!(unseal(&key, &packet[..at]), None, "{at}");
        }
    }
}
