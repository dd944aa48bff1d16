use super::*;

const ALICE: &str = "alice:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";

fn users(text: &str) -> Users {
    Users::parse(text).expect(text)
}

fn mistake(text: &str) -> String {
    Users::parse(text).map(|_| ()).expect_err(text).to_string()
}

#[test]
fn comments_and_empty_lines_do_not_count() {
    let users = users(&format!("# who\n\n{ALICE}\r\n  \n#bob:secret\n"));
    assert_eq!(users.check("alice", b"secret"), Some(true));
    assert_eq!(users.check("alice", b"Secret"), Some(false));
    assert_eq!(users.check("bob", b"secret"), None);
    assert_eq!(users.check("#bob", b"secret"), None);
}

#[test]
fn mistakes_are_refused_with_their_line() {
    assert_eq!(
        mistake("\nalice"),
        "line 2: not a user and a hash, with a colon between"
    );
    assert_eq!(mistake(":x"), "line 1: the name is empty or too long");
    assert!(mistake("# a\n\nalice:secret").starts_with("line 3: not a hash"));
    assert_eq!(mistake("alice:$2b$04$x"), "line 1: a malformed hash");
    assert!(mistake("alice:$6$ZGVm$ZGVm").starts_with("line 1: a salted SHA hash"));
    assert_eq!(
        mistake(&format!("{ALICE}\nbob:{}\n{ALICE}", &ALICE[6..])),
        "line 3: the user has such a hash already"
    );
}

#[test]
fn what_is_wrong_is_told_without_the_hash() {
    let error = Users::parse("alice:hunter2").expect_err("plain");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    assert!(!format!("{:?}", users(ALICE)).contains("abcdef"));
}

#[test]
fn an_unknown_user_costs_the_check_of_a_hash() {
    // The same one each time, so that cheap and expensive hashes tell nothing.
    let users = users(&format!("{ALICE}\n{}", ALICE.replace("alice", "bob")));
    let decoy = users.decoy("mallory");
    assert!(decoy.is_some());
    assert!((0..100).all(|_| users.decoy("mallory") == decoy));
    assert_eq!(Users::default().check("mallory", b"secret"), None);
}

#[test]
fn a_new_password_replaces_all_hashes_of_the_user() {
    let before = format!("# who\n{ALICE}\nbob{}\n", &ALICE[5..]);
    let scram = with_user(&before, "alice", b"new", Storage::Scram).expect("changed");
    let lines: Vec<&str> = scram.lines().collect();
    assert_eq!(lines[0], "# who");
    assert!(lines[1].starts_with("alice:$scram-sha-256$15000$"));
    assert!(lines[2].starts_with("alice:$scram-sha-512$15000$"));
    assert_eq!(lines[3..], [format!("bob{}", &ALICE[5..])]);

    let argon2id = with_user(&scram, "alice", b"newer", Storage::Argon2id).expect("changed");
    assert_eq!(argon2id.lines().count(), 3);
    let users = users(&argon2id);
    assert_eq!(users.check("alice", b"newer"), Some(true));
    assert_eq!(users.check("alice", b"new"), Some(false));
    assert!(users.scram_keys("alice", Mechanism::Sha256).is_none());
}

#[test]
fn plain_passwords_are_checked_against_what_scram_needs() {
    let text = with_user("", "alice", b"secret", Storage::Scram).expect("made");
    let users = users(&text);
    assert_eq!(users.check("alice", b"secret"), Some(true));
    assert_eq!(users.check("alice", b"Secret"), Some(false));
}

#[test]
fn a_user_is_deleted_with_all_hashes() {
    let text = with_user(ALICE, "bob", b"secret", Storage::Scram).expect("added");
    assert_eq!(text.lines().count(), 3);
    let text = without_user(&text, "bob").expect("deleted");
    assert_eq!(text, format!("{ALICE}\n"));
    let error = without_user(&text, "bob").expect_err("gone");
    assert!(matches!(error, EditError::Unknown), "{error}");
}

#[test]
fn names_that_a_line_cannot_hold_are_refused() {
    for name in ["", "#a", "a:b", "a\nb", "a\rb"] {
        let error = with_user("", name, b"secret", Storage::Argon2id).expect_err(name);
        assert!(matches!(error, EditError::Name), "{name}");
    }
}

#[test]
fn a_file_that_is_wrong_is_not_changed() {
    let error = with_user("alice", "bob", b"secret", Storage::Argon2id).expect_err("wrong");
    assert!(matches!(error, EditError::File(_)), "{error}");
}
