//! Sockets that connections come in by.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// Connections that the kernel completes before they are accepted. `net.core.somaxconn` caps it.
const BACKLOG: i32 = 4096;

/// After this long without a byte the kernel probes whether the peer still exists: the only way to
/// notice the loss of a client that asked for no keep alive.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(300);

/// A bound, listening socket.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: mio::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Where it listens, with the port that the system chose if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Binds and listens on a host (address or name) and port. `::` takes IPv4 as well, and falls back to
/// `0.0.0.0` where the machine has no IPv6.
///
/// # Errors
/// Those of resolving, binding and listening; a port in use is [`io::ErrorKind::AddrInUse`].
pub fn bind(host: &str, port: u16) -> io::Result<Listener> {
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

fn bind_address(address: SocketAddr) -> io::Result<Listener> {
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
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let socket = mio::net::TcpListener::from_std(socket.into());
    let address = socket.local_addr()?;
    Ok(Listener { socket, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_an_error() {
        let first = bind("127.0.0.1", 0).unwrap();
        let second = bind("127.0.0.1", first.address().port());
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn all_addresses_means_ipv4_as_well() {
        let listener = bind("::", 0).unwrap();
        let port = listener.address().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}
