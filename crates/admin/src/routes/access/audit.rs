//! `/audit`: who has changed what.
//!
//! Invariant: all of it is read from the asked node's own copy, in parts, so that neither the store nor other requests wait.

use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use control::{Audited, ChainHash, EntryNumber, Recorded, UnixMs};
use control_document::{AUDIT_FORMAT, AuditLine, Said, hash_text, to_hex};
use futures_util::stream;
use serde::Deserialize;
use tokio::task::spawn_blocking;
use utoipa::IntoParams;

use crate::access::{Access, AuditPart};
use crate::api::{Amount, At, AuditField, AuditHead, AuditRow, RevisionNumber};
use crate::api_state::ListTurn;
use crate::page::{Found, List, Page};
use crate::problem::{Kind, Problem};
use crate::routes::input::{Params, limit};

/// Entries that are read at once.
const AT_ONCE: u64 = 256;

/// Entries that are looked at for one page, at most.
const SCANNED: u64 = 4_096;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Not before, in ms of Unix time or such as 2026-11-24T10:12:03Z.
    since: Option<String>,
    /// Before, in ms of Unix time or such as 2026-11-24T10:12:03Z.
    until: Option<String>,
    /// Who.
    actor: Option<String>,
    /// What the action begins with, such as `user.`.
    action: Option<String>,
    /// To what.
    target: Option<String>,
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Which entries are asked for.
struct Wanted {
    times: RangeInclusive<UnixMs>,
    actor: Option<String>,
    action: Option<String>,
    target: Option<String>,
}

impl Wanted {
    fn has(&self, row: &Said) -> bool {
        let is = |asked: &Option<String>, found: &str| {
            asked.as_deref().is_none_or(|asked| asked == found)
        };
        let begins = |prefix: &String| row.action.starts_with(prefix.as_str());
        self.times.contains(&row.at_ms)
            && is(&self.actor, &row.actor)
            && is(&self.target, &row.target)
            && self.action.as_ref().is_none_or(begins)
    }
}

/// The audit, the latest entry first, as this node has it. A page may have fewer entries than asked for, and still a next one: it ends after 4,096
/// entries that were looked at.
#[utoipa::path(get, path = "/api/v1/audit", operation_id = "list_audit", tag = "access", params(AuditQuery), responses((status = 200, description = "A page of entries; besides administrators, people and keys that may audit are let in", body = Page<AuditRow>)))]
pub(crate) async fn list(
    State(access): State<Arc<dyn Access>>,
    _turn: ListTurn,
    Params(query): Params<AuditQuery>,
) -> Result<Json<Page<AuditRow>>, Problem> {
    let filters = [
        &query.since,
        &query.until,
        &query.actor,
        &query.action,
        &query.target,
    ];
    let list = List::new("audit", &filters.map(|filter| filter.as_deref()));
    let after = query.after.as_deref().map(|cursor| list.key(cursor));
    let after = after.transpose()?.map(|key| {
        let number = key.parse().map(EntryNumber);
        number.map_err(|_| Problem::new(Kind::InvalidCursor, "`after` is no cursor of the audit"))
    });
    let before = after.transpose()?;
    let most = usize::from(limit(query.limit.as_deref())?);
    let since = time("since", query.since.as_deref())?;
    let until = time("until", query.until.as_deref())?;
    let wanted = Wanted {
        times: UnixMs(since.unwrap_or(0))
            ..=UnixMs(until.map_or(u64::MAX, |ms| ms.saturating_sub(1))),
        actor: query.actor,
        action: query.action,
        target: query.target,
    };
    let found = spawn_blocking(move || walk(&*access, &wanted, before, most));
    let found = found.await.map_err(|error| {
        tracing::error!(%error, "the audit was not read");
        Problem::new(Kind::Internal, "the audit could not be read")
    })??;
    Ok(Json(found.page(&list)))
}

