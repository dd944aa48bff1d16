//! What was changed by whom: entries that are chained, so that none can be taken out or changed without a trace.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::by::By;
use crate::change::Target;
use crate::field::Field;
use crate::note::AuditNote;
use crate::number::Revision;
use crate::person::KeyId;
use crate::user::{Hash, UnixMs};

/// A change that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Audited {
    /// The operation.
    pub revision: Revision,
    /// When it was proposed.
    pub at: UnixMs,
    /// Who has made it.
    pub by: By,
    /// Of what, or what it was.
    pub subject: Subject,
    /// What is different.
    pub fields: Box<[Field]>,
}

/// What an entry is about. The first ones are those of [`Target`], in its order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Subject {
    /// A user.
    User(Box<str>),
    /// A group.
    Group(Box<str>),
    /// The rules that hold for everybody.
    Rules,
    /// A person.
    Person(Box<str>),
    /// A key.
    Key(KeyId),
    /// Something that was done and is no change of a record.
    Act {
        /// What, such as `nodes.drain`.
        action: Box<str>,
        /// To what; empty: the action says it.
        target: Box<str>,
    },
}

impl From<Target> for Subject {
    fn from(target: Target) -> Self {
        match target {
            Target::User(name) => Self::User(name),
            Target::Group(name) => Self::Group(name),
            Target::Rules => Self::Rules,
            Target::Person(name) => Self::Person(name),
            Target::Key(id) => Self::Key(id),
        }
    }
}

/// An entry as it is kept: its bytes, and the hash of the chain up to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// The [`Audited`], as it was written at its level.
    pub bytes: Box<[u8]>,
    /// The hash.
    pub hash: ChainHash,
}

/// The number of an entry, counted from 0 for the life of the store.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub struct EntryNumber(pub u64);

impl EntryNumber {
    /// Of the entry behind.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// SHA-256 of the hash before and the bytes of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainHash(pub Hash);

impl ChainHash {
    /// Before the first entry.
    pub const EMPTY: Self = Self(Hash([0; 32]));

    /// With an entry behind it.
    #[must_use]
    pub fn then(self, bytes: &[u8]) -> Self {
        let Self(Hash(before)) = self;
        let mut digest = Sha256::new();
        digest.update(before);
        digest.update(bytes);
        Self(Hash(digest.finalize().into()))
    }
}

impl Audited {
    /// What is kept of a note, at the revision that the store has.
    #[must_use]
    pub fn of_note(note: &AuditNote, revision: Revision) -> Self {
        Self {
            revision,
            at: note.at,
            by: note.by.clone(),
            subject: Subject::Act {
                action: note.action.clone(),
                target: note.target.clone(),
            },
            fields: note.fields.clone(),
        }
    }

    /// What was kept.
    ///
    /// # Errors
    /// The bytes are no entry.
    pub fn read(bytes: &[u8]) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes)
    }

    /// What was done, as one word: `user.add`, `rules.change`, or what the note says.
    #[must_use]
    pub fn action(&self) -> String {
        let kind = match &self.subject {
            Subject::User(_) => "user",
            Subject::Group(_) => "group",
            Subject::Rules => "rules",
            Subject::Person(_) => "person",
            Subject::Key(_) => "key",
            Subject::Act { action, .. } => return action.to_string(),
        };
        let all = |is: fn(&Field) -> bool| !self.fields.is_empty() && self.fields.iter().all(is);
        let what = match () {
            () if all(|field| field.before.is_none()) => "add",
            () if all(|field| field.after.is_none()) => "remove",
            () => "change",
        };
        format!("{kind}.{what}")
    }

    /// Of what, as text; empty: the action says it.
    #[must_use]
    pub fn target(&self) -> String {
        match &self.subject {
            Subject::User(name) | Subject::Group(name) | Subject::Person(name) => name.to_string(),
            Subject::Rules => String::new(),
            Subject::Key(id) => id.to_string(),
            Subject::Act { target, .. } => target.to_string(),
        }
    }
}

