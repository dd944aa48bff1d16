//! The header of an HTTP request by which a proxy says whom it connects for.
//!
//! Sources: RFC 7239 (`Forwarded`); `X-Forwarded-For` and `X-Real-IP` as proxies have them.
//!
//! Each proxy adds whom it was called by behind what was there already, and a client can send anything. So the list
//! is read from its end: as long as an entry is a trusted proxy, the one before it counts; the first that is none is the
//! client. What stands before that is the client's word, and is not looked at.
//!
//! Deliberately absent: whether the peer of the connection is trusted; who has the socket asks
//! [`Forwarded::trusts`].

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use httparse::Header;

/// Whom a header is believed, and which.
#[derive(Clone)]
pub struct Forwarded {
    /// The header.
    pub header: ForwardedHeader,
    /// Whether an address is that of a trusted proxy.
    pub trusted: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

/// A header with addresses of clients. The others are not looked at: a proxy that sets one of them passes on the others
/// as clients send them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForwardedHeader {
    /// A list of addresses.
    XForwardedFor,
    /// One address.
    XRealIp,
    /// A list of elements with a parameter `for` each.
    Forwarded,
}

impl fmt::Debug for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Forwarded({:?})", self.header)
    }
}

impl Forwarded {
    /// Whether an address is that of a trusted proxy.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        (self.trusted)(address.to_canonical())
    }

    /// The client that the headers of a request name. `None`: they name nobody, or what follows the client's word
    /// is no address.
    pub(crate) fn client(&self, headers: &[Header<'_>]) -> Option<IpAddr> {
        let name = match self.header {
            ForwardedHeader::XForwardedFor => "X-Forwarded-For",
            ForwardedHeader::XRealIp => "X-Real-IP",
            ForwardedHeader::Forwarded => "Forwarded",
        };
        let mut client = None;
        let named = |header: &&Header<'_>| header.name.eq_ignore_ascii_case(name);
        for header in headers.iter().filter(named).rev() {
            let value = std::str::from_utf8(header.value).ok()?;
            for entry in self.entries(value)?.into_iter().rev() {
                let address = self.address(entry)?;
                client = Some(address);
                if !self.trusts(address) {
                    return client;
                }
            }
        }
        client
    }

    /// The entries of a header. `None`: where they begin cannot be told. A proxy adds its own behind a client's word in
    /// one line, and only `Forwarded` knows quotes: were one left open by the client, the proxy's entry would be part
    /// of the client's.
    fn entries<'a>(&self, value: &'a str) -> Option<Vec<&'a str>> {
        match self.header {
            ForwardedHeader::XForwardedFor | ForwardedHeader::XRealIp => {
                Some(value.split(',').collect())
            }
            ForwardedHeader::Forwarded => {
                let is_closed = value.matches('"').count().is_multiple_of(2);
                is_closed.then(|| split(value, ','))
            }
        }
    }

    fn address(&self, entry: &str) -> Option<IpAddr> {
        if self.header != ForwardedHeader::Forwarded {
            return node(entry.trim());
        }
        let value = split(entry, ';').into_iter().find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("for").then_some(value)
        });
        let value = value?.trim();
        let quoted = value.strip_prefix('"').map(|rest| rest.strip_suffix('"'));
        node(quoted.unwrap_or(Some(value))?)
    }
}

/// The parts of a list, without those in quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut is_quoted = false;
    let parts = text.split(|c: char| {
        is_quoted ^= c == '"';
        c == separator && !is_quoted
    });
    parts.collect()
}