/// Walks from the latest entry, or the one before `before`, to the first one.
fn walk(
    access: &dyn Access,
    wanted: &Wanted,
    before: Option<EntryNumber>,
    most: usize,
) -> Result<Found<AuditRow>, Problem> {
    let kept = part(access, EntryNumber(0), 0)?.kept;
    let mut end = before.map_or(kept.end, |before| before.min(kept.end));
    let mut found = Found {
        items: Vec::new(),
        last: None,
        partial: Vec::new(),
        scanned: 0,
    };
    while end > kept.start && found.scanned < SCANNED {
        let from = EntryNumber(end.0.saturating_sub(AT_ONCE).max(kept.start.0));
        let count = usize::try_from(end.0 - from.0).unwrap_or(0);
        let read = part(access, from, count)?;
        for (number, recorded) in read.entries.iter().rev() {
            found.scanned += 1;
            end = *number;
            let said = said(*number, recorded)?;
            if wanted.has(&said) {
                found.items.push(row(*number, said, recorded));
                if found.items.len() == most {
                    break;
                }
            }
        }
        // They were cut meanwhile.
        if read.entries.is_empty() {
            return Ok(found);
        }
        if found.items.len() == most {
            break;
        }
    }
    found.last = (end > kept.start).then(|| end.0.to_string());
    Ok(found)
}

fn part(access: &dyn Access, from: EntryNumber, limit: usize) -> Result<AuditPart, Problem> {
    access.audit(from, limit).ok_or_else(|| {
        let why = "this node has no copy of the audit that it can read: nothing was changed yet, or ask another node";
        Problem::new(Kind::NotReady, why)
    })
}

fn said(number: EntryNumber, recorded: &Recorded) -> Result<Said, Problem> {
    let entry = Audited::read(&recorded.bytes).map_err(|error| {
        tracing::error!(%error, number = number.0, "an entry of the audit cannot be read");
        Problem::new(Kind::Internal, format!("entry {} cannot be read", number.0))
    })?;
    Ok(Said::of(&entry))
}

fn row(EntryNumber(number): EntryNumber, said: Said, recorded: &Recorded) -> AuditRow {
    let fields = said.fields.into_iter().map(|field| AuditField {
        name: field.name,
        before: field.before,
        after: field.after,
    });
    AuditRow {
        number: Amount(number),
        at: At::unix_ms(said.at_ms.0),
        actor: said.actor,
        means: said.means,
        address: said.address,
        node: said.node,
        action: said.action,
        target: said.target,
        fields: fields.collect(),
        revision: RevisionNumber(said.revision.0),
        hash: hash_text(recorded.hash),
    }
}

/// A time in ms of Unix time.
fn time(name: &str, text: Option<&str>) -> Result<Option<u64>, Problem> {
    let read = |text: &str| {
        if let Ok(ms) = text.parse() {
            return Some(ms);
        }
        let time = humantime::parse_rfc3339_weak(text).ok()?;
        let since_1970 = time.duration_since(std::time::UNIX_EPOCH).ok()?;
        u64::try_from(since_1970.as_millis()).ok()
    };
    let wrong = || {
        let why =
            format!("`{name}` is to be a time such as 2026-11-24T10:12:03Z, or ms of Unix time");
        Problem::parameter(name, why)
    };
    text.map(|text| read(text).ok_or_else(wrong)).transpose()
}

/// How far the audit is. To keep the head elsewhere makes it possible to tell whether somebody has rewritten the audit on all nodes.
#[utoipa::path(get, path = "/api/v1/audit/head", operation_id = "get_audit_head", tag = "access", responses((status = 200, description = "The head", body = AuditHead)))]
pub(crate) async fn head(
    State(access): State<Arc<dyn Access>>,
    _turn: ListTurn,
) -> Result<Json<AuditHead>, Problem> {
    let read = read(&access, EntryNumber(0), 0).await?;
    Ok(Json(AuditHead {
        first: Amount(read.kept.start.0),
        next: Amount(read.kept.end.0),
        head: hash_text(read.head),
    }))
}

