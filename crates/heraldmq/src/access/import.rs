//! `heraldmq control import`: users, groups, rules, people and keys from a document into a running broker, or users and rules that
//! another broker keeps.
//!
//! Invariant: nothing is sent unless all of the document can be taken over, as far as the export of the node tells. A part is made only if
//! nobody else has changed anything since that export, so that what was printed is what is done.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use admin::api::AccessImported;
use authentication::{StoredAs, WeakHashes, stored_as_with};
use authorization::{Mistake, Rules};
use clap::ValueEnum;
use control::{Put, Records, Revision, Target, Verifier};
use control_document::{
    Counts, Document, EmqxHash, ImportError, Imported, Mode, Plan, Step, TableFormat, What, Whose,
    dynsec, emqx, mosquitto, plan,
};

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

/// Take over users, groups, rules, people and keys from a document, as `control export` prints it, or users and rules of another broker.
///
/// Prints what is different first. If records are removed, the command asks on a terminal before it changes anything. A document with more than
/// 1,000 changes is sent in parts; if the command ends before the last one, run it again: it goes on where it was.
#[derive(clap::Args)]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    node: HttpPort,
    /// The document, YAML or JSON. With --from mosquitto: the password file, and then the acl_file if there is one. With --from dynsec: the
    /// file of the plugin. With --from emqx: the users, whose name ends with .csv or .json, the acl.conf, or both.
    #[arg(required = true, num_args = 1..=2)]
    files: Vec<PathBuf>,
    /// The broker that the files are from. What has no equal is left out, and printed on standard error with its place.
    #[arg(long, value_name = "BROKER")]
    from: Option<From>,
    /// How the users of EMQX have their hashes: sha256-prefix, sha256-suffix, sha512-prefix, sha512-suffix, bcrypt,
    /// pbkdf2-sha256:ITERATIONS or pbkdf2-sha512:ITERATIONS.
    #[arg(long, requires = "from")]
    hash: Option<EmqxHash>,
    /// Take hashes of users that are one round of SHA, from Mosquitto before 2.0 or EMQX: who gets hold of them can find the passwords.
    #[arg(long)]
    accept_weak_hashes: bool,
    /// Remove records that the document does not have. Those of a section that the document does not have stay.
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

/// What other brokers keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum From {
    /// The password file and the acl_file of Mosquitto.
    Mosquitto,
    /// The file of Mosquitto's plugin for dynamic security.
    Dynsec,
    /// The users and the acl.conf of EMQX.
    Emqx,
}

/// What is imported.
struct Source {
    document: Document,
    /// What messages call it.
    name: String,
    /// Whether new users that nobody can log in as are left out: a document must not have any, and other brokers know such users.
    leaves_out: bool,
}

