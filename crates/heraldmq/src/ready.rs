//! `heraldmq ready`: whether a running broker takes clients. A health check for containers, whose image has no shell and no
//! HTTP client.
//!
//! Deliberately absent: when a node is ready; its `/readyz` says so.

use std::io::{self, Write as _};

use crate::failure::Failure;
use crate::http_port::HttpPort;

/// Check whether a running broker is ready for clients (/readyz).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    node: HttpPort,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq ready
  heraldmq ready --url https://10.0.0.5:8091 --ca-file ca.pem

Exit codes: 0 ready; 1 not ready, or no answer; 2 wrong command line.";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let answer = arguments.node.get("/readyz").map_err(Failure::refused)?;
    // A reader that stopped listening changes nothing about the outcome.
    let _ = writeln!(io::stdout(), "{}", one_line(&answer));
    Ok(())
}

/// The lines of an answer as one: those behind the first name shards without a leader.
fn one_line(answer: &str) -> String {
    answer.lines().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line() {
        assert_eq!(one_line("ready\n"), "ready");
        assert_eq!(one_line("ready\na\nb\n"), "ready; a; b");
    }
}
