//! Options of the listeners for MQTT clients.

use std::path::PathBuf;

use crate::{
    address::Host, declare::options, listed::Listed, network::Networks, origin::WebOrigin,
    setting::choice,
};

options! {
    /// The listeners for MQTT clients. Each takes one object, or a list of objects for several.
    pub struct MqttServerConfig {
        /// MQTT over TCP. Without it the broker listens on 127.0.0.1:1883.
        fixed "tcpListener" => tcp_listeners: Vec<TcpListenerConfig> = vec![TcpListenerConfig::local()];
        /// MQTT over TLS.
        fixed "tlsListener" => tls_listeners: Vec<TlsListenerConfig>;
        /// MQTT over WebSocket.
        fixed "wsListener" => ws_listeners: Vec<WsListenerConfig>;
        /// MQTT over WebSocket over TLS.
        fixed "wssListener" => wss_listeners: Vec<WssListenerConfig>;
        /// MQTT over a Unix domain socket.
        fixed "unixListener" => unix_listeners: Vec<UnixListenerConfig>;
    }

    /// One listener for MQTT over TCP.
    pub struct TcpListenerConfig {
        /// Whether this listener is opened.
        fixed "enable" => enable: bool = true;
        /// Address to listen on. Unset in a listener that stands in the configuration file:
        /// all addresses, IPv6 and IPv4.
        fixed "host" => host: Option<Host>;
        /// Port to listen on. 0: the operating system chooses, and the log says which.
        fixed "port" => port: u16 = 1883, example "1883";
        group "proxyProtocol" => proxy: ProxyConfig;
    }

    /// One listener for MQTT over TLS.
    pub struct TlsListenerConfig {
        /// Whether this listener is opened.
        fixed "enable" => enable: bool = true;
        /// Address to listen on. Unset: all addresses, IPv6 and IPv4.
        fixed "host" => host: Option<Host>;
        /// Port to listen on. 0: the operating system chooses, and the log says which.
        fixed "port" => port: u16 = 8883;
        group "proxyProtocol" => proxy: ProxyConfig;
        group "sslConfig" => ssl: SslConfig;
    }

    /// One listener for MQTT over WebSocket.
    pub struct WsListenerConfig {
        /// Whether this listener is opened.
        fixed "enable" => enable: bool = true;
        /// Address to listen on. Unset: all addresses, IPv6 and IPv4.
        fixed "host" => host: Option<Host>;
        /// Port to listen on. 0: the operating system chooses, and the log says which.
        fixed "port" => port: u16 = 8080;
        /// Path of the WebSocket; requests for others are answered with 404.
        fixed "wsPath" => ws_path: String = "/mqtt".to_owned();
        /// Origins of web pages that may connect, such as `https://app.example.com`; requests of others are
        /// answered with 403. Unset: pages of all origins may.
        fixed "allowedOrigins" => allowed_origins: Listed<WebOrigin>;
        /// Whether requests without an Origin are refused as well, where `allowedOrigins` is set. Browsers always
        /// send one, other programs seldom do.
        fixed "requireOrigin" => require_origin: bool = false;
        group "proxyProtocol" => proxy: ProxyConfig;
        group "forwarded" => forwarded: ForwardedConfig;
    }

    /// One listener for MQTT over WebSocket over TLS.
    pub struct WssListenerConfig {
        /// Whether this listener is opened.
        fixed "enable" => enable: bool = true;
        /// Address to listen on. Unset: all addresses, IPv6 and IPv4.
        fixed "host" => host: Option<Host>;
        /// Port to listen on. 0: the operating system chooses, and the log says which.
        fixed "port" => port: u16 = 8443;
        /// Path of the WebSocket; requests for others are answered with 404.
        fixed "wsPath" => ws_path: String = "/mqtt".to_owned();
        /// Origins of web pages that may connect, such as `https://app.example.com`; requests of others are
        /// answered with 403. Unset: pages of all origins may.
        fixed "allowedOrigins" => allowed_origins: Listed<WebOrigin>;
        /// Whether requests without an Origin are refused as well, where `allowedOrigins` is set. Browsers always
        /// send one, other programs seldom do.
        fixed "requireOrigin" => require_origin: bool = false;
        group "proxyProtocol" => proxy: ProxyConfig;
        group "forwarded" => forwarded: ForwardedConfig;
        group "sslConfig" => ssl: SslConfig;
    }

    /// One listener for MQTT over a Unix domain socket.
    pub struct UnixListenerConfig {
        /// Whether this listener is opened.
        fixed "enable" => enable: bool = true;
        /// Path of the socket. A socket there that nobody listens on is replaced.
        fixed "path" => path: PathBuf = PathBuf::from("heraldmq.sock");
        /// Permissions of the socket in octal digits.
        fixed "mode" => mode: String = "0660".to_owned();
    }

    /// The PROXY protocol, by which a load balancer says whom it connects for.
    pub struct ProxyConfig {
        /// Which versions are taken. Connections of trusted peers must then begin with a header.
        fixed "version" => version: ProxyVersion = ProxyVersion::Off;
        /// Peers that may send the header. Connections of others are closed.
        fixed "trustedPeers" => trusted_peers: Networks;
        /// Whether the common name of a client certificate that the proxy has verified (version 2, PP2_TYPE_SSL) is the user
        /// name that the certificate stands for, as `sslConfig.identity` makes it of one that the broker has verified.
        fixed "userName" => user_name: ProxyUserName = ProxyUserName::Off;
    }

    /// Where an HTTP proxy before the listener says whom it connects for.
    pub struct ForwardedConfig {
        /// The header. The others are not looked at, since a proxy passes on what clients write there.
        fixed "header" => header: ForwardedHeader = ForwardedHeader::Off;
        /// Proxies that are believed: their last address in the header that is none of these is the client's. Other peers
        /// may connect, and are clients themselves.
        fixed "trustedPeers" => trusted_peers: Networks;
    }

    /// TLS of one listener. The files are read again at SIGHUP, and count for new connections.
    pub struct SslConfig {
        /// Certificate chain, PEM, the broker's own first.
        fixed "certFile" => cert_file: Option<PathBuf>;
        /// Private key of the certificate, PEM.
        fixed "keyFile" => key_file: Option<PathBuf>;
        /// Certificates of the authorities that sign client certificates, PEM.
        fixed "trustCertsFile" => trust_certs_file: Option<PathBuf>;
        /// Revocation lists of these authorities, PEM.
        fixed "crlFile" => crl_file: Option<PathBuf>;
        /// Whether clients are asked for a certificate, and whether they must have one.
        fixed "clientAuth" => client_auth: ClientAuth = ClientAuth::None;
        /// Lowest version of TLS.
        fixed "minVersion" => min_version: TlsVersion = TlsVersion::V1_2;
        /// User name that a client certificate stands for: text in which `%cn`, `%dns`, `%email`, `%uri`
        /// and `%serial` are replaced by the first such name of the certificate.
        fixed "identity" => identity: String = "%cn".to_owned();
    }
}

