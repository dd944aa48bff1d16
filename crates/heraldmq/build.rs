//! What `heraldmq --version` says of the build: target, profile, and the commit, if the sources are a git checkout.
//!
//! Invariant: a build never fails for want of git, and never names the commit of another repository that the sources
//! happen to lie in. Whoever builds from a tarball can give the commit by `HERALD_COMMIT`. Names of variables do not begin
//! as those of options: Cargo sets them for what it runs as well.
//!
//! Builds for development have no commit: each commit would have this crate compiled and linked again. In the others
//! it is that alone.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const COMMIT: &str = "HERALD_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let commit = env::var(COMMIT).ok().filter(|given| is_plain(given));
    let commit = commit
        .or_else(|| commit_of_checkout().filter(|found| is_plain(found)))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=HERALD_BUILD_COMMIT={commit}");
    for (name, of_cargo) in [("TARGET", "TARGET"), ("OPTIMISATION", "OPT_LEVEL")] {
        let value = env::var(of_cargo).unwrap_or_default();
        println!("cargo::rustc-env=HERALD_BUILD_{name}={value}");
    }
}

/// One short line, for it goes to Cargo as one.
fn is_plain(commit: &str) -> bool {
    (1..=80).contains(&commit.len()) && commit.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}

/// The commit, and whether what is compiled differs from it. `None`: a build for development, no git, or no checkout.
fn commit_of_checkout() -> Option<String> {
    if env::var("PROFILE").ok()? == "debug" {
        return None;
    }
    let root =
        fs::canonicalize(Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join("../..")).ok()?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(&root)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    if fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()? != root {
        return None;
    }
    let commit = git(&["log", "-1", "--format=%h of %cs"])?;
    let compiled = ["crates", "Cargo.toml", "Cargo.lock"];
    let changed = git(&[&["status", "--porcelain", "--"][..], &compiled].concat())?;
    // Each commit and each checkout adds a line to the log of HEAD. Sources that change have most of this crate's
    // dependencies compiled again anyway.
    let log = PathBuf::from(git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    for watched in compiled.iter().map(PathBuf::from).chain([log]) {
        let watched = root.join(watched);
        if watched.exists() {
            println!("cargo::rerun-if-changed={}", watched.display());
        }
    }
    Some(match changed.is_empty() {
        true => commit,
        false => format!("{commit}, with changes"),
    })
}
