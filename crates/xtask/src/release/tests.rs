use super::*;
use crate::git::fixture::{commit, repository};
use crate::source::fixture::Tree;

const DATE: &str = "2027-01-31";

const WORKSPACE: &str = "\
[workspace]
members = [\"a\"]
resolver = \"3\"

[workspace.package]
version = \"0.1.0\"
edition = \"2024\"
";
const MEMBER: &str =
    "[package]\nname = \"a\"\nversion.workspace = true\nedition.workspace = true\n";
const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n";
const OF_FUZZ: &str = "\
version = 4

[[package]]
name = \"elsewhere\"
version = \"0.1.0\"
source = \"registry\"

[[package]]
name = \"a\"
version = \"0.1.0\"
";
const UNRELEASED: &str = "\
# Changelog

## Unreleased

<!-- what belongs here -->

- It *does* more.

### Fixed
- It is right.

## 0.1.0 (2026-12-01)

- It does something.
";
const LEVEL: &str = "\
pub const LEVELS: &[LevelFacts] = &[
    LevelFacts {
        level: Level::RAISED,
        programs: \"0.1.0\",
        changes: \"all\",
    },
];
";
const COMPOSE: &str = "image: heraldmq/heraldmq:${HERALDMQ_VERSION:-0.1.0}\n";
const OF_CHART: &str = "apiVersion: v2\nversion: 0.1.0\nappVersion: 0.1.0\nkubeVersion: 0.1.0\n";
const IMAGES: &str = "  image: heraldmq/heraldmq:0.1.0\n  image: heraldmq/heraldmq:0.1.0\n";
const INSTALLING: &str = "heraldmq_0.1.0-1_amd64.deb heraldmq-0.1.0-linux-amd64.tar.gz\n";

fn checkout() -> Tree {
    let files = [
        ("Cargo.toml", WORKSPACE),
        ("Cargo.lock", LOCK),
        ("fuzz/Cargo.lock", OF_FUZZ),
        ("a/Cargo.toml", MEMBER),
        ("a/src/lib.rs", "//! A.\n"),
        ("CHANGELOG.md", UNRELEASED),
        ("crates/store-state/src/level.rs", LEVEL),
        ("packaging/compose/compose.yml", COMPOSE),
        (CHART, OF_CHART),
        ("packaging/kubernetes/secret.yaml", IMAGES),
        ("packaging/kubernetes/statefulset.yaml", IMAGES),
        ("docs/operate/installing.md", INSTALLING),
        (
            "docs/operate/kubernetes.md",
            "heraldmq-0.1.0-chart.tar.gz\n",
        ),
        ("docs/operate/production.md", INSTALLING),
    ];
    repository(&files, "a: begin")
}

/// What Git knows of a checkout: its commit, its tags, and what is not committed.
fn state(tree: &Tree) -> [String; 3] {
    [
        &["rev-parse", "HEAD"][..],
        &["tag"],
        &["status", "--porcelain"],
    ]
    .map(|arguments| git(&tree.0, arguments).expect("git answers"))
}

#[test]
fn a_release_is_one_commit_with_a_tag() {
    let tree = checkout();
    let [before, ..] = state(&tree);
    let told = release(&tree.0, "0.2.0", DATE, false)
        .expect("it can run")
        .expect("it is released");
    assert!(
        told.contains("commit  release: set the version to 0.2.0\ntag     v0.2.0"),
        "{told}"
    );
    let [_, tags, changed] = state(&tree);
    assert_eq!((tags.as_str(), changed.as_str()), ("v0.2.0\n", ""));
    assert_eq!(git(&tree.0, &["rev-parse", "HEAD^"]), Ok(before));
    assert_eq!(
        git(&tree.0, &["rev-parse", "v0.2.0^{commit}"]),
        git(&tree.0, &["rev-parse", "HEAD"])
    );
    let text = git(
        &tree.0,
        &["tag", "--list", "--format=%(contents)", "v0.2.0"],
    )
    .expect("a tag");
    assert_eq!(
        text.trim(),
        "- It *does* more.\n\n### Fixed\n- It is right."
    );

    let read = |path| read(&tree.0, path).expect(path);
    assert!(read("Cargo.toml").contains("version = \"0.2.0\""));
    assert_eq!(read("Cargo.lock"), LOCK.replace("0.1.0", "0.2.0"));
    assert!(read("fuzz/Cargo.lock").contains("\"elsewhere\"\nversion = \"0.1.0\""));
    assert!(read("fuzz/Cargo.lock").contains("\"a\"\nversion = \"0.2.0\""));
    assert_eq!(
        read("packaging/compose/compose.yml"),
        COMPOSE.replace("0.1.0", "0.2.0")
    );
    assert_eq!(
        read(CHART),
        OF_CHART
            .replace("ersion: 0.1.0\n", "ersion: 0.2.0\n")
            .replace("kubeVersion: 0.2.0", "kubeVersion: 0.1.0")
    );
    assert_eq!(
        read("packaging/kubernetes/statefulset.yaml"),
        IMAGES.replace("0.1.0", "0.2.0")
    );
    assert_eq!(
        read("docs/operate/installing.md"),
        INSTALLING.replace("0.1.0", "0.2.0")
    );
    assert!(read("CHANGELOG.md").contains("-->\n\n## 0.2.0 (2027-01-31)\n\n- It *does* more."));

    let notes = check(&tree.0, "0.2.0").expect("it can run");
    assert_eq!(
        notes.as_deref(),
        Ok("- It *does* more.\n\n### Fixed\n- It is right.\n")
    );
    let other = check(&tree.0, "0.3.0")
        .expect("it can run")
        .expect_err("it is another one");
    assert_eq!(
        other,
        "Cargo.toml has the version 0.2.0\nCHANGELOG.md: 0.3.0 has no section with a date\n"
    );
}

