use super::*;
use crate::source::fixture::Tree;

const LOCK: &str = "\
version = 4

[[package]]
name = \"ours\"
version = \"0.1.0\"

[[package]]
name = \"planted\"
version = \"0.8.5\"
source = \"registry+https://github.com/rust-lang/crates.io-index\"
";

const PLANTED: &str = "\
```toml
[advisory]
id = \"RUSTSEC-0000-0001\"
package = \"planted\"

[affected]
functions = { \"planted::f\" = [\"< 9.0.0\"] }

[versions]
patched = [\">= 0.9.3\", \">= 0.8.6, < 0.9.0\"]
unaffected = [\"< 0.7.0\"]
```

# It is broken
";

fn violations_with(version: &str, accepted: &[(&str, &str, &str)]) -> Vec<String> {
    let lock = LOCK.replace("0.8.5", version);
    let advisory = parse(PLANTED).expect("an advisory");
    violations(&[advisory], &libraries(&lock), accepted)
}

#[test]
fn a_version_that_an_advisory_concerns_is_named() {
    for version in ["0.8.5", "0.9.2", "0.7.0", "0.9.3-rc.1"] {
        let wrong = violations_with(version, &[]);
        let [line] = wrong.as_slice() else {
            panic!("{version}: {wrong:?}");
        };
        let expect = format!("advisory: planted {version}: RUSTSEC-0000-0001, It is broken");
        assert!(line.starts_with(&expect), "{line}");
    }
    for version in ["0.8.6", "0.9.3", "1.0.0", "0.6.9"] {
        assert_eq!(
            violations_with(version, &[]),
            Vec::<String>::new(),
            "{version}"
        );
    }
    let unreadable = violations_with("eight", &[]);
    assert_eq!(
        unreadable,
        ["advisory: planted eight: `eight` is no version"]
    );
}

#[test]
fn an_accepted_version_passes_and_no_other_does() {
    let accepted = [("RUSTSEC-0000-0001", "planted 0.8.5", "a reason")];
    assert_eq!(violations_with("0.8.5", &accepted), Vec::<String>::new());
    let wrong = violations_with("0.8.4", &accepted);
    assert!(
        wrong.len() == 2 && wrong[0].contains("planted 0.8.4"),
        "{wrong:?}"
    );
    let stale =
        "advisory: RUSTSEC-0000-0001 is accepted for planted 0.8.5, and does not concern it";
    assert_eq!(wrong[1], stale);
}

#[test]
fn a_file_that_cannot_be_used_is_a_violation() {
    let place = "crates/planted/RUSTSEC-0000-0001.md";
    for (text, reason) in [
        (PLANTED.replace("planted\"", "other\""), "is about other"),
        (PLANTED.replace("0001", "0002"), "called RUSTSEC-0000-0002"),
        (PLANTED.replace("```toml", "---"), "does not begin"),
        (
            PLANTED.replace("patched", "mended"),
            "no list of patched versions",
        ),
        (
            PLANTED.replace("0.9.0\"]", "0.9.0\""),
            "no list of requirements",
        ),
        (PLANTED.replace(">= 0.9.3", "~ 0.9"), "is no version"),
        (PLANTED.replace("# ", ""), "there is no heading"),
        (PLANTED.replace("id =", "number ="), "there is no id"),
    ] {
        let tree = Tree::new(&[(place, &text)]);
        let (_, wrong) = read(&tree.0.join("crates")).expect("it can be read");
        assert!(
            wrong.len() == 1 && wrong[0].contains(reason),
            "{reason}: {wrong:?}"
        );
    }
    let tree = Tree::new(&[(place, PLANTED)]);
    let (advisories, wrong) = read(&tree.0.join("crates")).expect("it can be read");
    assert_eq!((advisories.len(), wrong.len()), (1, 0));
}

/// A planted advisory about a library of the real lock file fails, and what is checked in passes.
#[test]
fn a_planted_advisory_fails() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    check(&root).expect("it can run").expect("nothing is wrong");
    let lock = fs::read_to_string(root.join("Cargo.lock")).expect("it is there");
    let (mut advisories, _) = read(&root.join(FOLDER)).expect("it can be read");
    let about_bytes = PLANTED
        .replace("\"planted\"", "\"bytes\"")
        .replace("0.9.3", "999.0.0");
    advisories.push(parse(&about_bytes).expect("an advisory"));
    let wrong = violations(&advisories, &libraries(&lock), ACCEPTED);
    assert!(
        wrong.len() == 1 && wrong[0].starts_with("advisory: bytes "),
        "{wrong:?}"
    );
    // Each accepted one is there for its advisory: without it, it is too much.
    let none = violations(&[], &libraries(&lock), ACCEPTED);
    assert_eq!(none.len(), ACCEPTED.len());
}
