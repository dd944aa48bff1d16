//! `heraldmq control import`: users, groups and rules from a document into a running broker.
//!
//! Invariant: nothing is sent unless all of the document can be taken over, as far as the export of the node tells. A part is made only if
//! nobody else has changed anything since that export, so that what was printed is what is done.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use admin::api::AccessImported;
use authentication::{StoredAs, stored_as};
use authorization::{Mistake, Rules};
use control::{Put, Revision, Target, Verifier};
use control_document::{Counts, Document, Mode, Plan, Step, What, plan};

use super::export::EXPORT;
use super::rules::asked;
use crate::failure::{Failure, complain};
use crate::http_port::{HttpPort, Sent, parse};
use crate::look::shown;
use crate::output::print;

const IMPORT: &str = "/api/v1/control/import";

/// The longest document, in bytes: all records that the store holds, and what YAML adds to them.
const LONGEST: u64 = 512 << 20;

/// Lines of records that are new, of those that change, and of those that are removed, unless all are asked for.
const LINES: usize = 50;

/// Take over users, groups and rules from a document, as `control export` prints it.
///
/// Prints what is different first. If records are removed, the command asks on a terminal before it changes anything. A document with more than
/// 1,000 changes is sent in parts; if the command ends before the last one, run it again: it goes on where it was.
#[derive(clap::Args)]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    node: HttpPort,
    /// The document, YAML or JSON.
    file: PathBuf,
    /// Remove users and groups that the document does not have, and replace the rules if it has any.
    #[arg(long)]
    replace: bool,
    /// Say what would be different, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Print each record that is different, and not only the first 50 of a kind.
    #[arg(long)]
    verbose: bool,
}

pub(super) fn import(arguments: &ImportArguments) -> Result<(), Failure> {
    let file = &arguments.file;
    let wrong = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    let document = document(file)?;
    let node = &arguments.node;
    let query = [("with_secrets", "true".to_owned())];
    let export = node.long(EXPORT, &query, LONGEST)?;
    let not_understood =
        |why: String| Failure::Runtime(format!("the export of the node is not understood: {why}"));
    let revision = export.tag.as_deref().and_then(revision);
    let revision = revision.ok_or_else(|| not_understood("it has no ETag".to_owned()))?;
    let before =
        Document::parse(&export.body).map_err(|error| not_understood(error.to_string()))?;
    drop(export.body);
    let before = before.records(revision, &verifier);
    let before = before.map_err(|wrong| not_understood(wrong.to_string()))?;
    let mode = match arguments.replace {
        true => Mode::Replace,
        false => Mode::Merge,
    };
    let plan =
        plan(&before, &document, mode, &verifier).map_err(|error| wrong(error.to_string()))?;
    drop((before, document));
    let mistakes: Vec<String> = plan.steps.iter().flat_map(mistakes).collect();
    if !mistakes.is_empty() {
        let lines = mistakes.iter().take(LINES);
        let lines: Vec<_> = lines
            .map(|line| format!("{}: {line}", file.display()))
            .collect();
        return Err(Failure::Usage(lines.join("\n")));
    }
    print(&said(&plan, arguments.verbose))?;
    if plan.steps.is_empty() {
        complain("nothing is different");
        return Ok(());
    }
    if arguments.dry_run {
        return Ok(());
    }
    let asks = plan.counts.removed > 0 && !arguments.yes && io::stdin().is_terminal();
    if asks && !asked("Remove them, and change the others?")? {
        complain("nothing was changed");
        return Ok(());
    }
    send(node, &plan, revision)
}

fn document(file: &Path) -> Result<Document, Failure> {
    let unusable =
        |why: &dyn std::fmt::Display| Failure::Usage(format!("{}: {why}", file.display()));
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(unusable(&error)),
        Ok(length) if length as u64 > LONGEST => {
            Err(unusable(&format!("longer than {LONGEST} bytes")))
        }
        Ok(_) => Document::parse(&text).map_err(|error| unusable(&error)),
    }
}

fn verifier(hash: &str) -> Result<Verifier, String> {
    Ok(match stored_as(hash)? {
        StoredAs::Password => Verifier::Hash(hash.into()),
        StoredAs::Scram => Verifier::Scram(hash.into()),
    })
}

/// The revision of an ETag.
fn revision(tag: &str) -> Option<Revision> {
    let digits = tag.strip_prefix("\"r")?.strip_suffix('"')?;
    digits.parse().ok().map(Revision)
}

/// What the rules of a record have wrong.
fn mistakes(step: &Step) -> Vec<String> {
    let (lines, of): (&[Box<str>], String) = match &step.change.put {
        Put::User(name, Some(user)) => (&user.rules, format!("user {name:?}")),
        Put::Group(name, Some(group)) => (&group.rules, format!("group {name:?}")),
        Put::Rules(list) => {
            let read = Rules::parse(&list.0.join("\n"));
            return in_words("rules", read.map(drop));
        }
        Put::User(_, None) | Put::Group(_, None) | Put::Person(..) | Put::Key(..) => {
            return Vec::new();
        }
    };
    in_words(&of, Rules::from_lines(lines).map(drop))
}

fn in_words(of: &str, read: Result<(), Vec<Mistake>>) -> Vec<String> {
    let mistakes = read.err().unwrap_or_default();
    let words = mistakes.iter().map(|mistake| format!("{of}: {mistake}"));
    words.collect()
}

/// Sends a plan that was made from the records of a revision.
fn send(node: &HttpPort, plan: &Plan, mut revision: Revision) -> Result<(), Failure> {
    let mut parts = plan.parts().peekable();
    let mut number = 0;
    while let Some(part) = parts.next() {
        number += 1;
        let body = serde_json::to_value(&part).expect("lists of texts are JSON");
        let query = [("revision", revision.0.to_string())];
        let sent = Sent {
            query: &query,
            body: Some(&body),
            ..Sent::of("POST", IMPORT)
        };
        let answer = node.send(&sent).inspect_err(|_| {
            let (left, before) = (parts.by_ref().count() + 1, number - 1);
            complain(&format!(
                "parts that were made: {before}; parts that are left: {left}; run the command again to go on"
            ));
        })?;
        let imported: AccessImported = parse(&answer.body)?;
        revision = Revision(imported.revision.0);
    }
    Ok(())
}

/// The records that are different, and how many there are.
fn said(plan: &Plan, verbose: bool) -> String {
    let most = if verbose { usize::MAX } else { LINES };
    let mut text = String::new();
    for (what, sign) in [
        (What::Create, '+'),
        (What::Change, '~'),
        (What::Remove, '-'),
    ] {
        let of = |step: &&Step| step.what == what && !step.is_between;
        let mut steps = plan.steps.iter().filter(of);
        for step in steps.by_ref().take(most) {
            let record = match step.change.target() {
                Target::User(name) => format!("user {}", shown(&name)),
                Target::Group(name) => format!("group {}", shown(&name)),
                Target::Rules => "rules".to_owned(),
                Target::Person(name) => format!("person {}", shown(&name)),
                Target::Key(id) => format!("key {id}"),
            };
            text.push_str(&format!("{sign} {record}\n"));
        }
        let more = steps.count();
        if more > 0 {
            text.push_str(&format!(
                "{sign} and others: {more} (--verbose prints them)\n"
            ));
        }
    }
    let Counts {
        created,
        changed,
        removed,
        kept,
    } = plan.counts;
    text + &format!("created: {created}, changed: {changed}, removed: {removed}, kept: {kept}\n")
}
