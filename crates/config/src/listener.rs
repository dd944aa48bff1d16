//! Listeners of all kinds in one form.

use std::path::Path;

use crate::{
    address::Host,
    listed::Listed,
    options::{
        ForwardedConfig, ForwardedHeader, MqttServerConfig, ProxyConfig, ProxyVersion, SslConfig,
        UnixListenerConfig,
    },
    origin::WebOrigin,
};

/// An enabled listener, whatever its kind.
#[derive(Clone, Copy, Debug)]
pub struct ListenerView<'a> {
    /// The option that it stands in.
    pub key: &'static str,
    /// Where it listens.
    pub place: Place<'a>,
    /// The PROXY protocol; a Unix socket has none.
    pub proxy: Option<&'a ProxyConfig>,
    /// TLS, of the kinds that have it.
    pub ssl: Option<&'a SslConfig>,
    /// The WebSocket, of the kinds that have one.
    pub websocket: Option<WebSocketView<'a>>,
}

impl ListenerView<'_> {
    /// Whether proxies say for whom connections are.
    #[must_use]
    pub fn is_proxied(&self) -> bool {
        self.proxy
            .is_some_and(|proxy| proxy.version != ProxyVersion::Off)
            || self
                .websocket
                .is_some_and(|websocket| websocket.forwarded.header != ForwardedHeader::Off)
    }
}

/// The WebSocket of a listener.
#[derive(Clone, Copy, Debug)]
pub struct WebSocketView<'a> {
    /// Its path.
    pub path: &'a str,
    /// Origins of pages that may connect; none: all.
    pub origins: &'a Listed<WebOrigin>,
    /// With origins, also requests without one are refused.
    pub require_origin: bool,
    /// Where proxies say whom they connect for.
    pub forwarded: &'a ForwardedConfig,
}

/// Where a listener listens.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// On a port.
    Port {
        /// `None`: all addresses.
        host: Option<&'a Host>,
        /// 0: the system chooses.
        port: u16,
    },
    /// On a Unix socket.
    Socket {
        /// The path of the socket.
        path: &'a Path,
        /// Its permissions.
        mode: u32,
    },
}

impl MqttServerConfig {
    /// The enabled listeners of all kinds.
    pub fn listeners(&self) -> Vec<ListenerView<'_>> {
        let mut listeners = Vec::new();
        for tcp in self.tcp_listeners.iter().filter(|l| l.enable) {
            listeners.push(ListenerView {
                key: "mqttServerConfig.tcpListener",
                place: port(tcp.host.as_ref(), tcp.port),
                proxy: Some(&tcp.proxy),
                ssl: None,
                websocket: None,
            });
        }
        for tls in self.tls_listeners.iter().filter(|l| l.enable) {
            listeners.push(ListenerView {
                key: "mqttServerConfig.tlsListener",
                place: port(tls.host.as_ref(), tls.port),
                proxy: Some(&tls.proxy),
                ssl: Some(&tls.ssl),
                websocket: None,
            });
        }
        for ws in self.ws_listeners.iter().filter(|l| l.enable) {
            listeners.push(ListenerView {
                key: "mqttServerConfig.wsListener",
                place: port(ws.host.as_ref(), ws.port),
                proxy: Some(&ws.proxy),
                ssl: None,
                websocket: Some(WebSocketView {
                    path: &ws.ws_path,
                    origins: &ws.allowed_origins,
                    require_origin: ws.require_origin,
                    forwarded: &ws.forwarded,
                }),
            });
        }
        for wss in self.wss_listeners.iter().filter(|l| l.enable) {
            listeners.push(ListenerView {
                key: "mqttServerConfig.wssListener",
                place: port(wss.host.as_ref(), wss.port),
                proxy: Some(&wss.proxy),
                ssl: Some(&wss.ssl),
                websocket: Some(WebSocketView {
                    path: &wss.ws_path,
                    origins: &wss.allowed_origins,
                    require_origin: wss.require_origin,
                    forwarded: &wss.forwarded,
                }),
            });
        }
        for unix in self.unix_listeners.iter().filter(|l| l.enable) {
            listeners.push(ListenerView {
                key: "mqttServerConfig.unixListener",
                place: Place::Socket {
                    path: &unix.path,
                    mode: unix.permissions().unwrap_or_default(),
                },
                proxy: None,
                ssl: None,
                websocket: None,
            });
        }
        listeners
    }
}

fn port(host: Option<&Host>, port: u16) -> Place<'_> {
    Place::Port { host, port }
}

impl UnixListenerConfig {
    /// The permissions as a number; `None` unless `mode` is written in octal digits.
    pub(crate) fn permissions(&self) -> Option<u32> {
        let octal = self.mode.bytes().all(|b| b.is_ascii_digit());
        let mode = u32::from_str_radix(&self.mode, 8).ok()?;
        (octal && mode <= 0o777).then_some(mode)
    }
}
