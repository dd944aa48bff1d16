//! Messages are the bodies of HTTP requests.
//!
//! An answer of 2xx says that the server has all messages of the request. 400, 409, 413, 415 and 422 say that it takes one of them
//! never; each other answer, and none, that it may take them later: a wrong key or address is somebody's to mend, and loses nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http_body_util::Full;
use http_client::{HttpClient, read_headers, retry_after};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use outlet::{Delivery, Item, Milliseconds, OpenError, Position, Refusal, Template};
use tokio::time::Instant;

use super::by_key::ByKey;
use crate::definition::{BodyForm, HttpDefinition, milliseconds};
use crate::record::Record;
use crate::secret::read_secret;

/// Bytes of the longest answer. A longer one counts as none, and its request is sent again: more than anybody says of a request.
const LONGEST_ANSWER: usize = 4 * 1024 * 1024;

/// Bytes of the headers that say something of a message, at most: many servers take no more than 16 KiB of headers, and some end
/// the connection then, which does not say that another attempt is in vain.
const LONGEST_HEADERS: usize = 12 * 1024;

/// Bytes of the longest content type that goes along: two names of 127 bytes (RFC 6838 §4.2), and parameters.
const LONGEST_CONTENT_TYPE: usize = 1_024;

/// Characters of an answer that errors quote.
const QUOTED: usize = 200;

#[derive(Debug)]
pub(crate) struct HttpTarget {
    name: HeaderValue,
    definition: HttpDefinition,
    record: Option<Record>,
    /// What messages have in common that are sent one after the other, if several requests are on their way.
    order_key: Option<Template>,
    client: HttpClient,
    headers: HeaderMap,
    key: Option<hmac::Key>,
}

/// What a request has, and why the message behind it is not in it.
struct Body {
    bytes: Vec<u8>,
    count: usize,
    refused: Option<Arc<str>>,
    /// What is said of the message whose payload the body is.
    headers: HeaderMap,
}

impl HttpTarget {
    pub(crate) fn new(name: &str, definition: &HttpDefinition) -> Result<Self, String> {
        let record = match (&definition.record, definition.body) {
            (None, BodyForm::Raw) => None,
            (record, _) => Some(Record::new(record.as_deref()).map_err(|error| error.to_string())?),
        };
        let order_key = Template::parse(&definition.order_key);
        let order_key = order_key.map_err(|error| format!("orderKey: {error}"))?;
        let mut target = Self {
            name: HeaderValue::from_str(name).map_err(|error| error.to_string())?,
            definition: definition.clone(),
            record,
            order_key: Some(order_key).filter(|_| definition.concurrency.0 > 1),
            client: HttpClient::open(
                &definition.url,
                definition.ca_file.as_deref(),
                LONGEST_ANSWER,
            )?,
            headers: HeaderMap::new(),
            key: None,
        };
        target.read_secrets()?;
        Ok(target)
    }

    /// Reads the files again, so that a secret which was replaced counts after the next failure.
    pub(crate) fn open(&mut self) -> Result<Option<Position>, OpenError> {
        self.read_secrets()
            .map_err(|why| OpenError::Retry(why.into()))?;
        Ok(None)
    }

    fn read_secrets(&mut self) -> Result<(), String> {
        let named = |path: &Path, why: String| format!("{}: {why}", path.display());
        if let Some(path) = &self.definition.headers_file {
            self.headers = read_headers(path).map_err(|why| named(path, why))?;
        }
        if let Some(path) = &self.definition.secret_file {
            let secret = read_secret(path)?;
            self.key = Some(hmac::Key::new(hmac::HMAC_SHA256, &secret));
        }
        Ok(())
    }

    pub(crate) async fn deliver(&mut self, batch: &[Arc<Item>]) -> Delivery {
        match &self.order_key {
            Some(order_key) => self.deliver_each(batch, order_key).await,
            None => self.deliver_all(batch).await,
        }
    }

