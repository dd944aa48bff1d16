//! rustls' configurations, made from files.
//!
//! Invariants: a configuration is made whole or not at all, and an error names the file to blame. Sessions
//! are resumed only among configurations that verify clients alike ([`Tickets`]).
//!
//! Deliberately absent: watching files. A reload loads again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use serde::{Deserialize, Serialize};

use super::hello::HTTP_1_1;
use crate::certificate::{CertificateFacts, next_update};

/// What a TLS listener is made of. All files are PEM.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The certificate chain, the listener's own first.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Whether clients show a certificate.
    pub client_auth: ClientAuth,
    /// Authorities that sign the clients' certificates. Needed for any `client_auth` but `None`.
    pub authorities: Option<PathBuf>,
    /// Revocation lists. If there are any, each authority in a client's chain needs one.
    pub revocation_lists: Option<PathBuf>,
    /// The lowest version.
    pub minimum_version: MinimumVersion,
    /// Whether WebSocket is within, which clients call `http/1.1` and not `mqtt`.
    pub websocket: bool,
}

/// Whether a listener asks clients for a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAuth {
    /// Not asked for.
    None,
    /// Asked for; one that is shown must be valid.
    Optional,
    /// Without a valid one there is no connection.
    Required,
}

/// The lowest version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum MinimumVersion {
    /// RFC 5246.
    #[default]
    V1_2,
    /// RFC 8446.
    V1_3,
}

impl MinimumVersion {
    fn versions(self) -> Vec<&'static SupportedProtocolVersion> {
        match self {
            Self::V1_2 => vec![&TLS13, &TLS12],
            Self::V1_3 => vec![&TLS13],
        }
    }
}

/// What a TLS client is made of. All files are PEM.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClientTls {
    /// Authorities that sign the server's certificate: a file, or a folder of such files. `None`: those of the
    /// system.
    pub authorities: Option<PathBuf>,
    /// The client's own certificate chain and its private key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Takes any certificate of the server. For tests.
    pub insecure: bool,
    /// The lowest version.
    #[serde(default)]
    pub minimum_version: MinimumVersion,
    /// Whether WebSocket is within, which servers know as `http/1.1` and not as `mqtt`.
    pub websocket: bool,
    /// Whether a connection resumes the session of an earlier one. Not for a process that plays many
    /// clients: they have no tickets of each other.
    pub resumes: bool,
}

/// The keys of session tickets, which change every 6 hours; a ticket counts for at most 12.
///
/// A resumed session is not verified again. So tickets are shared by configurations, also across a reload,
/// only if these verify clients alike: with another list of authorities or revocations, clients have to show
/// their certificate again.
#[derive(Debug, Default)]
pub struct Tickets {
    keys: Mutex<Vec<TicketKeys>>,
}

/// Keys that last as long as a configuration has them.
#[derive(Debug)]
struct TicketKeys {
    trust: ClientTrust,
    ticketer: Weak<dyn ProducesTickets>,
}

/// How clients are verified.
#[derive(PartialEq, Eq, Debug)]
struct ClientTrust {
    auth: ClientAuth,
    authorities: Vec<CertificateDer<'static>>,
    revocation_lists: Vec<CertificateRevocationListDer<'static>>,
}

/// A file that cannot be used.
#[derive(Debug)]
pub struct TlsFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for TlsFileError {}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that is missing, malformed or does not fit the others.
    pub fn load(&self, tickets: &Tickets) -> Result<Arc<ServerConfig>, TlsFileError> {
        self.load_with_facts(tickets).map(|(config, _)| config)
    }

    /// The same, with what the certificate says, if it can be read.
    ///
    /// # Errors
    /// As of [`Self::load`].
    pub fn load_with_facts(
        &self,
        tickets: &Tickets,
    ) -> Result<(Arc<ServerConfig>, Option<CertificateFacts>), TlsFileError> {
        let provider = Arc::new(default_provider());
        let identity = certified_key(&self.certificate, &self.key, &provider)?;
        let own = identity.cert.first();
        let trust = self.client_trust()?;
        let lists = trust.revocation_lists.iter();
        let next_update = lists.filter_map(|list| next_update(list)).min();
        let facts = own.and_then(|own| CertificateFacts::of(own));
        let facts = facts.map(|facts| CertificateFacts {
            next_update,
            ..facts
        });
        let verifier = self.verifier(&trust, &provider)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.minimum_version.versions())
            .map_err(|error| blame(&self.certificate, error))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(identity)));
        config.alpn_protocols = application_protocols(self.websocket);
        config.ticketer = tickets
            .of(trust)
            .map_err(|error| blame(&self.certificate, error))?;
        // Sessions are kept by the clients, in tickets; one is enough, a resumption gives the next.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 1;
        Ok((Arc::new(config), facts))
    }

    fn client_trust(&self) -> Result<ClientTrust, TlsFileError> {
        let (authorities, revocation_lists) = match self.client_auth {
            ClientAuth::None => (None, None),
            ClientAuth::Optional | ClientAuth::Required => (
                self.authorities.as_deref(),
                self.revocation_lists.as_deref(),
            ),
        };
        Ok(ClientTrust {
            auth: self.client_auth,
            authorities: read_if_set(authorities, "certificate")?,
            revocation_lists: read_if_set(revocation_lists, "revocation list")?,
        })
    }

    fn verifier(
        &self,
        trust: &ClientTrust,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsFileError> {
        if trust.auth == ClientAuth::None {
            return Ok(WebPkiClientVerifier::no_client_auth());
        }
        let Some(authorities) = &self.authorities else {
            let reason = "client certificates need a file of authorities that sign them";
            return Err(blame(&self.certificate, reason));
        };
        let roots = root_store(authorities, &trust.authorities)?;
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .with_crls(trust.revocation_lists.iter().cloned());
        let builder = match trust.auth {
            ClientAuth::Required => builder,
            ClientAuth::None | ClientAuth::Optional => builder.allow_unauthenticated(),
        };
        let lists = self.revocation_lists.as_ref().unwrap_or(authorities);
        builder.build().map_err(|error| blame(lists, error))
    }
}