/// An address with or without a port; one of IPv6 in brackets or without.
fn node(text: &str) -> Option<IpAddr> {
    let bracketed = || {
        let text = text.strip_prefix('[')?.strip_suffix(']')?;
        text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
    };
    let address = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|of| of.ip());
    let address = address.or_else(with_port).or_else(bracketed)?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client_of(header: ForwardedHeader, lines: &[(&str, &str)]) -> Option<IpAddr> {
        let headers: Vec<Header<'_>> = lines
            .iter()
            .map(|(name, value)| Header {
                name,
                value: value.as_bytes(),
            })
            .collect();
        let forwarded = Forwarded {
            header,
            trusted: Arc::new(|address| address.to_string().starts_with("10.")),
        };
        forwarded.client(&headers)
    }

    fn check(header: ForwardedHeader, lines: &[(&str, &str)], expected: &str) {
        let expected = (expected != "-").then(|| expected.parse().expect("an address"));
        assert_eq!(client_of(header, lines), expected, "{lines:?}");
    }

    #[test]
    fn the_last_address_that_is_no_trusted_proxy_is_the_client() {
        let name = "X-Forwarded-For";
        for (value, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1, 10.0.0.1,10.0.0.2", "192.0.2.1"),
            ("203.0.113.9, 192.0.2.1, 10.0.0.1", "192.0.2.1"),
            ("nonsense, 192.0.2.1", "192.0.2.1"),
            ("192.0.2.1, nonsense, 10.0.0.1", "-"),
            ("10.0.0.3, 10.0.0.1", "10.0.0.3"),
            ("192.0.2.1:5000", "192.0.2.1"),
            ("[2001:db8::1]:5000", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("", "-"),
            ("192.0.2.1,", "-"),
            ("unknown", "-"),
        ] {
            check(ForwardedHeader::XForwardedFor, &[(name, value)], expected);
        }
        let lines = [
            (name, "203.0.113.9, 192.0.2.1"),
            ("x-forwarded-for", "10.0.0.1"),
        ];
        check(ForwardedHeader::XForwardedFor, &lines, "192.0.2.1");
        check(ForwardedHeader::XForwardedFor, &[], "-");
        check(
            ForwardedHeader::XForwardedFor,
            &[("X-Real-IP", "192.0.2.1")],
            "-",
        );
        check(
            ForwardedHeader::XRealIp,
            &[("X-Real-IP", "192.0.2.1")],
            "192.0.2.1",
        );
    }

    #[test]
    fn elements_of_rfc_7239_name_the_client() {
        for (value, expected) in [
            ("for=192.0.2.1", "192.0.2.1"),
            ("proto=http;For=192.0.2.1;by=10.0.0.9", "192.0.2.1"),
            ("for=\"192.0.2.1:4711\", for=10.0.0.1", "192.0.2.1"),
            ("for=\"[2001:db8::17]:4711\"", "2001:db8::17"),
            ("by=\"a,b;for=203.0.113.9\";for=192.0.2.1", "192.0.2.1"),
            ("for=203.0.113.9, for=192.0.2.1, for=10.0.0.1", "192.0.2.1"),
            ("for=unknown", "-"),
            ("for=_hidden, for=10.0.0.1", "-"),
            ("for=\"192.0.2.1", "-"),
            ("for=203.0.113.9;x=\", for=192.0.2.1", "-"),
            ("x=\", for=\"[2001:db8::17]\"", "-"),
            ("proto=https", "-"),
        ] {
            check(
                ForwardedHeader::Forwarded,
                &[("Forwarded", value)],
                expected,
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_a_client_sends_before_its_proxy_changes_nothing(word in "[ -~]{0,40}") {
            for (header, name, added) in [
                (ForwardedHeader::XForwardedFor, "X-Forwarded-For", "192.0.2.1"),
                (ForwardedHeader::Forwarded, "Forwarded", "for=192.0.2.1"),
            ] {
                let proxy = Some([192, 0, 2, 1].into());
                let lines = [(name, word.as_str()), (name, added)];
                prop_assert_eq!(client_of(header, &lines), proxy);
                // In one line, as most proxies add to it. Nobody else is named, whatever is left open.
                let joined = format!("{word}, {added}");
                let named = client_of(header, &[(name, &joined)]);
                let may_be_nobody = header == ForwardedHeader::Forwarded && word.contains('"');
                prop_assert!(named == proxy || (may_be_nobody && named.is_none()), "{joined}");
            }
        }
    }
}
