//! What all changes of users, groups and rules have in common: conditions, dry runs, who asks, and how the store refuses.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use control::{By, Change, Expect, Invalid, Means, Put, Reason, Refused, Revision, Target};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::effects::ended;
use super::judge::{judge, would};
use crate::access::{Access, ChangeError, Made};
use crate::api::AccessEffects;
use crate::api_state::{Api, Turn};
use crate::backend::Broker;
use crate::cluster::NodeId;
use crate::problem::{Kind, Problem};
use crate::rights::{self, Caller, Untold};
use crate::routes::input::{Params, word};
use crate::routes::reading::wrong_field;

/// What a change can say in its query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ChangeParams {
    /// `true`: say what it would do, and change nothing.
    #[param(value_type = Option<bool>)]
    dry_run: Option<String>,
}

/// What a change must find, as the header of its request says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// Nothing was said.
    None,
    /// `If-None-Match: *`.
    New,
    /// `If-Match: *`.
    Known,
    /// `If-Match: "r1841"`.
    Revision(Revision),
}

impl Condition {
    fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let given = |name: &HeaderName| {
            let mut all = headers.get_all(name).iter();
            let first = all.next().map(HeaderValue::to_str);
            match (first, all.next()) {
                (None, _) => Ok(None),
                (Some(Ok(text)), None) => Ok(Some(text.trim())),
                _ => Err(wrong_header(name, "one tag")),
            }
        };
        let (matches, matches_none) = (given(&header::IF_MATCH)?, given(&header::IF_NONE_MATCH)?);
        match (matches, matches_none) {
            (None, None) => Ok(Self::None),
            (Some(_), Some(_)) => Err(wrong_header(
                &header::IF_MATCH,
                "missing beside If-None-Match",
            )),
            (None, Some("*")) => Ok(Self::New),
            (None, Some(_)) => Err(wrong_header(&header::IF_NONE_MATCH, "`*`")),
            (Some("*"), None) => Ok(Self::Known),
            (Some(tag), None) => revision(tag).map(Self::Revision).ok_or_else(|| {
                wrong_header(
                    &header::IF_MATCH,
                    "`*`, or the ETag of an answer, such as `\"r1841\"`",
                )
            }),
        }
    }
}

/// A header has something else than what is accepted.
pub(super) fn wrong_header(name: &HeaderName, accepted: &str) -> Problem {
    let why = format!("the header {name} is to be {accepted}");
    let problem = Problem::new(Kind::InvalidParameter, why);
    problem
        .with("header", name.as_str())
        .with("accepted", accepted)
}

/// The revision of an ETag.
fn revision(tag: &str) -> Option<Revision> {
    let digits = tag.strip_prefix("\"r")?.strip_suffix('"')?;
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().ok().map(Revision))?
}

/// An answer with the ETag of a record.
pub(super) fn tagged(revision: Revision, answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    let tag = HeaderValue::from_str(&format!("\"r{}\"", revision.0));
    let tag = tag.expect("digits in quotes are a header");
    response.headers_mut().insert(header::ETAG, tag);
    response
}

/// The header that names the nodes, separated by commas, at which a change does not count yet.
const MISSING: HeaderName = HeaderName::from_static("control-missing");

/// An answer to a change, with the nodes at which it does not count yet.
pub(super) fn counted(made: &Made, answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    if !made.missing.is_empty() {
        let nodes = made.missing.iter();
        let nodes: Vec<String> = nodes.map(|node| NodeId(node.0).to_string()).collect();
        let nodes = HeaderValue::from_str(&nodes.join(", "));
        let nodes = nodes.expect("hexadecimal digits, commas and blanks are a header");
        response.headers_mut().insert(MISSING, nodes);
    }
    response
}

/// A change that somebody asks for.
pub(crate) struct Asked {
    pub(super) access: Arc<dyn Access>,
    pub(super) condition: Condition,
    pub(super) is_dry_run: bool,
    by: By,
    /// Who knows which clients are connected.
    broker: Arc<dyn Broker>,
    _turn: Turn,
}

impl FromRequestParts<Api> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Params(params) = Params::<ChangeParams>::from_request_parts(parts, api).await?;
        Self::read(parts, api, params.dry_run.as_deref()).await
    }
}