async fn read(
    access: &Arc<dyn Access>,
    from: EntryNumber,
    limit: usize,
) -> Result<AuditPart, Problem> {
    let access = Arc::clone(access);
    let read = spawn_blocking(move || part(&*access, from, limit)).await;
    read.map_err(|error| {
        tracing::error!(%error, "the audit was not read");
        Problem::new(Kind::Internal, "the audit could not be read")
    })?
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportQuery {
    /// The number of the first entry; without it the first one that is kept.
    #[param(value_type = Option<u64>)]
    from: Option<String>,
}

/// Where an export is.
enum Export {
    Entries {
        next: EntryNumber,
        end: EntryNumber,
        /// The hash of the entry before.
        before: Option<ChainHash>,
    },
    Done,
}

/// The audit as lines of JSON, the first entry first: a line that says where it begins, a line for each entry, a line with the head. What is added while it
/// is read is not in it. `heraldmq audit verify` says whether it is whole. An export that ends without its last line has failed.
#[utoipa::path(get, path = "/api/v1/audit/export", operation_id = "export_audit", tag = "access", params(ExportQuery), responses((status = 200, description = "Lines of JSON", content_type = "application/x-ndjson", body = String)))]
pub(crate) async fn export(
    State(access): State<Arc<dyn Access>>,
    turn: ListTurn,
    Params(query): Params<ExportQuery>,
) -> Result<Response, Problem> {
    let from = query.from.map(|text| {
        text.parse()
            .map_err(|_| Problem::parameter("from", "`from` is to be the number of an entry"))
    });
    let from = EntryNumber(from.transpose()?.unwrap_or(0));
    let kept = read(&access, EntryNumber(0), 0).await?.kept;
    let first = from.max(kept.start).min(kept.end);
    // The entry before is read for its hash, if it is kept.
    let before = match first {
        EntryNumber(0) => Some(ChainHash::EMPTY),
        first if first > kept.start => {
            let read = read(&access, EntryNumber(first.0 - 1), 1).await?;
            read.entries.first().map(|(_, entry)| entry.hash)
        }
        _ => None,
    };
    let begin = AuditLine::Begin {
        format: AUDIT_FORMAT.to_owned(),
        first: first.0,
        before: before.map(hash_text),
    };
    let state = Export::Entries {
        next: first,
        end: kept.end,
        before,
    };
    let begin = stream::iter([Ok::<_, Problem>(line(&begin))]);
    let entries =
        stream::try_unfold(
            (state, access, turn),
            async |(state, access, turn)| match state {
                Export::Entries { next, end, before } => {
                    let (text, state) = chunk(&access, next, end, before).await?;
                    Ok(Some((text, (state, access, turn))))
                }
                Export::Done => Ok(None),
            },
        );
    let body = Body::from_stream(stream::StreamExt::chain(begin, entries));
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, body).into_response())
}

/// Some lines, and where the export goes on.
async fn chunk(
    access: &Arc<dyn Access>,
    next: EntryNumber,
    end: EntryNumber,
    before: Option<ChainHash>,
) -> Result<(Bytes, Export), Problem> {
    if next >= end {
        let last = AuditLine::End {
            next: end.0,
            head: hash_text(before.unwrap_or(ChainHash::EMPTY)),
        };
        return Ok((line(&last), Export::Done));
    }
    let count = usize::try_from((end.0 - next.0).min(AT_ONCE)).unwrap_or(0);
    let read = read(access, next, count).await?;
    let is_first = |(number, _): &(EntryNumber, Arc<Recorded>)| *number == next;
    if !read.entries.first().is_some_and(is_first) {
        let why = "entries were cut while they were exported: begin again";
        return Err(Problem::new(Kind::NotReady, why));
    }
    let (mut text, mut next, mut before) = (Vec::new(), next, before);
    for (number, recorded) in read.entries {
        let entry = AuditLine::Entry {
            number: number.0,
            said: said(number, &recorded)?,
            bytes: to_hex(&recorded.bytes),
            hash: hash_text(recorded.hash),
        };
        text.extend_from_slice(&line(&entry));
        before = Some(recorded.hash);
        next = number.next();
    }
    Ok((text.into(), Export::Entries { next, end, before }))
}

fn line(line: &AuditLine) -> Bytes {
    let mut text = serde_json::to_vec(line).expect("a line is JSON");
    text.push(b'\n');
    text.into()
}
