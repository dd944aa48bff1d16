//! Bytes that a network namespace received and sent, from /proc/pid/net/dev.

/// Since the interfaces were made. All interfaces are added up: a packet that passes a bridge or a tunnel
/// counts on each interface that it passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetworkBytes {
    /// By all interfaces but loopback, with Ethernet's header.
    pub received: u64,
    /// Likewise.
    pub sent: u64,
    /// Over loopback, where whatever is sent is received.
    pub loopback: u64,
}

impl NetworkBytes {
    /// `None` if it does not look as in proc(5).
    pub(crate) fn parse(dev: &str) -> Option<Self> {
        let mut bytes = Self::default();
        for line in dev.lines().skip(2) {
            let (name, counts) = line.split_once(':')?;
            let mut counts = counts.split_whitespace();
            let received: u64 = counts.next()?.parse().ok()?;
            // Eight columns of what is received come first.
            let sent: u64 = counts.nth(7)?.parse().ok()?;
            if name.trim() == "lo" {
                bytes.loopback = sent;
            } else {
                bytes.received = bytes.received.saturating_add(received);
                bytes.sent = bytes.sent.saturating_add(sent);
            }
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Inter-|   Receive       |  Transmit\n face |bytes packets |bytes packets\n";

    #[test]
    fn interfaces_are_added_up_and_loopback_is_apart() {
        let dev = format!(
            "{HEAD}    lo:    3193 29 0 0 0 0 0 0     3194 29 0 0 0 0 0 0\n  \
             eth0:500 1 0 0 0 0 0 0 70 1 0 0 0 0 0 0\n  \
             eth1: 25 1 0 0 0 0 0 0  7 1 0 0 0 0 0 0\n"
        );
        let expected = NetworkBytes {
            received: 525,
            sent: 77,
            loopback: 3194,
        };
        assert_eq!(NetworkBytes::parse(&dev), Some(expected));
    }

    #[test]
    fn a_namespace_without_interfaces_has_sent_nothing() {
        assert_eq!(NetworkBytes::parse(HEAD), Some(NetworkBytes::default()));
    }

    #[test]
    fn garbage_is_refused() {
        for line in ["eth0", "eth0: 5", "eth0: x 1 0 0 0 0 0 0 7"] {
            assert_eq!(
                NetworkBytes::parse(&format!("{HEAD}{line}\n")),
                None,
                "{line}"
            );
        }
    }
}
