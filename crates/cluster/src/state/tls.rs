//! The configurations of mutual TLS between nodes, and what a certificate has to say.

use std::io;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ServerConfig};
use transport::{ClientAuth, ClientTls, MinimumVersion, ServerTls, Tickets, TlsFileError};

use crate::options::TlsFiles;

/// Distinguishes links from whatever else has certificates of the same authority.
const PROTOCOL: &[u8] = b"heraldmq-link";

/// The configurations of mutual TLS.
pub(crate) struct Tls {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl Tls {
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, TlsFileError> {
        let server = ServerTls {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            client_auth: ClientAuth::Required,
            authorities: Some(files.authorities.clone()),
            revocation_lists: None,
            minimum_version: MinimumVersion::V1_3,
            websocket: false,
        };
        let client = ClientTls {
            authorities: Some(files.authorities.clone()),
            certificate: Some((files.certificate.clone(), files.key.clone())),
            ..ClientTls::default()
        };
        let mut server = Arc::unwrap_or_clone(server.load(&Tickets::default())?);
        let mut client = Arc::unwrap_or_clone(client.load()?);
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }
}

/// Whether a certificate is good for a host: its name or address.
///
/// # Errors
/// Why it is not.
pub(crate) fn check_name(certificate: &CertificateDer<'_>, host: &str) -> io::Result<()> {
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    ParsedCertificate::try_from(certificate)
        .and_then(|certificate| verify_server_name(&certificate, &name))
        .map_err(|error| io::Error::other(format!("its certificate is not for {host}: {error}")))
}

/// Whether others will take a node's own certificate for its own.
///
/// # Errors
/// Why they will not.
pub(crate) fn check_own_name(files: &TlsFiles, host: &str) -> io::Result<()> {
    let certificate = CertificateDer::from_pem_file(&files.certificate);
    check_name(&certificate.map_err(io::Error::other)?, host)
}
