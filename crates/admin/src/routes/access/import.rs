//! `/control/import`: users, groups, rules, people and keys from a document, in one operation.
//!
//! Invariant: nothing is changed unless all of the document can be taken over, and all records that it changes are those that the plan
//! was made from.

use authorization::Rules;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts as _, Request};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use control::{Bounds, Put, Reason, Records, Refused, Revision, Target};
use control_document::{Document, Mode, Plan, Step, What, Whose, Wrong, plan};
use control_view::View;
use serde::Deserialize;
use tokio::task::spawn_blocking;
use utoipa::IntoParams;

use super::asked::{Asked, Condition, counted, failed, mistakes, off, wrong_header};
use super::current::until;
use super::export::{copy, without_users};
use crate::access::{Access, WeakHashes};
use crate::api::{AccessImported, AccessKind, AccessPlanned, Amount, RevisionNumber, Would};
use crate::api_state::Api;
use crate::problem::{Kind, Problem};
use crate::rights::Untold;
use crate::routes::input::{Params, is_json, word};
use crate::routes::reading;

/// The path whose bodies may be long.
pub(crate) const IMPORT: &str = "/api/v1/control/import";

/// Bytes of the longest body: the 2 MiB of one operation, and what YAML or JSON adds to them.
pub(crate) const LARGEST_IMPORT: usize = 4 << 20;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportParams {
    /// `merge`, which is also without it: records that the document does not name stay. `replace`: records that it does not name
    /// are removed, if it has the section that they belong in.
    #[param(value_type = Option<String>)]
    mode: Option<String>,
    /// `true`: say what it would do, and change nothing.
    #[param(value_type = Option<bool>)]
    dry_run: Option<String>,
    /// Change something only if this is the last change of users, groups and rules; else 412 `precondition-failed`.
    #[param(value_type = Option<u64>)]
    revision: Option<String>,
    /// `true`: take weak hashes of users, too: one round of SHA, from Mosquitto before 2.0 or EMQX.
    #[param(value_type = Option<bool>)]
    accept_weak_hashes: Option<String>,
}

/// An import that somebody asks for.
pub(crate) struct Importing {
    asked: Asked,
    mode: Mode,
    revision: Option<Revision>,
    weak_hashes: WeakHashes,
    body: Bytes,
    is_json: bool,
}

impl FromRequest<Api> for Importing {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Params(params) = Params::<ImportParams>::from_request_parts(&mut parts, api).await?;
        let mode = word(
            "mode",
            params.mode.as_deref(),
            "merge or replace",
            |text| match text {
                "merge" => Some(Mode::Merge),
                "replace" => Some(Mode::Replace),
                _ => None,
            },
        )?;
        let accepted = "a revision, such as 1841";
        let revision = word("revision", params.revision.as_deref(), accepted, |text| {
            text.parse().ok().map(Revision)
        })?;
        let accepts_weak = word(
            "accept_weak_hashes",
            params.accept_weak_hashes.as_deref(),
            "true or false",
            |text| text.parse().ok(),
        )?;
        let asked = Asked::read(&mut parts, api, params.dry_run.as_deref()).await?;
        if asked.condition != Condition::None {
            let accepted = "missing: the parameter `revision` says what an import must find";
            return Err(wrong_header(&header::IF_MATCH, accepted));
        }
        let is_json = is_json_body(&parts.headers)?;
        let body = Bytes::from_request(Request::from_parts(parts, body), api).await;
        let body = body.map_err(|_| {
            let why = "the body is longer than this path reads, or has not come in full";
            Problem::new(Kind::TooLarge, why)
        })?;
        Ok(Self {
            asked,
            mode: mode.unwrap_or_default(),
            revision,
            weak_hashes: match accepts_weak {
                Some(true) => WeakHashes::Accept,
                Some(false) | None => WeakHashes::Refuse,
            },
            body,
            is_json,
        })
    }
}