pub(super) fn import(arguments: &ImportArguments) -> Result<(), Failure> {
    let Source {
        mut document,
        name,
        leaves_out,
    } = source(arguments)?;
    let wrong = |why: String| Failure::Usage(format!("{name}: {why}"));
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
    // The store may have weak hashes from an earlier import.
    let any = |_, hash: &str| verifier(hash, WeakHashes::Accept);
    let before = before.records(revision, &any);
    let before = before.map_err(|wrong| not_understood(wrong.to_string()))?;
    let mode = match arguments.replace {
        true => Mode::Replace,
        false => Mode::Merge,
    };
    if leaves_out {
        leave_out(&mut document, &before);
    }
    let weak = match arguments.accept_weak_hashes {
        true => WeakHashes::Accept,
        false => WeakHashes::Refuse,
    };
    let read = |whose, hash: &str| match whose {
        Whose::User => verifier(hash, weak),
        Whose::Person => verifier(hash, WeakHashes::Refuse),
    };
    let plan = plan(&before, &document, mode, &read).map_err(|error| wrong(error.to_string()))?;
    drop((before, document));
    let mistakes: Vec<String> = plan.steps.iter().flat_map(mistakes).collect();
    if !mistakes.is_empty() {
        let lines = mistakes.iter().take(LINES);
        let lines: Vec<_> = lines.map(|line| format!("{name}: {line}")).collect();
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
    send(node, &plan, revision, arguments.accept_weak_hashes)
}

/// Reads the files, and prints what is left out of them.
fn source(arguments: &ImportArguments) -> Result<Source, Failure> {
    let files = &arguments.files;
    if arguments.hash.is_some() && arguments.from != Some(From::Emqx) {
        let why = "--hash is about users of EMQX: --from emqx";
        return Err(Failure::Usage(why.to_owned()));
    }
    let Some(from) = arguments.from else {
        let file = one(files, "a document")?;
        let text = text(file)?;
        let document = Document::parse(&text).map_err(|error| unusable(file, &error))?;
        return Ok(Source {
            document,
            name: file.display().to_string(),
            leaves_out: false,
        });
    };
    let accepts = arguments.accept_weak_hashes;
    let imported = match from {
        From::Mosquitto => {
            let texts = files.iter().map(|file| text(file));
            let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
            let passwords = texts.first().map(String::as_str);
            mosquitto(passwords, texts.get(1).map(String::as_str), accepts)
        }
        From::Dynsec => dynsec(&text(one(files, "--from dynsec")?)?),
        From::Emqx => of_emqx(files, arguments.hash.as_ref(), accepts)?,
    };
    let names: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let name = names.join(", ");
    let wrong = |error: ImportError| Failure::Usage(format!("{name}: {error}"));
    let Imported { document, left_out } = imported.map_err(wrong)?;
    for left in &left_out {
        complain(&format!("left out: {}: {}", left.at, left.why));
    }
    Ok(Source {
        document,
        name,
        leaves_out: true,
    })
}

fn of_emqx(
    files: &[PathBuf],
    hash: Option<&EmqxHash>,
    accepts_weak: bool,
) -> Result<Result<Imported, ImportError>, Failure> {
    let twice = |what: &str| Failure::Usage(format!("--from emqx takes one file of {what}"));
    let (mut users, mut rules) = (None, None);
    for file in files {
        let text = text(file)?;
        match TableFormat::of_file_name(&file.to_string_lossy()) {
            Some(format) => match users.replace((text, format)) {
                None => {}
                Some(_) => return Err(twice("users")),
            },
            None => match rules.replace(text) {
                None => {}
                Some(_) => return Err(twice("rules; that of users ends with .csv or .json")),
            },
        }
    }
    let users = match (&users, hash) {
        (Some((text, format)), Some(hash)) => Some((text.as_str(), *format, hash)),
        (None, None) => None,
        (Some(_), None) => {
            let why = "the file of users does not say how it has its hashes: --hash says it";
            return Err(Failure::Usage(why.to_owned()));
        }
        (None, Some(_)) => {
            let why = "--hash is about the file of users, whose name ends with .csv or .json, and there is none";
            return Err(Failure::Usage(why.to_owned()));
        }
    };
    Ok(emqx(users, rules.as_deref(), accepts_weak))
}

/// The only file.
fn one<'a>(files: &'a [PathBuf], of: &str) -> Result<&'a Path, Failure> {
    match files {
        [file] => Ok(file),
        _ => Err(Failure::Usage(format!("{of} is one file"))),
    }
}

/// Takes users out of a document that are new and have nothing to log in with, and prints them.
fn leave_out(document: &mut Document, before: &Records) {
    document.users.retain(|user| {
        let has_proof = !user.hashes.is_empty() || !user.secrets.is_empty();
        let stays = has_proof || before.users.contains_key(user.name.as_str());
        if !stays {
            let name = shown(&user.name);
            complain(&format!(
                "left out: user {name}: it has no password that can be taken over, and there is no such user yet"
            ));
        }
        stays
    });
}

fn unusable(file: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::Usage(format!("{}: {why}", file.display()))
}

fn text(file: &Path) -> Result<String, Failure> {
    let unusable = |why: &dyn std::fmt::Display| unusable(file, why);
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(unusable(&error)),
        Ok(length) if length as u64 > LONGEST => {
            Err(unusable(&format!("longer than {LONGEST} bytes")))
        }
        Ok(_) => Ok(text),
    }
}

fn verifier(hash: &str, weak: WeakHashes) -> Result<Verifier, String> {
    Ok(match stored_as_with(hash, weak)? {
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
fn send(
    node: &HttpPort,
    plan: &Plan,
    mut revision: Revision,
    accepts_weak: bool,
) -> Result<(), Failure> {
    let mut parts = plan.parts().peekable();
    let mut number = 0;
    while let Some(part) = parts.next() {
        number += 1;
        let body = serde_json::to_value(&part).expect("lists of texts are JSON");
        let mut query = vec![("revision", revision.0.to_string())];
        if accepts_weak {
            query.push(("accept_weak_hashes", "true".to_owned()));
        }
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
    text + format!("created: {created}, changed: {changed}, removed: {removed}, kept: {kept}\n")
        .as_str()
}
