//! Fields of records that are different, as the audit shows them.

use serde::{Deserialize, Serialize};

use crate::group::{Group, RuleList};
use crate::person::{ApiKey, KeySecret, Person};
use crate::user::{UnixMs, User, Verifier};

/// Bytes of a value that an entry shows.
const SHOWN: usize = 4_096;

/// A field that has another value than before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: Box<str>,
    /// What it was; `None`: there was no record.
    pub before: Option<Box<str>>,
    /// What it is; `None`: there is no record.
    pub after: Option<Box<str>>,
}

impl Field {
    /// The fields of a user that are different. Of what proves who a client is, only that it is different.
    #[must_use]
    pub fn of_users(before: Option<&User>, after: Option<&User>) -> Box<[Self]> {
        let verifiers = |user: &User| {
            user.verifiers
                .iter()
                .map(kind)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut fields = Fields::new(before, after);
        fields.add("enabled", |user| user.enabled.to_string());
        fields.add("groups", |user| user.groups.join(", "));
        fields.add("rules", |user| user.rules.join("\n"));
        fields.add("client_ids", |user| optional(user.client_ids.as_deref()));
        fields.add("class", |user| optional(user.class.as_deref()));
        fields.add("superuser", |user| user.superuser.to_string());
        fields.add("ends_ms", |user| {
            user.ends_ms
                .map_or(String::new(), |UnixMs(ms)| ms.to_string())
        });
        fields.add("note", |user| user.note.to_string());
        if before.map(|user| &user.verifiers) != after.map(|user| &user.verifiers) {
            fields.put("verifiers", before.map(verifiers), after.map(verifiers));
        }
        fields.found.into()
    }

    /// The fields of a group that are different.
    #[must_use]
    pub fn of_groups(before: Option<&Group>, after: Option<&Group>) -> Box<[Self]> {
        let mut fields = Fields::new(before, after);
        fields.add("priority", |group| group.priority.0.to_string());
        fields.add("rules", |group| group.rules.join("\n"));
        fields.add("includes", |group| group.includes.join(", "));
        fields.add("class", |group| optional(group.class.as_deref()));
        fields.add("note", |group| group.note.to_string());
        fields.found.into()
    }

    /// The fields of a person that are different. Of the password, only that it is different.
    #[must_use]
    pub fn of_people(before: Option<&Person>, after: Option<&Person>) -> Box<[Self]> {
        let mut fields = Fields::new(before, after);
        fields.add("role", |person| person.role.name().to_owned());
        fields.add("audits", |person| person.audits.to_string());
        fields.add("enabled", |person| person.enabled.to_string());
        fields.add("must_change", |person| person.must_change.to_string());
        fields.add("note", |person| person.note.to_string());
        let password = |person: &Person| match person.hash {
            Some(_) => "set".to_owned(),
            None => "none".to_owned(),
        };
        if before.map(|person| &person.hash) != after.map(|person| &person.hash) {
            fields.put("password", before.map(password), after.map(password));
        }
        fields.found.into()
    }

    /// The fields of a key that are different. Of its secrets, only until when they count.
    #[must_use]
    pub fn of_keys(before: Option<&ApiKey>, after: Option<&ApiKey>) -> Box<[Self]> {
        let time = |ends: Option<UnixMs>| ends.map_or(String::new(), |UnixMs(ms)| ms.to_string());
        let secrets = |key: &ApiKey| {
            let ends = |secret: &KeySecret| match secret.ends_ms {
                Some(UnixMs(ms)) => format!("until {ms}"),
                None => "good".to_owned(),
            };
            key.secrets.iter().map(ends).collect::<Vec<_>>().join(", ")
        };
        let mut fields = Fields::new(before, after);
        fields.add("name", |key| key.name.to_string());
        fields.add("role", |key| key.role.name().to_owned());
        fields.add("audits", |key| key.audits.to_string());
        fields.add("ends_ms", |key| time(key.ends_ms));
        if before.map(|key| &key.secrets) != after.map(|key| &key.secrets) {
            fields.put("secrets", before.map(secrets), after.map(secrets));
        }
        fields.found.into()
    }

    /// The lines of two lists, if they are different.
    #[must_use]
    pub fn of_rules(before: &RuleList, after: &RuleList) -> Box<[Self]> {
        let mut fields = Fields::new(Some(before), Some(after));
        fields.add("rules", |RuleList(lines)| lines.join("\n"));
        fields.found.into()
    }
}

/// Compares two records field by field.
struct Fields<'a, T> {
    before: Option<&'a T>,
    after: Option<&'a T>,
    found: Vec<Field>,
}

impl<'a, T> Fields<'a, T> {
    fn new(before: Option<&'a T>, after: Option<&'a T>) -> Self {
        let found = Vec::new();
        Self {
            before,
            after,
            found,
        }
    }

    fn add(&mut self, name: &str, value: impl Fn(&T) -> String) {
        let (before, after) = (self.before.map(&value), self.after.map(&value));
        if before != after {
            self.put(name, before, after);
        }
    }

    fn put(&mut self, name: &str, before: Option<String>, after: Option<String>) {
        self.found.push(Field {
            name: name.into(),
            before: before.map(cut),
            after: after.map(cut),
        });
    }
}

fn kind(verifier: &Verifier) -> &'static str {
    match verifier {
        Verifier::Hash(_) => "password",
        Verifier::Scram(_) => "scram",
        Verifier::Secret(_) => "secret",
    }
}

fn optional(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// The beginning of a long value.
fn cut(text: String) -> Box<str> {
    match text.len() <= SHOWN {
        true => text.into(),
        false => format!("{}…", &text[..text.floor_char_boundary(SHOWN)]).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_where_a_character_ends() {
        let list = |line: &str| RuleList([line.repeat(4_000).into()].into());
        let fields = Field::of_rules(&RuleList::default(), &list("é"));
        let after = fields[0].after.as_deref().expect("the lines");
        assert!(after.len() <= SHOWN + '…'.len_utf8() && after.ends_with('…'));
    }
}
