//! `heraldmq rules`: the rules of a running broker that hold for everybody.

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use admin::api::{AccessRules, AclAnswer, DecidedBy};
use authorization::Rules;
use clap::Subcommand;
use serde_json::json;

use super::record::{EXIT_CODES, How};
use crate::failure::{Failure, complain};
use crate::http_port::{HttpPort, Sent, parse};
use crate::output::print;

const RULES: &str = "/api/v1/rules";

/// Show, replace and test the rules that hold for everybody, while the broker runs.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct RulesArguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq rules show > rules.acl
  heraldmq rules set rules.acl              shows the difference, and asks
  heraldmq rules test --client gw-1 publish gateways/gw-1/up --file rules.acl

`rules test` ends with 0 if the client may, and with 1 if it may not.";

#[derive(Subcommand)]
enum Command {
    /// Print the rules as a file has them.
    Show {
        #[command(flatten)]
        node: HttpPort,
        /// Print the broker's answer unchanged, as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Replace all rules with those of a file.
    ///
    /// Prints the difference first. On a terminal, the command asks before it changes anything.
    Set {
        /// The file.
        file: PathBuf,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        how: How,
    },
    /// Say whether a client may do something, and what decides.
    Test {
        #[command(flatten)]
        node: HttpPort,
        /// The client identifier.
        #[arg(long, value_name = "ID")]
        client: String,
        /// The user name; without it, that of the client's session.
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// The address that it connects from.
        #[arg(long, value_name = "IP")]
        address: Option<IpAddr>,
        /// Rules to judge by, which are not saved.
        #[arg(long)]
        file: Option<PathBuf>,
        /// publish, subscribe, receive, or retain.
        action: String,
        /// The topic name; for subscribe the topic filter.
        topic: String,
        /// Print the broker's answer unchanged, as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(arguments: &RulesArguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        Command::Show { node, json } => show(node, *json).map(|()| ExitCode::SUCCESS),
        Command::Set { file, yes, how } => set(file, *yes, how).map(|()| ExitCode::SUCCESS),
        Command::Test {
            node,
            client,
            user,
            address,
            file,
            action,
            topic,
            json,
        } => {
            let rules = file.as_deref().map(read).transpose()?;
            let question = json!({
                "client_id": client, "user": user, "address": address, "action": action, "topic": topic,
                "rules": rules,
            });
            let text = node.post("/api/v1/acl/test", &question)?;
            let answer: AclAnswer = parse(&text)?;
            match json {
                true => print(&(text + "\n"))?,
                false => print(&said(&answer))?,
            }
            Ok(match answer.verdict.may {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            })
        }
    }
}

fn said(answer: &AclAnswer) -> String {
    let may = if answer.verdict.may { "allow" } else { "deny" };
    let line = answer
        .verdict
        .line
        .map_or(String::new(), |line| format!(" {line}"));
    let by = match answer.verdict.by {
        DecidedBy::Superuser => "the client may do everything".to_owned(),
        DecidedBy::Login => format!("rule{line} of its login"),
        DecidedBy::List => format!("line{line} of the rules for everybody"),
        DecidedBy::File => format!("line{line} of the rule file"),
        DecidedBy::NoMatch => "no rule matches: authorization.noMatch decides".to_owned(),
    };
    format!("{may}\n{by}\n")
}

fn show(node: &HttpPort, json: bool) -> Result<(), Failure> {
    let text = node.get(RULES)?;
    if json {
        return print(&(text + "\n"));
    }
    let rules: AccessRules = parse(&text)?;
    if rules.lines.is_empty() {
        complain("there are no rules");
    }
    let lines = rules.lines.iter().map(|line| format!("{line}\n"));
    print(&lines.collect::<String>())
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}

fn set(file: &Path, yes: bool, how: &How) -> Result<(), Failure> {
    let text = read(file)?;
    Rules::parse(&text).map_err(|mistakes| {
        let line = |mistake: &authorization::Mistake| {
            format!("{}:{}: {}", file.display(), mistake.line, mistake.reason)
        };
        Failure::Usage(mistakes.iter().map(line).collect::<Vec<_>>().join("\n"))
    })?;
    let read = how.node.send(&Sent::of("GET", RULES))?;
    let before: AccessRules = parse(&read.body)?;
    let after: Vec<&str> = text.lines().collect();
    let Some(difference) = difference(&before.lines, &after) else {
        complain("nothing is different");
        return Ok(());
    };
    if !how.json {
        print(&difference)?;
    }
    if !how.dry_run && !yes && io::stdin().is_terminal() && !asked("Replace the rules?")? {
        complain("nothing was changed");
        return Ok(());
    }
    how.send(&Sent {
        condition: read.tag.as_deref().map(|tag| ("if-match", tag)),
        body: Some(&json!({ "lines": after })),
        ..Sent::of("PUT", RULES)
    })
}

/// Asks a question on the terminal: whether the answer is yes.
pub(super) fn asked(question: &str) -> Result<bool, Failure> {
    let failed = |error: io::Error| Failure::Runtime(error.to_string());
    let mut stderr = io::stderr();
    stderr
        .write_all(format!("{question} [y/N] ").as_bytes())
        .map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What is between the lines that both begin and end with; `None`: they are the same.
fn difference(before: &[String], after: &[&str]) -> Option<String> {
    let same = |(before, after): &(&String, &&str)| before == *after;
    let first = before.iter().zip(after).take_while(same).count();
    let (old, new) = (&before[first..], &after[first..]);
    let last = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(same)
        .count();
    let (old, new) = (&old[..old.len() - last], &new[..new.len() - last]);
    if old.is_empty() && new.is_empty() {
        return None;
    }
    let mut text = format!("from line {}:\n", first + 1);
    text.extend(old.iter().map(|line| format!("- {line}\n")));
    text.extend(new.iter().map(|line| format!("+ {line}\n")));
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_has_the_lines_that_change() {
        let before = ["a", "b", "b", "c"].map(str::to_owned);
        for (after, expected) in [
            (&["a", "b", "b", "c"][..], None),
            (&["a", "b", "c"], Some("from line 3:\n- b\n")),
            (&["a", "b", "b", "b", "c"], Some("from line 4:\n+ b\n")),
            (&["a", "x", "b", "c"], Some("from line 2:\n- b\n+ x\n")),
            (&[], Some("from line 1:\n- a\n- b\n- b\n- c\n")),
        ] {
            assert_eq!(difference(&before, after).as_deref(), expected, "{after:?}");
        }
    }
}
