//! Chores of this workspace: `cargo run -p xtask -- <chore>`.
//!
//! One module per chore; this file only picks it and turns its outcome into an exit code:
//! 0 done, 1 a check found something, 2 it could not run.

mod conformance;

use std::io::{self, Write};
use std::path::Path;
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");

    let outcome = match arguments.as_slice() {
        ["conformance"] => conformance::write(&root).map(|summary| (summary, ExitCode::SUCCESS)),
        ["conformance", "--check"] => conformance::check(&root).map(|checked| match checked {
            Ok(summary) => (summary, ExitCode::SUCCESS),
            Err(findings) => (findings, ExitCode::from(1)),
        }),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
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
