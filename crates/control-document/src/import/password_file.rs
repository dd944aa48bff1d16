//! Password files: `user:hash`, a line for each hash.

use std::collections::BTreeMap;

use super::ImportError;
use crate::document::UserEntry;
use crate::imported::Imported;

/// Reads a file of `mosquitto_passwd` or of `heraldmq passwd`: users with their hashes as they stand there, in the order of names. A
/// user may have several lines, with a hash for passwords and one for each mechanism of SCRAM. Empty lines, and lines that begin with
/// `#`, are skipped.
///
/// A salted SHA hash (`$6$` of Mosquitto before 2.0) is taken only if weak hashes are accepted; else the line is left out.
///
/// # Errors
/// The first line that is no user and hash with a colon between, or has a second hash of the same kind for a user.
pub fn password_file(text: &str, accept_weak_hashes: bool) -> Result<Imported, ImportError> {
    let mut imported = Imported::default();
    let mut users = BTreeMap::<&str, UserEntry>::new();
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let (name, hash) = text.split_once(':').ok_or_else(|| {
            ImportError::in_line(line, "not a user and a hash, with a colon between")
        })?;
        let hash = hash.trim_end();
        if name.is_empty() {
            return Err(ImportError::in_line(line, "the name is empty"));
        }
        let kind = kind(hash).ok_or_else(|| {
            let reason =
                format!("the password of {name:?} is not hashed: plain passwords are not accepted");
            ImportError::in_line(line, reason)
        })?;
        if kind == Kind::Weak && !accept_weak_hashes {
            let why =
                format!("{name:?} has a weak hash (salted SHA), and weak hashes are not accepted");
            imported.leave_out(format!("line {line}"), why);
            continue;
        }
        let user = users.entry(name).or_insert_with(|| UserEntry {
            name: name.to_owned(),
            ..UserEntry::default()
        });
        if user.hashes.iter().any(|other| is_same_use(other, hash)) {
            let reason = format!("the user {name:?} has such a hash already");
            return Err(ImportError::in_line(line, reason));
        }
        user.hashes.push(hash.to_owned());
    }
    imported.document.users = users.into_values().collect();
    Ok(imported)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Strong,
    Weak,
}

/// `None`: it is no hash.
fn kind(hash: &str) -> Option<Kind> {
    Some(match format(hash)? {
        "6" | "sha256-prefix" | "sha256-suffix" | "sha512-prefix" | "sha512-suffix" => Kind::Weak,
        _ => Kind::Strong,
    })
}

/// What stands between the first two `$`.
fn format(hash: &str) -> Option<&str> {
    let (format, _) = hash.strip_prefix('$')?.split_once('$')?;
    (!format.is_empty()).then_some(format)
}

/// Whether two hashes are both for passwords, or both for the same mechanism of SCRAM.
fn is_same_use(one: &str, other: &str) -> bool {
    let mechanism = |hash| format(hash).filter(|format| format.starts_with("scram-"));
    mechanism(one) == mechanism(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_user_become_one_user() {
        let text =
            "# who\n\nbob:$7$101$a$b\r\nann:$scram-sha-256$x\nann:$scram-sha-512$y\nann:$2b$z \n";
        let imported = password_file(text, false).unwrap();
        assert_eq!(imported.left_out, []);
        let users = imported.document.users;
        let names: Vec<&str> = users.iter().map(|user| user.name.as_str()).collect();
        assert_eq!(names, ["ann", "bob"]);
        assert_eq!(
            users[0].hashes,
            ["$scram-sha-256$x", "$scram-sha-512$y", "$2b$z"]
        );
        assert_eq!(users[1].hashes, ["$7$101$a$b"]);
    }

    #[test]
    fn weak_hashes_are_taken_only_if_they_are_accepted() {
        let text = "old:$6$a$b\nnew:$7$101$a$b";
        let imported = password_file(text, false).unwrap();
        assert_eq!(imported.document.users.len(), 1);
        assert_eq!(imported.left_out.len(), 1);
        assert_eq!(imported.left_out[0].at, "line 1");
        assert!(imported.left_out[0].why.contains("\"old\" has a weak hash"));
        let imported = password_file(text, true).unwrap();
        assert_eq!(imported.document.users.len(), 2);
        assert_eq!(imported.left_out, []);
    }

    #[test]
    fn mistakes_have_their_line_and_no_password() {
        for (text, line, part) in [
            ("\nann", "line 2", "with a colon"),
            (":$7$a", "line 1", "name is empty"),
            ("ann:hunter2", "line 1", "not hashed"),
            ("ann:", "line 1", "not hashed"),
            ("ann:$$hunter2", "line 1", "not hashed"),
            ("ann:$7$hunter2$b$c\nann:$2b$x", "line 2", "already"),
        ] {
            let error = password_file(text, true).unwrap_err();
            assert_eq!(error.at, line, "{text}");
            assert!(error.reason.contains(part), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