impl Asked {
    /// Of a request whose query says this of `dry_run`.
    pub(super) async fn read(
        parts: &mut Parts,
        api: &Api,
        dry_run: Option<&str>,
    ) -> Result<Self, Problem> {
        let is_dry_run = word("dry_run", dry_run, "true or false", |text| {
            text.parse().ok()
        })?;
        let access = api.access();
        let caller = parts.extensions.get::<Caller>();
        let caller = caller.expect("a request that changes something has a caller");
        Ok(Self {
            by: caller.by(access.node()),
            condition: Condition::read(&parts.headers)?,
            is_dry_run: is_dry_run.unwrap_or_default(),
            access,
            broker: FromRef::from_ref(api),
            _turn: Turn::from_request_parts(parts, api).await?,
        })
    }
}

/// The node goes by its files only.
pub(super) fn off() -> Problem {
    let why = format!("nothing was changed: {}", ChangeError::Off);
    Problem::new(Kind::Conflict, why).with("reason", "managed_by_file")
}

/// Why a change was not made, or may not have been made.
pub(crate) fn failed_change(
    error: ChangeError,
    refuse: impl FnOnce(Refused) -> Problem,
) -> Problem {
    match error {
        ChangeError::Refused(refused) => refuse(refused),
        ChangeError::Unavailable(why) => {
            let why = format!("nothing was changed: {why}");
            Problem::new(Kind::NotReady, why)
        }
        ChangeError::Behind(_) => {
            let why = format!("nothing was changed: {error}");
            Problem::new(Kind::Conflict, why).with("reason", "upgrade_unfinished")
        }
        ChangeError::Off => off(),
        ChangeError::Unknown => {
            let why = format!("{error}; read the record before asking again");
            Problem::new(Kind::NodeSilent, why).with("reason", "unknown_outcome")
        }
    }
}

/// What has come of a change.
pub(super) enum Outcome {
    /// It is made.
    Made(Made),
    /// It was a dry run: the answer.
    Dry(Response),
}

impl Asked {
    /// What the change expects: what its header says, or else this.
    pub(super) fn expect(&self, otherwise: Expect) -> Expect {
        match self.condition {
            Condition::None => otherwise,
            Condition::New => Expect::New,
            Condition::Known => Expect::Known,
            Condition::Revision(revision) => Expect::Revision(revision),
        }
    }

    /// Makes a change, or says what it would do.
    pub(super) async fn make(&self, expect: Expect, put: Put) -> Result<Outcome, Problem> {
        let change = Change { expect, put };
        let target = change.target();
        let refuse = |why| self.refused(&target, why);
        change
            .check()
            .map_err(|invalid| refuse(Reason::Invalid(invalid)))?;
        if self.is_dry_run {
            let view = self.access.view();
            if view.is_off() {
                return Err(off());
            }
            judge(&view, self.by.means, &change).map_err(refuse)?;
            let ended = ended(&self.broker, &view, &change.put).await;
            let answer = AccessEffects {
                would: would(&view, &change.put),
                clients_ended: ended.map(|ended| ended.clients),
                at_least: ended.is_some_and(|ended| ended.is_least),
            };
            return Ok(Outcome::Dry(
                (Extension(Untold), Json(answer)).into_response(),
            ));
        }
        let refuse = |refused: Refused| self.refused(&target, refused.why);
        let made = self.change(self.by.clone(), vec![change], refuse).await?;
        Ok(Outcome::Made(made))
    }

    /// Makes all changes of an import or none. `refuse`: the problem of a change that the store refuses.
    pub(super) async fn import(
        &self,
        changes: Vec<Change>,
        refuse: impl FnOnce(Refused) -> Problem,
    ) -> Result<Made, Problem> {
        let by = By {
            means: Means::Import,
            ..self.by.clone()
        };
        self.change(by, changes, refuse).await
    }

    async fn change(
        &self,
        by: By,
        changes: Vec<Change>,
        refuse: impl FnOnce(Refused) -> Problem,
    ) -> Result<Made, Problem> {
        let made = self.access.change(by, changes).await;
        made.map_err(|error| failed_change(error, refuse))
    }

