//! The HTTP exchange that opens a WebSocket (RFC 6455 §4).
//!
//! Invariants: a head is at most [`HEAD_LIMIT`] bytes; a request that is refused is answered, by status and
//! one line.
//!
//! Deliberately absent: any other use of HTTP, extensions, cookies.

use std::net::IpAddr;

use httparse::{EMPTY_HEADER, Header, Request, Response, Status};
use tungstenite::handshake::client::generate_key;
use tungstenite::handshake::derive_accept_key;

use super::Server;

/// The longest head of a request or response.
///
/// Limit: the head of a WebSocket request | {:bytes} | 400
pub(super) const HEAD_LIMIT: usize = 8 * 1024;
const HEADERS: usize = 64;

/// The names by which clients ask for MQTT, the preferred one first. That of 3.1 is not in the standards,
/// but old clients offer nothing else.
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// Why a request is answered by something else than a WebSocket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    status: &'static str,
    headers: &'static str,
    pub(super) reason: &'static str,
}

impl Refusal {
    const fn bad_request(reason: &'static str) -> Self {
        Self {
            status: "400 Bad Request",
            headers: "Connection: close\r\n",
            reason,
        }
    }

    const fn upgrade_required(reason: &'static str) -> Self {
        Self {
            status: "426 Upgrade Required",
            headers: "Connection: close, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
            reason,
        }
    }

    pub(super) fn response(&self) -> String {
        let Self {
            status,
            headers,
            reason,
        } = self;
        let length = reason.len() + 1;
        format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n\
             {reason}\n"
        )
    }
}

const NOT_FOUND: Refusal = Refusal {
    status: "404 Not Found",
    headers: "Connection: close\r\n",
    reason: "no WebSocket at this path",
};

/// Browsers let any page open a WebSocket to any server, with the credentials that the page has got; only the server
/// can tell by the origin (RFC 6455 §10.2).
const FORBIDDEN: Refusal = Refusal {
    status: "403 Forbidden",
    headers: "Connection: close\r\n",
    reason: "the Origin is none of those that may connect",
};

const METHOD_NOT_ALLOWED: Refusal = Refusal {
    status: "405 Method Not Allowed",
    headers: "Connection: close\r\nAllow: GET\r\n",
    reason: "a WebSocket is opened by GET",
};

/// A request that opens a WebSocket.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Opened {
    /// Of the request, in bytes.
    pub(super) length: usize,
    pub(super) response: String,
    /// For whom it says that it was sent.
    pub(super) forwarded: Option<IpAddr>,
    /// A browser sent it for a page of another host, which nobody has listed.
    pub(super) is_of_foreign_page: bool,
}

/// The server's side. `None`: the request is incomplete.
pub(super) fn answer(bytes: &[u8], server: &Server) -> Result<Option<Opened>, Refusal> {
    let mut headers = [EMPTY_HEADER; HEADERS];
    let mut request = Request::new(&mut headers);
    let Some(length) = head(request.parse(bytes), bytes).map_err(Refusal::bad_request)? else {
        return Ok(None);
    };
    if request.method != Some("GET") {
        return Err(METHOD_NOT_ALLOWED);
    }
    if request.path.and_then(|target| target.split('?').next()) != Some(&server.path) {
        return Err(NOT_FOUND);
    }
    if !is_welcome(request.headers, server) {
        return Err(FORBIDDEN);
    }
    let forwarded = server.forwarded.as_ref();
    Ok(Some(Opened {
        length,
        response: switch(&request)?,
        forwarded: forwarded.and_then(|forwarded| forwarded.client(request.headers)),
        is_of_foreign_page: server.origins.is_empty() && is_of_foreign_page(request.headers),
    }))
}