impl Tickets {
    /// The ticketer of all configurations with this trust.
    fn of(&self, trust: ClientTrust) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|keys| keys.ticketer.strong_count() > 0);
        let known = keys.iter().find(|keys| keys.trust == trust);
        if let Some(ticketer) = known.and_then(|keys| keys.ticketer.upgrade()) {
            return Ok(ticketer);
        }
        let ticketer = Ticketer::new()?;
        keys.push(TicketKeys {
            trust,
            ticketer: Arc::downgrade(&ticketer),
        });
        Ok(ticketer)
    }
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that is missing, malformed or does not fit the others.
    pub fn load(&self) -> Result<Arc<ClientConfig>, TlsFileError> {
        let provider = Arc::new(default_provider());
        let verifier = self.verifier(&provider)?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&self.minimum_version.versions())
            .map_err(|error| blame(Path::new("TLS"), error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let identity = certified_key(certificate, key, &provider)?;
                let resolver = rustls::sign::SingleCertAndKey::from(identity);
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        config.alpn_protocols = application_protocols(self.websocket);
        if !self.resumes {
            config.resumption = Resumption::disabled();
        }
        Ok(Arc::new(config))
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsFileError> {
        if self.insecure {
            return Ok(Arc::new(AnyServer(provider.clone())));
        }
        let system = Path::new("the system's authorities");
        let (path, roots) = match &self.authorities {
            Some(path) if path.is_dir() => (path.as_path(), roots_of_folder(path)?),
            Some(path) => (
                path.as_path(),
                root_store(path, &read(path, "certificate")?)?,
            ),
            None => (system, system_roots()),
        };
        let verifier: Arc<dyn ServerCertVerifier> =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .map_err(|error| blame(path, error))?;
        Ok(verifier)
    }
}

/// Verifies nothing but that the server has the key of the certificate it shows.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn application_protocols(websocket: bool) -> Vec<Vec<u8>> {
    let name: &[u8] = if websocket { HTTP_1_1 } else { b"mqtt" };
    vec![name.to_vec()]
}

fn certified_key(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsFileError> {
    let chain = read(certificate, "certificate")?;
    let key_der = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| pem_error(key, "private key without a password", &error))?;
    CertifiedKey::from_der(chain, key_der, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let reason = format!("is not the key of {}", certificate.display());
            blame(key, reason)
        }
        rustls::Error::InvalidCertificate(_) => blame(certificate, in_words(&error)),
        error => blame(key, error),
    })
}

fn root_store(
    path: &Path,
    certificates: &[CertificateDer<'static>],
) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots
            .add(certificate.clone())
            .map_err(|error| blame(path, in_words(&error)))?;
    }
    Ok(roots)
}

/// The certificates of all files in a folder. Other files may stand beside them.
fn roots_of_folder(folder: &Path) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    let entries = std::fs::read_dir(folder).map_err(|error| blame(folder, error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if let Ok(certificates) = read(&path, "certificate") {
            roots.add_parsable_certificates(certificates);
        }
    }
    if roots.is_empty() {
        return Err(blame(folder, "holds no certificate in PEM"));
    }
    Ok(roots)
}

/// An error of rustls; what operators meet often, with its remedy.
pub(crate) fn in_words(error: &rustls::Error) -> String {
    // The variant of webpki behind it has no type here.
    if error.to_string().contains(UNSUPPORTED_VERSION) {
        return "is a certificate of version 1, as `openssl x509 -req` makes it without extensions; \
                version 3 is needed: sign it with -extfile and a subjectAltName \
                (docs/operate/listeners.md has the commands)"
            .to_owned();
    }
    error.to_string()
}

/// What the system has that rustls can read; if that is nothing, the verifier's builder says so.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn read_if_set<T: PemObject>(path: Option<&Path>, what: &str) -> Result<Vec<T>, TlsFileError> {
    path.map_or(Ok(Vec::new()), |path| read(path, what))
}

/// All items of a file; that there is none is an error.
fn read<T: PemObject>(path: &Path, what: &str) -> Result<Vec<T>, TlsFileError> {
    use rustls::pki_types::pem::Error;

    let items = T::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<T>, Error>>)
        .map_err(|error| pem_error(path, what, &error))?;
    if items.is_empty() {
        return Err(pem_error(path, what, &Error::NoItemsFound));
    }
    Ok(items)
}

fn pem_error(path: &Path, what: &str, error: &rustls::pki_types::pem::Error) -> TlsFileError {
    match error {
        rustls::pki_types::pem::Error::Io(error) => blame(path, error),
        rustls::pki_types::pem::Error::NoItemsFound => {
            blame(path, format!("holds no {what} in PEM"))
        }
        error => blame(path, error),
    }
}

/// What rustls says of a certificate that is not of version 3.
const UNSUPPORTED_VERSION: &str = "UnsupportedCertVersion";

pub(crate) fn blame(path: &Path, reason: impl ToString) -> TlsFileError {
    TlsFileError {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
