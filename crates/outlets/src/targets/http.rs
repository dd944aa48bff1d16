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
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use outlet::{Delivery, Item, Milliseconds, OpenError, Position, Refusal, Template};
use tokio::time::Instant;

use super::by_key::ByKey;
use crate::definition::{BodyForm, HttpDefinition, milliseconds};
use crate::record::Record;
use crate::secret::read_secret;

/// Bytes of the longest answer. A longer one counts as none, and its request is sent again: more than anybody says of a request.
const LONGEST_ANSWER: usize = 4 * 1024 * 1024;

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
            count => {
                let first = batch.first().map(|item| &**item);
                self.send(body.bytes, first.filter(|_| self.record.is_none()), count)
                    .await
            }
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
        };
        for item in batch {
            let start = body.bytes.len();
            if is_array {
                body.bytes.push(if start == 0 { b'[' } else { b',' });
            }
            let written = match &self.record {
                Some(record) => record.write(item, &mut body.bytes),
                None => {
                    body.bytes.extend_from_slice(&item.payload);
                    Ok(())
                }
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

    /// `of`: the message whose payload the body is.
    async fn send(&self, body: Vec<u8>, of: Option<&Item>, count: usize) -> Delivery {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = match self.definition.is_put {
            true => Method::PUT,
            false => Method::POST,
        };
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        let content_type = match self.definition.body {
            BodyForm::Raw if of.is_some() => "application/octet-stream",
            BodyForm::Raw => "text/plain; charset=utf-8",
            BodyForm::Array => "application/json",
            BodyForm::Lines => "application/x-ndjson",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert("x-hmq-outlet", self.name.clone());
        if let Some(item) = of {
            headers.insert("x-hmq-topic", visible(&item.topic));
            headers.insert("x-hmq-qos", HeaderValue::from(u16::from(item.qos)));
            if let Some(position) = item.position {
                headers.insert("x-hmq-position", visible(&position.to_string()));
            }
        }
        if let Some(key) = &self.key {
            headers.insert("x-hmq-signature", visible(&signature(key, &body)));
        }
        *request.body_mut() = Full::new(body.into());
        let deadline = Instant::now() + self.definition.timeout;
        match self.client.send(request, deadline).await {
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
