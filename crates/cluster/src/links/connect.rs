//! Connections: TCP, perhaps TLS, and the handshake.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::links::stream::Stream;
use crate::protocol::handshake::{Admission, Identity, Judging, Purpose};
use crate::protocol::refusal::Failure;
use crate::state::connect_error::ConnectError;
use crate::state::shared::Shared;
use crate::state::tls::check_name;

/// What a stranger may send at once, in bytes.
const STRANGER_FRAME_LIMIT: usize = 4 * 1024;

/// What a verdict may have, in bytes.
const VERDICT_LIMIT: usize = 4 * 1024 * 1024;

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
    for address in shared.seeds.names.look_up(endpoint).await? {
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
    if !shared.options.security.admits(address.ip()) {
        return Err(ConnectError::PublicAddress);
    }
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
        return Ok(Stream::Tcp(tcp));
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(tls.client.clone());
    Ok(Stream::encrypted(connector.connect(name, tcp).await?))
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
pub(crate) async fn accept(
    shared: &Shared,
    tcp: TcpStream,
    from: IpAddr,
) -> Result<Accepted, ConnectError> {
    let accepting = async {
        tcp.set_nodelay(true)?;
        let (stream, certificate) = decrypt(shared, tcp).await?;
        let accepted = receive(shared, stream, from).await?;
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
        return Ok((Stream::Tcp(tcp), None));
    };
    let stream = TlsAcceptor::from(tls.server.clone()).accept(tcp).await?;
    let (_, session) = stream.get_ref();
    let shown = session.peer_certificates().and_then(<[_]>::first);
    let certificate = shown.ok_or_else(|| io::Error::other("it has shown no certificate"))?;
    let certificate = certificate.clone().into_owned();
    Ok((Stream::encrypted(stream), Some(certificate)))
}

async fn receive(
    shared: &Shared,
    mut stream: Stream,
    from: IpAddr,
) -> Result<Accepted, ConnectError> {
    let hello = read(&mut stream, STRANGER_FRAME_LIMIT).await?;
    let party = shared.party();
    if let Some(member) = party.heard_member(&hello) {
        shared.seeds.heard.note(from, &member);
    }
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
