//! What the server's answers mean.

use std::sync::Arc;
use std::time::Duration;

use authorization::Rules;
use bytes::Bytes;
use hyper::header::CACHE_CONTROL;
use hyper::{HeaderMap, Response, StatusCode};
use serde::Deserialize;

use crate::acl::{self, AclEntry};
use crate::authenticator::Opinion;
use authentication_api::{Credentials, Denial, Identity};

/// What the server says about a client, whatever its user name.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// It may connect. The identity has no user name.
    Allow(Identity),
    /// It may not.
    Deny,
    /// The server does not know it.
    Ignore,
}

/// An answer, and how long it may be remembered.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    /// `None`: as long as the one who asked wants.
    pub(super) lifetime: Option<Duration>,
}

/// The body of an answer with status 200. Unknown members do not count.
#[derive(Deserialize)]
struct Body {
    result: Outcome,
    #[serde(default)]
    is_superuser: bool,
    #[serde(default)]
    acl: Vec<AclEntry>,
    expire_at: Option<u64>,
    class: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Allow,
    Deny,
    Ignore,
}

impl Answer {
    fn read(response: &Response<Bytes>, now: u64) -> Result<Self, String> {
        match response.status() {
            StatusCode::OK => Self::read_body(response.body(), now),
            StatusCode::NO_CONTENT => Ok(Self::Allow(Identity::default())),
            // These are about the request, not about the client.
            status @ (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) => {
                Err(format!("the server answers {status}"))
            }
            status if status.is_client_error() => Ok(Self::Deny),
            status => Err(format!("the server answers {status}")),
        }
    }

    fn read_body(body: &[u8], now: u64) -> Result<Self, String> {
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| format!("the server's answer: {error}"))?;
        match body.result {
            Outcome::Deny => return Ok(Self::Deny),
            Outcome::Ignore => return Ok(Self::Ignore),
            Outcome::Allow if body.expire_at.is_some_and(|at| at <= now) => return Ok(Self::Deny),
            Outcome::Allow => {}
        }
        Ok(Self::Allow(Identity {
            is_superuser: body.is_superuser,
            rules: rules(&body.acl)?,
            expires_at: body.expire_at,
            class: body.class,
            ..Identity::default()
        }))
    }

    /// What it means for a client.
    pub(super) fn about(self, credentials: &Credentials) -> Opinion {
        match self {
            Self::Allow(identity) => Opinion::Allow(Box::new(Identity {
                username: credentials.username.clone(),
                ..identity
            })),
            Self::Deny => Opinion::Deny(Denial::Denied),
            Self::Ignore => Opinion::Ignore,
        }
    }

    /// When it stops being true by itself.
    fn expires_at(&self) -> Option<u64> {
        match self {
            Self::Allow(identity) => identity.expires_at,
            Self::Deny | Self::Ignore => None,
        }
    }
}

impl Reply {
    /// What a response says. `now` is in seconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// It says nothing about the client: why, in words for the log.
    pub(super) fn read(response: &Response<Bytes>, now: u64) -> Result<Self, String> {
        let answer = Answer::read(response, now)?;
        let until_expiry = answer
            .expires_at()
            .map(|at| Duration::from_secs(at.saturating_sub(now)));
        let limits = [until_expiry, cache_limit(response.headers())];
        Ok(Self {
            answer,
            lifetime: limits.into_iter().flatten().min(),
        })
    }
}

fn rules(acl: &[AclEntry]) -> Result<Option<Arc<Rules>>, String> {
    if acl.is_empty() {
        return Ok(None);
    }
    let rules =
        acl::rules(acl).map_err(|reason| format!("acl in the server's answer: {reason}"))?;
    Ok(Some(Arc::new(rules)))
}

/// For how long the server lets its answer be remembered (RFC 9111 §5.2.2); `None`: it does not say.
/// What cannot be understood allows nothing.
fn cache_limit(headers: &HeaderMap) -> Option<Duration> {
    headers
        .get_all(CACHE_CONTROL)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("no-store").split(','))
        .filter_map(|directive| directive_limit(directive.trim()))
        .min()
}