    /// Each message has a request of its own, and several are on their way.
    async fn deliver_each(&self, batch: &[Arc<Item>], order_key: &Template) -> Delivery {
        // One without a key is refused when its turn comes.
        let keys = batch.iter().map(|item| order_key.render(item));
        let keys: Vec<Option<String>> = keys.map(Result::ok).collect();
        let mut order = ByKey::new(keys.iter().map(|key| key.clone().unwrap_or_default()));
        let (mut running, mut progress) = (FuturesUnordered::new(), Progress::default());
        loop {
            while progress.again.is_none()
                && running.len() < self.definition.concurrency.0 as usize
                && let Some(place) = order.poll()
            {
                let (item, has_key) = (&batch[place], keys[place].is_some());
                running.push(async move {
                    let delivery = match has_key {
                        true => self.deliver_all(std::slice::from_ref(item)).await,
                        false => refused("the message has no `orderKey`".into()),
                    };
                    (place, delivery)
                });
            }
            let Some((place, delivery)) = running.next().await else {
                return progress.delivery();
            };
            progress.handle(place, delivery);
            order.handle_finished(place);
        }
    }

    /// The messages have one request.
    async fn deliver_all(&self, batch: &[Arc<Item>]) -> Delivery {
        let body = self.body(batch);
        let sent = match body.count {
            0 => Delivery::All,
            count => self.send(body.bytes, body.headers, count).await,
        };
        match (sent, body.refused) {
            (Delivery::All, Some(why)) => Delivery::Refused {
                which: Refusal::At(body.count),
                why,
            },
            (sent, _) => sent,
        }
    }

    fn body(&self, batch: &[Arc<Item>]) -> Body {
        let is_array = self.definition.body == BodyForm::Array;
        let mut body = Body {
            bytes: Vec::new(),
            count: 0,
            refused: None,
            headers: HeaderMap::new(),
        };
        for item in batch {
            let start = body.bytes.len();
            if is_array {
                body.bytes.push(if start == 0 { b'[' } else { b',' });
            }
            let written = match &self.record {
                Some(record) => record.write(item, &mut body.bytes),
                None => said(item).map(|headers| {
                    body.bytes.extend_from_slice(&item.payload);
                    body.headers = headers;
                }),
            };
            if let Err(why) = written {
                body.bytes.truncate(start);
                body.refused = Some(why);
                break;
            }
            if self.definition.body == BodyForm::Lines {
                body.bytes.push(b'\n');
            }
            body.count += 1;
        }
        if is_array && body.count > 0 {
            body.bytes.push(b']');
        }
        body
    }

    /// `said`: what is said of the message whose payload the body is.
    async fn send(&self, body: Vec<u8>, said: HeaderMap, count: usize) -> Delivery {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = match self.definition.is_put {
            true => Method::PUT,
            false => Method::POST,
        };
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        let content_type = match self.definition.body {
            BodyForm::Raw if self.record.is_none() => "application/octet-stream",
            BodyForm::Raw => "text/plain; charset=utf-8",
            BodyForm::Array => "application/json",
            BodyForm::Lines => "application/x-ndjson",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert("x-hmq-outlet", self.name.clone());
        let has_own = !said.is_empty();
        headers.extend(said);
        if let Some(key) = &self.key {
            headers.insert("x-hmq-signature", visible(&signature(key, &body)));
        }
        *request.body_mut() = Full::new(body.into());
        let deadline = Instant::now() + self.definition.timeout;
        match self.client.send(request, deadline).await {
            // These are the headers of the message: those of the outlet alone would have been refused with each one.
            Ok(answer)
                if has_own && answer.status() == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE =>
            {
                refused(format!("the server answers {}", answer.status()).into())
            }
            Ok(answer) => judge(answer.status(), answer.headers(), answer.body(), count),
            Err(error) => retry(None, error.to_string()),
        }
    }

    pub(crate) async fn probe(&mut self) -> Result<String, String> {
        self.read_secrets()?;
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::HEAD;
        request.headers_mut().clone_from(&self.headers);
        let deadline = Instant::now() + self.definition.timeout;
        let answer = self.client.send(request, deadline).await;
        let status = answer.map_err(|error| error.to_string())?.status();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(format!("the server answers {status}"))
            }
            status => Ok(format!("the server answers {status} to HEAD")),
        }
    }
}

/// What became of the messages of a batch that have a request each.
#[derive(Debug, Default)]
struct Progress {
    done: Vec<usize>,
    /// With the reason of each.
    refused: Vec<(usize, Arc<str>)>,
    /// Something is to be tried again: after how long at least, and why.
    again: Option<(Option<Milliseconds>, Arc<str>)>,
}

