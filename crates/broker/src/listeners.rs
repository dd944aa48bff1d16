//! The listeners of a configuration: opened at the start, their certificates read again at a reload.
//!
//! Invariant: a reload changes what new connections of a listener get as a whole, or not at all;
//! connections that are open keep what they have.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use config::{
    ClientAuth, ForwardedConfig, ForwardedHeader, ListenerView, MqttServerConfig, Networks, Place,
    ProxyConfig, ProxyUserName, ProxyVersion, SslConfig, TlsVersion, WebSocketView,
};
use net::{Listener, Profile};
use net_api::Kind;
use parking_lot::RwLock;
use transport::{
    CertificateFacts, Forwarded, Identity, MinimumVersion, ProxyOptions, ServerOptions, ServerTls,
    Tickets, TlsFileError, WebSocketServer,
};

use crate::reread::{self, Reread};
use crate::start_error::StartError;

/// The open listeners of a node.
pub(crate) struct Listeners {
    opened: Vec<Opened>,
    tickets: Tickets,
}

struct Opened {
    profile: Arc<Profile>,
    address: String,
    layers: LayerSettings,
    certificate: Certificate,
    /// Of its certificates, keys, authorities and revocation lists.
    files: Vec<PathBuf>,
    socket: Option<SocketFile>,
}

/// What the certificate says that a listener shows, as it was read last.
pub(crate) type Certificate = Arc<RwLock<Option<CertificateFacts>>>;

/// A listener, for those who ask which there are. Its place among all is its number.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) kind: Kind,
    pub(crate) address: String,
    pub(crate) certificate: Certificate,
}

/// What the connections of a listener begin with, its certificates by their files.
struct LayerSettings {
    proxy: Option<ProxyOptions>,
    tls: Option<ServerTls>,
    websocket: Option<Arc<WebSocketServer>>,
}

/// The file of a Unix socket; it goes when the broker ends.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a Unix socket cannot be removed");
        }
    }
}

impl Listeners {
    /// Opens all that are enabled.
    pub(crate) fn open(config: &MqttServerConfig) -> Result<(Self, Vec<Listener>), StartError> {
        let mut listeners = Self {
            opened: Vec::new(),
            tickets: Tickets::default(),
        };
        let mut sockets = Vec::new();
        for (number, view) in (0..).zip(config.listeners()) {
            sockets.push(listeners.add(number, &view)?);
        }
        Ok((listeners, sockets))
    }

    fn add(&mut self, number: u16, view: &ListenerView<'_>) -> Result<Listener, StartError> {
        let kind = kind(view);
        let wanted = wanted_address(&view.place);
        let layers = LayerSettings::new(view);
        let (options, certificate) =
            layers
                .load(&self.tickets)
                .map_err(|source| StartError::Certificate {
                    kind: kind.name(),
                    address: wanted.clone(),
                    source,
                })?;
        let identity = view.ssl.map_or("", |ssl| &ssl.identity);
        let profile = Profile::new(number, kind, identity, options);
        let listener = checked(identity)
            .and_then(|()| bind(&view.place, Arc::clone(&profile)))
            .map_err(|source| StartError::Listen {
                kind: kind.name(),
                address: wanted.clone(),
                source,
            })?;
        let socket = match view.place {
            Place::Socket { path, .. } => Some(SocketFile(path.to_owned())),
            Place::Port { .. } => None,
        };
        let address = listener.address().map(|address| address.to_string());
        self.opened.push(Opened {
            profile,
            address: address.unwrap_or(wanted),
            layers,
            certificate: Arc::new(RwLock::new(certificate)),
            files: reread::certificates(view),
            socket,
        });
        Ok(listener)
    }

