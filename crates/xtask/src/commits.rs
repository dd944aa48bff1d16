//! `commits`: each commit of a branch loads, and has a subject that fits a line.
//!
//! A commit loads if `cargo metadata --locked` succeeds in it: the manifests can be read, name members that
//! exist, and agree with `Cargo.lock`. So `git bisect` can stop at each of them.
//!
//! Commits are checked out one after the other in one worktree in a temporary folder, which is removed at the end,
//! also when the chore fails. An interrupt leaves it; `git worktree remove --force` takes it away then. The checkout that
//! the chore runs in is not touched, and what is not committed in it makes no difference.
//!
//! Cargo downloads libraries that only such a commit needs.
//!
//! Deliberately absent: whether a commit builds or its tests pass, which takes hours.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::git::{git, loads};

/// So many characters a subject may have.
const SUBJECT: usize = 72;

/// So many commits are looked at where no branch says from where on.
const LAST: usize = 20;

/// Branches that a branch begins at, by preference.
const BASES: &[&str] = &["origin/main", "main"];

/// Looks at each commit of `base..HEAD`, the oldest first. Without a base, it is the first of [`BASES`] that exists and
/// differs from HEAD, else the commit [`LAST`] before HEAD, else all of the history. The inner result says how many
/// commits there are, or which fail, a line each.
///
/// # Errors
/// Git or Cargo cannot be run, or `base` is no commit.
pub(crate) fn check(root: &Path, base: Option<&str>) -> Result<Result<String, String>, String> {
    let range = range(root, base)?;
    let list = git(root, &["rev-list", "--reverse", "--topo-order", &range])?;
    let commits: Vec<&str> = list.lines().collect();
    let mut wrong = Vec::new();
    if !commits.is_empty() {
        let worktree = Worktree::add(root)?;
        for commit in &commits {
            wrong.extend(wrong_with(&worktree, commit)?);
        }
    }
    if wrong.is_empty() {
        return Ok(Ok(format!(
            "{} commits of {range} load, and their subjects fit\n",
            commits.len()
        )));
    }
    let lines: String = wrong.iter().map(|line| format!("{line}\n")).collect();
    Ok(Err(format!(
        "{lines}{} violations in {} commits of {range}\n",
        wrong.len(),
        commits.len()
    )))
}

/// What `git rev-list` is asked for.
fn range(root: &Path, base: Option<&str>) -> Result<String, String> {
    if let Some(base) = base {
        return Ok(format!("{base}..HEAD"));
    }
    let hash = |name: &str| {
        let name = format!("{name}^{{commit}}");
        git(root, &["rev-parse", "--verify", "--quiet", &name])
    };
    let head = hash("HEAD")?;
    let branch = BASES
        .iter()
        .find(|name| hash(name).is_ok_and(|hash| hash != head));
    if let Some(branch) = branch {
        return Ok(format!("{branch}..HEAD"));
    }
    let before = format!("HEAD~{LAST}");
    // A history that is shorter has no such commit.
    Ok(match hash(&before) {
        Ok(_) => format!("{before}..HEAD"),
        Err(_) => "HEAD".to_owned(),
    })
}

/// What is wrong with a commit, a line each.
fn wrong_with(worktree: &Worktree, commit: &str) -> Result<Vec<String>, String> {
    let folder = &worktree.folder;
    git(
        folder,
        &["checkout", "--quiet", "--force", "--detach", commit],
    )?;
    let told = git(folder, &["log", "-1", "--format=%h %s"])?;
    let told = told.trim_end();
    let (_, subject) = told.split_once(' ').unwrap_or((told, ""));
    let mut wrong = Vec::new();
    let length = subject.chars().count();
    if length > SUBJECT {
        wrong.push(format!(
            "{told}: the subject has {length} characters, at most {SUBJECT}"
        ));
    }
    if let Err(reason) = loads(folder)? {
        wrong.push(format!("{told}: does not load: {reason}"));
    }
    Ok(wrong)
}

/// A worktree in a temporary folder, with nothing checked out at first; removed when dropped.
struct Worktree {
    root: PathBuf,
    folder: PathBuf,
}

