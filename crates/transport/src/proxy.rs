//! The PROXY protocol's header, by which a load balancer says whom it connects for.
//!
//! Source: "The PROXY protocol, versions 1 & 2", HAProxy Technologies.
//!
//! Invariants: a header is taken whole or not at all; no more than [`V2_LIMIT`] bytes and one read are kept
//! while it is incomplete, and bytes that cannot become a header are refused at once.
//!
//! Deliberately absent: the meaning of TLVs, and who may send a header (`net` knows the trusted peers).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{ProxyVersions, TransportError};

const V1_START: &[u8] = b"PROXY ";
/// The longest header of version 1, its CRLF included.
const V1_LIMIT: usize = 107;

const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = 16;
/// The longest pair of addresses: two paths of Unix sockets.
const V2_ADDRESSES: usize = 216;
const V2_TLVS: usize = 4096;
const V2_LIMIT: usize = V2_FIXED + V2_ADDRESSES + V2_TLVS;

/// A header under way.
#[derive(Debug)]
pub(crate) struct ProxyHeader {
    versions: ProxyVersions,
    received: Vec<u8>,
}

/// What follows from a complete header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proxied {
    /// Whom the proxy connects for; `None` if it speaks for itself or does not know.
    pub(crate) source: Option<SocketAddr>,
    /// What came behind the header.
    pub(crate) rest: Vec<u8>,
}

impl ProxyHeader {
    pub(crate) fn new(versions: ProxyVersions) -> Self {
        Self {
            versions,
            received: Vec::new(),
        }
    }

    /// `None`: more bytes are needed.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<Option<Proxied>, TransportError> {
        self.received.extend_from_slice(bytes);
        let Some((length, source)) = self.parse().map_err(TransportError::Proxy)? else {
            return Ok(None);
        };
        let rest = self.received.split_off(length);
        Ok(Some(Proxied { source, rest }))
    }

    fn parse(&self) -> Result<Option<(usize, Option<SocketAddr>)>, &'static str> {
        let bytes = &self.received;
        if agree(bytes, V1_START) {
            if !self.versions.v1 {
                return Err("version 1 is not taken");
            }
            parse_v1(bytes)
        } else if agree(bytes, V2_SIGNATURE) {
            if !self.versions.v2 {
                return Err("version 2 is not taken");
            }
            parse_v2(bytes)
        } else {
            Err("no header")
        }
    }
}

/// Whether one begins with the other.
fn agree(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(a, b)| a == b)
}

fn parse_v1(bytes: &[u8]) -> Result<Option<(usize, Option<SocketAddr>)>, &'static str> {
    let window = bytes.get(..V1_LIMIT).unwrap_or(bytes);
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < V1_LIMIT {
            Ok(None)
        } else {
            Err("version 1: no end of line")
        };
    };
    let (line, _) = window.split_at(end);
    let line = std::str::from_utf8(line).map_err(|_| "version 1: not text")?;
    Ok(Some((end + 2, parse_v1_line(line)?)))
}

fn parse_v1_line(line: &str) -> Result<Option<SocketAddr>, &'static str> {
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(None);
    }
    let (Some(source), Some(destination), Some(source_port), Some(destination_port), None) = (
        words.next(),
        words.next(),
        words.next(),
        words.next(),
        words.next(),
    ) else {
        return Err("version 1: not six words");
    };
    let address: fn(&str) -> Option<IpAddr> = match family {
        Some("TCP4") => |text| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        Some("TCP6") => |text| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => return Err("version 1: unknown family"),
    };
    address(destination)
        .and(port(destination_port))
        .ok_or("version 1: malformed destination")?;
    let source = address(source).zip(port(source_port));
    let (address, port) = source.ok_or("version 1: malformed source")?;
    Ok(Some(SocketAddr::new(address, port)))
}

/// Digits without sign or leading zeros.
fn port(text: &str) -> Option<u16> {
    let canonical = text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
    text.parse().ok().filter(|_| canonical)
}

