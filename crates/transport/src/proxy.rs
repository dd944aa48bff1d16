//! The PROXY protocol's header, by which a load balancer says whom it connects for.
//!
//! Source: "The PROXY protocol, versions 1 & 2", HAProxy Technologies.
//!
//! Invariants: a header is taken whole or not at all; no more than [`V2_LIMIT`] bytes and one read are kept
//! while it is incomplete, and bytes that cannot become a header are refused at once.
//!
//! Of the TLVs of version 2 one counts: the client's certificate, if the proxy has verified it.
//!
//! Deliberately absent: the meaning of other TLVs, and who may send a header (`net` knows the trusted peers).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{ProxyOptions, TransportError};

const V1_START: &[u8] = b"PROXY ";
/// The longest header of version 1, its CRLF included.
///
/// Limit: a PROXY header | {:bytes} in version 1, {V2_LIMIT:bytes} in version 2 | the connection is closed
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
    options: ProxyOptions,
    received: Vec<u8>,
}

/// What follows from a complete header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proxied {
    /// Whom the proxy connects for; `None` if it speaks for itself or does not know.
    pub(crate) source: Option<SocketAddr>,
    /// The common name of the certificate that the client has shown to the proxy, which has verified it.
    pub(crate) name: Option<Box<str>>,
    /// What came behind the header.
    pub(crate) rest: Vec<u8>,
}

impl ProxyHeader {
    pub(crate) fn new(options: ProxyOptions) -> Self {
        Self {
            options,
            received: Vec::new(),
        }
    }

    /// `None`: more bytes are needed.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<Option<Proxied>, TransportError> {
        self.received.extend_from_slice(bytes);
        let Some((length, source, name)) = self.parse().map_err(TransportError::Proxy)? else {
            return Ok(None);
        };
        let name = name.filter(|_| self.options.names);
        let rest = self.received.split_off(length);
        Ok(Some(Proxied { source, name, rest }))
    }

    fn parse(&self) -> Result<Option<Parsed>, &'static str> {
        let bytes = &self.received;
        if agree(bytes, V1_START) {
            if !self.options.v1 {
                return Err("version 1 is not taken");
            }
            Ok(parse_v1(bytes)?.map(|(length, source)| (length, source, None)))
        } else if agree(bytes, V2_SIGNATURE) {
            if !self.options.v2 {
                return Err("version 2 is not taken");
            }
            parse_v2(bytes)
        } else {
            Err("no header")
        }
    }
}

/// The length of a header, whom it names, and the name in a verified certificate.
type Parsed = (usize, Option<SocketAddr>, Option<Box<str>>);

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

fn parse_v2(bytes: &[u8]) -> Result<Option<Parsed>, &'static str> {
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
    let (source, name) = match version_and_command {
        // LOCAL: the proxy checks whether the broker lives.
        0x20 => (None, None),
        0x21 => {
            let source = parse_v2_source(family, body)?;
            let addresses = match family {
                0x11 => 12,
                0x21 => 36,
                0x31 => V2_ADDRESSES,
                _ => 0,
            };
            let tlvs = body.get(addresses..).unwrap_or_default();
            (source, verified_name(tlvs))
        }
        _ => return Err("version 2: unknown version or command"),
    };
    Ok(Some((V2_FIXED + length, source, name)))
}

/// PP2_TYPE_SSL, and PP2_SUBTYPE_SSL_CN in it.
const SSL: u8 = 0x20;
const SSL_COMMON_NAME: u8 = 0x22;

/// PP2_CLIENT_CERT_CONN and PP2_CLIENT_CERT_SESS: the client has shown a certificate, on this connection or on an
/// earlier one of its TLS session.
const HAS_CERTIFICATE: u8 = 0x02 | 0x04;

/// The common name of a certificate that the proxy has verified. What is malformed names nobody.
fn verified_name(tlvs: &[u8]) -> Option<Box<str>> {
    let ssl = find(tlvs, SSL)?;
    let (&[client, verify @ ..], sub_tlvs) = ssl.split_first_chunk::<5>()?;
    // HAProxy sends the result of OpenSSL: 0 is X509_V_OK.
    let is_verified = client & HAS_CERTIFICATE != 0 && verify == [0; 4];
    let name = std::str::from_utf8(find(sub_tlvs, SSL_COMMON_NAME)?).ok()?;
    let is_plain = !name.is_empty() && !name.contains(char::is_control);
    (is_verified && is_plain).then(|| name.into())
}

/// The value of the first TLV of a type; `None`: there is none before the end or what is cut off.
fn find(mut tlvs: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        let (&[kind, high, low], rest) = tlvs.split_first_chunk::<3>()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, rest) = rest.split_at_checked(length)?;
        if kind == wanted {
            return Some(value);
        }
        tlvs = rest;
    }
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

    const BOTH: ProxyOptions = ProxyOptions {
        v1: true,
        v2: true,
        names: true,
    };

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

    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).expect("short");
        [&[kind], &length.to_be_bytes()[..], value].concat()
    }

    fn name_in(client: u8, verify: u32, inner: &[u8]) -> Option<Box<str>> {
        let ssl = [&[client], &verify.to_be_bytes()[..], inner].concat();
        let body = [&INET[..], &tlv(0x01, b"mqtt"), &tlv(0x20, &ssl)].concat();
        take(&v2(0x21, 0x11, &body)).expect("valid")?.name
    }

    #[test]
    fn a_certificate_that_the_proxy_has_verified_has_a_name() {
        let inner = [tlv(0x21, b"TLSv1.3"), tlv(0x22, b"device-7")].concat();
        assert_eq!(name_in(0x01 | 0x02, 0, &inner).as_deref(), Some("device-7"));
        assert_eq!(name_in(0x01 | 0x04, 0, &inner).as_deref(), Some("device-7"));
        // No certificate; one that was not verified; no name, an empty one, one that is cut off or no text.
        assert_eq!(name_in(0x01, 0, &inner), None);
        assert_eq!(name_in(0x03, 1, &inner), None);
        for inner in [
            &b""[..],
            &tlv(0x21, b"TLSv1.3"),
            &tlv(0x22, b""),
            &tlv(0x22, b"a\nb"),
            &tlv(0x22, b"\xff"),
            &tlv(0x22, b"device-7")[..6],
            &[0x22, 0],
        ] {
            assert_eq!(name_in(0x03, 0, inner), None, "{inner:?}");
        }
        // Where names are not taken.
        let body = [
            &INET[..],
            &tlv(0x20, &[&[3, 0, 0, 0, 0], &inner[..]].concat()),
        ]
        .concat();
        let options = ProxyOptions {
            names: false,
            ..BOTH
        };
        let taken = ProxyHeader::new(options).receive(&v2(0x21, 0x11, &body));
        assert_eq!(taken.expect("valid").expect("whole").name, None);
        // LOCAL names nobody.
        let local = take(&v2(0x20, 0x11, &body)).expect("valid").expect("whole");
        assert_eq!(local.name, None);
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
        let names = false;
        let only = |v1| ProxyOptions { v1, v2: !v1, names };
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
