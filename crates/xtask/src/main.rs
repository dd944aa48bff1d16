//! Chores of this workspace: `cargo run -p xtask -- <chore>`.
//!
//! One module per chore; this file only picks it and turns its outcome into an exit code:
//! 0 done, 1 a check found something, 2 it could not run.

mod conformance;
mod root;

use std::io::{self, Write};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo run -p xtask -- <chore>

chores:
  conformance           write docs/conformance.md from the tags in code and tests
  conformance --check   write nothing; exit 1 when the file is out of date or a statement is unaccounted for
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
        _ => Err(USAGE.to_owned()),
    }
}
