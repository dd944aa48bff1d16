//! Entries of a document from and to records of the store.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use control::{
    ApiKey, Group, Hash, Invalid, Person, Priority, Records, Revision, Role, RuleList, Stored,
    Target, UnixMs, User, Verifier,
};

use crate::document::{Document, Format, GroupEntry, Removals, UserEntry};
use crate::people::{KeyEntry, KeyIdEntry, PersonEntry};

/// The last time that RFC 3339 can write with four digits of a year, in ms of Unix time.
const LAST_MS: u64 = 253_402_300_799_999;

/// What a hash of a password file is kept as, or why it cannot be used; the reason has nothing of the hash.
pub type Reading<'a> = &'a dyn Fn(Whose, &str) -> Result<Verifier, String>;

/// Whose hash it is: a reader may accept weak hashes of users, and never of people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// A user of MQTT clients.
    User,
    /// A person who logs in at the HTTP port.
    Person,
}

/// Why a document cannot be taken over. It has no hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// Where it stands in the document, as RFC 6901 writes it: `/users/3/hashes`.
    pub at: String,
    /// The record.
    pub record: Target,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.record {
            Target::User(name) => write!(f, "user {name:?}: {}", self.what),
            Target::Group(name) => write!(f, "group {name:?}: {}", self.what),
            Target::Rules => write!(f, "rules: {}", self.what),
            Target::Person(name) => write!(f, "person {name:?}: {}", self.what),
            Target::Key(id) => write!(f, "key {id}: {}", self.what),
        }
    }
}

impl std::error::Error for Wrong {}

impl Document {
    /// All records, in the order of their names. Without secrets, users, people and keys have neither hashes nor SHA-256 of random
    /// secrets, and such a document changes only those that are there.
    #[must_use]
    pub fn of(records: &Records, with_secrets: bool) -> Self {
        let groups = records.groups.iter();
        let users = records.users.iter();
        let (people, keys) = (records.people.iter(), records.keys.iter());
        Self {
            format: Format::V1,
            groups: groups
                .map(|(name, group)| GroupEntry::of(name, &group.record))
                .collect(),
            users: users
                .map(|(name, user)| UserEntry::of(name, &user.record, with_secrets))
                .collect(),
            rules: Some(strings(&records.rules.record.0)),
            people: people
                .map(|(name, person)| PersonEntry::of(name, &person.record, with_secrets))
                .collect(),
            keys: keys
                .map(|(id, key)| KeyEntry::of(*id, &key.record, with_secrets))
                .collect(),
            remove: Removals::default(),
        }
    }
}

impl Document {
    /// The records of a document that has all of them, each as of this revision. Users and people may have nothing to log in with, and
    /// keys no secret.
    ///
    /// # Errors
    /// The first entry that is no record, as [`UserEntry::user`], [`GroupEntry::group`], [`PersonEntry::person`] and
    /// [`KeyEntry::key`] say.
    pub fn records(&self, revision: Revision, read: Reading<'_>) -> Result<Records, Wrong> {
        let wrong = |record, Invalid { field, what }| Wrong {
            at: String::new(),
            record,
            what: format!("`{field}`: {what}"),
        };
        let groups = self.groups.iter().map(|entry| {
            let name: Box<str> = entry.name.as_str().into();
            match entry.group() {
                Ok(record) => Ok((name, Arc::new(Stored { revision, record }))),
                Err(error) => Err(wrong(Target::Group(name), error)),
            }
        });
        let nobody = nobody();
        let users = self.users.iter().map(|entry| {
            let name: Box<str> = entry.name.as_str().into();
            match entry.user(Some(&nobody), read) {
                Ok(record) => Ok((name, Arc::new(Stored { revision, record }))),
                Err(error) => Err(wrong(Target::User(name), error)),
            }
        });
        let rules = rules(self.rules.as_deref().unwrap_or_default());
        let record = rules.map_err(|error| wrong(Target::Rules, error))?;
        let without_password = nobody_in_person();
        let people = self.people.iter().map(|entry| {
            let name: Box<str> = entry.name.as_str().into();
            match entry.person(Some(&without_password), read) {
                Ok(record) => Ok((name, Arc::new(Stored { revision, record }))),
                Err(error) => Err(wrong(Target::Person(name), error)),
            }
        });
        let without_secrets = no_key();
        let keys = self.keys.iter().map(|entry| {
            let KeyIdEntry(id) = entry.id;
            match entry.key(Some(&without_secrets)) {
                Ok(record) => Ok((id, Arc::new(Stored { revision, record }))),
                Err(error) => Err(wrong(Target::Key(id), error)),
            }
        });
        Ok(Records {
            revision,
            users: users.collect::<Result<_, _>>()?,
            groups: Arc::new(groups.collect::<Result<_, _>>()?),
            rules: Arc::new(Stored { revision, record }),
            people: Arc::new(people.collect::<Result<_, _>>()?),
            keys: Arc::new(keys.collect::<Result<_, _>>()?),
        })
    }
}

