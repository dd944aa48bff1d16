//! The options of clients that are about TLS and WebSocket; those of mosquitto_pub where it has them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use transport::{ClientTls, ClientTransport, MinimumVersion};

/// Which layers to use.
#[derive(Args, Clone, Default)]
pub(crate) struct TransportOptions {
    /// Use TLS, and trust the certificate authorities of the system.
    #[arg(long)]
    tls: bool,
    /// Use TLS, and trust only these certificate authorities (PEM).
    #[arg(long, alias = "cacertfile", value_name = "FILE")]
    cafile: Option<PathBuf>,
    /// Use TLS, and trust only the certificate authorities in the files of this folder (PEM).
    #[arg(long, value_name = "DIR", conflicts_with = "cafile")]
    capath: Option<PathBuf>,
    /// Use TLS of this version or a later one: tlsv1.2 or tlsv1.3.
    #[arg(long, value_name = "VERSION")]
    tls_version: Option<TlsVersion>,
    /// Use TLS, with this certificate chain of the client (PEM).
    #[arg(long, alias = "certfile", value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of the client's certificate (PEM).
    #[arg(long, alias = "keyfile", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Use TLS without verifying the broker's certificate. For tests only.
    #[arg(long)]
    insecure: bool,
    /// Use WebSocket, with this path. Default: /mqtt.
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/mqtt"
    )]
    ws: Option<String>,
}

/// Versions of TLS, named as in mosquitto_pub.
#[derive(Clone, Copy, ValueEnum)]
enum TlsVersion {
    #[value(name = "tlsv1.2", alias = "1.2")]
    V1_2,
    #[value(name = "tlsv1.3", alias = "1.3")]
    V1_3,
}

impl TransportOptions {
    /// What they ask for.
    pub(crate) fn chosen(&self) -> ClientTransport {
        ClientTransport {
            tls: self.has_tls().then(|| self.tls()),
            websocket: self.ws.clone(),
        }
    }

    /// The same with TLS, by the authorities of the system if no others are named.
    pub(crate) fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    fn has_tls(&self) -> bool {
        self.tls
            || self.insecure
            || self.cafile.is_some()
            || self.capath.is_some()
            || self.tls_version.is_some()
            || self.cert.is_some()
    }

    fn tls(&self) -> ClientTls {
        ClientTls {
            authorities: self.cafile.clone().or_else(|| self.capath.clone()),
            minimum_version: match self.tls_version {
                Some(TlsVersion::V1_3) => MinimumVersion::V1_3,
                Some(TlsVersion::V1_2) | None => MinimumVersion::V1_2,
            },
            certificate: self.cert.clone().zip(self.key.clone()),
            insecure: self.insecure,
            websocket: self.ws.is_some(),
            // One connection, or many clients.
            resumes: false,
        }
    }
}
