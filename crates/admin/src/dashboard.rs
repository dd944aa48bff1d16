//! The dashboard: the files that were built from `dashboard/`, in this program.
//!
//! Invariant: what a file of it may do in a browser is in its headers, not in the file: no scripts and styles but its own, no frames, no
//! text that becomes markup.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;
use rust_embed::Embed;

// `Files`: what `build.rs` has found or built, each file as it is, compressed by brotli (`.br`) and by gzip (`.gz`).
include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The file that is served at `/`.
const INDEX: &str = "index.html";

/// How a file is compressed, by the end of its name.
const ENCODINGS: [(&str, &str); 2] = [("br", ".br"), ("gzip", ".gz")];

/// What all files have in common.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    (header::VARY, "accept-encoding"),
];

/// What a file may do in a browser, but for what it may connect to.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; \
     form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The page that is a client of MQTT: it may open WebSockets to all ports of the host that it is asked for by.
const TRY: &str = "try.html";

/// The paths of the dashboard.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let names = Files::iter();
    let names = names.filter(|name| ENCODINGS.iter().all(|(_, end)| !name.ends_with(end)));
    names.fold(Router::new(), |router, name| {
        let path = match &*name {
            INDEX => "/".to_owned(),
            name => format!("/{name}"),
        };
        let answer = move |headers: HeaderMap| async move { file(&name, &headers) };
        router.route(&path, get(answer))
    })
}

fn file(name: &str, asked: &HeaderMap) -> Response {
    let accepted = asked.get(header::ACCEPT_ENCODING);
    let accepted = accepted
        .and_then(|accepted| accepted.to_str().ok())
        .unwrap_or_default();
    let compressed = ENCODINGS.into_iter().find_map(|(encoding, end)| {
        let file = Files::get(&format!("{name}{end}"))?;
        accepts(accepted, encoding).then_some((Some(encoding), file))
    });
    let (encoding, file) = compressed
        .or_else(|| Some((None, Files::get(name)?)))
        .expect("a path stands for a file that is here");
    let mut response = Response::new(Body::from(file.data));
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, policy(name, asked));
    let set = [
        (header::CONTENT_TYPE, Some(kind(name))),
        (header::CONTENT_ENCODING, encoding),
        (header::CACHE_CONTROL, Some(lasts(name))),
    ];
    for (name, value) in set {
        if let Some(value) = value {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

fn policy(name: &str, asked: &HeaderMap) -> HeaderValue {
    let sockets = match name {
        TRY => sockets_of(asked.get(header::HOST)),
        _ => String::new(),
    };
    let policy = format!("{POLICY}; connect-src 'self'{sockets}");
    HeaderValue::try_from(policy).expect("the policy and the name of a host are plain text")
}

/// WebSockets to all ports of a host, as sources of a policy. Of a host that a policy cannot name, such as an IPv6 address, those to
/// all hosts.
fn sockets_of(host: Option<&HeaderValue>) -> String {
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
    let is_named = !name.is_empty() && name.bytes().all(is_plain);
    match is_named && port.bytes().all(|b| b.is_ascii_digit()) {
        true => format!(" ws://{name}:* wss://{name}:*"),
        false => " ws: wss:".to_owned(),
    }
}

/// Whether a request takes an encoding: it is named, and not with the quality 0.
fn accepts(accepted: &str, encoding: &str) -> bool {
    accepted.split(',').any(|item| {
        let (name, quality) = item.split_once(';').unwrap_or((item, ""));
        let quality = quality.trim().strip_prefix("q=");
        let is_refused = quality.is_some_and(|quality| quality.parse() == Ok(0.0_f32));
        name.trim().eq_ignore_ascii_case(encoding) && !is_refused
    })
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        end => unreachable!("the dashboard has no files of the kind {end:?}"),
    }
}

/// How long a browser may keep a file without asking: for ever if its name says what is in it.
fn lasts(name: &str) -> &'static str {
    match name.starts_with("assets/") {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::Value;
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboard")
    }

    #[test]
    fn a_request_gets_what_it_takes() {
        for (accepted, expected) in [
            ("", None),
            ("gzip, deflate, br", Some("br")),
            ("gzip, deflate", Some("gzip")),
            ("br;q=0, gzip;q=0.5", Some("gzip")),
            ("BR", Some("br")),
            ("br;q=0.0", None),
            ("brotli, xgzip", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, accepted.parse().unwrap());
            let answer = file(INDEX, &headers);
            let encoding = answer.headers().get(header::CONTENT_ENCODING);
            let encoding = encoding.map(|encoding| encoding.to_str().unwrap());
            assert_eq!(encoding, expected, "{accepted}");
        }
    }

    #[test]
    fn only_the_client_of_mqtt_connects_elsewhere() {
        let policy = |name, host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            let answer = file(name, &headers);
            let policy = &answer.headers()[header::CONTENT_SECURITY_POLICY];
            let policy = policy.to_str().unwrap().to_owned();
            assert!(
                policy.contains("; frame-ancestors 'none'; require-trusted-types-for 'script';")
            );
            let (_, connect) = policy.split_once("; connect-src ").unwrap();
            connect.to_owned()
        };
        assert_eq!(policy(INDEX, "a.example:8091"), "'self'");
        for (host, expected) in [
            (
                "a.example:8091",
                "'self' ws://a.example:* wss://a.example:*",
            ),
            ("10.0.0.1", "'self' ws://10.0.0.1:* wss://10.0.0.1:*"),
            ("[::1]:8091", "'self' ws: wss:"),
            ("a;script-src *:1", "'self' ws: wss:"),
            ("a.example:1;", "'self' ws: wss:"),
            ("", "'self' ws: wss:"),
        ] {
            assert_eq!(policy(TRY, host), expected, "{host}");
        }
    }

    #[test]
    fn each_file_has_a_kind() {
        for name in Files::iter() {
            if !name.ends_with(".br") && !name.ends_with(".gz") {
                kind(&name);
            }
        }
    }

    /// Whether what is in this program was built from these sources. The tests need Node.js, so it is no stand-in.
    #[test]
    fn what_is_built_is_of_these_sources() {
        let manifest = Files::get("manifest.json").expect("a build with Node.js has the dashboard");
        let manifest: Value = serde_json::from_slice(&manifest.data).unwrap();
        let read = |name: &str| std::fs::read(folder().join(name)).unwrap();
        let is_same = |content: &[u8], hash: &Value| {
            let found = Sha256::digest(content);
            let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
            *hash == found
        };
        let mut checked = 0;
        for (name, hash) in manifest["sources"].as_object().unwrap() {
            assert!(is_same(&read(name), hash), "built from another {name}");
            checked += 1;
        }
        for (name, hash) in manifest["built"].as_object().unwrap() {
            let file = Files::get(name).unwrap();
            assert!(is_same(&file.data, hash), "{name} is not as it was built");
            checked += 1;
        }
        assert!(checked > 20, "{checked} files");
    }
}