    /// Says in the log where clients can connect.
    pub(crate) fn announce(&self) {
        for Opened {
            profile, address, ..
        } in &self.opened
        {
            let kind = format!("mqtt-{}", profile.kind.name());
            tracing::info!(kind, %address, "listening");
        }
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn listening(&self) -> Vec<Listening> {
        let listening = |opened: &Opened| Listening {
            kind: opened.profile.kind,
            address: opened.address.clone(),
            certificate: Arc::clone(&opened.certificate),
        };
        self.opened.iter().map(listening).collect()
    }

    /// Where clients without TLS and WebSocket can connect that are sent here. `host`: by what other nodes
    /// reach this one.
    pub(crate) fn reference(&self, host: &str) -> Option<String> {
        let is_tcp = |opened: &&Opened| opened.profile.kind == Kind::Tcp;
        let mut listeners = self.opened.iter().filter(is_tcp);
        listeners.find_map(|opened| reachable(opened.address.parse().ok()?, host))
    }

    /// Reads certificates, keys and revocation lists again. Where one is broken, the old ones stay.
    pub(crate) fn reload(&self, reread: &mut Reread) {
        for opened in self.opened.iter().filter(|o| o.layers.tls.is_some()) {
            let loaded = opened.layers.load(&self.tickets);
            reread.tell("certificates", opened.files.clone(), loaded.is_ok());
            match loaded {
                Ok((options, certificate)) => {
                    opened.profile.replace(options);
                    *opened.certificate.write() = certificate;
                }
                Err(error) => tracing::error!(
                    kind = opened.profile.kind.name(),
                    address = opened.address,
                    %error,
                    "certificates not reloaded; the listener keeps its present ones"
                ),
            }
        }
    }

    /// Removes the files of Unix sockets, while nobody else can have replaced them.
    pub(crate) fn remove_sockets(&mut self) {
        for opened in &mut self.opened {
            opened.socket = None;
        }
    }
}

/// Reads the certificates, keys, authorities and revocation lists of all listeners, and opens none of them.
pub(crate) fn check(config: &MqttServerConfig) -> Vec<StartError> {
    let tickets = Tickets::default();
    let problem = |view: ListenerView<'_>| {
        let (kind, address) = (kind(&view).name(), wanted_address(&view.place));
        let identity = view.ssl.map_or("", |ssl| &ssl.identity);
        let loaded = LayerSettings::new(&view).load(&tickets);
        match (loaded, checked(identity)) {
            (Ok(_), Ok(())) => None,
            (Err(source), _) => Some(StartError::Certificate {
                kind,
                address,
                source,
            }),
            (_, Err(source)) => Some(StartError::Listen {
                kind,
                address,
                source,
            }),
        }
    };
    config.listeners().into_iter().filter_map(problem).collect()
}

/// Where a listener's address is reached from other machines, if it is.
fn reachable(address: SocketAddr, host: &str) -> Option<String> {
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    let port = address.port();
    if address.ip().is_unspecified() {
        return Some(match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        });
    }
    let all_are_here = host.parse().is_ok_and(is_loopback);
    (all_are_here || !is_loopback(address.ip())).then(|| address.to_string())
}

/// Who connects to a listener.
#[derive(Debug)]
pub(crate) struct Peers {
    /// From where; `None`: from everywhere.
    pub(crate) trusted: Option<Networks>,
    /// Proxies say for whom.
    pub(crate) are_proxies: bool,
}

/// Who connects to each listener, by its number; last, to none ([`own_number`]).
pub(crate) fn peers(config: &MqttServerConfig) -> Box<[Peers]> {
    let peers = |view: ListenerView<'_>| {
        let has_header = |proxy: &&ProxyConfig| proxy.version != ProxyVersion::Off;
        let proxy = view.proxy.filter(has_header);
        Peers {
            trusted: proxy.map(|proxy| proxy.trusted_peers.clone()),
            are_proxies: view.is_proxied(),
        }
    };
    let own = Peers {
        trusted: None,
        are_proxies: false,
    };
    let all = config.listeners().into_iter().map(peers);
    all.chain([own]).collect()
}

/// The kind of each listener, by its number; last, that of the connections that the broker makes itself.
pub(crate) fn kinds(config: &MqttServerConfig) -> Box<[Kind]> {
    let listeners = config.listeners();
    let kinds = listeners.iter().map(kind);
    kinds.chain([Kind::Outlet]).collect()
}

/// The number of the connections that the broker makes itself: one more than those of its listeners.
pub(crate) fn own_number(config: &MqttServerConfig) -> u16 {
    let listeners = config.listeners().len();
    u16::try_from(listeners).expect("each listener has a number")
}

impl LayerSettings {
    fn new(view: &ListenerView<'_>) -> Self {
        Self {
            proxy: view.proxy.and_then(proxy_options),
            tls: view
                .ssl
                .and_then(|ssl| server_tls(ssl, view.websocket.is_some())),
            websocket: view.websocket.map(websocket_server),
        }
    }

    fn load(
        &self,
        tickets: &Tickets,
    ) -> Result<(ServerOptions, Option<CertificateFacts>), TlsFileError> {
        let loaded = self.tls.as_ref().map(|tls| tls.load_with_facts(tickets));
        let (tls, certificate) = loaded.transpose()?.unzip();
        let options = ServerOptions {
            proxy: self.proxy,
            tls: tls.map(Into::into),
            websocket: self.websocket.clone(),
        };
        Ok((options, certificate.flatten()))
    }
}