choice! {
    /// Versions of the PROXY protocol.
    pub enum ProxyVersion {
        /// No header is expected.
        Off = "off",
        /// Text.
        V1 = "1",
        /// Binary.
        V2 = "2",
        /// Either.
        Any = "any",
    }

    /// User names that proxies tell.
    pub enum ProxyUserName {
        /// None.
        Off = "off",
        /// The common name.
        CommonName = "commonName",
    }

    /// Headers by which HTTP proxies say whom they connect for.
    pub enum ForwardedHeader {
        /// None.
        Off = "off",
        /// Addresses, the proxy's own peer last.
        XForwardedFor = "X-Forwarded-For",
        /// One address.
        XRealIp = "X-Real-IP",
        /// RFC 7239.
        Forwarded = "Forwarded",
    }

    /// Client certificates.
    pub enum ClientAuth {
        /// Not asked for.
        None = "NONE",
        /// Asked for, and verified if there is one.
        Optional = "OPTIONAL",
        /// Without a valid one there is no connection.
        Require = "REQUIRE",
    }

    /// Versions of TLS.
    pub enum TlsVersion {
        /// RFC 5246.
        V1_2 = "1.2",
        /// RFC 8446.
        V1_3 = "1.3",
    }
}

impl TcpListenerConfig {
    /// The listener of a broker that was not told where to listen: this machine only.
    fn local() -> Self {
        Self {
            host: Some(Host::loopback()),
            ..Self::default()
        }
    }
}
