//! Origins of web pages, as browsers name them (RFC 6454 §6.2).

use std::fmt;

use crate::address::Host;
use crate::listed::Item;

/// `scheme://host` or `scheme://host:port`, in lower case and without the port that the scheme implies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin(String);

impl WebOrigin {
    /// `None` unless `text` is an origin. `null`, by which pages hide theirs, is none.
    pub fn new(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        let (scheme, authority) = lower.split_once("://")?;
        let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
        let behind_address = authority.rfind(']').map_or(0, |end| end + 1);
        let (host, port) = match authority.get(behind_address..)?.rfind(':') {
            Some(colon) => {
                let (host, port) = authority.split_at(behind_address + colon);
                let digits = port.get(1..)?;
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                (
                    host,
                    Some(digits.parse::<u16>().ok().filter(|_| is_number)?),
                )
            }
            None => (authority, None),
        };
        // An IPv6 address stands in brackets here.
        let is_host = Host::new(host).is_some() && host.contains(':') == host.starts_with('[');
        let implied = match scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        (is_scheme && is_host).then(|| match port.filter(|_| port != implied) {
            Some(port) => Self(format!("{scheme}://{host}:{port}")),
            None => Self(format!("{scheme}://{host}")),
        })
    }

    /// The normal form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Item for WebOrigin {
    const EXPECTED: &str =
        "scheme://host or scheme://host:port, or several separated by commas or as a list";

    fn parse(text: &str) -> Option<Self> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_form() {
        for (text, form) in [
            ("https://Example.COM", "https://example.com"),
            ("HTTPS://example.com:443", "https://example.com"),
            ("http://example.com:80", "http://example.com"),
            ("http://example.com:443", "http://example.com:443"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]"),
            ("app://host", "app://host"),
        ] {
            let origin = WebOrigin::new(text).expect(text);
            assert_eq!(origin.as_str(), form);
            assert_eq!(WebOrigin::new(form), Some(origin));
        }
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in [
            "",
            "null",
            "*",
            "example.com",
            "https://",
            "https://example.com/",
            "https://example.com/path",
            "https://user@example.com",
            "https://example.com:",
            "https://example.com:+1",
            "https://example.com:65536",
            "https://::1",
            "://host",
            "1http://host",
        ] {
            assert_eq!(WebOrigin::new(text), None, "{text}");
        }
    }
}