/// A user that nobody can log in as.
pub(crate) fn nobody() -> User {
    User {
        enabled: true,
        verifiers: Box::default(),
        groups: Box::default(),
        rules: Box::default(),
        client_ids: None,
        class: None,
        superuser: false,
        ends_ms: None,
        note: Box::default(),
        logins_since: Revision(0),
    }
}

/// A person who cannot log in.
fn nobody_in_person() -> Person {
    Person {
        role: Role::Viewer,
        audits: false,
        enabled: true,
        hash: None,
        must_change: false,
        note: Box::default(),
        logins_since: Revision(0),
    }
}

/// A key without a secret.
fn no_key() -> ApiKey {
    ApiKey {
        name: Box::default(),
        role: Role::Viewer,
        audits: false,
        created_ms: UnixMs(0),
        ends_ms: None,
        secrets: Box::default(),
    }
}

impl GroupEntry {
    /// The entry of a group.
    #[must_use]
    pub fn of(name: &str, group: &Group) -> Self {
        let Priority(priority) = group.priority;
        Self {
            name: name.to_owned(),
            priority,
            rules: strings(&group.rules),
            includes: strings(&group.includes),
            class: group.class.as_deref().map(str::to_owned),
            note: group.note.to_string(),
        }
    }

    /// The record of the entry.
    ///
    /// # Errors
    /// The group holds more than a group may, or includes itself.
    pub fn group(&self) -> Result<Group, Invalid> {
        let group = Group {
            priority: Priority(self.priority),
            rules: texts(&self.rules),
            includes: in_order(&self.includes),
            class: self.class.as_deref().map(Into::into),
            note: self.note.as_str().into(),
        };
        group.check(&self.name)?;
        Ok(group)
    }
}

impl UserEntry {
    /// The entry of a user.
    #[must_use]
    pub fn of(name: &str, user: &User, with_secrets: bool) -> Self {
        let verifiers = || user.verifiers.iter().filter(|_| with_secrets);
        let hash = |verifier: &Verifier| match verifier {
            Verifier::Hash(text) | Verifier::Scram(text) => Some(text.to_string()),
            Verifier::Secret(_) => None,
        };
        let secret = |verifier: &Verifier| match verifier {
            Verifier::Secret(Hash(bytes)) => Some(hexadecimal(bytes)),
            Verifier::Hash(_) | Verifier::Scram(_) => None,
        };
        Self {
            name: name.to_owned(),
            enabled: user.enabled,
            hashes: verifiers().filter_map(hash).collect(),
            secrets: verifiers().filter_map(secret).collect(),
            groups: strings(&user.groups),
            rules: strings(&user.rules),
            client_ids: user.client_ids.as_deref().map(str::to_owned),
            class: user.class.as_deref().map(str::to_owned),
            superuser: user.superuser,
            ends_at: user.ends_ms.map(written),
            note: user.note.to_string(),
        }
    }

    /// The record of the entry. `before`: the user that is there; it keeps its verifiers if the entry has none, and their order if the
    /// entry has the same ones.
    ///
    /// # Errors
    /// Which field is wrong, and why: a hash or a time cannot be read, there is nothing to log in with, or the user holds more than a
    /// user may.
    pub fn user(&self, before: Option<&User>, read: Reading<'_>) -> Result<User, Invalid> {
        let ends_at = self.ends_at.as_deref();
        let ends_ms = ends_at.map(|text| time("ends_at", text)).transpose()?;
        let user = User {
            enabled: self.enabled,
            verifiers: self.verifiers(before, read)?,
            groups: in_order(&self.groups),
            rules: texts(&self.rules),
            client_ids: self.client_ids.as_deref().map(Into::into),
            class: self.class.as_deref().map(Into::into),
            superuser: self.superuser,
            ends_ms,
            note: self.note.as_str().into(),
            logins_since: before.map_or(Revision(0), |before| before.logins_since),
        };
        user.check(&self.name)?;
        Ok(user)
    }

