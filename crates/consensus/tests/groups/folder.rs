//! Folders that are not this process's log.

use std::fs;

use consensus::{Log, LogError, LogView};

use crate::ledger::{Ledger, Note, Scratch, runtime, start, write};

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
    fs::remove_file(scratch.path().join("FORMAT.copy")).expect("removed");
    let error = Log::open(&scratch.options()).err().expect("refused");
    assert!(matches!(error, LogError::Foreign { .. }), "{error}");
}

#[test]
fn a_damaged_format_is_written_again_from_its_copy() {
    let scratch = Scratch::new();
    drop(Log::open(&scratch.options()).expect("the log opens"));
    let format = scratch.path().join("FORMAT");
    let copy = scratch.path().join("FORMAT.copy");
    let whole = fs::read(&format).expect("read");
    for (damaged, bytes) in [
        (&format, Some("something else")),
        (&format, None),
        (&copy, Some("")),
        (&copy, None),
    ] {
        match bytes {
            Some(bytes) => fs::write(damaged, bytes).expect("written"),
            None => fs::remove_file(damaged).expect("removed"),
        }
        drop(Log::open(&scratch.options()).expect("the log opens"));
        assert_eq!(fs::read(damaged).expect("read"), whole, "{bytes:?}");
    }
}

#[test]
fn a_crash_while_the_folder_was_claimed_does_no_harm() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("LOCK"), "").expect("written");
    fs::write(scratch.path().join("FORMAT.new"), "hera").expect("written");
    Log::open(&scratch.options()).expect("the log opens");
}

#[test]
fn a_view_shows_what_a_node_would_find_and_changes_nothing() {
    let (scratch, names) = (Scratch::new(), Scratch::new());
    let log = Log::open(&scratch.options()).expect("the log opens");
    let ledger = Ledger::default();
    let mark = runtime().block_on(async {
        let group = start(&log, &ledger).await;
        write(&group, 0..10, 100).await;
        let mark = group.applied_mark();
        write(&group, 10..15, 100).await;
        group.shutdown().await;
        mark
    });
    drop(log);
    let file = scratch.path().join("entries/0000000000000001.raftlog");
    let mut torn = fs::read(&file).expect("read");
    torn.extend_from_slice(&[7; 50]);
    fs::write(&file, &torn).expect("written");

    let view = LogView::open(scratch.path(), names.path()).expect("it can be looked at");
    assert_eq!(view.group_ids(), [1]);
    assert_eq!(view.torn_bytes(), 50);
    view.check_fit(1, &mark).expect("they belong together");
    let behind = mark.index().expect("something was applied") + 1;
    let mut found = Vec::new();
    let range = behind..view.span(1).expect("it is whole").end;
    view.commands(1, range, |_, note: &Note| found.push(note.number()))
        .expect("all can be read");
    assert_eq!(found, [10, 11, 12, 13, 14]);
    drop(view);
    assert_eq!(fs::read(&file).expect("read"), torn);
}

#[test]
fn a_view_of_what_is_no_log_is_refused_and_of_nothing_is_empty() {
    let (scratch, names) = (Scratch::new(), Scratch::new());
    let none = scratch.path().join("none");
    let view = LogView::open(&none, names.path()).expect("nothing is empty");
    assert_eq!(view.group_ids(), [0; 0]);
    assert_eq!(view.span(1).expect("it is empty"), 0..0);
    assert!(!none.exists());
    fs::write(scratch.path().join("thesis.txt"), "…").expect("written");
    let refused = LogView::open(scratch.path(), names.path()).err();
    assert!(
        matches!(refused, Some(LogError::Foreign { .. })),
        "{refused:?}"
    );
}