fn directive_limit(directive: &str) -> Option<Duration> {
    let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
    match name.to_ascii_lowercase().as_str() {
        "no-store" | "no-cache" => Some(Duration::ZERO),
        "max-age" => Some(Duration::from_secs(
            value.trim_matches('"').parse().unwrap_or(0),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use authorization::{Action, Client, Effect};
    use bytes::Bytes;
    use hyper::{HeaderMap, Response};

    use super::{Answer, Reply, cache_limit};

    const NOW: u64 = 1_800_000_000;

    fn answer(status: u16, body: &str) -> Result<Answer, String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let response = Response::builder().status(status).body(body).unwrap();
        Answer::read(&response, NOW)
    }

    #[test]
    fn statuses_without_a_body() {
        assert!(matches!(answer(204, ""), Ok(Answer::Allow(_))));
        for status in [400, 401, 403, 404] {
            assert!(matches!(answer(status, ""), Ok(Answer::Deny)), "{status}");
        }
        for status in [201, 302, 408, 429, 500, 503] {
            let reason = answer(status, "").unwrap_err();
            assert!(reason.contains(&status.to_string()), "{reason}");
        }
    }

    #[test]
    fn outcomes() {
        assert!(matches!(
            answer(200, r#"{"result": "allow", "client_attrs": {}}"#),
            Ok(Answer::Allow(_))
        ));
        assert!(matches!(
            answer(200, r#"{"result": "deny"}"#),
            Ok(Answer::Deny)
        ));
        assert!(matches!(
            answer(200, r#"{"result": "ignore"}"#),
            Ok(Answer::Ignore)
        ));
        for bad in [
            "",
            "allow",
            "{}",
            r#"{"result": "Allow"}"#,
            r#"{"result": true}"#,
            r#"{"result": "allow", "is_superuser": "yes"}"#,
            r#"{"result": "allow", "expire_at": -1}"#,
            r#"{"result": "allow", "class": 7}"#,
        ] {
            assert!(answer(200, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_an_allowed_client_may() {
        let body = r#"{"result": "allow", "is_superuser": true, "expire_at": 1800000060, "class": "application",
            "acl": [{"permission": "deny", "action": "publish", "topic": "a/#"}]}"#;
        let Ok(Answer::Allow(identity)) = answer(200, body) else {
            panic!("not allowed");
        };
        assert!(identity.is_superuser);
        assert_eq!(identity.expires_at, Some(NOW + 60));
        assert_eq!(identity.class.as_deref(), Some("application"));
        let client = Client {
            client_id: "c",
            username: None,
            address: None,
        };
        let decision = identity
            .rules
            .unwrap()
            .decide(&client, Action::Publish, "a/b")
            .unwrap();
        assert_eq!(decision.effect, Effect::Deny);
    }

    #[test]
    fn a_rule_that_is_not_understood_is_a_failure() {
        for entry in [
            r#"{"permission": "allow", "action": "fly", "topic": "a"}"#,
            r#"{"permission": "perhaps", "action": "all", "topic": "a"}"#,
            r#"{"permission": "allow", "action": "all", "topic": "a/#/b"}"#,
            r#"{"permission": "allow", "action": "all", "topic": "a", "qos": [0]}"#,
            r#"{"permission": "allow", "action": "all"}"#,
        ] {
            let body = format!(r#"{{"result": "allow", "acl": [{entry}]}}"#);
            assert!(answer(200, &body).is_err(), "{entry}");
        }
    }

    #[test]
    fn what_has_expired_is_no_longer_allowed() {
        let body = format!(r#"{{"result": "allow", "expire_at": {NOW}}}"#);
        assert!(matches!(answer(200, &body), Ok(Answer::Deny)));
    }

    #[test]
    fn cache_control() {
        let limit = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("cache-control", value.parse().unwrap());
            }
            cache_limit(&headers).map(|limit| limit.as_secs())
        };
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&["private"]), None);
        assert_eq!(limit(&["private, Max-Age=7"]), Some(7));
        assert_eq!(limit(&["max-age=\"7\""]), Some(7));
        assert_eq!(limit(&["max-age=7", "no-store"]), Some(0));
        assert_eq!(limit(&["max-age=60, no-cache"]), Some(0));
        assert_eq!(limit(&["max-age=soon"]), Some(0));
    }

    #[test]
    fn an_answer_is_remembered_no_longer_than_it_is_true() {
        let lifetime = |cache_control: &str, body: &str| {
            let response = Response::builder()
                .header("cache-control", cache_control)
                .body(Bytes::copy_from_slice(body.as_bytes()))
                .unwrap();
            let reply = Reply::read(&response, NOW).unwrap();
            reply.lifetime.map(|lifetime| lifetime.as_secs())
        };
        let expiring = format!(r#"{{"result": "allow", "expire_at": {}}}"#, NOW + 9);
        assert_eq!(lifetime("", &expiring), Some(9));
        assert_eq!(lifetime("max-age=60", &expiring), Some(9));
        assert_eq!(lifetime("max-age=6", &expiring), Some(6));
        assert_eq!(lifetime("", r#"{"result": "deny"}"#), None);
    }
}
