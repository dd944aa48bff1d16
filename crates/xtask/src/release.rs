//! `release`: makes the commit and the tag of a release, or says what it would do.
//!
//! Purpose: a release is one commit that sets the version everywhere and gives the section of the changelog its date, with a tag
//! `vX.Y.Z` whose text is that section. Nothing is pushed: packages are made from the tag, by `.github/workflows/release.yml` or by
//! `scripts/package`.
//!
//! Invariant: whatever fails, the checkout is as before.
//!
//! Deliberately absent: whether the tests pass, which `scripts/test --all` says.

mod changelog;
mod levels;

use std::fs;
use std::path::Path;

use crate::git::{git, loads};
use crate::version::Version;

const CHANGELOG: &str = "CHANGELOG.md";
const LEVELS: &str = "crates/store-state/src/level.rs";
const MANIFEST: &str = "Cargo.toml";

/// Lock files that name the crates of the workspace.
const LOCKS: &[&str] = &["Cargo.lock", "fuzz/Cargo.lock"];

const CHART: &str = "packaging/helm/heraldmq/Chart.yaml";
const IMAGE: &str = "image: heraldmq/heraldmq:";

/// Where else the version stands, as what is before and behind it.
const NAMED: &[(&str, &str, &str)] = &[
    ("docs/operate/installing.md", "heraldmq_", "-1_"),
    ("docs/operate/installing.md", "heraldmq-", "-linux-"),
    ("docs/operate/kubernetes.md", "heraldmq-", "-chart.tar.gz"),
    ("docs/operate/production.md", "heraldmq_", "-1_"),
    ("packaging/compose/compose.yml", "${HERALDMQ_VERSION:-", "}"),
    (CHART, "\nversion: ", "\n"),
    (CHART, "\nappVersion: ", "\n"),
    ("packaging/kubernetes/secret.yaml", IMAGE, "\n"),
    ("packaging/kubernetes/statefulset.yaml", IMAGE, "\n"),
];

/// Releases a version, or with `is_trial` only says what it would do. The inner result is that text, or why it is refused.
///
/// # Errors
/// Git or Cargo cannot be run, or a file cannot be read or written.
pub(crate) fn release(
    root: &Path,
    version: &str,
    date: &str,
    is_trial: bool,
) -> Result<Result<String, String>, String> {
    let plan = match plan(root, version, date)? {
        Ok(plan) => plan,
        Err(reasons) => return Ok(Err(reasons)),
    };
    let told = plan.told();
    if is_trial {
        return Ok(Ok(format!("{told}nothing was changed\n")));
    }
    let done = write(root, &plan);
    if done.is_err() {
        // The tree was clean.
        git(root, &["reset", "--quiet", "--hard", &plan.head])?;
    }
    done?;
    Ok(Ok(format!(
        "{told}done; `git push --follow-tags` publishes it\n"
    )))
}

/// Whether the checkout is the release of this version; its section of the changelog, or what is wrong.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn check(root: &Path, version: &str) -> Result<Result<String, String>, String> {
    let Ok(parsed) = version.parse::<Version>() else {
        return Ok(Err(format!("`{version}` is no version\n")));
    };
    let mut wrong = levels::violations(&read(root, LEVELS)?, &parsed);
    let current = current(&read(root, MANIFEST)?)?;
    if current != version {
        wrong.push(format!("{MANIFEST} has the version {current}"));
    }
    let notes = changelog::notes(&read(root, CHANGELOG)?, version);
    Ok(match notes {
        Ok(notes) if wrong.is_empty() => Ok(notes),
        Ok(_) => Err(lines(&wrong)),
        Err(reason) => {
            wrong.push(format!("{CHANGELOG}: {reason}"));
            Err(lines(&wrong))
        }
    })
}