    fn verifiers(
        &self,
        before: Option<&User>,
        read: Reading<'_>,
    ) -> Result<Box<[Verifier]>, Invalid> {
        let before = before.map(|before| &before.verifiers);
        if self.hashes.is_empty() && self.secrets.is_empty() {
            return before.cloned().ok_or_else(|| {
                invalid("hashes", "a new user needs one of `hashes` and `secrets`")
            });
        }
        let hashes = self.hashes.iter().map(|hash| {
            // What an earlier import has read needs no second look.
            let is_same = |verifier: &&Verifier| match verifier {
                Verifier::Hash(text) | Verifier::Scram(text) => **text == **hash,
                Verifier::Secret(_) => false,
            };
            let known = before.and_then(|before| before.iter().find(is_same));
            match known {
                Some(known) => Ok(known.clone()),
                None => read(Whose::User, hash).map_err(|why| invalid("hashes", &why)),
            }
        });
        let secrets = self.secrets.iter().map(|text| {
            let accepted = "each is to be 64 hexadecimal digits, the SHA-256 of the secret";
            let hash = bytes(text).ok_or_else(|| invalid("secrets", accepted))?;
            Ok(Verifier::Secret(Hash(hash)))
        });
        let verifiers = hashes.chain(secrets).collect::<Result<Box<[_]>, _>>()?;
        match before {
            Some(before) if are_same(before, &verifiers) => Ok(before.clone()),
            _ => Ok(verifiers),
        }
    }
}

/// Whether both have the same verifiers, which are a few, in whatever order.
fn are_same(before: &[Verifier], after: &[Verifier]) -> bool {
    let count = |of: &[Verifier], one| of.iter().filter(|other| *other == one).count();
    before.len() == after.len()
        && before
            .iter()
            .all(|one| count(before, one) == count(after, one))
}

pub(crate) fn rules(lines: &[String]) -> Result<RuleList, Invalid> {
    let list = RuleList(texts(lines));
    list.check()?;
    Ok(list)
}

pub(crate) fn invalid(field: &str, what: &str) -> Invalid {
    Invalid {
        field: field.into(),
        what: what.to_owned(),
    }
}

pub(crate) fn written(UnixMs(ms): UnixMs) -> String {
    let ms = ms.min(LAST_MS);
    let time = UNIX_EPOCH + Duration::from_millis(ms);
    match ms % 1_000 {
        0 => humantime::format_rfc3339_seconds(time).to_string(),
        _ => humantime::format_rfc3339_millis(time).to_string(),
    }
}

pub(crate) fn time(field: &str, text: &str) -> Result<UnixMs, Invalid> {
    let wrong = || invalid(field, "a time such as 2026-11-24T10:12:03Z is expected");
    let time = humantime::parse_rfc3339(text).map_err(|_| wrong())?;
    let since_1970 = time.duration_since(UNIX_EPOCH).map_err(|_| wrong())?;
    let ms = u64::try_from(since_1970.as_millis()).map_err(|_| wrong())?;
    Ok(UnixMs(ms))
}

pub(crate) fn hexadecimal(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn bytes(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: &u8| {
        char::from(*byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let digits: Vec<u8> = text.as_bytes().iter().map(digit).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok().filter(|_| rest.is_empty())
}

pub(crate) fn strings(texts: &[Box<str>]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

fn texts(texts: &[String]) -> Box<[Box<str>]> {
    texts.iter().map(|text| text.as_str().into()).collect()
}

/// Names in order, each once, as records have them.
fn in_order(names: &[String]) -> Box<[Box<str>]> {
    let mut names: Vec<Box<str>> = names.iter().map(|name| name.as_str().into()).collect();
    names.sort();
    names.dedup();
    names.into()
}
