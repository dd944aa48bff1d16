//! Whether somebody listens, before thousands of clients ask.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use loadtest::Listener;

use super::target::host;
use crate::failure::Failure;

/// Of each HOST:PORT, the first address that accepts a TCP connection; each may take `timeout`.
pub(super) fn listeners(targets: &[String], timeout: Duration) -> Result<Vec<Listener>, Failure> {
    let listener = |target: &String| {
        let reached = reach(target, timeout);
        let address = reached.map_err(|error| Failure::Runtime(format!("{target}: {error}")))?;
        Ok(Listener {
            host: host(target).to_owned(),
            address,
        })
    };
    targets.iter().map(listener).collect()
}

fn reach(target: &str, timeout: Duration) -> io::Result<SocketAddr> {
    let mut failure = io::Error::other("has no address");
    for address in target.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(_) => return Ok(address),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_that_nobody_listens_on_is_named() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = socket.local_addr().unwrap().to_string();
        let timeout = Duration::from_secs(5);
        let found = listeners(std::slice::from_ref(&target), timeout).unwrap();
        assert_eq!(found[0].host, "127.0.0.1");
        assert_eq!(found[0].address.to_string(), target);
        drop(socket);
        match listeners(std::slice::from_ref(&target), timeout) {
            Err(Failure::Runtime(message)) => assert!(message.starts_with(&target), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}
