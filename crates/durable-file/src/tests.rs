use super::*;

/// Text with its sum in the last byte: enough for one changed byte.
fn sealed(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(bytes.iter().fold(1, |sum, byte| sum ^ byte));
    bytes
}

fn is_whole(bytes: &[u8]) -> bool {
    bytes.len() > 1 && bytes.iter().fold(1, |sum, byte| sum ^ byte) == 0
}

fn bytes(path: &Path) -> Option<Vec<u8>> {
    read(path, is_whole).unwrap().map(|content| content.bytes)
}

#[test]
fn each_flipped_byte_of_the_file_or_its_copy_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("FORMAT");
    let text = sealed("four shards");
    write(&path, &text).unwrap();
    let both = [
        (path.clone(), Repair::FileRepaired),
        (copy_of(&path), Repair::CopyRepaired),
    ];
    for (damaged, outcome) in both {
        for at in 0..text.len() {
            for changed in 1..=u8::MAX {
                let mut wrong = text.clone();
                wrong[at] ^= changed;
                fs::write(&damaged, &wrong).unwrap();
                let found = read(&path, is_whole).unwrap().unwrap();
                assert_eq!(found.bytes, text);
                assert_eq!(found.is_of_copy, outcome == Repair::FileRepaired);
                // Looking changes nothing.
                assert_eq!(fs::read(&damaged).unwrap(), wrong);
            }
            assert_eq!(repair(&path, is_whole), outcome);
            assert_eq!(fs::read(&path).unwrap(), text);
            assert_eq!(fs::read(copy_of(&path)).unwrap(), text);
        }
        for length in 0..text.len() {
            fs::write(&damaged, &text[..length]).unwrap();
            assert_eq!(repair(&path, is_whole), outcome, "{length}");
        }
    }
    assert_eq!(repair(&path, is_whole), Repair::Nothing);
}

#[test]
fn a_lost_file_is_written_again_and_a_folder_of_before_gets_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("FORMAT");
    assert_eq!(bytes(&path), None);
    assert_eq!(repair(&path, is_whole), Repair::Nothing);
    fs::write(&path, sealed("old")).unwrap();
    assert_eq!(repair(&path, is_whole), Repair::CopyMade);
    fs::remove_file(&path).unwrap();
    assert_eq!(bytes(&path), Some(sealed("old")));
    assert_eq!(repair(&path, is_whole), Repair::FileRepaired);
    assert_eq!(fs::read(&path).unwrap(), sealed("old"));
}

#[test]
fn a_file_that_a_program_without_copies_has_changed_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("FORMAT");
    write(&path, &sealed("before")).unwrap();
    fs::write(&path, sealed("after")).unwrap();
    assert_eq!(bytes(&path), Some(sealed("after")));
    assert_eq!(repair(&path, is_whole), Repair::CopyMade);
    assert_eq!(fs::read(copy_of(&path)).unwrap(), sealed("after"));
}

#[test]
fn two_damaged_ones_are_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("FORMAT");
    for damaged in [&path, &copy_of(&path)] {
        fs::write(damaged, b"xx").unwrap();
    }
    assert_eq!(bytes(&path), Some(b"xx".to_vec()));
    assert_eq!(repair(&path, is_whole), Repair::BothDamaged);
    assert_eq!(fs::read(&path).unwrap(), b"xx");
    // A copy that is damaged is as good as none.
    fs::remove_file(&path).unwrap();
    assert_eq!(bytes(&path), None);
    assert_eq!(repair(&path, is_whole), Repair::BothDamaged);
}

/// Writes `next`, and ends before the step of this number, as a crash does; with `torn` a file that is being written is half there.
/// Whether the write was finished.
fn write_until(path: &Path, next: &[u8], crash: usize, torn: bool) -> bool {
    let mut steps = 0;
    let written = write_both(path, next, &mut |step, file| {
        if steps == crash {
            if torn && step == Step::Write {
                fs::write(file, &next[..next.len() / 2])?;
            }
            return Err(io::Error::other("the power is lost"));
        }
        steps += 1;
        Ok(())
    });
    written.is_ok()
}

#[test]
fn at_each_crash_point_one_of_the_two_is_whole() {
    let (old, new) = (sealed("old"), sealed("new, and longer"));
    for torn in [false, true] {
        let mut crash = 0;
        loop {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("FORMAT");
            write(&path, &old).unwrap();
            let is_finished = write_until(&path, &new, crash, torn);
            // Damaged by whatever has ended the process, too.
            for damaged in [None, Some(path.clone()), Some(copy_of(&path))] {
                let kept = damaged.as_ref().map(|damaged| fs::read(damaged).unwrap());
                if let Some(damaged) = &damaged {
                    fs::write(damaged, b"xx").unwrap();
                }
                let found = bytes(&path).unwrap();
                assert!(found == old || found == new, "{crash} {damaged:?}");
                assert!(!is_finished || found == new);
                if let (Some(damaged), Some(kept)) = (damaged, kept) {
                    fs::write(damaged, kept).unwrap();
                }
            }
            let before = bytes(&path).unwrap();
            repair(&path, is_whole);
            assert_eq!(fs::read(&path).unwrap(), before);
            assert_eq!(fs::read(copy_of(&path)).unwrap(), before);
            if is_finished {
                assert_eq!(crash, 6);
                break;
            }
            crash += 1;
        }
    }
}

#[test]
fn a_first_write_that_is_cut_off_leaves_no_copy_alone() {
    let new = sealed("new");
    for crash in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("FORMAT");
        assert!(!write_until(&path, &new, crash, true));
        assert!(path.exists() || !copy_of(&path).exists(), "{crash}");
    }
}

#[test]
fn files_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("FORMAT");
    write(&path, &sealed("x")).unwrap();
    for file in [&path, &copy_of(&path)] {
        let mode = fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE_FILE);
    }
}