/// Whether the body is JSON; if not, it is YAML.
fn is_json_body(headers: &HeaderMap) -> Result<bool, Problem> {
    let given = headers.get(header::CONTENT_TYPE);
    let given = given.map(|given| String::from_utf8_lossy(given.as_bytes()).into_owned());
    let given = given.unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    match kind.to_ascii_lowercase().as_str() {
        "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(false),
        kind if is_json(kind) => Ok(true),
        _ => {
            let accepted = "application/yaml or application/json";
            let why = format!(
                "the Content-Type header is `{}`; {accepted} is expected",
                reading::shortened(&given)
            );
            let problem = Problem::new(Kind::UnsupportedMediaType, why);
            Err(problem
                .with("header", "Content-Type")
                .with("accepted", accepted))
        }
    }
}

/// Takes over users, groups, rules, people and keys from a document as `GET /control/export` writes it, in YAML or JSON, all of it or nothing. A user without `hashes` and `secrets`, a person without `hash` and a key without `secrets`
/// keep what they have. The document may change 1,000 records; `heraldmq control import` sends longer ones in parts. `remove` in the document
/// has lists `users`, `groups`, `people` and `keys` of those that are removed.
#[utoipa::path(post, path = "/api/v1/control/import", operation_id = "import_control", tag = "access", params(ImportParams), request_body(content = String, content_type = "application/yaml", description = "The document, 4 MiB at most"), responses((status = 200, description = "What has changed; or what would (`dry_run`)", body = AccessImported)))]
pub(crate) async fn import(importing: Importing) -> Result<Response, Problem> {
    let Importing {
        asked,
        mode,
        revision,
        weak_hashes,
        body,
        is_json,
    } = importing;
    let view = asked.access.view();
    if let Some(expected) = revision {
        until(&view, expected).await?;
    }
    let access = asked.access.clone();
    let planned = spawn_blocking(move || {
        let document = match is_json {
            true => reading::body(&body)?,
            false => yaml(&body)?,
        };
        planned(&*access, &document, mode, weak_hashes)
    });
    let planned = planned.await.map_err(|error| {
        tracing::error!(%error, "an import was not planned");
        Problem::new(Kind::Internal, "the import could not be planned")
    })?;
    if view.is_off() {
        return Err(off());
    }
    let Plan { steps, counts } = planned?;
    if let Some(expected) = revision {
        // The plan was made from no other records.
        is_still(&view, expected)?;
    }
    let amount = |count: usize| Amount(count as u64);
    let mut imported = AccessImported {
        revision: RevisionNumber(view.revision().0),
        created: amount(counts.created),
        changed: amount(counts.changed),
        removed: amount(counts.removed),
        kept: amount(counts.kept),
        plan: None,
    };
    if asked.is_dry_run {
        imported.plan = Some(steps.iter().filter_map(shown).collect());
    }
    if asked.is_dry_run || steps.is_empty() {
        return Ok((Extension(Untold), Json(imported)).into_response());
    }
    let changes = steps.iter().map(|step| step.change.clone()).collect();
    let refuse = |refused: Refused| {
        let Some(step) = steps.get(refused.which) else {
            return asked.refused(&Target::Rules, refused.why);
        };
        match refused.why {
            // The plan says of each record what it was.
            Reason::Exists | Reason::Missing | Reason::Revision(_) => match revision {
                Some(_) => failed("a record has changed meanwhile".to_owned()),
                None => {
                    let why = "nothing was changed: a record has changed meanwhile; try again";
                    Problem::new(Kind::Conflict, why).with("reason", "changed_meanwhile")
                }
            },
            why => asked
                .refused(&step.change.target(), why)
                .with("pointer", step.at.as_str()),
        }
    };
    let made = asked.import(changes, refuse).await?;
    imported.revision = RevisionNumber(made.revision.0);
    Ok(counted(&made, Json(imported)))
}

