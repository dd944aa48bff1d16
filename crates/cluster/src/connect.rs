//! Connections: TCP, perhaps TLS, and the handshake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::{fmt, io};

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use transport::{ClientAuth, ClientTls, MinimumVersion, ServerTls, Tickets, TlsFileError};

use crate::handshake::{Admission, Failure, Identity, Judging, Purpose};
use crate::options::TlsFiles;
use crate::shared::Shared;

/// What a stranger may send at once, in bytes.
const STRANGER_FRAME_LIMIT: usize = 4 * 1024;

/// What a verdict may have, in bytes.
const VERDICT_LIMIT: usize = 4 * 1024 * 1024;

/// Distinguishes links from whatever else has certificates of the same authority.
const PROTOCOL: &[u8] = b"heraldmq-link";

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection, encrypted or not.
pub(crate) type Stream = Box<dyn Duplex>;

/// The configurations of mutual TLS.
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
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
fn check_name(certificate: &CertificateDer<'_>, host: &str) -> io::Result<()> {
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

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Io(io::Error),
    TimedOut,
    /// Too many connections have not shown who they are, and this was the oldest.
    Displaced,
    Failure(Failure),
}

impl ConnectError {
    /// What does not vary with each attempt.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Io(_) => "io",
            Self::TimedOut => "timedOut",
            Self::Displaced => "displaced",
            Self::Failure(Failure::Malformed) => "malformed",
            Self::Failure(Failure::We(refusal) | Failure::They { refusal, .. }) => refusal.name(),
        }
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Failure> for ConnectError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::TimedOut => f.write_str("it does not answer in time"),
            Self::Displaced => f.write_str(
                "too many connections have not shown who they are, and it was the oldest of them",
            ),
            Self::Failure(failure) => failure.fmt(f),
        }
    }
}

/// A connection that this node has dialled.
pub(crate) struct Dialled {
    pub(crate) stream: Stream,
    pub(crate) peer: Identity,
    pub(crate) admission: Option<Admission>,
    /// The version of the protocol that was agreed on.
    pub(crate) version: u16,
}

/// A connection of another node; the verdict is still to be sent.
pub(crate) struct Accepted {
    pub(crate) stream: Stream,
    pub(crate) judging: Judging,
}

/// Dials all addresses of `host:port` until one answers.
pub(crate) async fn dial_endpoint(
    shared: &Shared,
    endpoint: &str,
    purpose: Purpose,
    expected: Option<u64>,
) -> Result<Dialled, ConnectError> {
    let mut error = ConnectError::Io(io::Error::other("the name has no address"));
    for address in tokio::net::lookup_host(endpoint).await? {
        match dial(shared, address, host_of(endpoint), purpose, expected).await {
            Ok(dialled) => return Ok(dialled),
            Err(failure) => error = failure,
        }
    }
    Err(error)
}

/// The part of an endpoint before the port, without the brackets of IPv6.
pub(crate) fn host_of(endpoint: &str) -> &str {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// `host`: whom the certificate must name.
pub(crate) async fn dial(
    shared: &Shared,
    address: SocketAddr,
    host: &str,
    purpose: Purpose,
    expected: Option<u64>,
) -> Result<Dialled, ConnectError> {
    let dialling = async {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let stream = encrypt(shared, tcp, host).await?;
        greet(shared, stream, purpose, expected).await
    };
    timeout(shared.options.timings.handshake, dialling)
        .await
        .unwrap_or(Err(ConnectError::TimedOut))
}

async fn encrypt(shared: &Shared, tcp: TcpStream, host: &str) -> io::Result<Stream> {
    let Some(tls) = &shared.tls else {
        return Ok(Box::new(tcp));
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(tls.client.clone());
    Ok(Box::new(connector.connect(name, tcp).await?))
}

async fn greet(
    shared: &Shared,
    mut stream: Stream,
    purpose: Purpose,
    expected: Option<u64>,
) -> Result<Dialled, ConnectError> {
    let party = shared.party();
    let (dialling, hello) = party.dial(purpose, expected, rand::random());
    write(&mut stream, &hello).await?;
    let (proving, proof) = dialling.prove(&read(&mut stream, STRANGER_FRAME_LIMIT).await?)?;
    let version = proving.version;
    write(&mut stream, &proof).await?;
    let (peer, admission) = proving.conclude(&read(&mut stream, VERDICT_LIMIT).await?)?;
    Ok(Dialled {
        stream,
        peer,
        admission,
        version,
    })
}

/// Takes a connection as far as knowing who it is.
pub(crate) async fn accept(shared: &Shared, tcp: TcpStream) -> Result<Accepted, ConnectError> {
    let accepting = async {
        tcp.set_nodelay(true)?;
        let (stream, certificate) = decrypt(shared, tcp).await?;
        let accepted = receive(shared, stream).await?;
        if let Some(certificate) = certificate {
            check_name(&certificate, host_of(&accepted.judging.peer.place.address))?;
        }
        Ok(accepted)
    };
    timeout(shared.options.timings.handshake, accepting)
        .await
        .unwrap_or(Err(ConnectError::TimedOut))
}

async fn decrypt(
    shared: &Shared,
    tcp: TcpStream,
) -> io::Result<(Stream, Option<CertificateDer<'static>>)> {
    let Some(tls) = &shared.tls else {
        return Ok((Box::new(tcp), None));
    };
    let stream = TlsAcceptor::from(tls.server.clone()).accept(tcp).await?;
    let (_, session) = stream.get_ref();
    let shown = session.peer_certificates().and_then(<[_]>::first);
    let certificate = shown.ok_or_else(|| io::Error::other("it has shown no certificate"))?;
    let certificate = certificate.clone().into_owned();
    Ok((Box::new(stream), Some(certificate)))
}

async fn receive(shared: &Shared, mut stream: Stream) -> Result<Accepted, ConnectError> {
    let hello = read(&mut stream, STRANGER_FRAME_LIMIT).await?;
    let party = shared.party();
    let (challenging, challenge) = match party.answer(&hello, shared.is_ready(), rand::random()) {
        Ok(step) => step,
        Err(refused) => return refuse(stream, refused).await,
    };
    write(&mut stream, &challenge).await?;
    match challenging.check(&read(&mut stream, STRANGER_FRAME_LIMIT).await?) {
        Ok(judging) => Ok(Accepted { stream, judging }),
        Err(refused) => refuse(stream, refused).await,
    }
}

async fn refuse<T>(
    mut stream: Stream,
    (failure, answer): (Failure, Vec<u8>),
) -> Result<T, ConnectError> {
    if !answer.is_empty() {
        write(&mut stream, &answer).await?;
        stream.shutdown().await?;
    }
    Err(failure.into())
}

/// Writes a frame of the handshake.
pub(crate) async fn write(stream: &mut Stream, frame: &[u8]) -> io::Result<()> {
    let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes(), frame].concat())
        .await?;
    stream.flush().await
}

/// Reads a frame of the handshake, and not a byte more.
async fn read(stream: &mut Stream, limit: usize) -> Result<Vec<u8>, ConnectError> {
    let length = stream.read_u32().await? as usize;
    if length > limit {
        return Err(Failure::Malformed.into());
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_the_host_without_its_port() {
        for (endpoint, host) in [
            ("a.b:1", "a.b"),
            ("[::1]:8899", "::1"),
            ("10.0.0.1:1", "10.0.0.1"),
        ] {
            assert_eq!(host_of(endpoint), host);
        }
    }
}