impl Progress {
    fn handle(&mut self, place: usize, delivery: Delivery) {
        match delivery {
            Delivery::All => self.done.push(place),
            Delivery::Refused { why, .. } => self.refused.push((place, why)),
            Delivery::Retry { after, why } => {
                let longest = self.again.take().and_then(|(after, _)| after);
                self.again = Some((after.max(longest), why));
            }
            Delivery::Except { .. } | Delivery::Part { .. } | Delivery::Fenced => {
                unreachable!("a request with one message has another outcome")
            }
        }
    }

    /// What the pump is told. A message that was refused beside one that is tried again is tried again, too.
    fn delivery(mut self) -> Delivery {
        self.done.sort_unstable();
        self.refused.sort_unstable_by_key(|(place, _)| *place);
        match (self.again, self.refused.is_empty()) {
            (Some((after, why)), _) => Delivery::Part {
                done: self.done,
                after,
                why,
            },
            (None, false) => Delivery::Except {
                refused: self.refused,
            },
            (None, true) => Delivery::All,
        }
    }
}

fn refused(why: Arc<str>) -> Delivery {
    Delivery::Refused {
        which: Refusal::At(0),
        why,
    }
}

fn retry(after: Option<Duration>, why: String) -> Delivery {
    Delivery::Retry {
        after: after.map(milliseconds),
        why: why.into(),
    }
}

fn judge(status: StatusCode, headers: &HeaderMap, body: &Bytes, count: usize) -> Delivery {
    if status.is_success() {
        return Delivery::All;
    }
    let said: String = String::from_utf8_lossy(body)
        .chars()
        .take(QUOTED)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let why = match said.trim() {
        "" => format!("the server answers {status}"),
        said => format!("the server answers {status}: {said}"),
    };
    match status {
        StatusCode::BAD_REQUEST
        | StatusCode::CONFLICT
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::UNPROCESSABLE_ENTITY => Delivery::Refused {
            which: if count == 1 {
                Refusal::At(0)
            } else {
                Refusal::One
            },
            why: why.into(),
        },
        _ => retry(retry_after(headers, SystemTime::now()), why),
    }
}

/// The headers that say something of a message whose payload is a body.
///
/// # Errors
/// They are longer than [`LONGEST_HEADERS`].
fn said(item: &Item) -> Result<HeaderMap, Arc<str>> {
    let standard = &item.standard;
    let mut texts = vec![("x-hmq-topic", visible(&item.topic))];
    if let Some(position) = item.position {
        texts.push(("x-hmq-position", visible(&position.to_string())));
    }
    if let Some(response_topic) = &standard.response_topic {
        texts.push(("x-hmq-response-topic", visible(response_topic)));
    }
    if let Some(correlation) = standard.correlation() {
        texts.push(("x-hmq-correlation", visible(&correlation)));
    }
    if let Some(expires) = standard.expires {
        texts.push(("x-hmq-expires", HeaderValue::from(expires.0)));
    }
    let bytes: usize = texts.iter().map(|(_, value)| value.len()).sum();
    if bytes > LONGEST_HEADERS {
        return Err(format!(
            "its topic, response topic and correlation data have {bytes} bytes as headers, more than {LONGEST_HEADERS}"
        )
        .into());
    }
    let mut headers: HeaderMap = texts
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), value))
        .collect();
    headers.insert("x-hmq-qos", HeaderValue::from(u16::from(item.qos)));
    let content_type = standard.content_type.as_deref();
    if let Some(content_type) = content_type.and_then(content_type_header) {
        headers.insert(CONTENT_TYPE, content_type);
    }
    Ok(headers)
}

/// A Content Type as the value of a header; `None`: it is none there, or too long.
fn content_type_header(text: &str) -> Option<HeaderValue> {
    let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let fits = is_visible && !text.trim().is_empty() && text.len() <= LONGEST_CONTENT_TYPE;
    HeaderValue::from_str(text).ok().filter(|_| fits)
}