impl Audited {
    /// As it is kept behind an entry.
    #[must_use]
    pub fn record(&self, before: ChainHash) -> Recorded {
        let bytes = postcard::to_stdvec(self).expect("memory takes what is written to it");
        let hash = before.then(&bytes);
        Recorded {
            bytes: bytes.into(),
            hash,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by::Means;
    use crate::group::RuleList;
    use crate::user::{User, Verifier};

    fn user() -> User {
        User {
            enabled: true,
            verifiers: [Verifier::Hash("$argon2id$very-secret".into())].into(),
            groups: ["a".into(), "b".into()].into(),
            rules: ["allow publish x/#".into()].into(),
            client_ids: None,
            class: None,
            superuser: false,
            ends_ms: None,
            note: "".into(),
            logins_since: Revision(3),
        }
    }

    #[test]
    fn an_entry_shows_what_is_different_and_no_hash() {
        let before = user();
        let after = User {
            enabled: false,
            verifiers: [Verifier::Secret(Hash([7; 32]))].into(),
            ..user()
        };
        let fields = Field::of_users(Some(&before), Some(&after));
        let shown = format!("{fields:?}");
        assert!(
            !shown.contains("argon2id") && !shown.contains('7'),
            "{shown}"
        );
        let names: Vec<&str> = fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["enabled", "verifiers"]);
        assert_eq!(fields[1].before.as_deref(), Some("password"));
        assert_eq!(fields[1].after.as_deref(), Some("secret"));
        assert_eq!(Field::of_users(Some(&before), Some(&before)).len(), 0);
        // Another password is seen although both are shown alike.
        let other = User {
            verifiers: [Verifier::Hash("$argon2id$other".into())].into(),
            ..user()
        };
        assert_eq!(Field::of_users(Some(&before), Some(&other)).len(), 1);
        assert_eq!(Field::of_users(None, Some(&before)).len(), 9);
    }

    #[test]
    fn entries_say_what_was_done_and_subjects_stand_as_targets() {
        let by = By {
            means: Means::Node,
            name: "".into(),
            address: None,
            node: crate::Node(1),
        };
        let entry = |subject, fields| Audited {
            revision: Revision(1),
            at: UnixMs(5),
            by: by.clone(),
            subject,
            fields,
        };
        let of = |fields| entry(Subject::User("a".into()), fields).action();
        let (one, mut other) = (user(), user());
        other.enabled = false;
        assert_eq!(of(Field::of_users(None, Some(&one))), "user.add");
        assert_eq!(of(Field::of_users(Some(&one), Some(&other))), "user.change");
        assert_eq!(of(Field::of_users(Some(&one), None)), "user.remove");
        let act = Subject::Act {
            action: "nodes.drain".into(),
            target: "n-1".into(),
        };
        let act = entry(act, [].into());
        assert_eq!(
            (act.action(), act.target()),
            ("nodes.drain".into(), "n-1".into())
        );
        assert_eq!(Audited::read(&act.record(ChainHash::EMPTY).bytes), Ok(act));
        for target in [
            Target::User("a".into()),
            Target::Group("b".into()),
            Target::Rules,
            Target::Person("c".into()),
            Target::Key(KeyId(7)),
        ] {
            let bytes = postcard::to_stdvec(&target).unwrap();
            assert_eq!(postcard::from_bytes(&bytes), Ok(Subject::from(target)));
        }
    }

    #[test]
    fn a_chain_shows_where_an_entry_was_changed() {
        let entry = |revision| Audited {
            revision: Revision(revision),
            at: UnixMs(5),
            by: By {
                means: Means::Key,
                name: "ci".into(),
                address: None,
                node: crate::Node(1),
            },
            subject: Subject::Rules,
            fields: Field::of_rules(&RuleList::default(), &RuleList(["x".into()].into())),
        };
        let first = entry(1).record(ChainHash::EMPTY);
        let second = entry(2).record(first.hash);
        assert_eq!(
            ChainHash::EMPTY.then(&first.bytes).then(&second.bytes),
            second.hash
        );
        for at in 0..first.bytes.len() {
            let mut changed = first.bytes.clone();
            changed[at] ^= 1;
            assert_ne!(ChainHash::EMPTY.then(&changed), first.hash);
        }
        assert_ne!(ChainHash::EMPTY.then(&second.bytes), second.hash);
    }
}