#[test]
fn a_trial_changes_nothing_and_says_all() {
    let tree = checkout();
    let before = state(&tree);
    let told = release(&tree.0, "0.2.0", DATE, true)
        .expect("it can run")
        .expect("it would be released");
    assert_eq!(state(&tree), before);
    for part in [
        "change  CHANGELOG.md\nchange  Cargo.lock\nchange  Cargo.toml\nchange  docs/operate/installing.md",
        "change  fuzz/Cargo.lock\nchange  packaging/compose/compose.yml\n\
         change  packaging/helm/heraldmq/Chart.yaml\nchange  packaging/kubernetes/secret.yaml\n\
         change  packaging/kubernetes/statefulset.yaml\ncommit",
        "tag     v0.2.0, with this text:\n\n- It *does* more.",
        "nothing was changed\n",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// The first release has had its number all the time.
#[test]
fn a_version_without_a_tag_is_released_as_it_is() {
    let tree = checkout();
    tree.write(
        "CHANGELOG.md",
        "# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- All.\n",
    );
    commit(&tree, "a: write the changelog");
    let told = release(&tree.0, "0.1.0", DATE, false)
        .expect("it can run")
        .expect("it is released");
    assert!(told.starts_with("change  CHANGELOG.md\ncommit"), "{told}");
    assert_eq!(state(&tree)[1], "v0.1.0\n");
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_changed() {
    let cases: [(&str, &str, &str, &str); 7] = [
        (
            "0.0.9",
            "CHANGELOG.md",
            UNRELEASED,
            "the version is 0.1.0, and 0.0.9 is earlier",
        ),
        (
            "0.2",
            "CHANGELOG.md",
            UNRELEASED,
            "`0.2` is no version such as 1.2.3",
        ),
        (
            "0.2.0-rc.1",
            "CHANGELOG.md",
            UNRELEASED,
            "`0.2.0-rc.1` is no version such as 1.2.3",
        ),
        (
            "next",
            "CHANGELOG.md",
            UNRELEASED,
            "`next` is no version such as 1.2.3",
        ),
        (
            "0.2.0",
            "CHANGELOG.md",
            "# Changelog\n",
            "CHANGELOG.md: there is no section Unreleased",
        ),
        (
            "0.2.0",
            "crates/store-state/src/level.rs",
            &LEVEL.replace("0.1.0", "0.3.0"),
            "is later than 0.2.0",
        ),
        (
            "0.2.0",
            "packaging/compose/compose.yml",
            "image: other\n",
            "packaging/compose/compose.yml does not name",
        ),
    ];
    for (version, path, text, expect) in cases {
        let tree = checkout();
        tree.write(path, text);
        commit(&tree, "a: go on");
        let before = state(&tree);
        let reasons = release(&tree.0, version, DATE, false).expect("it can run");
        let reasons = reasons.expect_err(expect);
        assert!(reasons.contains(expect), "{expect}: {reasons}");
        assert_eq!(state(&tree), before, "{expect}");
    }
}

#[test]
fn a_tree_that_is_not_clean_and_a_tag_that_is_there_are_refused() {
    let tree = checkout();
    git(&tree.0, &["tag", "v0.2.0"]).expect("a tag");
    tree.write("notes", "of mine\n");
    tree.write("a/src/lib.rs", "//! B.\n");
    let before = state(&tree);
    let reasons = release(&tree.0, "0.2.0", DATE, false)
        .expect("it can run")
        .expect_err("both");
    assert_eq!(
        reasons,
        "the tree is not clean: M a/src/lib.rs,?? notes\nthere is a tag v0.2.0\n"
    );
    assert_eq!(state(&tree), before);
}

/// The lock file does not agree with a crate that has a version of its own.
#[test]
fn a_release_that_does_not_load_is_taken_back() {
    let tree = checkout();
    tree.write(
        "a/Cargo.toml",
        &MEMBER.replace("version.workspace = true", "version = \"0.1.0\""),
    );
    commit(&tree, "a: have a version of its own");
    let before = state(&tree);
    let failed = release(&tree.0, "0.2.0", DATE, false).expect_err("it does not load");
    assert!(
        failed.starts_with("the new version does not load: "),
        "{failed}"
    );
    assert_eq!(state(&tree), before);
}

/// Whoever writes one of these files anew keeps the version where a release finds it.
#[test]
fn the_version_stands_where_a_release_changes_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let version = current(&read(&root, MANIFEST).expect("it is there")).expect("a version");
    for (path, before, behind) in NAMED {
        let text = read(&root, path).expect("it is there");
        assert!(
            text.contains(&format!("{before}{version}{behind}")),
            "{path}"
        );
    }
    for path in LOCKS {
        let lock = read(&root, path).expect("it is there");
        assert_ne!(with_locked(&lock, &version, "9.9.9"), lock, "{path}");
    }
}