/// Whether a browser says that a page asks that did not come from the host that it asks, or may not have: any site can give itself
/// the address of this machine (DNS rebinding), so the host counts only if it is an address or `localhost`. The ports may differ:
/// pages come from other ports than MQTT. A program that is no browser says nothing of the kind.
fn is_of_foreign_page(headers: &[Header<'_>]) -> bool {
    let is_cross_site = values(headers, "Sec-Fetch-Site").any(|site| site == "cross-site");
    let mut origins = headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("Origin"))
        .peekable();
    let comes_from_page = origins.peek().is_some();
    let own = single(headers, "Host").map(host_name);
    let is_own = |origin: &Header<'_>| {
        let origin = std::str::from_utf8(origin.value).ok();
        let page = origin.and_then(|origin| origin.split_once("://"));
        page.zip(own)
            .is_some_and(|((_, page), own)| host_name(page).eq_ignore_ascii_case(own))
    };
    let is_here =
        |name: &str| name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    is_cross_site || comes_from_page && !(own.is_some_and(is_here) && origins.all(is_own))
}

/// The host of `host`, `host:port`, `[address]` or `[address]:port`, without the brackets.
fn host_name(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(address, _)| address),
        None => authority
            .split_once(':')
            .map_or(authority, |(name, _)| name),
    }
}

/// Whether the page that asks, if it is one, may connect.
fn is_welcome(headers: &[Header<'_>], server: &Server) -> bool {
    if server.origins.is_empty() {
        return true;
    }
    let mut origins = headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("Origin"));
    match (origins.next(), origins.next()) {
        (None, _) => !server.require_origin,
        (Some(origin), None) => server
            .origins
            .iter()
            .any(|listed| origin.value.eq_ignore_ascii_case(listed.as_bytes())),
        (Some(_), Some(_)) => false,
    }
}

fn switch(request: &Request<'_, '_>) -> Result<String, Refusal> {
    let headers = &*request.headers;
    if request.version != Some(1) || single(headers, "Host").is_none() {
        return Err(Refusal::bad_request("HTTP/1.1 with a Host is needed"));
    }
    if !asks_for_upgrade(headers) {
        return Err(Refusal::upgrade_required("only WebSocket is spoken here"));
    }
    if single(headers, "Sec-WebSocket-Version") != Some("13") {
        return Err(Refusal::upgrade_required("WebSocket version 13 is needed"));
    }
    let key = single(headers, "Sec-WebSocket-Key").filter(|key| is_key(key));
    let key = key.ok_or(Refusal::bad_request("no valid Sec-WebSocket-Key"))?;
    // [MQTT-6.0.0-3] [MQTT3-6.0.0-3] a client offers "mqtt", [MQTT-6.0.0-4] [MQTT3-6.0.0-4] and gets it.
    let protocol = SUBPROTOCOLS
        .into_iter()
        .find(|name| tokens(headers, "Sec-WebSocket-Protocol").any(|offered| offered == *name));
    let protocol = protocol.ok_or(Refusal::bad_request("the subprotocol mqtt is not offered"))?;
    let accept = derive_accept_key(key.as_bytes());
    Ok(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    ))
}

/// The client's side: a request that waits for its response.
#[derive(Debug)]
pub(super) struct Opening {
    key: String,
}

impl Opening {
    /// The request as well.
    pub(super) fn new(host: &str, path: &str) -> (Self, String) {
        let key = generate_key();
        let protocol = SUBPROTOCOLS[0];
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\
             Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
        );
        (Self { key }, request)
    }

    /// The length of a response that opens the WebSocket. `None`: it is incomplete.
    pub(super) fn confirm(&self, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        let mut headers = [EMPTY_HEADER; HEADERS];
        let mut response = Response::new(&mut headers);
        let Some(length) = head(response.parse(bytes), bytes)? else {
            return Ok(None);
        };
        let headers = &*response.headers;
        if response.code != Some(101) || !asks_for_upgrade(headers) {
            return Err("the server does not open a WebSocket");
        }
        let accept = derive_accept_key(self.key.as_bytes());
        if single(headers, "Sec-WebSocket-Accept") != Some(accept.as_str()) {
            return Err("the server answers to another key");
        }
        // [MQTT-6.0.0-4] [MQTT3-6.0.0-4] nothing but "mqtt" may come back.
        if single(headers, "Sec-WebSocket-Protocol") != Some(SUBPROTOCOLS[0]) {
            return Err("the server does not choose the subprotocol mqtt");
        }
        Ok(Some(length))
    }
}

