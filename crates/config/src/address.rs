//! Hosts and endpoints as they are written in a configuration. Nothing is resolved here.

use std::{fmt, net::IpAddr};

use crate::{
    declare::Spec,
    listed::{Item, Listed},
    private::is_private,
    setting::{Setting, put},
};

/// An IP address, or a name to be resolved when it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

impl Host {
    /// `None` unless `text` is an IP address (an IPv6 address with or without brackets) or a name
    /// of letters, digits, `-`, `_` and `.` with at most 253 characters.
    pub fn new(text: &str) -> Option<Self> {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return (bare == text || address.is_ipv6()).then(|| Self(bare.to_owned()));
        }
        // Digits and dots alone are a mistyped address, never a name.
        let name = (1..=253).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && !text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        name.then(|| Self(text.to_owned()))
    }

    /// 127.0.0.1.
    pub fn loopback() -> Self {
        Self("127.0.0.1".to_owned())
    }

    /// As written, without brackets.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is an address that is not private. Names are not.
    pub(crate) fn is_public(&self) -> bool {
        self.0.parse().is_ok_and(|address| !is_private(address))
    }

    /// Whether it stands for all addresses, as 0.0.0.0 does.
    pub(crate) fn is_unspecified(&self) -> bool {
        self.0
            .parse()
            .is_ok_and(|address: IpAddr| address.is_unspecified())
    }

    /// Whether both name the same address or, letter case aside, the same name.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.0.parse::<IpAddr>(), other.0.parse::<IpAddr>()) {
            (Ok(one), Ok(two)) => one == two,
            _ => self.0.eq_ignore_ascii_case(&other.0),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Setting for Host {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        put(self, Self::new(text))
    }
    fn show(&self, _: &Spec) -> Option<String> {
        Some(self.0.clone())
    }
    fn expected(&self, _: &Spec) -> String {
        "an IP address or a host name".to_owned()
    }
}

impl Setting for Option<Host> {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        put(
            self,
            if text.is_empty() {
                Some(None)
            } else {
                Host::new(text).map(Some)
            },
        )
    }
    fn show(&self, _: &Spec) -> Option<String> {
        self.as_ref().map(|host| host.0.clone())
    }
    fn expected(&self, _: &Spec) -> String {
        "an IP address or a host name".to_owned()
    }
}

/// `host:port`, with an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The host to connect to.
    pub host: Host,
    /// Its port, never 0.
    pub port: u16,
}

impl Endpoint {
    /// `None` unless `text` is a host and a port other than 0.
    pub fn new(text: &str) -> Option<Self> {
        let (host, port) = text.trim().rsplit_once(':')?;
        // Without brackets, `fe80::1:8899` could be cut in more than one way.
        if host.contains(':') && !host.starts_with('[') {
            return None;
        }
        let port = port
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| port.parse().ok())??;
        Some(Self {
            host: Host::new(host)?,
            port,
        })
        .filter(|endpoint| endpoint.port != 0)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.0.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Hosts separated by commas, or a YAML list of them.
pub type Hosts = Listed<Host>;

impl Item for Host {
    const EXPECTED: &str =
        "an IP address or a host name, or several separated by commas or as a list";

    fn parse(text: &str) -> Option<Self> {
        Self::new(text)
    }
}

/// Endpoints separated by commas, or a YAML list of them.
pub type Endpoints = Listed<Endpoint>;

impl Item for Endpoint {
    const EXPECTED: &str = "host:port, or several separated by commas or as a list";

    fn parse(text: &str) -> Option<Self> {
        Self::new(text)
    }
}