fn kind(view: &ListenerView<'_>) -> Kind {
    match (&view.place, view.ssl, view.websocket) {
        (Place::Socket { .. }, _, _) => Kind::Unix,
        (Place::Port { .. }, None, None) => Kind::Tcp,
        (Place::Port { .. }, Some(_), None) => Kind::Tls,
        (Place::Port { .. }, None, Some(_)) => Kind::Ws,
        (Place::Port { .. }, Some(_), Some(_)) => Kind::Wss,
    }
}

fn wanted_address(place: &Place<'_>) -> String {
    match place {
        Place::Port { host, port } => format!("{}:{port}", host_name(*host)),
        Place::Socket { path, .. } => path.display().to_string(),
    }
}

fn host_name(host: Option<&config::Host>) -> &str {
    host.map_or("::", config::Host::as_str)
}

fn checked(identity: &str) -> io::Result<()> {
    if Identity::is_template(identity) {
        return Ok(());
    }
    let problem = format!("sslConfig.identity: {identity} names what no certificate has");
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

fn bind(place: &Place<'_>, profile: Arc<Profile>) -> io::Result<Listener> {
    match *place {
        Place::Port { host, port } => net::bind(host_name(host), port, profile),
        Place::Socket { path, mode } => net::bind_unix(path, mode, profile),
    }
}

fn proxy_options(proxy: &ProxyConfig) -> Option<ProxyOptions> {
    let (v1, v2) = match proxy.version {
        ProxyVersion::Off => return None,
        ProxyVersion::V1 => (true, false),
        ProxyVersion::V2 => (false, true),
        ProxyVersion::Any => (true, true),
    };
    let names = proxy.user_name == ProxyUserName::CommonName;
    Some(ProxyOptions { v1, v2, names })
}

fn forwarded(config: &ForwardedConfig) -> Option<Forwarded> {
    let header = match config.header {
        ForwardedHeader::Off => return None,
        ForwardedHeader::XForwardedFor => transport::ForwardedHeader::XForwardedFor,
        ForwardedHeader::XRealIp => transport::ForwardedHeader::XRealIp,
        ForwardedHeader::Forwarded => transport::ForwardedHeader::Forwarded,
    };
    let peers = config.trusted_peers.clone();
    let trusted = Arc::new(move |ip| peers.iter().any(|network| network.contains(ip)));
    Some(Forwarded { header, trusted })
}

fn websocket_server(websocket: WebSocketView<'_>) -> Arc<WebSocketServer> {
    let origins = websocket.origins.iter();
    Arc::new(WebSocketServer {
        path: websocket.path.to_owned(),
        origins: origins.map(|origin| origin.as_str().to_owned()).collect(),
        require_origin: websocket.require_origin,
        forwarded: forwarded(websocket.forwarded),
    })
}

/// `None` without a certificate or key, which `config` does not let through.
/// What TLS is made of; `None`: there is none.
pub(crate) fn server_tls(ssl: &SslConfig, websocket: bool) -> Option<ServerTls> {
    Some(ServerTls {
        certificate: ssl.cert_file.clone()?,
        key: ssl.key_file.clone()?,
        client_auth: match ssl.client_auth {
            ClientAuth::None => transport::ClientAuth::None,
            ClientAuth::Optional => transport::ClientAuth::Optional,
            ClientAuth::Require => transport::ClientAuth::Required,
        },
        authorities: ssl.trust_certs_file.clone(),
        revocation_lists: ssl.crl_file.clone(),
        minimum_version: match ssl.min_version {
            TlsVersion::V1_2 => MinimumVersion::V1_2,
            TlsVersion::V1_3 => MinimumVersion::V1_3,
        },
        websocket,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_sent_where_they_can_connect() {
        for (address, host, reference) in [
            ("0.0.0.0:1883", "10.0.0.1", Some("10.0.0.1:1883")),
            ("[::]:1883", "node.example", Some("node.example:1883")),
            ("[::]:1883", "fd00::1", Some("[fd00::1]:1883")),
            ("10.1.0.1:1884", "10.0.0.1", Some("10.1.0.1:1884")),
            ("127.0.0.1:1883", "127.0.0.2", Some("127.0.0.1:1883")),
            ("127.0.0.1:1883", "10.0.0.1", None),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(reachable(address, host).as_deref(), reference, "{address}");
        }
    }
}