/// All that a release changes.
struct Plan {
    head: String,
    tag: String,
    subject: String,
    notes: String,
    /// Paths with their new text.
    files: Vec<(&'static str, String)>,
}

impl Plan {
    fn told(&self) -> String {
        let files: String = self
            .files
            .iter()
            .map(|(path, _)| format!("change  {path}\n"))
            .collect();
        let Self { subject, tag, .. } = self;
        format!(
            "{files}commit  {subject}\ntag     {tag}, with this text:\n\n{}\n",
            self.notes
        )
    }
}

fn plan(root: &Path, version: &str, date: &str) -> Result<Result<Plan, String>, String> {
    let Ok(parsed) = version.parse::<Version>() else {
        return Ok(Err(format!("`{version}` is no version such as 1.2.3\n")));
    };
    let mut wrong = Vec::new();
    if parsed.to_string() != version || !parsed.is_release() {
        wrong.push(format!("`{version}` is no version such as 1.2.3"));
    }
    let changed = git(root, &["status", "--porcelain"])?;
    if !changed.is_empty() {
        wrong.push(format!(
            "the tree is not clean: {}",
            changed.trim().replace('\n', ",")
        ));
    }
    let tag = format!("v{version}");
    if !git(root, &["tag", "--list", &tag])?.is_empty() {
        wrong.push(format!("there is a tag {tag}"));
    }
    let manifest = read(root, MANIFEST)?;
    let current = current(&manifest)?;
    if current.parse::<Version>()? > parsed {
        wrong.push(format!(
            "the version is {current}, and {version} is earlier"
        ));
    }
    wrong.extend(levels::violations(&read(root, LEVELS)?, &parsed));
    let changelog = match changelog::released(&read(root, CHANGELOG)?, version, date) {
        Ok(changelog) => changelog,
        Err(reason) => {
            wrong.push(format!("{CHANGELOG}: {reason}"));
            String::new()
        }
    };
    if !wrong.is_empty() {
        return Ok(Err(lines(&wrong)));
    }
    let notes = changelog::notes(&changelog, version)?;
    let mut files = vec![
        (CHANGELOG, changelog),
        (MANIFEST, with_version(&manifest, &current, version)),
    ];
    for &path in LOCKS {
        files.push((path, with_locked(&read(root, path)?, &current, version)));
    }
    for &(path, before, behind) in NAMED {
        let (old, new) = (
            format!("{before}{current}{behind}"),
            format!("{before}{version}{behind}"),
        );
        let text = match files.iter().position(|(known, _)| *known == path) {
            Some(at) => files.swap_remove(at).1,
            None => read(root, path)?,
        };
        if !text.contains(&old) {
            return Ok(Err(format!("{path} does not name {old}\n")));
        }
        files.push((path, text.replace(&old, &new)));
    }
    files.sort();
    let mut changed = Vec::new();
    for (path, text) in files {
        if read(root, path)? != text {
            changed.push((path, text));
        }
    }
    Ok(Ok(Plan {
        head: git(root, &["rev-parse", "HEAD"])?.trim().to_owned(),
        subject: format!("release: set the version to {version}"),
        tag,
        notes,
        files: changed,
    }))
}

/// Does what is planned.
fn write(root: &Path, plan: &Plan) -> Result<(), String> {
    for (path, text) in &plan.files {
        let path = root.join(path);
        fs::write(&path, text).map_err(|error| format!("{}: {error}\n", path.display()))?;
    }
    loads(root)?.map_err(|reason| format!("the new version does not load: {reason}\n"))?;
    let body = format!(
        "What it brings is in {CHANGELOG}; the tag {} names it.",
        plan.tag
    );
    git(
        root,
        &[
            "commit",
            "--quiet",
            "--all",
            "-m",
            &plan.subject,
            "-m",
            &body,
        ],
    )?;
    // Headings of the section begin with what is a comment otherwise.
    let arguments = [
        "tag",
        "--annotate",
        "--cleanup=verbatim",
        &plan.tag,
        "-m",
        &plan.notes,
    ];
    git(root, &arguments)?;
    Ok(())
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}\n"))
}

fn lines(of: &[String]) -> String {
    of.iter().map(|line| format!("{line}\n")).collect()
}

/// The version that `[workspace.package]` gives all crates.
fn current(manifest: &str) -> Result<String, String> {
    let section = manifest.split("[workspace.package]\n").nth(1);
    let version = section.and_then(|section| {
        let mut lines = section.lines().take_while(|line| !line.starts_with('['));
        lines.find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
    });
    version
        .map(str::to_owned)
        .ok_or_else(|| format!("{MANIFEST}: [workspace.package] has no version\n"))
}

fn with_version(manifest: &str, current: &str, version: &str) -> String {
    let (before, section) = manifest
        .split_once("[workspace.package]\n")
        .unwrap_or((manifest, ""));
    let (old, new) = (
        format!("version = \"{current}\""),
        format!("version = \"{version}\""),
    );
    format!(
        "{before}[workspace.package]\n{}",
        section.replacen(&old, &new, 1)
    )
}

/// The lock file with the new version of crates that come from nowhere else.
fn with_locked(lock: &str, current: &str, version: &str) -> String {
    let (old, new) = (
        format!("\nversion = \"{current}\"\n"),
        format!("\nversion = \"{version}\"\n"),
    );
    let packages = lock.split("[[package]]").map(|package| {
        let is_ours = !package.contains("\nsource = ");
        if is_ours {
            package.replacen(&old, &new, 1)
        } else {
            package.to_owned()
        }
    });
    packages.collect::<Vec<_>>().join("[[package]]")
}

#[cfg(test)]
mod tests;