fn is_still(view: &View, expected: Revision) -> Result<(), Problem> {
    let found = view.revision();
    match found == expected {
        true => Ok(()),
        false => {
            let why = format!(
                "the last change is {}, and not {}: export again",
                found.0, expected.0
            );
            Err(failed(why).with("revision", found.0))
        }
    }
}

fn yaml(body: &[u8]) -> Result<Document, Problem> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Problem::new(Kind::InvalidBody, "the body is not UTF-8"))?;
    Document::parse(text).map_err(|error| {
        let why = format!("the document cannot be read; {error}");
        Problem::new(Kind::InvalidBody, why).with("line", error.line)
    })
}

/// What a document changes, if all of it can be taken over in one operation.
fn planned(
    access: &dyn Access,
    document: &Document,
    mode: Mode,
    weak_hashes: WeakHashes,
) -> Result<Plan, Problem> {
    let view = access.view();
    let before = match mode {
        Mode::Merge if document.remove.groups.is_empty() => named(&view, document),
        Mode::Merge | Mode::Replace => copy(&view),
    };
    let planned = plan(&before, document, mode, &|whose, hash| match whose {
        Whose::User => access.verifier(hash, weak_hashes),
        Whose::Person => access.verifier(hash, WeakHashes::Refuse),
    });
    let planned = planned.map_err(|wrong| unusable(&wrong))?;
    let bounds = Bounds::FIXED;
    let many = |what: &str| {
        let why = format!(
            "there are more {what} than the store takes: `heraldmq control import` sends the document in parts"
        );
        Problem::new(Kind::WouldExceed, why).with("limit", what)
    };
    if planned.steps.len() > bounds.changes {
        return Err(many("changes in one operation"));
    }
    let bytes: usize = planned.steps.iter().map(|step| step.change.bytes()).sum();
    if bytes > bounds.operation_bytes {
        return Err(many("bytes in one operation"));
    }
    for step in &planned.steps {
        readable(step)?;
    }
    Ok(planned)
}

/// The records that a document names.
fn named(view: &View, document: &Document) -> Records {
    let names = document.users.iter().map(|entry| &entry.name);
    let names = names.chain(&document.remove.users);
    let users = names.filter_map(|name| Some((name.as_str().into(), view.user(name)?)));
    Records {
        users: users.collect(),
        ..without_users(view)
    }
}

/// Whether the rules of a record can be read.
fn readable(step: &Step) -> Result<(), Problem> {
    let lines: &[Box<str>] = match &step.change.put {
        Put::User(_, Some(user)) => &user.rules,
        Put::Group(_, Some(group)) => &group.rules,
        Put::Rules(list) => {
            let read = Rules::parse(&list.0.join("\n"));
            return read.map(drop).map_err(|found| mistakes("/rules", &found));
        }
        Put::User(_, None) | Put::Group(_, None) | Put::Person(..) | Put::Key(..) => &[],
    };
    let read = Rules::from_lines(lines);
    let at = format!("{}/rules", step.at);
    read.map(drop).map_err(|found| mistakes(&at, &found))
}

fn unusable(wrong: &Wrong) -> Problem {
    let problem = Problem::new(Kind::InvalidBody, wrong.to_string());
    problem.with("pointer", wrong.at.as_str())
}

/// A step as answers show it; `None`: another step changes the record again.
fn shown(step: &Step) -> Option<AccessPlanned> {
    if step.is_between {
        return None;
    }
    let (kind, name) = match step.change.target() {
        Target::User(name) => (AccessKind::User, name.into()),
        Target::Group(name) => (AccessKind::Group, name.into()),
        Target::Rules => (AccessKind::Rules, String::new()),
        Target::Person(name) => (AccessKind::Person, name.into()),
        Target::Key(id) => (AccessKind::Key, id.to_string()),
    };
    let would = match step.what {
        What::Create => Would::Create,
        What::Change => Would::Replace,
        What::Remove => Would::Remove,
    };
    Some(AccessPlanned { kind, name, would })
}
