//! `check`: rules of the code base that no compiler knows, and a ratchet for what is not true yet.
//!
//! One file for each rule, with the rule as data at its top: `dependencies`, `purity`, `circles`, `parts`, `sizes`, `headers`,
//! `readmes`, `words`, `habits`, `page`, `golden`,
//! `adding`, `large_files`, `lengths`, `limits`, `sharing`. A rule gives findings, each with the rule's name and a place (a crate, a crate and a type, or
//! `docs`). `ratchet` lets as many pass as `ratchet.csv` says: a finding more fails, and so does one less, until the
//! number is lowered.
//!
//! Invariant: the same checkout gives the same findings in the same order; nothing is read but the checkout.
//!
//! Deliberately absent: what rustc, clippy and rustfmt check.

mod adding;
mod circles;
mod dependencies;
mod finding;
mod golden;
mod habits;
mod headers;
mod large_files;
mod lengths;
mod limits;
mod page;
mod parts;
mod purity;
mod ratchet;
mod readmes;
mod sharing;
mod sizes;
mod words;

use std::fs;
use std::io;
use std::path::Path;

use crate::source;
use finding::Finding;
use page::PAGE;
use ratchet::{RATCHET, Ratchet};

/// Compares with the ratchet. The inner result says how much was checked, or what is wrong, one violation per line.
pub(crate) fn check(root: &Path) -> Result<Result<String, String>, String> {
    let findings = findings(root)?;
    let wrong = Ratchet::parse(&fs::read_to_string(root.join(RATCHET)).unwrap_or_default())?
        .compare(&findings);
    if wrong.is_empty() {
        return Ok(Ok(format!(
            "the rules hold; {} findings are known and only get fewer ({RATCHET})\n",
            findings.len()
        )));
    }
    let lines: String = wrong.iter().map(|line| format!("{line}\n")).collect();
    Ok(Err(format!("{lines}{} violations\n", wrong.len())))
}

/// Lowers the numbers of the ratchet to today's, and never raises one. Without the file, writes it with today's. Writes the
/// page of what the rules see and that of limits as well, where they are there.
pub(crate) fn update(root: &Path) -> Result<String, String> {
    golden::update(root).map_err(|error| format!("golden files: {error}\n"))?;
    // What the pages say is looked through as well.
    if root.join(crate::limits::PAGE).is_file() {
        crate::limits::write_page(root)?;
    }
    let findings = findings(root)?;
    let path = root.join(RATCHET);
    let today = Ratchet::of(&findings);
    let lowered = match fs::read_to_string(&path) {
        Ok(text) => Ratchet::parse(&text)?.lowered(&today),
        Err(_) => today,
    };
    fs::write(&path, lowered.render()).map_err(|error| format!("{}: {error}\n", path.display()))?;
    if root.join(PAGE).is_file() {
        write_page(root)?;
    }
    Ok(format!("{RATCHET} allows {} findings\n", lowered.total()))
}

/// Writes the page of what the rules see.
pub(crate) fn write_page(root: &Path) -> Result<String, String> {
    let crates =
        source::crates(root).map_err(|error| format!("reading {}: {error}\n", root.display()))?;
    let path = root.join(PAGE);
    fs::write(&path, page::page(&crates))
        .map_err(|error| format!("{}: {error}\n", path.display()))?;
    Ok(format!("{PAGE} is written\n"))
}

/// All findings of a rule, or of those whose names begin so, in one place or in all, those that the ratchet lets pass
/// among them.
pub(crate) fn list(root: &Path, rule: &str, place: Option<&str>) -> Result<String, String> {
    Ok(findings(root)?
        .iter()
        .filter(|finding| finding.rule.starts_with(rule))
        .filter(|finding| place.is_none_or(|place| finding.place == place))
        .map(|finding| format!("{}: {}\n", finding.rule, finding.text))
        .collect())
}

