//! Sockets that connections come in by.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use net_api::{Kind, PeerAddress};
use parking_lot::RwLock;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use transport::{Identity, ServerOptions};

/// Connections that the kernel completes before they are accepted. `net.core.somaxconn` caps it.
const BACKLOG: i32 = 4096;

/// After this long without a byte the kernel probes whether the peer still exists: the only way to
/// notice the loss of a client that asked for no keep alive.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(300);

/// What the connections of a listener have in common.
#[derive(Debug)]
pub struct Profile {
    /// The service's own number for the listener, or for connections of this kind without one.
    pub number: u16,
    /// What it is counted as.
    pub kind: Kind,
    /// What the user name of a client certificate is made of.
    pub identity: Box<str>,
    options: RwLock<ServerOptions>,
}

impl Profile {
    /// A listener whose connections begin with the layers of these options.
    #[must_use]
    pub fn new(number: u16, kind: Kind, identity: &str, options: ServerOptions) -> Arc<Self> {
        Arc::new(Self {
            number,
            kind,
            identity: identity.into(),
            options: RwLock::new(options),
        })
    }

    /// Other options, for connections accepted from now on.
    pub fn replace(&self, options: ServerOptions) {
        *self.options.write() = options;
    }

    /// The user name that a client certificate (DER) stands for.
    pub(crate) fn name_in(&self, certificate: &[u8]) -> Option<Box<str>> {
        Identity::from_certificate(certificate, &self.identity).map(Into::into)
    }

    pub(crate) fn options(&self) -> ServerOptions {
        self.options.read().clone()
    }
}

/// A bound, listening socket.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: Socket,
    pub(crate) profile: Arc<Profile>,
    address: Option<SocketAddr>,
}

impl Listener {
    /// Where it listens, with the port that the system chose if 0 was asked for. `None`: a Unix socket.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn listen(socket: Socket, profile: Arc<Profile>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.listen(BACKLOG)?;
        let address = socket.local_addr()?.as_socket();
        Ok(Self {
            socket,
            profile,
            address,
        })
    }

    pub(crate) fn accept(&self) -> io::Result<(Socket, PeerAddress)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer): (OwnedFd, _) = acceptfrom_with(&self.socket, flags)?;
        let ip = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        Ok((socket.into(), ip.map_or(PeerAddress::Unix, PeerAddress::Ip)))
    }
}

/// Binds and listens on a host (address or name) and port. `::` takes IPv4 as well, and falls back to
/// `0.0.0.0` where the machine has no IPv6.
///
/// # Errors
/// Those of resolving, binding and listening; a port in use is [`io::ErrorKind::AddrInUse`].
pub fn bind(host: &str, port: u16, profile: Arc<Profile>) -> io::Result<Listener> {
    Listener::listen(bind_host(host, port)?, profile)
}

/// Binds and listens on a Unix socket with these permissions. A socket that nobody listens on is
/// replaced.
///
/// # Errors
/// Those of binding and listening; a path where somebody listens, or where there is no socket but
/// something else, is [`io::ErrorKind::AddrInUse`].
pub fn bind_unix(path: &Path, mode: u32, profile: Arc<Profile>) -> io::Result<Listener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(path)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path, &address)? => {
            std::fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        result => result?,
    }
    // Nobody can connect before it listens: there is no moment with wider permissions.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Listener::listen(socket, profile)
}

/// Whether a path is a socket that nobody listens on.
fn is_stale(path: &Path, address: &SockAddr) -> io::Result<bool> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let refused = Socket::new(Domain::UNIX, Type::STREAM, None)?.connect(address);
    Ok(refused.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

fn bind_host(host: &str, port: u16) -> io::Result<Socket> {
    if host == "::" {
        let any = SocketAddr::from(([0u16; 8], port));
        return match bind_address(any) {
            Err(error) if matches!(error.raw_os_error(), Some(AFNOSUPPORT | ADDRNOTAVAIL)) => {
                bind_address(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
            }
            result => result,
        };
    }
    let address = (host, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))?;
    bind_address(address)
}

const AFNOSUPPORT: i32 = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
const ADDRNOTAVAIL: i32 = rustix::io::Errno::ADDRNOTAVAIL.raw_os_error();

fn bind_address(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // A restart must not wait for the last run's connections to leave TIME_WAIT. (No SO_REUSEPORT:
    // with it a second broker would take half of the clients instead of an error.)
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit these two, which saves two calls for each connection.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_IDLE))?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn profile(kind: Kind) -> Arc<Profile> {
        Profile::new(0, kind, "", ServerOptions::default())
    }

    #[test]
    fn a_port_in_use_is_an_error() {
        let first = bind("127.0.0.1", 0, profile(Kind::Tcp)).unwrap();
        let port = first.address().unwrap().port();
        let second = bind("127.0.0.1", port, profile(Kind::Tcp));
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn all_addresses_means_ipv4_as_well() {
        let listener = bind("::", 0, profile(Kind::Tcp)).unwrap();
        let port = listener.address().unwrap().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn a_unix_socket_that_nobody_listens_on_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mqtt.sock");
        drop(UnixListener::bind(&path).unwrap());
        let _listener = bind_unix(&path, 0o600, profile(Kind::Unix)).unwrap();
        UnixStream::connect(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_path_that_somebody_uses_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mqtt.sock");
        let file = folder.path().join("file");
        let _listening = UnixListener::bind(&path).unwrap();
        std::fs::write(&file, "kept").unwrap();
        for taken in [&path, &file] {
            let result = bind_unix(taken, 0o600, profile(Kind::Unix));
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        UnixStream::connect(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }
}