/// `sha256=` and the HMAC in hexadecimal digits.
fn signature(key: &hmac::Key, body: &[u8]) -> String {
    let mut text = "sha256=".to_owned();
    for byte in hmac::sign(key, body).as_ref() {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// A text as the value of a header: bytes that are no visible ASCII, and `%`, as `%XX`.
fn visible(text: &str) -> HeaderValue {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    HeaderValue::try_from(out).expect("visible ASCII is the value of a header")
}

#[cfg(test)]
mod tests {
    use outlet::StandardProperties;

    use super::*;

    #[test]
    fn a_header_has_visible_characters_only() {
        assert_eq!(visible("a/b ü%\n"), "a/b%20%C3%BC%25%0A");
    }

    #[test]
    fn what_a_server_has_is_told_beside_what_it_is_to_be_given_again() {
        let of = |deliveries: Vec<(usize, Delivery)>| {
            let mut progress = Progress::default();
            for (place, delivery) in deliveries {
                progress.handle(place, delivery);
            }
            progress.delivery()
        };
        let why: Arc<str> = "why".into();
        let again = |after| Delivery::Retry {
            after,
            why: Arc::clone(&why),
        };
        let no = || refused(Arc::clone(&why));
        let large = refused("large".into());
        assert_eq!(
            of(vec![(1, Delivery::All), (0, Delivery::All)]),
            Delivery::All
        );
        assert_eq!(
            of(vec![(2, no()), (1, Delivery::All), (0, large)]),
            Delivery::Except {
                refused: vec![(0, "large".into()), (2, Arc::clone(&why))],
            }
        );
        let after = Some(Milliseconds(7));
        let mixed = vec![
            (3, again(after)),
            (2, Delivery::All),
            (1, no()),
            (0, again(None)),
        ];
        assert_eq!(
            of(mixed),
            Delivery::Part {
                done: vec![2],
                after,
                why,
            }
        );
    }

    #[test]
    fn what_is_said_of_a_message_is_legal_and_short_whatever_its_publisher_says() {
        let of = |standard: StandardProperties| {
            let headers = said(&Item {
                position: None,
                topic: "a".into(),
                payload: Bytes::new(),
                qos: 0,
                retain: false,
                received: Milliseconds(0),
                properties: Vec::new(),
                standard,
            })?;
            let value = |name: &str| {
                let value = headers.get(name).map(|value| value.to_str().unwrap());
                value.unwrap_or("none").to_owned()
            };
            let names = ["content-type", "x-hmq-response-topic", "x-hmq-correlation"];
            Ok::<_, Arc<str>>(names.map(value))
        };
        let typed = |content_type: &str| {
            let content_type = Some(content_type.into());
            let standard = StandardProperties {
                content_type,
                ..StandardProperties::default()
            };
            let [content_type, ..] = of(standard).unwrap();
            content_type
        };
        assert_eq!(typed("text/x; q=1"), "text/x; q=1");
        let long = "x".repeat(LONGEST_CONTENT_TYPE + 1);
        for wrong in ["", " ", "text/ü", "a\r\nx: y", "a\0", "a\u{7f}", &long] {
            assert_eq!(typed(wrong), "none", "{wrong:?}");
        }
        let replied = |bytes: usize| {
            of(StandardProperties {
                response_topic: Some("re\r\nx: y".into()),
                correlation_data: Some(vec![0xff; bytes].into()),
                ..StandardProperties::default()
            })
        };
        let wanted = ["none", "re%0D%0Ax:%20y", "/w=="].map(str::to_owned);
        assert_eq!(replied(1), Ok(wanted));
        let why = replied(64 * 1024).unwrap_err();
        assert!(why.contains("bytes as headers"), "{why}");
    }

    #[test]
    fn the_signature_is_that_of_rfc_4231() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"Jefe");
        assert_eq!(
            signature(&key, b"what do ya want for nothing?"),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn what_somebody_can_mend_is_tried_again_and_what_is_wrong_with_a_message_is_refused() {
        let of = |status: u16, count| {
            let status = StatusCode::from_u16(status).unwrap();
            judge(status, &HeaderMap::new(), &Bytes::from("no"), count)
        };
        for status in [200, 201, 202, 204] {
            assert_eq!(of(status, 2), Delivery::All);
        }
        for status in [301, 401, 403, 404, 405, 408, 425, 429, 500, 502, 503, 504] {
            assert!(matches!(of(status, 2), Delivery::Retry { .. }), "{status}");
        }
        for status in [400, 409, 413, 415, 422] {
            let which = |count| match of(status, count) {
                Delivery::Refused { which, .. } => which,
                other => panic!("{status}: {other:?}"),
            };
            assert_eq!((which(1), which(2)), (Refusal::At(0), Refusal::One));
        }
    }
}
