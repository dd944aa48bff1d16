//! The options of clients that are about TLS and WebSocket; those of mosquitto_pub where it has them.

use std::path::PathBuf;

use clap::Args;
use transport::{ClientTls, ClientTransport};

/// Which layers to use.
#[derive(Args, Clone, Default)]
pub(crate) struct TransportOptions {
    /// Use TLS; the authorities that the system knows are trusted.
    #[arg(long)]
    tls: bool,
    /// Use TLS; only these authorities are trusted (PEM).
    #[arg(long, value_name = "FILE")]
    cafile: Option<PathBuf>,
    /// Use TLS; the client's certificate chain (PEM).
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of the client's certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Use TLS with whoever answers: the broker's certificate is not verified. For tests.
    #[arg(long)]
    insecure: bool,
    /// Use WebSocket; the path, /mqtt if there is none here.
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/mqtt"
    )]
    ws: Option<String>,
}

impl TransportOptions {
    /// What they ask for.
    pub(crate) fn chosen(&self) -> ClientTransport {
        ClientTransport {
            tls: self.has_tls().then(|| self.tls()),
            websocket: self.ws.clone(),
        }
    }

    fn has_tls(&self) -> bool {
        self.tls || self.insecure || self.cafile.is_some() || self.cert.is_some()
    }

    fn tls(&self) -> ClientTls {
        ClientTls {
            authorities: self.cafile.clone(),
            certificate: self.cert.clone().zip(self.key.clone()),
            insecure: self.insecure,
            websocket: self.ws.is_some(),
            // One connection, or many clients.
            resumes: false,
        }
    }
}