impl Worktree {
    fn add(root: &Path) -> Result<Self, String> {
        // Tests have several in one process.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("xtask-commits-{}-{number}", std::process::id());
        let worktree = Self {
            root: root.to_owned(),
            folder: std::env::temp_dir().join(name),
        };
        let path = worktree.folder.to_string_lossy();
        let arguments = ["worktree", "add", "--quiet", "--no-checkout", "--detach"];
        git(root, &[&arguments[..], &[&path, "HEAD"]].concat())?;
        Ok(worktree)
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        let path = self.folder.to_string_lossy();
        // Nobody is left to be told of an error; what Git leaves is removed without it.
        let _ = git(&self.root, &["worktree", "remove", "--force", &path]);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::fixture::{self, commit};
    use crate::source::fixture::Tree;

    const WORKSPACE: &str = "[workspace]\nmembers = [\"a\"]\nresolver = \"3\"\n";
    const MEMBER: &str = "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n";

    /// A repository whose first commit, on `main`, loads.
    fn repository() -> Tree {
        let files = [
            ("Cargo.toml", WORKSPACE),
            ("Cargo.lock", LOCK),
            ("a/Cargo.toml", MEMBER),
            ("a/src/lib.rs", "//! A.\n"),
        ];
        fixture::repository(&files, "a: begin")
    }

    /// The checkouts of the repository: one, unless a worktree was left.
    fn checkouts(tree: &Tree) -> usize {
        let list = git(&tree.0, &["worktree", "list"]).expect("a list");
        list.lines().count()
    }

    #[test]
    fn a_commit_that_does_not_load_is_named_and_those_around_it_are_not() {
        let tree = repository();
        let first = git(&tree.0, &["rev-parse", "HEAD"]).expect("a commit");
        commit(&tree, "a: go on");
        tree.write("Cargo.toml", &WORKSPACE.replace("\"a\"", "\"a\", \"b\""));
        commit(&tree, "b: be named and not be there");
        tree.write("Cargo.toml", WORKSPACE);
        commit(&tree, "b: be gone");
        tree.write("a/Cargo.toml", &MEMBER.replace("0.1.0", "0.2.0"));
        commit(&tree, "a: leave the lock file behind");
        tree.write("a/Cargo.toml", MEMBER);
        commit(&tree, "a: catch up");
        // What is not committed makes no difference.
        tree.write("Cargo.toml", "no manifest");

        let outcome = check(&tree.0, Some(first.trim())).expect("it can run");
        let text = outcome.expect_err("two commits do not load");
        let lines: Vec<&str> = text.lines().collect();
        let [one, two, last] = lines.as_slice() else {
            panic!("{text}");
        };
        assert!(
            one.contains(" b: be named and not be there: does not load: "),
            "{one}"
        );
        assert!(one.contains("`b/Cargo.toml`"), "{one}");
        assert!(
            two.contains(" a: leave the lock file behind: does not load: "),
            "{two}"
        );
        assert!(two.contains("--locked"), "{two}");
        assert!(last.starts_with("2 violations in 5 commits of "), "{last}");
        assert_eq!(checkouts(&tree), 1);
    }

    #[test]
    fn a_subject_of_more_characters_than_fit_is_named() {
        let tree = repository();
        let fits = format!("a: {}", "é".repeat(SUBJECT - 3));
        commit(&tree, &fits);
        commit(
            &tree,
            &format!(
                "{fits}x\n\nA body may have lines as long as it wants, of 73 characters and more."
            ),
        );
        let outcome = check(&tree.0, None).expect("it can run");
        let text = outcome.expect_err("one subject is too long");
        let lines: Vec<&str> = text.lines().collect();
        let [one, last] = lines.as_slice() else {
            panic!("{text}");
        };
        assert!(
            one.ends_with("x: the subject has 73 characters, at most 72"),
            "{one}"
        );
        // There is no other branch, and the history is short.
        assert_eq!(*last, "1 violations in 3 commits of HEAD");
    }

    #[test]
    fn a_branch_begins_at_main() {
        let tree = repository();
        git(&tree.0, &["checkout", "--quiet", "-b", "b"]).expect("a branch");
        assert_eq!(range(&tree.0, None), Ok("HEAD".to_owned()));
        commit(&tree, "b: begin");
        assert_eq!(range(&tree.0, None), Ok("main..HEAD".to_owned()));
        git(&tree.0, &["update-ref", "refs/remotes/origin/main", "main"]).expect("a reference");
        assert_eq!(range(&tree.0, None), Ok("origin/main..HEAD".to_owned()));
        for number in 0..LAST {
            commit(&tree, &format!("b: go on {number}"));
        }
        for name in ["refs/remotes/origin/main", "refs/heads/main"] {
            git(&tree.0, &["update-ref", name, "HEAD"]).expect("a reference");
        }
        assert_eq!(range(&tree.0, None), Ok("HEAD~20..HEAD".to_owned()));
    }

    #[test]
    fn the_worktree_is_removed_when_the_chore_cannot_go_on() {
        let tree = repository();
        let worktree = Worktree::add(&tree.0).expect("a worktree");
        let folder = worktree.folder.clone();
        assert!(folder.is_dir() && checkouts(&tree) == 2);
        assert!(wrong_with(&worktree, "no-such-commit").is_err());
        drop(worktree);
        assert!(!folder.exists() && checkouts(&tree) == 1);
        assert!(check(&tree.0, Some("no-such-commit")).is_err());
    }
}