    /// Why the store refuses, in the words of the API.
    pub(super) fn refused(&self, target: &Target, why: Reason) -> Problem {
        let name = named(target);
        // What the request has said itself, or what this node has added so that no other change is lost.
        let is_asked = self.condition != Condition::None;
        match why {
            Reason::Exists if is_asked => failed(format!("there is {name} already")),
            Reason::Exists => Problem::new(Kind::Conflict, format!("there is {name} already"))
                .with("reason", "exists"),
            Reason::Missing if is_asked => {
                failed(format!("there is no {}", without_article(&name)))
            }
            Reason::Missing => Problem::new(
                Kind::NotFound,
                format!("there is no {}", without_article(&name)),
            ),
            Reason::Revision(found) if is_asked => {
                let tag = format!("r{}", found.0);
                let why = format!("{name} has the ETag \"{tag}\" now: read it again");
                failed(why).with("revision", found.0)
            }
            Reason::Revision(_) => {
                let why = format!("{name} has changed meanwhile: try again");
                Problem::new(Kind::Conflict, why).with("reason", "changed_meanwhile")
            }
            Reason::Full(what) => {
                let why = format!("there would be more {what} than the store holds");
                Problem::new(Kind::WouldExceed, why).with("limit", &*what)
            }
            Reason::NoSuchGroup(group) => {
                let why = format!("there is no group {group:?}: add it first");
                let problem = Problem::new(Kind::Conflict, why);
                problem
                    .with("reason", "unknown_group")
                    .with("group", &*group)
            }
            Reason::InUse(count) => {
                let why = format!(
                    "{name} is still in use (by users and groups: {count}); change these first"
                );
                let problem = Problem::new(Kind::Conflict, why);
                problem.with("reason", "in_use").with("uses", count)
            }
            Reason::Invalid(invalid) => invalid_field(&invalid),
            Reason::LastAdministrator => {
                let why = "nobody in the store could change anything then; somebody whom a file of the broker knows (http.tokenFile, http.keyFile, http.userFile) can do that";
                Problem::new(Kind::Conflict, why).with("reason", "last_administrator")
            }
            Reason::NotFirst => {
                let why = "there is an administrator already";
                Problem::new(Kind::Conflict, why).with("reason", "not_first")
            }
        }
    }
}

/// The record is not what the request says that it is.
pub(super) fn failed(why: String) -> Problem {
    Problem::new(
        Kind::PreconditionFailed,
        format!("nothing was changed: {why}"),
    )
}

fn invalid_field(Invalid { field, what }: &Invalid) -> Problem {
    let problem = Problem::new(Kind::InvalidBody, format!("`{field}`: {what}"));
    problem.with("pointer", format!("/{field}"))
}

fn named(target: &Target) -> String {
    match target {
        Target::User(name) => format!("a user {name:?}"),
        Target::Group(name) => format!("a group {name:?}"),
        Target::Rules => "a list of rules".to_owned(),
        Target::Person(name) => format!("a person {name:?}"),
        Target::Key(id) => format!("a key {id}"),
    }
}

fn without_article(name: &str) -> &str {
    name.strip_prefix("a ").unwrap_or(name)
}

/// There is no record of this name.
pub(super) fn missing(target: &Target) -> Problem {
    Problem::new(
        Kind::NotFound,
        format!("there is no {}", without_article(&named(target))),
    )
}

/// The name of a record whose path names it, unless the body names another one.
pub(super) fn name_of(path: String, body: Option<&String>) -> Result<Box<str>, Problem> {
    match body {
        Some(other) if *other != path => {
            let accepted = "that of the path, or missing";
            Err(wrong_field("/name", &Value::from(other.as_str()), accepted))
        }
        _ => Ok(path.into()),
    }
}

/// The name of a record that is to be made, and what the log is told that the request acts on.
pub(super) fn new_name(
    name: Option<String>,
) -> Result<(Box<str>, Extension<rights::Target>), Problem> {
    let Some(name) = name else {
        let problem = Problem::new(Kind::InvalidBody, "`name` is missing; it is to be a string");
        return Err(problem
            .with("pointer", "/name")
            .with("accepted", "a string"));
    };
    let target = rights::Target(name.clone());
    Ok((name.into(), Extension(target)))
}

/// Names in order, each once, as records have them.
pub(super) fn in_order(mut names: Vec<String>) -> Box<[Box<str>]> {
    names.sort();
    names.dedup();
    texts(names)
}

pub(super) fn texts(texts: Vec<String>) -> Box<[Box<str>]> {
    texts.into_iter().map(String::into_boxed_str).collect()
}

pub(super) fn strings(texts: &[Box<str>]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

/// The problem of rules that cannot be read.
pub(super) fn mistakes(pointer: &str, mistakes: &[authorization::Mistake]) -> Problem {
    let first = mistakes
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    let all = mistakes
        .iter()
        .map(|mistake| serde_json::json!({"line": mistake.line, "reason": mistake.reason}));
    let all: Vec<Value> = all.collect();
    let why = format!("the rules have mistakes; {first}");
    let problem = Problem::new(Kind::InvalidBody, why).with("pointer", pointer);
    problem.with("mistakes", all)
}