fn findings(root: &Path) -> Result<Vec<Finding>, String> {
    let fail = |error: io::Error| format!("reading {}: {error}\n", root.display());
    let crates = source::crates(root).map_err(fail)?;
    let mut found = Vec::new();
    found.extend(dependencies::findings(&crates));
    // Trees of tests have no such file.
    let lock = fs::read_to_string(root.join("fuzz/Cargo.lock")).unwrap_or_default();
    found.extend(dependencies::lacking(&crates, "fuzz/Cargo.lock", &lock));
    found.extend(purity::findings(&crates));
    found.extend(circles::findings(&crates));
    found.extend(parts::findings(&crates));
    found.extend(sizes::findings(&crates));
    found.extend(headers::findings(&crates));
    found.extend(readmes::findings(root, &crates));
    found.extend(habits::findings(&crates));
    found.extend(words::findings(root, &crates)?);
    found.extend(page::findings(root, &crates));
    found.extend(golden::findings(root).map_err(fail)?);
    found.extend(large_files::findings(root)?);
    found.extend(sharing::findings(root, &crates));
    found.extend(lengths::findings(root));
    found.extend(adding::findings(root));
    found.extend(limits::findings(root, &crates));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::Tree;

    const GLOSSARY: &str = "## Words that are not used\n\n| Not | But | Matched in |\n|---|---|---|\n| throne | leader hint | all text |\n";
    const CLEAN: &str = "//! Events.\n//!\n//! Deliberately absent: clocks.\n";

    const README: &str = "# a\n\nWhat it is for.\n";

    fn tree(text: &str) -> Tree {
        Tree::new(&[
            ("GLOSSARY.md", GLOSSARY),
            ("crates/report/Cargo.toml", "[package]\n"),
            ("crates/report/README.md", README),
            ("crates/report/src/lib.rs", text),
            ("crates/xtask/Cargo.toml", "[package]\n"),
            ("crates/xtask/README.md", README),
            ("crates/xtask/src/main.rs", CLEAN),
        ])
    }

    #[test]
    fn a_tree_that_keeps_all_rules_passes() {
        let outcome = check(&tree(CLEAN).0).expect("a tree");
        assert!(outcome.is_ok(), "{outcome:?}");
    }

    #[test]
    fn every_violation_is_a_line() {
        let text = "//! Events.\nuse std::fs;\nfn a() { let Some(throne) = b else { return }; }\nstruct C { d: u64 }\n";
        let fields: String = (0..20)
            .map(|number| format!("    e{number}: u8,\n"))
            .collect();
        let tree = tree(&text.replace("d: u64 ", &format!("d: u64,\n{fields}")));
        tree.write("crates/report/README.md", "# report\n");
        let outcome = check(&tree.0).expect("a tree");
        let text = outcome.expect_err("it breaks rules");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "bare-integer: crates/report/src/lib.rs:4: a field of a bare integer: a type of its own says what it counts",
                "fields in report C: 21, at most 0; one: crates/report/src/lib.rs:4: d, one of 21 fields of C; 20 are the limit; all of them: cargo run -p xtask -- check --list 'fields' 'report C'",
                "header: crates/report/src/lib.rs: the header does not say what is `Deliberately absent`",
                "pure-files: crates/report/src/lib.rs:2: std::fs",
                "readme: crates/report/README.md: there is no paragraph that says what the crate is for",
                "silent-return: crates/report/src/lib.rs:3: leaves and says nothing: count it, log it, or return an error",
                "word throne: crates/report/src/lib.rs:3: say leader hint",
                "7 violations",
            ]
        );
    }

    #[test]
    fn the_ratchet_is_lowered_and_never_raised() {
        let tree = tree(
            "//! Events.\n//!\n//! Deliberately absent: clocks.\nstruct A {\n    b: u64,\n    c: u64,\n}\n",
        );
        assert_eq!(
            update(&tree.0),
            Ok(format!("{RATCHET} allows 2 findings\n"))
        );
        assert!(check(&tree.0).expect("a tree").is_ok());

        tree.write(
            "crates/report/src/lib.rs",
            &format!("{CLEAN}struct A {{\n    b: u64,\n}}\n"),
        );
        let outcome = check(&tree.0).expect("a tree").expect_err("one less");
        assert!(
            outcome.contains("bare-integer in report: 1, and the ratchet says 2"),
            "{outcome}"
        );
        assert_eq!(
            update(&tree.0),
            Ok(format!("{RATCHET} allows 1 findings\n"))
        );
        assert!(check(&tree.0).expect("a tree").is_ok());

        tree.write(
            "crates/report/src/lib.rs",
            &format!("{CLEAN}struct A {{\n    b: u64,\n    c: u16,\n}}\n"),
        );
        assert_eq!(
            update(&tree.0),
            Ok(format!("{RATCHET} allows 1 findings\n"))
        );
        let outcome = check(&tree.0).expect("a tree").expect_err("one more");
        assert!(
            outcome.contains("bare-integer in report: 2, at most 1"),
            "{outcome}"
        );
    }

    #[test]
    fn this_workspace_has_the_files_that_the_rules_read() {
        let root = crate::root::find().expect("a workspace");
        for path in [RATCHET, words::GLOSSARY, PAGE, sharing::LIST] {
            assert!(root.join(path).is_file(), "{path}");
        }
    }
}
