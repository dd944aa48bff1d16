//! Access control lists of Mosquitto (`acl_file`).
//!
//! Mosquitto judges a topic by the lines of the client's user, or by those before the first `user` if the client has none: first
//! those that deny. Then it judges by the patterns, again first by those that deny. What nothing grants is denied. It judges
//! publications and deliveries; any subscription is granted.

use std::collections::BTreeMap;

use super::ImportError;
use super::words::{Effect, Percent, filter, name};
use crate::document::{Document, UserEntry};
use crate::imported::Imported;
use crate::section::Section as Entries;

/// Rules of one user, of anonymous clients, or of patterns: actions and filter, without WHO.
#[derive(Default)]
struct Section {
    deny: Vec<String>,
    allow: Vec<String>,
}

impl Section {
    /// The rules in the order in which they count, with these words behind the effect.
    fn lines(&self, who: &str) -> impl Iterator<Item = String> {
        let effects = [(Effect::Deny, &self.deny), (Effect::Allow, &self.allow)];
        effects.into_iter().flat_map(move |(effect, rules)| {
            let effect = effect.as_str();
            rules
                .iter()
                .map(move |rule| format!("{effect} {who}{rule}"))
        })
    }
}

/// Reads an access control list as Mosquitto 2.0 does. `users` are those of the password file.
///
/// The document has these users, each with the rules of its section. The list for everybody has the rules of sections of other users,
/// of anonymous clients and of patterns, allows every client to subscribe, and ends with `deny all all`. As in Mosquitto, a client
/// may subscribe to anything, and gets what it may read.
///
/// # Errors
/// The first line that Mosquitto would refuse.
pub fn mosquitto_acl(text: &str, mut users: Vec<UserEntry>) -> Result<Imported, ImportError> {
    let mut imported = Imported::default();
    let mut of_users = BTreeMap::<&str, Section>::new();
    let mut anonymous = Section::default();
    let mut patterns = Section::default();
    let mut user = None;
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (keyword, rest) = split(text);
        let (section, percent) = match keyword {
            "user" if rest.is_empty() => {
                return Err(ImportError::in_line(line, "the user name is missing"));
            }
            "user" => {
                user = Some(rest);
                of_users.entry(rest).or_default();
                continue;
            }
            "topic" => match user {
                Some(user) => (of_users.entry(user).or_default(), Percent::Text),
                None => (&mut anonymous, Percent::Text),
            },
            "pattern" => (&mut patterns, Percent::Names),
            _ => {
                let reason = format!("{keyword:?} is none of topic, user, pattern");
                return Err(ImportError::in_line(line, reason));
            }
        };
        let (effect, actions, topic) =
            access(rest).map_err(|reason| ImportError::in_line(line, reason))?;
        mqtt_proto::validate_topic_filter(topic).map_err(|error| {
            ImportError::in_line(line, format!("{topic:?} is no topic filter: {error}"))
        })?;
        match filter(topic, percent) {
            Ok(filter) => match effect {
                Effect::Allow => section.allow.push(format!("{actions} {filter}")),
                Effect::Deny => section.deny.push(format!("{actions} {filter}")),
            },
            Err(why) => imported.leave_out(format!("line {line}"), effect.left_out(&why)),
        }
    }
    for user in &mut users {
        if let Some(section) = of_users.remove(user.name.as_str()) {
            user.rules.extend(section.lines(""));
        }
    }
    let mut rules = Vec::new();
    for (user, section) in of_users {
        match name(user) {
            Ok(name) => rules.extend(section.lines(&format!("user {name} "))),
            Err(why) => imported.leave_out(
                format!("user {user}"),
                format!("{why}; its section is left out, and what it denies with it"),
            ),
        }
    }
    rules.extend(anonymous.lines("anonymous "));
    rules.extend(patterns.lines("all "));
    rules.push("allow all subscribe-only".to_owned());
    rules.push("deny all all".to_owned());
    imported.document = Document {
        users: match users.is_empty() {
            true => Entries::default(),
            false => users.into(),
        },
        rules: Some(rules),
        ..Document::default()
    };
    Ok(imported)
}

/// The first word, and what follows it without the blanks between.
fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// `[read|write|readwrite|deny] TOPIC`. A topic may contain blanks only behind one of these words.
fn access(text: &str) -> Result<(Effect, &'static str, &str), String> {
    let (word, topic) = split(text);
    if word.is_empty() {
        return Err("the topic is missing".to_owned());
    }
    if topic.is_empty() {
        return Ok((Effect::Allow, BOTH, word));
    }
    match word {
        "read" => Ok((Effect::Allow, "receive", topic)),
        "write" => Ok((Effect::Allow, "publish", topic)),
        "readwrite" => Ok((Effect::Allow, BOTH, topic)),
        "deny" => Ok((Effect::Deny, BOTH, topic)),
        _ => Err(format!("{word:?} is none of read, write, readwrite, deny")),
    }
}

const BOTH: &str = "publish,receive";

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserEntry {
        UserEntry {
            name: name.to_owned(),
            ..UserEntry::default()
        }
    }

    #[test]
    fn sections_become_rules_in_the_order_in_which_mosquitto_judges() {
        let text = "topic read public/#\n\
                    user ann\n\
                    topic readwrite plant/#\n\
                    topic deny plant/secret\n\
                    user bob smith\n\
                    topic write a b/c\n\
                    pattern write sensor/%u/data\n\
                    pattern deny sensor/%u/key\n\
                    user ann\n\
                    topic x\n";
        let imported = mosquitto_acl(text, vec![user("ann"), user("zoe")]).unwrap();
        assert_eq!(imported.left_out, []);
        let Document { users, rules, .. } = imported.document;
        assert_eq!(
            users[0].rules,
            [
                "deny publish,receive plant/secret",
                "allow publish,receive plant/#",
                "allow publish,receive x",
            ]
        );
        assert!(users[1].rules.is_empty());
        assert_eq!(
            rules.unwrap(),
            [
                "allow user \"bob smith\" publish \"a b/c\"",
                "allow anonymous receive public/#",
                "deny all publish,receive sensor/%u/key",
                "allow all publish sensor/%u/data",
                "allow all subscribe-only",
                "deny all all",
            ]
        );
    }

    #[test]
    fn what_has_no_equal_is_left_out_and_said() {
        let text = "topic deny a/%u\nuser *\ntopic x\nuser ann\ntopic read $share/g/x\n";
        let imported = mosquitto_acl(text, Vec::new()).unwrap();
        let at: Vec<&str> = imported
            .left_out
            .iter()
            .map(|left| left.at.as_str())
            .collect();
        assert_eq!(at, ["line 1", "line 5", "user *"]);
        assert!(imported.left_out[0].why.contains("may do more than there"));
        let rules = imported.document.rules.unwrap();
        assert_eq!(rules, ["allow all subscribe-only", "deny all all"]);
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, at, part) in [
            ("\ntopics x", "line 2", "none of topic"),
            ("user", "line 1", "name is missing"),
            ("topic", "line 1", "topic is missing"),
            ("topic maybe x", "line 1", "none of read"),
            ("topic read a#", "line 1", "no topic filter"),
        ] {
            let error = mosquitto_acl(text, Vec::new()).unwrap_err();
            assert_eq!(error.at, at, "{text}");
            assert!(error.reason.contains(part), "{error}");
        }
    }
}
