//! `heraldmq audit`: who has changed what, and whether that record is whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use admin::api::{AuditHead, AuditRow};
use clap::Subcommand;
use control_document::{AuditLine, Verified, Verifier, hash_text};
use text_table::Table;

use super::export::print_stream;
use super::record::print_record;
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};
use crate::look::{Listed, Shown, Walk, or_dash, print_list, shown};
use crate::output::print;

const AUDIT: &str = "/api/v1/audit";

/// The longest line of an export that is read, in bytes.
const LONGEST_LINE: u64 = 4 * 1_024 * 1_024;

/// List, export and verify the audit: who has changed what, from where, and when.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct AuditArguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq audit list --actor anna --since 2026-11-24T00:00:00Z
  heraldmq audit list --action user.
  heraldmq audit export > audit-2026-11.ndjson
  heraldmq audit verify audit-2026-11.ndjson --head 5f0c…

Each entry has the hash of all entries before it. Whoever keeps the head elsewhere, as the broker's log does once an hour, can tell later
whether the audit was rewritten on all nodes.

Exit codes: 0 done, and the audit is whole; 1 the audit is not whole, or the node does not answer; 2 wrong command line.";

#[derive(Subcommand)]
enum Command {
    /// List entries, the latest first.
    List {
        #[command(flatten)]
        node: HttpPort,
        /// Only what this person or key has done.
        #[arg(long)]
        actor: Option<String>,
        /// Only actions that begin so, such as `user.` or `nodes.drain`.
        #[arg(long)]
        action: Option<String>,
        /// Only what concerns this user, group, person, key or path.
        #[arg(long)]
        target: Option<String>,
        /// Not before, such as 2026-11-24T10:12:03Z.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Before, such as 2026-11-24T10:12:03Z.
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        #[command(flatten)]
        walk: Walk,
        #[command(flatten)]
        shown: Shown,
    },
    /// Print the number and the hash of the last entry.
    Head {
        #[command(flatten)]
        node: HttpPort,
        /// Print the broker's answer unchanged, as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print all entries as lines of JSON, for `heraldmq audit verify` and for keeping.
    Export {
        #[command(flatten)]
        node: HttpPort,
        /// The number of the first entry; without it the first one that is kept.
        #[arg(long, value_name = "NUMBER")]
        from: Option<u64>,
    },
    /// Say whether an export is whole, or which entry was changed first. Asks no broker.
    Verify {
        /// What `heraldmq audit export` has printed; - is standard input.
        file: PathBuf,
        /// A head that was written down elsewhere: the export must have it.
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
    },
}

pub(crate) fn run(arguments: &AuditArguments) -> Result<ExitCode, Failure> {
    let done = match &arguments.command {
        Command::List {
            node,
            actor,
            action,
            target,
            since,
            until,
            walk,
            shown,
        } => {
            let filters = [
                ("actor", actor),
                ("action", action),
                ("target", target),
                ("since", since),
                ("until", until),
            ];
            let given = filters
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.clone()?)));
            let query: Vec<_> = given.collect();
            let listed = Listed::all("audited changes").only_some(!query.is_empty());
            return print_list(node, AUDIT, query, (walk, shown), listed, table);
        }
        Command::Head { node, json } => {
            let text = node.get("/api/v1/audit/head")?;
            match json {
                true => print(&(text + "\n")),
                false => {
                    let _: AuditHead = parse(&text)?;
                    print_record(&text)
                }
            }
        }
        Command::Export { node, from } => {
            let query = from.map(|from| ("from", from.to_string()));
            print_stream(node, "/api/v1/audit/export", query.as_slice())
        }
        Command::Verify { file, head } => verify(file, head.as_deref()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn verify(file: &Path, head: Option<&str>) -> Result<(), Failure> {
    let verifier = Verifier::new(head).map_err(|why| Failure::Usage(format!("--head: {why}")))?;
    let failed = |error: io::Error| Failure::Runtime(format!("{}: {error}", file.display()));
    let verified = match file == Path::new("-") {
        true => lines(io::stdin().lock(), verifier)?,
        false => lines(BufReader::new(File::open(file).map_err(failed)?), verifier)?,
    };
    let Verified {
        first,
        next,
        head: found,
        has_known,
    } = verified;
    if head.is_some() && !has_known {
        let why = "the head that was given is not among the entries: the audit was rewritten, or the head is of another cluster or of entries that are not in the file";
        return Err(Failure::Runtime(why.to_owned()));
    }
    let found = hash_text(found);
    match next.0 - first.0 {
        0 => print(&format!("whole: no entries, head {found}\n")),
        _ => print(&format!(
            "whole: entries {} to {}, head {found}\n",
            first.0,
            next.0 - 1
        )),
    }
}

fn lines(mut file: impl BufRead, mut verifier: Verifier) -> Result<Verified, Failure> {
    let broken = |line: u64, why: &dyn std::fmt::Display| {
        Failure::Runtime(format!("not whole: line {line}: {why}"))
    };
    let mut number = 0;
    loop {
        number += 1;
        let mut text = Vec::new();
        let read = io::Read::take(&mut file, LONGEST_LINE)
            .read_until(b'\n', &mut text)
            .map_err(|error| broken(number, &error))?;
        if read == 0 {
            break;
        }
        let line: AuditLine =
            serde_json::from_slice(&text).map_err(|_| broken(number, &"no line of an export"))?;
        verifier
            .line(&line)
            .map_err(|error| broken(number, &error))?;
    }
    verifier.finish().map_err(|error| broken(number, &error))
}

fn table(entries: &[AuditRow]) -> Table {
    let header = ["TIME", "WHO", "BY", "FROM", "ACTION", "TARGET", "WHAT"];
    let mut table = Table::new(header).with_text(0..7);
    for entry in entries {
        let value = |value: &Option<String>| value.as_deref().map_or("-".to_owned(), shown);
        let fields = entry.fields.iter().map(|field| match &field.before {
            Some(_) => format!(
                "{}: {} → {}",
                field.name,
                value(&field.before),
                value(&field.after)
            ),
            None => format!("{}: {}", field.name, value(&field.after)),
        });
        table.row([
            entry.at.to_string(),
            shown(&entry.actor),
            entry.means.clone(),
            or_dash(entry.address.as_deref()),
            entry.action.clone(),
            or_dash((!entry.target.is_empty()).then_some(entry.target.as_str())),
            fields.collect::<Vec<_>>().join(", "),
        ]);
    }
    table
}
