//! Folders that are not this process's log.

use std::fs;

use consensus::{Log, LogError};

use crate::ledger::Scratch;

#[test]
fn a_log_is_open_once() {
    let scratch = Scratch::new();
    let log = Log::open(&scratch.options()).expect("the log opens");
    let second = Log::open(&scratch.options()).err();
    assert!(
        matches!(second, Some(LogError::Locked { .. })),
        "{second:?}"
    );
    drop(log);
    Log::open(&scratch.options()).expect("it is free again");
}

#[test]
fn a_folder_with_other_things_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("thesis.txt"), "…").expect("written");
    let refused = Log::open(&scratch.options()).err();
    assert!(
        matches!(refused, Some(LogError::Foreign { .. })),
        "{refused:?}"
    );
    assert!(!scratch.path().join("entries").exists());
}

#[test]
fn a_log_of_another_version_is_refused() {
    let scratch = Scratch::new();
    drop(Log::open(&scratch.options()).expect("the log opens"));
    let format = scratch.path().join("FORMAT");
    let newer = fs::read_to_string(&format).expect("read").replace('1', "2");
    fs::write(&format, newer).expect("written");
    let error = Log::open(&scratch.options()).err().expect("refused");
    assert!(matches!(&error, LogError::Version { found, .. } if found.ends_with("version 2")));
    fs::write(&format, "something else").expect("written");
    let error = Log::open(&scratch.options()).err().expect("refused");
    assert!(matches!(error, LogError::Foreign { .. }), "{error}");
}

#[test]
fn a_crash_while_the_folder_was_claimed_does_no_harm() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("LOCK"), "").expect("written");
    fs::write(scratch.path().join("FORMAT.new"), "hera").expect("written");
    Log::open(&scratch.options()).expect("the log opens");
}
