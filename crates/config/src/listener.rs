//! Listeners of all kinds in one form.

use std::path::Path;

use crate::{
    address::Host,
    options::{MqttServerConfig, ProxyConfig, SslConfig, UnixListenerConfig},
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
    /// The path of the WebSocket, of the kinds that have one.
    pub ws_path: Option<&'a str>,
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
                ws_path: None,
            });
        }
        for tls in self.tls_listeners.iter().filter(|l| l.enable) {
            listeners.push(ListenerView {
                key: "mqttServerConfig.tlsListener",
                place: port(tls.host.as_ref(), tls.port),
                proxy: Some(&tls.proxy),
                ssl: Some(&tls.ssl),
                ws_path: None,
            });
        }
        for ws in self.ws_listeners.iter().filter(|l| l.enable) {
            listeners.push(ListenerView {
                key: "mqttServerConfig.wsListener",
                place: port(ws.host.as_ref(), ws.port),
                proxy: Some(&ws.proxy),
                ssl: None,
                ws_path: Some(&ws.ws_path),
            });
        }
        for wss in self.wss_listeners.iter().filter(|l| l.enable) {
            listeners.push(ListenerView {
                key: "mqttServerConfig.wssListener",
                place: port(wss.host.as_ref(), wss.port),
                proxy: Some(&wss.proxy),
                ssl: Some(&wss.ssl),
                ws_path: Some(&wss.ws_path),
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
                ws_path: None,
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
