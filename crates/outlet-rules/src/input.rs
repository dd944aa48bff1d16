//! What a rule sees of a message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jaq_json::{Map, Rc, Val, read};
use outlet::Item;
use serde_json::value::RawValue;

/// How deep the objects and arrays of a payload may be nested to be JSON for rules. A deeper payload is text.
pub const DEEPEST: usize = 128;

/// A message as a JSON object: `topic`, `topic_levels`, `qos`, `retain`, `time` (Unix time in ms), `position` if it has one, `properties` (pairs),
/// `content_type`, `response_topic` and `correlation` (Base64) if it has them, and its payload: as `json` if it is JSON, as `text` if it is UTF-8, else as `base64`.
pub(crate) fn of(item: &Item) -> Val {
    let mut map = Map::default();
    let mut put = |key: &'static str, value: Val| {
        map.insert(Val::utf8_str(key), value);
    };
    put("topic", text(&item.topic));
    put("topic_levels", item.topic.split('/').map(text).collect());
    put("qos", Val::from(usize::from(item.qos)));
    put("retain", Val::from(item.retain));
    let time = usize::try_from(item.received.0).unwrap_or(usize::MAX);
    put("time", Val::from(time));
    if let Some(position) = item.position {
        put("position", Val::from(position.to_string()));
    }
    let properties = item.properties.iter();
    let pairs = properties.map(|(name, value)| Val::from_iter([text(name), text(value)]));
    put("properties", pairs.collect());
    let standard = &item.standard;
    if let Some(content_type) = &standard.content_type {
        put("content_type", text(content_type));
    }
    if let Some(response_topic) = &standard.response_topic {
        put("response_topic", text(response_topic));
    }
    if let Some(correlation) = standard.correlation() {
        put("correlation", Val::from(correlation));
    }
    match std::str::from_utf8(&item.payload) {
        Ok(payload) => match json(payload) {
            Some(json) => put("json", json),
            None => put("text", Val::utf8_str(item.payload.clone())),
        },
        Err(_) => put("base64", Val::from(STANDARD.encode(&item.payload))),
    }
    Val::Obj(Rc::new(map))
}

fn text(text: &str) -> Val {
    Val::from(text.to_owned())
}

/// The JSON that a text is. jq's own parser takes more than JSON, such as comments, and nests without limit.
fn json(text: &str) -> Option<Val> {
    let json: &RawValue = serde_json::from_str(text).ok()?;
    if depth(json.get()) > DEEPEST {
        return None;
    }
    read::parse_single(json.get().as_bytes()).ok()
}

/// How deep the objects and arrays of a JSON text are nested.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut is_string, mut is_escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
