//! Chores of this workspace: `cargo run -p xtask -- <chore>`.
//!
//! One module per chore; this file only picks it and turns its outcome into an exit code:
//! 0 done, 1 a check found something, 2 it could not run.
//!
//! Deliberately absent: anything that Cargo, rustc, clippy or rustfmt do.

mod advisories;
mod check;
mod commits;
mod conformance;
mod counts;
mod git;
mod libraries;
mod limits;
mod modules;
mod names;
mod patterns;
mod release;
mod root;
mod source;
mod types;
mod version;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo run -p xtask -- <chore>

chores:
  check                 exit 1 when a rule of the code base is broken, with a line for each violation
  check --list RULE [PLACE]   list what the ratchet lets pass as well
  check --update        lower the numbers of crates/xtask/ratchet.csv to today's; never raises one; list new golden files; and
                        write the page
  libraries             exit 1 when a library is under a licence, from a place or in versions that are not allowed
  advisories            exit 1 when an advisory concerns a library, and is not accepted with a reason
  conformance           write docs/conformance.md from the tags in code and tests
  conformance --check   write nothing; exit 1 when the file is out of date or a statement is unaccounted for
  commits [BASE]        exit 1 when a commit of BASE..HEAD does not load, or its subject is too long, with a line for each
  release X.Y.Z [--dry-run]   set the version, give the section of the changelog its date, commit and tag; or say what would be done
  release X.Y.Z --check       print the section of the changelog; exit 1 when the checkout is not that release
  counts                write tables of what can be counted of the code base to standard output
  counts --root PATH    the same of another checkout
  counts --page         write docs/internals/counts.md: what the rules about types, circles and parts see
  limits --page         write docs/reference/limits.md from the marks where limits are declared
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        // A reader that stopped listening (`| head`) changes nothing about the outcome.
        Ok((text, code)) => {
            let _ = io::stdout().write_all(text.as_bytes());
            code
        }
        Err(text) => {
            let _ = io::stderr().write_all(text.as_bytes());
            ExitCode::from(2)
        }
    }
}

/// Does a chore. `Err`: it could not run.
fn run(arguments: &[&str]) -> Result<(String, ExitCode), String> {
    match arguments {
        ["conformance"] => Ok((conformance::write(&root::find()?)?, ExitCode::SUCCESS)),
        ["conformance", "--check"] => Ok(match conformance::check(&root::find()?)? {
            Ok(summary) => (summary, ExitCode::SUCCESS),
            Err(findings) => (findings, ExitCode::from(1)),
        }),
        ["check"] => Ok(match check::check(&root::find()?)? {
            Ok(summary) => (summary, ExitCode::SUCCESS),
            Err(violations) => (violations, ExitCode::from(1)),
        }),
        ["libraries"] => Ok(match libraries::check(&root::find()?)? {
            Ok(summary) => (summary, ExitCode::SUCCESS),
            Err(violations) => (violations, ExitCode::from(1)),
        }),
        ["advisories"] => Ok(match advisories::check(&root::find()?)? {
            Ok(summary) => (summary, ExitCode::SUCCESS),
            Err(violations) => (violations, ExitCode::from(1)),
        }),
        ["check", "--list", rule] => {
            Ok((check::list(&root::find()?, rule, None)?, ExitCode::SUCCESS))
        }
        ["check", "--list", rule, place] => Ok((
            check::list(&root::find()?, rule, Some(place))?,
            ExitCode::SUCCESS,
        )),
        ["check", "--update"] => Ok((check::update(&root::find()?)?, ExitCode::SUCCESS)),
        ["commits"] => commits_of(None),
        ["commits", base] if !base.starts_with('-') => commits_of(Some(base)),
        ["release", version] => released(version, false),
        ["release", version, "--dry-run"] => released(version, true),
        ["release", version, "--check"] => Ok(match release::check(&root::find()?, version)? {
            Ok(notes) => (notes, ExitCode::SUCCESS),
            Err(reasons) => (reasons, ExitCode::from(1)),
        }),
        ["counts"] => Ok((counts::tables(&root::find()?)?, ExitCode::SUCCESS)),
        ["counts", "--page"] => Ok((check::write_page(&root::find()?)?, ExitCode::SUCCESS)),
        ["limits", "--page"] => Ok((limits::write_page(&root::find()?)?, ExitCode::SUCCESS)),
        ["counts", "--root", path] => Ok((counts::tables(Path::new(path))?, ExitCode::SUCCESS)),
        _ => Err(USAGE.to_owned()),
    }
}

fn commits_of(base: Option<&str>) -> Result<(String, ExitCode), String> {
    Ok(match commits::check(&root::find()?, base)? {
        Ok(summary) => (summary, ExitCode::SUCCESS),
        Err(violations) => (violations, ExitCode::from(1)),
    })
}

fn released(version: &str, is_trial: bool) -> Result<(String, ExitCode), String> {
    let root = root::find()?;
    let today = git::run(&root, "date".into(), &["-u", "+%F"])?.stdout;
    let today = String::from_utf8_lossy(&today);
    Ok(
        match release::release(&root, version, today.trim(), is_trial)? {
            Ok(told) => (told, ExitCode::SUCCESS),
            Err(reasons) => (reasons, ExitCode::from(1)),
        },
    )
}
