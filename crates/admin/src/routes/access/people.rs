//! `/people`: who logs in at the HTTP port with a password.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use control::{Expect, Person, Put, Revision, Stored, Target, Verifier};
use serde::Deserialize;
use utoipa::IntoParams;
use zeroize::Zeroizing;

use super::asked::{Asked, ChangeParams, Outcome, counted, missing, name_of, new_name, tagged};
use super::current::Current;
use super::proof::generate;
use crate::access::{Access, WeakHashes};
use crate::api::{AccessEffects, KnownIn, NewPerson, PersonMade, PersonRow, RevisionNumber};
use crate::page::{Found, List, Page};
use crate::problem::{Kind, Problem};
use crate::rights::{Gate, Role};
use crate::routes::input::{Body, Params, Segment, limit};

/// Characters of the shortest password of a person.
pub(super) const SHORTEST: usize = 12;

/// Bytes of the longest one: argon2id takes any, and a request is bounded anyway.
const LONGEST: usize = 1_024;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeopleQuery {
    /// The most items, 1 to 500; 100 if it is not given.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// People in the order of their names: those of the control store, and those of the file of the asked node.
#[utoipa::path(get, path = "/api/v1/people", operation_id = "list_people", tag = "access", params(PeopleQuery, ("Control-Revision" = Option<u64>, Header, description = "Answer only when this node has this revision; it waits for 1 s, then 503 `not-ready`")), responses((status = 200, description = "A page of people", body = Page<PersonRow>)))]
pub(crate) async fn list(
    Current(access): Current,
    Extension(gate): Extension<Gate>,
    Params(query): Params<PeopleQuery>,
) -> Result<Json<Page<PersonRow>>, Problem> {
    let list = List::new("people", &[]);
    let after = query.after.as_deref().map(|cursor| list.key(cursor));
    let after = after.transpose()?;
    let most = usize::from(limit(query.limit.as_deref())?);
    let of_file = of_file(&gate);
    let people = access.view().people();
    let stored = people
        .iter()
        .filter(|(name, _)| !of_file.iter().any(|(other, _)| **other == ***name));
    let mut rows: Vec<PersonRow> = stored.map(|(name, person)| row(name, person)).collect();
    rows.extend(of_file.iter().map(|(name, role)| row_of_file(name, *role)));
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows.retain(|row| after.as_deref().is_none_or(|after| &*row.name > after));
    let is_more = rows.len() > most;
    rows.truncate(most);
    let found = Found {
        scanned: rows.len() as u64,
        last: rows.last().filter(|_| is_more).map(|row| row.name.clone()),
        items: rows,
        partial: Vec::new(),
    };
    Ok(Json(found.page(&list)))
}

/// Adds a person.
#[utoipa::path(post, path = "/api/v1/people", operation_id = "add_person", tag = "access", params(ChangeParams), request_body = NewPerson, responses((status = 200, description = "What it would do (`dry_run`)", body = AccessEffects), (status = 201, description = "The person, and the password if one was generated", body = PersonMade)))]
pub(crate) async fn add(
    asked: Asked,
    Extension(gate): Extension<Gate>,
    Body(mut body): Body<NewPerson>,
) -> Result<Response, Problem> {
    let (name, target) = new_name(body.name.take())?;
    let expect = asked.expect(Expect::New);
    let made = put(&asked, &gate, name, body, expect, None).await?;
    Ok((target, made).into_response())
}

/// A person.
#[utoipa::path(get, path = "/api/v1/people/{name}", operation_id = "get_person", tag = "access", params(("name" = String, Path, description = "The name of the person"), ("Control-Revision" = Option<u64>, Header, description = "Answer only when this node has this revision; it waits for 1 s, then 503 `not-ready`")), responses((status = 200, description = "The person; `ETag` has the revision", body = PersonRow)))]
pub(crate) async fn one(
    Current(access): Current,
    Extension(gate): Extension<Gate>,
    Segment(name): Segment<String>,
) -> Result<Response, Problem> {
    if let Some((name, role)) = of_file(&gate).into_iter().find(|(of, _)| *of == name) {
        return Ok(Json(row_of_file(&name, role)).into_response());
    }
    let person = access.view().person(&name);
    let person = person.ok_or_else(|| missing(&Target::Person(name.as_str().into())))?;
    Ok(tagged(person.revision, Json(row(&name, &person))))
}

/// Replaces a person, or adds one: what the body does not say has its default, and the password stays if the body has none. Whoever is logged in
/// with a password that counts no more is logged out at all nodes. `If-Match` and `If-None-Match: *` are conditions.
#[utoipa::path(put, path = "/api/v1/people/{name}", operation_id = "put_person", tag = "access", params(("name" = String, Path, description = "The name of the person"), ChangeParams), request_body = NewPerson, responses((status = 200, description = "The person, and the password if one was generated; or what it would do (`dry_run`)", body = PersonMade), (status = 201, description = "The person is new", body = PersonMade)))]
pub(crate) async fn replace(
    asked: Asked,
    Extension(gate): Extension<Gate>,
    Segment(name): Segment<String>,
    Body(body): Body<NewPerson>,
) -> Result<Response, Problem> {
    let name = name_of(name, body.name.as_ref())?;
    let before = asked.access.view().person(&name);
    let expect = asked.expect(Expect::Any);
    put(&asked, &gate, name, body, expect, before.as_deref()).await
}

/// Removes a person, who is logged out at all nodes.
#[utoipa::path(delete, path = "/api/v1/people/{name}", operation_id = "remove_person", tag = "access", params(("name" = String, Path, description = "The name of the person"), ChangeParams), responses((status = 200, description = "What it would do (`dry_run`)", body = AccessEffects), (status = 204, description = "The person is removed")))]
pub(crate) async fn remove(
    asked: Asked,
    Extension(gate): Extension<Gate>,
    Segment(name): Segment<String>,
) -> Result<Response, Problem> {
    not_of_file(&gate, &name)?;
    let put = Put::Person(name.into(), None);
    match asked.make(asked.expect(Expect::Known), put).await? {
        Outcome::Made(made) => Ok(counted(&made, StatusCode::NO_CONTENT)),
        Outcome::Dry(answer) => Ok(answer),
    }
}

async fn put(
    asked: &Asked,
    gate: &Gate,
    name: Box<str>,
    body: NewPerson,
    expect: Expect,
    before: Option<&Stored<Person>>,
) -> Result<Response, Problem> {
    not_of_file(gate, &name)?;
    let access = &*asked.access;
    let proof = Proof::read(access, body.password, body.generate, body.hash)?;
    // A password that stays must be the one that this node knows of.
    let expect = match (&proof, before, expect) {
        (Proof::None, Some(before), Expect::Any | Expect::Known) => {
            Expect::Revision(before.revision)
        }
        _ => expect,
    };
    let must_change = body.must_change.unwrap_or(match &proof {
        Proof::None => before.is_some_and(|before| before.record.must_change),
        Proof::Password(_) | Proof::Generate => true,
        Proof::Hash(_) => false,
    });
    let kept = before.map(|before| before.record.hash.clone());
    let (hash, secret) = proof.settle(access, kept, asked.is_dry_run).await?;
    let person = Person {
        role: body.role.unwrap_or(Role::Viewer).into(),
        audits: body.audits,
        enabled: body.enabled.unwrap_or(true),
        hash,
        must_change,
        note: body.note.into(),
        logins_since: Revision(0),
    };
    let status = match before {
        Some(_) => StatusCode::OK,
        None => StatusCode::CREATED,
    };
    let put = Put::Person(name.clone(), Some(Box::new(person.clone())));
    match asked.make(expect, put).await? {
        Outcome::Dry(answer) => Ok(answer),
        Outcome::Made(made) => {
            let revision = made.revision;
            let now = asked.access.view().person(&name);
            // It may be gone again.
            let record = person;
            let now = now.map_or(Stored { revision, record }, |now| (*now).clone());
            let person = row(&name, &now);
            let secret = secret.map(|secret| secret.to_string());
            let answer = (status, Json(PersonMade { person, secret }));
            Ok(tagged(now.revision, counted(&made, answer)))
        }
    }
}

/// What a request says of a password.
enum Proof {
    None,
    Password(Zeroizing<String>),
    Generate,
    Hash(Box<str>),
}

impl Proof {
    fn read(
        access: &dyn Access,
        password: Option<String>,
        generate: bool,
        hash: Option<String>,
    ) -> Result<Self, Problem> {
        let (password, hash) = (password.map(Zeroizing::new), hash.map(Zeroizing::new));
        match (password, generate, hash) {
            (None, false, None) => Ok(Self::None),
            (Some(password), false, None) => {
                long_enough("password", &password)?;
                Ok(Self::Password(password))
            }
            (None, true, None) => Ok(Self::Generate),
            (None, false, Some(hash)) => match access.verifier(hash.trim(), WeakHashes::Refuse) {
                Ok(Verifier::Hash(hash)) => Ok(Self::Hash(hash)),
                Ok(Verifier::Scram(_) | Verifier::Secret(_)) => Err(wrong(
                    "hash",
                    "a hash by argon2id, bcrypt or mosquitto_passwd",
                )),
                Err(why) => Err(wrong(
                    "hash",
                    &format!("a hash of a password; it has {why}"),
                )),
            },
            _ => {
                let why = "at most one of `password`, `generate` and `hash` can be given";
                Err(Problem::new(Kind::InvalidBody, why))
            }
        }
    }

    /// The hash, and the password that was made. `before`: what is kept if the request says nothing.
    async fn settle(
        self,
        access: &dyn Access,
        before: Option<Option<Box<str>>>,
        is_dry_run: bool,
    ) -> Result<(Option<Box<str>>, Option<Zeroizing<String>>), Problem> {
        let password = match self {
            Self::None => {
                let before = before.ok_or_else(|| {
                    let why = "a new person needs one of `password`, `generate` and `hash`";
                    Problem::new(Kind::InvalidBody, why)
                })?;
                return Ok((before, None));
            }
            Self::Hash(hash) => return Ok((Some(hash), None)),
            // A dry run hashes nothing, and shows no password: what stands for it is different from what there is.
            Self::Password(_) | Self::Generate if is_dry_run => {
                return Ok((Some("-".into()), None));
            }
            Self::Password(password) => (password, false),
            Self::Generate => (generate(), true),
        };
        let (password, is_made) = password;
        let hash = hashed(access, password.clone()).await?;
        Ok((Some(hash), is_made.then_some(password)))
    }
}

/// The hash of a password.
pub(crate) async fn hashed(
    access: &dyn Access,
    password: Zeroizing<String>,
) -> Result<Box<str>, Problem> {
    match access.hash(password).await? {
        Verifier::Hash(hash) => Ok(hash),
        Verifier::Scram(_) | Verifier::Secret(_) => {
            unreachable!("a password is hashed as passwords are")
        }
    }
}

/// That a password is long enough for a person.
pub(crate) fn long_enough(field: &str, password: &str) -> Result<(), Problem> {
    let is_short = password.chars().count() < SHORTEST;
    match is_short || password.len() > LONGEST {
        true => {
            let accepted = format!("at least {SHORTEST} characters, and at most {LONGEST} bytes");
            Err(wrong(field, &accepted))
        }
        false => Ok(()),
    }
}

/// The problem of a field whose value is not shown.
fn wrong(field: &str, accepted: &str) -> Problem {
    let problem = Problem::new(Kind::InvalidBody, format!("`{field}` is to be {accepted}"));
    problem
        .with("pointer", format!("/{field}"))
        .with("accepted", accepted)
}

fn of_file(gate: &Gate) -> Vec<(String, Role)> {
    let people = gate.rights().people();
    people.map(|people| people.all()).unwrap_or_default()
}

/// That the file does not have the person: what is changed would not count.
fn not_of_file(gate: &Gate, name: &str) -> Result<(), Problem> {
    let people = gate.rights().people();
    match people.is_some_and(|people| people.role(name).is_some()) {
        true => {
            let why =
                format!("{name:?} is in http.userFile of this node, which counts: change it there");
            Err(Problem::new(Kind::Conflict, why).with("reason", "of_file"))
        }
        false => Ok(()),
    }
}

fn row_of_file(name: &str, role: Role) -> PersonRow {
    PersonRow {
        name: name.to_owned(),
        source: KnownIn::File,
        revision: RevisionNumber(0),
        role,
        audits: false,
        enabled: true,
        has_password: true,
        must_change: false,
        note: String::new(),
    }
}

fn row(name: &str, person: &Stored<Person>) -> PersonRow {
    let Stored { revision, record } = person;
    PersonRow {
        name: name.to_owned(),
        source: KnownIn::Store,
        revision: RevisionNumber(revision.0),
        role: record.role.into(),
        audits: record.audits,
        enabled: record.enabled,
        has_password: record.hash.is_some(),
        must_change: record.must_change,
        note: record.note.to_string(),
    }
}