fn parse_v2(bytes: &[u8]) -> Result<Option<(usize, Option<SocketAddr>)>, &'static str> {
    let Some((fixed, body)) = bytes.split_at_checked(V2_FIXED) else {
        return Ok(None);
    };
    let &[.., version_and_command, family, high, low] = fixed else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if V2_FIXED + length > V2_LIMIT {
        return Err("version 2: too long");
    }
    let Some(body) = body.get(..length) else {
        return Ok(None);
    };
    let source = match version_and_command {
        // LOCAL: the proxy checks whether the broker lives.
        0x20 => None,
        0x21 => parse_v2_source(family, body)?,
        _ => return Err("version 2: unknown version or command"),
    };
    Ok(Some((V2_FIXED + length, source)))
}

fn parse_v2_source(family: u8, body: &[u8]) -> Result<Option<SocketAddr>, &'static str> {
    const SHORT: &str = "version 2: addresses are cut off";
    match family {
        0x00 => Ok(None),
        0x11 => {
            let &[a, b, c, d, _, _, _, _, high, low, _, _] = body.first_chunk().ok_or(SHORT)?;
            let port = u16::from_be_bytes([high, low]);
            Ok(Some((Ipv4Addr::new(a, b, c, d), port).into()))
        }
        0x21 => {
            let addresses: &[u8; 36] = body.first_chunk().ok_or(SHORT)?;
            let source: [u8; 16] = *addresses.first_chunk().ok_or(SHORT)?;
            let &[high, low, _, _] = addresses.last_chunk().ok_or(SHORT)?;
            let port = u16::from_be_bytes([high, low]);
            Ok(Some((Ipv6Addr::from(source), port).into()))
        }
        0x31 if body.len() >= V2_ADDRESSES => Ok(None),
        0x31 => Err(SHORT),
        _ => Err("version 2: not a stream of a known family"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: ProxyVersions = ProxyVersions { v1: true, v2: true };

    fn take(bytes: &[u8]) -> Result<Option<Proxied>, TransportError> {
        ProxyHeader::new(BOTH).receive(bytes)
    }

    fn source(bytes: &[u8]) -> Option<SocketAddr> {
        let proxied = take(bytes)
            .expect("a valid header")
            .expect("a whole header");
        assert!(proxied.rest.is_empty());
        proxied.source
    }

    fn refusal(bytes: &[u8]) -> String {
        take(bytes).expect_err("is refused").to_string()
    }

    fn v2(version_and_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).expect("short");
        let mut header = V2_SIGNATURE.to_vec();
        header.extend([version_and_command, family]);
        header.extend(length.to_be_bytes());
        header.extend(body);
        header
    }

    const INET: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0xC3, 0x50, 0x07, 0x5B];

    #[test]
    fn addresses_of_both_versions_are_read() {
        let address = |text: &str| Some(text.parse().expect("an address"));
        assert_eq!(
            source(b"PROXY TCP4 192.0.2.7 10.0.0.1 50000 1883\r\n"),
            address("192.0.2.7:50000")
        );
        assert_eq!(
            source(b"PROXY TCP6 2001:db8::7 ::1 1 65535\r\n"),
            address("[2001:db8::7]:1")
        );
        assert_eq!(source(&v2(0x21, 0x11, &INET)), address("192.0.2.7:50000"));
        let mut inet6 = [0; 36];
        inet6[..4].copy_from_slice(&[0x20, 0x01, 0x0D, 0xB8]);
        inet6[32..].copy_from_slice(&[0, 9, 0, 10]);
        assert_eq!(source(&v2(0x21, 0x21, &inet6)), address("[2001:db8::]:9"));
    }

    #[test]
    fn a_proxy_that_names_nobody_leaves_the_peer_as_it_is() {
        for header in [
            b"PROXY UNKNOWN\r\n".to_vec(),
            b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n".to_vec(),
            v2(0x20, 0x00, &[]),
            v2(0x20, 0x11, &INET),
            v2(0x21, 0x00, &[1, 2, 3]),
            v2(0x21, 0x31, &[b'x'; V2_ADDRESSES]),
        ] {
            assert_eq!(source(&header), None);
        }
    }

    #[test]
    fn what_follows_the_header_is_kept_and_tlvs_are_skipped() {
        let mut body = INET.to_vec();
        body.extend([0x04, 0, 3, 1, 2, 3]);
        let mut bytes = v2(0x21, 0x11, &body);
        bytes.extend(b"\x10\x0c");
        let proxied = take(&bytes).expect("valid").expect("whole");
        assert_eq!(proxied.rest, b"\x10\x0c");
        assert!(proxied.source.is_some());
    }

    #[test]
    fn malformed_headers_are_refused() {
        for header in [
            &b"\x10\x0c\x00\x04MQTT"[..],
            b"PROXy",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 50000\r\n",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 50000 1883 \r\n",
            b"PROXY  TCP4 192.0.2.7 10.0.0.1 50000 1883\r\n",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 050 1883\r\n",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 +50 1883\r\n",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 50000 65536\r\n",
            b"PROXY TCP4 ::1 ::1 50000 1883\r\n",
            b"PROXY TCP6 192.0.2.7 10.0.0.1 50000 1883\r\n",
            b"PROXY UDP4 192.0.2.7 10.0.0.1 50000 1883\r\n",
            b"PROXY TCP4 192.0.2.7 x 50000 1883\r\n",
            b"PROXY UNKNOWN\xff\r\n",
            b"PROXY \r\n",
        ] {
            let _ = refusal(header);
        }
        for header in [
            v2(0x11, 0x11, &INET),
            v2(0x22, 0x11, &INET),
            v2(0x21, 0x12, &INET),
            v2(0x21, 0x41, &INET),
            v2(0x21, 0x11, &INET[..11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x31, &[0; 215]),
        ] {
            let _ = refusal(&header);
        }
    }

    #[test]
    fn a_version_that_is_not_taken_is_refused_at_its_first_byte() {
        let only = |v1| ProxyVersions { v1, v2: !v1 };
        assert!(ProxyHeader::new(only(false)).receive(b"P").is_err());
        assert!(ProxyHeader::new(only(true)).receive(b"\r").is_err());
        assert!(ProxyHeader::new(only(true)).receive(b"P").is_ok());
        assert!(ProxyHeader::new(only(false)).receive(b"\r").is_ok());
    }

    #[test]
    fn limits() {
        let mut longest = b"PROXY UNKNOWN ".to_vec();
        longest.resize(V1_LIMIT - 2, b'x');
        longest.extend(b"\r\n");
        assert_eq!(source(&longest), None);
        longest.insert(20, b'x');
        assert!(refusal(&longest).contains("end of line"));

        let mut body = vec![0; V2_ADDRESSES + V2_TLVS];
        assert_eq!(source(&v2(0x20, 0, &body)), None);
        body.push(0);
        assert!(refusal(&v2(0x20, 0, &body)[..V2_FIXED]).contains("too long"));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(cut in 0_usize..60, v1 in any::<bool>()) {
            let mut bytes = if v1 {
                b"PROXY TCP4 192.0.2.7 10.0.0.1 50000 1883\r\n".to_vec()
            } else {
                v2(0x21, 0x11, &INET)
            };
            bytes.extend([b'm'; 20]);
            let whole = take(&bytes).expect("valid").expect("whole");
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut header = ProxyHeader::new(BOTH);
            match header.receive(first).expect("valid") {
                Some(proxied) => prop_assert_eq!(proxied.source, whole.source),
                None => prop_assert_eq!(header.receive(second).expect("valid"), Some(whole)),
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_are_not_hoarded(
            start in 0_usize..3,
            bytes in proptest::collection::vec(any::<u8>(), 0..6000),
        ) {
            let mut input = [&b""[..], V1_START, V2_SIGNATURE][start].to_vec();
            input.extend(bytes);
            let mut header = ProxyHeader::new(BOTH);
            for piece in input.chunks(100) {
                match header.receive(piece) {
                    Ok(None) => prop_assert!(header.received.len() < V2_LIMIT),
                    Ok(Some(_)) | Err(_) => break,
                }
            }
        }
    }
}