/// The length of a head, if it is complete.
fn head(parsed: httparse::Result<usize>, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    match parsed {
        Ok(Status::Complete(length)) if length <= HEAD_LIMIT => Ok(Some(length)),
        Ok(Status::Partial) if bytes.len() < HEAD_LIMIT => Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => Err("the head is too long"),
        Err(_) => Err("malformed HTTP"),
    }
}

fn asks_for_upgrade(headers: &[Header<'_>]) -> bool {
    let has = |name, token| tokens(headers, name).any(|other| other.eq_ignore_ascii_case(token));
    has("Connection", "upgrade") && has("Upgrade", "websocket")
}

/// 16 bytes in base64.
fn is_key(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let digits = text.strip_suffix("==").unwrap_or_default();
    digits.len() == 22 && digits.bytes().all(digit)
}

fn values<'a>(headers: &'a [Header<'_>], name: &'a str) -> impl Iterator<Item = &'a str> {
    headers
        .iter()
        .filter(move |header| header.name.eq_ignore_ascii_case(name))
        .filter_map(|header| std::str::from_utf8(header.value).ok())
}

/// The items of a list, which may be spread over several headers.
fn tokens<'a>(headers: &'a [Header<'_>], name: &'a str) -> impl Iterator<Item = &'a str> {
    values(headers, name)
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// The value of a header that stands there once.
fn single<'a>(headers: &'a [Header<'_>], name: &'a str) -> Option<&'a str> {
    let mut values = values(headers, name);
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: broker\r\nUpgrade: websocket\r\n\
        Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

    fn server(origins: &[&str], require_origin: bool) -> Server {
        Server {
            path: "/mqtt".to_owned(),
            origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
            require_origin,
            forwarded: None,
        }
    }

    fn status(origin_lines: &str, server: &Server) -> &'static str {
        let request = REQUEST.replace(
            "Host: broker\r\n",
            &format!("Host: broker\r\n{origin_lines}"),
        );
        match answer(request.as_bytes(), server) {
            Ok(opened) => opened.map_or("", |_| "101"),
            Err(refusal) => refusal.status,
        }
    }

    #[test]
    fn only_pages_of_listed_origins_open_a_websocket() {
        let listed = server(&["https://app.example.com", "http://localhost:3000"], false);
        for (origin, expected) in [
            ("https://app.example.com", "101"),
            ("HTTPS://APP.example.com", "101"),
            ("http://localhost:3000", "101"),
            ("http://localhost:3001", "403 Forbidden"),
            ("http://localhost", "403 Forbidden"),
            ("http://app.example.com", "403 Forbidden"),
            ("https://app.example.com.evil.example", "403 Forbidden"),
            (
                "https://evil.example/https://app.example.com",
                "403 Forbidden",
            ),
            ("null", "403 Forbidden"),
            ("", "403 Forbidden"),
            ("\u{fc}", "403 Forbidden"),
        ] {
            let line = format!("oRIGIN: {origin}\r\n");
            assert_eq!(status(&line, &listed), expected, "{origin}");
        }
        let twice = "Origin: https://app.example.com\r\nOrigin: https://evil.example\r\n";
        assert_eq!(status(twice, &listed), "403 Forbidden");
        assert_eq!(status("", &listed), "101");
        assert_eq!(status("", &server(&["https://a"], true)), "403 Forbidden");
        assert_eq!(status("Origin: https://b\r\n", &server(&[], false)), "101");
    }

    #[test]
    fn a_page_of_another_host_is_known_as_such() {
        let is_foreign = |host: &str, lines: &str, origins: &[&str]| {
            let own = format!("Host: {host}\r\n{lines}");
            let request = REQUEST.replace("Host: broker\r\n", &own);
            let opened = answer(request.as_bytes(), &server(origins, false));
            let opened = opened.expect("is accepted").expect("is complete");
            opened.is_of_foreign_page
        };
        for (host, lines, expected) in [
            ("broker:8083", "", false),
            ("localhost:8083", "Origin: http://localhost:5173\r\n", false),
            ("LOCALHOST:8083", "Origin: http://localhost\r\n", false),
            (
                "127.0.0.1:8083",
                "Origin: http://127.0.0.1:18080\r\n",
                false,
            ),
            ("[::1]:8083", "Origin: http://[::1]:18080\r\n", false),
            ("localhost:8083", "Origin: http://127.0.0.1\r\n", true),
            ("localhost:8083", "Origin: http://evil.example\r\n", true),
            (
                "localhost:8083",
                "Origin: http://localhost.evil.example\r\n",
                true,
            ),
            ("localhost:8083", "Origin: null\r\n", true),
            ("localhost:8083", "Origin: \r\n", true),
            ("localhost:8083", "Origin: \u{fc}\r\n", true),
            // The name of the site stands for 127.0.0.1 by now.
            (
                "evil.example:8083",
                "Origin: http://evil.example:8083\r\n",
                true,
            ),
            (
                "localhost",
                "Origin: http://localhost\r\nOrigin: http://evil.example\r\n",
                true,
            ),
            ("localhost", "Sec-Fetch-Site: cross-site\r\n", true),
            (
                "localhost",
                "Sec-Fetch-Site: same-site\r\nOrigin: http://localhost\r\n",
                false,
            ),
        ] {
            assert_eq!(is_foreign(host, lines, &[]), expected, "{host} {lines}");
        }
        let listed = "Origin: http://app.example\r\n";
        assert!(!is_foreign("localhost", listed, &["http://app.example"]));
    }

    fn opened(request: &str) -> String {
        let opened = answer(request.as_bytes(), &server(&[], false))
            .expect("is accepted")
            .expect("is complete");
        assert_eq!(opened.length, request.len());
        opened.response
    }

    fn refused(request: &str) -> String {
        let refusal = answer(request.as_bytes(), &server(&[], false)).expect_err("is refused");
        refusal.response()
    }

    #[test]
    fn the_example_of_the_rfc_is_answered() {
        let response = opened(REQUEST);
        assert!(response.starts_with("HTTP/1.1 101 "));
        assert!(response.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
        assert!(response.ends_with("\r\n\r\n"));
    }

    #[test]
    fn names_are_found_in_any_case_and_the_query_is_ignored() {
        let request = REQUEST
            .replace("Upgrade: websocket", "uPGRADE: WebSocket")
            .replace("/mqtt HTTP", "/mqtt?token=x HTTP");
        assert!(opened(&request).starts_with("HTTP/1.1 101 "));
    }

    // [MQTT-6.0.0-4] [MQTT3-6.0.0-4]
    #[test]
    fn the_subprotocol_mqtt_is_chosen() {
        for (offer, choice) in [
            ("mqtt", "mqtt"),
            ("mqttv3.1, mqtt", "mqtt"),
            ("chat\r\nSec-WebSocket-Protocol: mqtt", "mqtt"),
            ("mqttv3.1", "mqttv3.1"),
        ] {
            let request = REQUEST.replace("Protocol: mqtt", &format!("Protocol: {offer}"));
            let expected = format!("Sec-WebSocket-Protocol: {choice}\r\n");
            assert!(opened(&request).contains(&expected), "{offer}");
        }
    }

    // [MQTT-6.0.0-3] [MQTT3-6.0.0-3]
    #[test]
    fn a_request_without_the_subprotocol_is_refused() {
        for other in [
            "",
            "Sec-WebSocket-Protocol: chat\r\n",
            "Sec-WebSocket-Protocol: MQTTX\r\n",
        ] {
            let response = refused(&REQUEST.replace("Sec-WebSocket-Protocol: mqtt\r\n", other));
            assert!(response.starts_with("HTTP/1.1 400 "), "{other}");
            assert!(response.ends_with("the subprotocol mqtt is not offered\n"));
        }
    }

    #[test]
    fn refusals_have_their_status() {
        for (from, to, status) in [
            (
                "GET",
                "POST",
                "405 Method Not Allowed\r\nConnection: close\r\nAllow: GET\r\n",
            ),
            ("/mqtt", "/", "404 Not Found"),
            ("/mqtt", "/mqtt/", "404 Not Found"),
            ("HTTP/1.1", "HTTP/1.0", "400 Bad Request"),
            ("Host: broker\r\n", "", "400 Bad Request"),
            ("Upgrade: websocket\r\n", "", "426 Upgrade Required"),
            ("keep-alive, Upgrade", "keep-alive", "426 Upgrade Required"),
            ("Version: 13", "Version: 8", "426 Upgrade Required"),
            ("dGhlIHNhbXBsZSBub25jZQ==", "short", "400 Bad Request"),
            (
                "dGhlIHNhbXBsZSBub25jZQ==",
                "dGhlIHNhbXBsZSBub25jZQ====",
                "400 Bad Request",
            ),
            ("GET", "G\0T", "400 Bad Request"),
            ("GET", "\x16\x03\x01", "400 Bad Request"),
        ] {
            let response = refused(&REQUEST.replacen(from, to, 1));
            assert!(
                response.starts_with(&format!("HTTP/1.1 {status}")),
                "{to}: {response}"
            );
            let (_, body) = response.split_once("\r\n\r\n").expect("has a body");
            assert!(response.contains(&format!("Content-Length: {}\r\n", body.len())));
            assert_eq!(body.lines().count(), 1);
        }
    }

    #[test]
    fn a_head_is_limited() {
        let padded = |length: usize| {
            let padding = "x".repeat(length - REQUEST.len() - "A: \r\n".len());
            REQUEST.replace("Host", &format!("A: {padding}\r\nHost"))
        };
        assert!(opened(&padded(HEAD_LIMIT)).starts_with("HTTP/1.1 101 "));
        assert!(refused(&padded(HEAD_LIMIT + 1)).ends_with("the head is too long\n"));
        let incomplete = &padded(HEAD_LIMIT + 1)[..HEAD_LIMIT];
        assert!(refused(incomplete).ends_with("the head is too long\n"));
        let shorter = &incomplete[..HEAD_LIMIT - 1];
        assert_eq!(answer(shorter.as_bytes(), &server(&[], false)), Ok(None));
        let many = "A: b\r\n".repeat(HEADERS);
        assert!(refused(&REQUEST.replace("Host", &format!("{many}Host"))).contains("too long"));
    }

    // [MQTT-6.0.0-3] [MQTT3-6.0.0-3]
    #[test]
    fn a_client_offers_mqtt_and_takes_nothing_else() {
        let (opening, request) = Opening::new("broker:8080", "/mqtt");
        assert!(request.contains("\r\nSec-WebSocket-Protocol: mqtt\r\n"));
        let response = opened(&request);
        assert_eq!(
            opening.confirm(response.as_bytes()),
            Ok(Some(response.len()))
        );
        assert_eq!(
            opening.confirm(&response.as_bytes()[..response.len() - 1]),
            Ok(None)
        );
        for (from, to) in [
            ("101", "200"),
            ("websocket", "h2c"),
            ("Accept: ", "Accept: A"),
            ("Protocol: mqtt", "Protocol: mqttv3.1"),
            ("Sec-WebSocket-Protocol: mqtt\r\n", ""),
        ] {
            assert!(
                opening
                    .confirm(response.replace(from, to).as_bytes())
                    .is_err(),
                "{to}"
            );
        }
    }
}
