//! `heraldmq person`: who logs in at the HTTP port with a password.

use std::process::ExitCode;

use admin::Role;
use admin::api::{KnownIn, PersonRow};
use clap::{ArgAction, Subcommand};
use serde_json::{Map, Value, json};
use text_table::Table;

use super::record::{EXIT_CODES, How, path_of, print_record};
use crate::failure::Failure;
use crate::http_port::{HttpPort, Sent};
use crate::look::{Listed, Shown, Walk, or_dash, print_list, shown};
use crate::output::print;
use crate::passwd;

const PEOPLE: &str = "/api/v1/people";

/// What the broker says of a person and does not take.
const READ_ONLY: [&str; 4] = ["name", "revision", "source", "has_password"];

/// Add, list, change and remove people who log in at the dashboard and the HTTP API, while the broker runs.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct PersonArguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq person first anna                               the first one, with the code in the broker's log
  heraldmq person add ben --role operator --generate       a random password, printed once
  heraldmq person set ben --role viewer --audits
  heraldmq person disable ben
  heraldmq person list

Somebody whose password was set by another person chooses a new one at the first login.";

#[derive(Subcommand)]
enum Command {
    /// Make the first administrator of a broker that nobody can change anything at yet. Asks for the code in the broker's log, and for a password.
    First {
        #[command(flatten)]
        node: HttpPort,
        /// The name.
        name: String,
        /// Read the code and the password from standard input, a line each.
        #[arg(long)]
        stdin: bool,
    },
    /// Add a person.
    Add {
        /// The name.
        name: String,
        #[command(flatten)]
        password: Password,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        how: How,
    },
    /// List people.
    List {
        #[command(flatten)]
        node: HttpPort,
        #[command(flatten)]
        walk: Walk,
        #[command(flatten)]
        shown: Shown,
    },
    /// Show a person.
    Show {
        #[command(flatten)]
        node: HttpPort,
        /// The name.
        name: String,
        /// Print the broker's answer unchanged, as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change what is said of a person. What is not given stays.
    Set {
        /// The name.
        name: String,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        how: How,
    },
    /// Give a person another password, and log the person out.
    Passwd {
        /// The name.
        name: String,
        #[command(flatten)]
        password: Password,
        #[command(flatten)]
        how: How,
    },
    /// Let a person log in again.
    Enable {
        /// The name.
        name: String,
        #[command(flatten)]
        how: How,
    },
    /// Log a person out, and let the person log in no more.
    Disable {
        /// The name.
        name: String,
        #[command(flatten)]
        how: How,
    },
    /// Remove a person, who is logged out.
    Remove {
        /// The name.
        name: String,
        #[command(flatten)]
        how: How,
    },
}

/// Where a password comes from.
#[derive(clap::Args)]
struct Password {
    /// Read the password from standard input, even if that is a terminal.
    #[arg(long)]
    stdin: bool,
    /// Have the broker make a random password, and print it. It is shown only once.
    #[arg(long, conflicts_with = "stdin")]
    generate: bool,
    /// The person may keep the password.
    #[arg(long)]
    keep: bool,
}

impl Password {
    /// Puts it into a body.
    fn add_to(&self, body: &mut Map<String, Value>) -> Result<(), Failure> {
        let (field, value) = match self.generate {
            true => ("generate", json!(true)),
            false => ("password", json!(*passwd::password(self.stdin)?)),
        };
        body.insert(field.to_owned(), value);
        body.insert("must_change".to_owned(), json!(!self.keep));
        Ok(())
    }
}

/// What is said of a person.
#[derive(clap::Args)]
struct Fields {
    /// viewer reads, operator also acts on clients and bans, administrator also changes the cluster and who may do what.
    #[arg(long)]
    role: Option<Role>,
    /// Whether the person may read the audit, whatever the role.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    audits: Option<bool>,
    /// A note for people.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Fields {
    /// Puts what is given into a body.
    fn add_to(&self, body: &mut Map<String, Value>) {
        if let Some(role) = self.role {
            body.insert("role".to_owned(), json!(role));
        }
        if let Some(audits) = self.audits {
            body.insert("audits".to_owned(), json!(audits));
        }
        if let Some(note) = &self.note {
            body.insert("note".to_owned(), json!(note));
        }
    }
}

pub(crate) fn run(arguments: &PersonArguments) -> Result<ExitCode, Failure> {
    let done = match &arguments.command {
        Command::First { node, name, stdin } => first(node, name, *stdin),
        Command::Add {
            name,
            password,
            fields,
            how,
        } => {
            let mut body = Map::new();
            body.insert("name".to_owned(), name.as_str().into());
            fields.add_to(&mut body);
            password.add_to(&mut body)?;
            how.send(&Sent {
                body: Some(&Value::Object(body)),
                ..Sent::of("POST", PEOPLE)
            })
        }
        Command::List { node, walk, shown } => {
            let listed = Listed::all("people");
            return print_list(node, PEOPLE, Vec::new(), (walk, shown), listed, table);
        }
        Command::Show { node, name, json } => {
            let text = node.get(&path_of(PEOPLE, name))?;
            match json {
                true => print(&(text + "\n")),
                false => print_record(&text),
            }
        }
        Command::Set { name, fields, how } => change(name, how, |person| {
            fields.add_to(person);
            Ok(())
        }),
        Command::Passwd {
            name,
            password,
            how,
        } => change(name, how, |person| password.add_to(person)),
        Command::Enable { name, how } => enable(name, true, how),
        Command::Disable { name, how } => enable(name, false, how),
        Command::Remove { name, how } => how.send(&Sent::of("DELETE", &path_of(PEOPLE, name))),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn first(node: &HttpPort, name: &str, stdin: bool) -> Result<(), Failure> {
    let code = match stdin {
        true => passwd::line()?,
        false => passwd::asked("Code in the broker's log: ")?,
    };
    let password = passwd::password(stdin)?;
    let body = json!({"code": *code, "user": name, "password": *password});
    node.send(&Sent {
        body: Some(&body),
        ..Sent::of("POST", "/api/v1/login-first")
    })?;
    print(&format!("{} is an administrator\n", shown(name)))
}

fn change(
    name: &str,
    how: &How,
    change: impl FnOnce(&mut Map<String, Value>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    how.change(&path_of(PEOPLE, name), &READ_ONLY, change)
}

fn enable(name: &str, enabled: bool, how: &How) -> Result<(), Failure> {
    change(name, how, |person| {
        person.insert("enabled".to_owned(), json!(enabled));
        Ok(())
    })
}

fn table(people: &[PersonRow]) -> Table {
    let header = [
        "PERSON", "ROLE", "AUDITS", "ENABLED", "PASSWORD", "KNOWN IN", "NOTE",
    ];
    let mut table = Table::new(header).with_text(0..7);
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    for person in people {
        let password = match (person.has_password, person.must_change) {
            (false, _) => "none",
            (true, true) => "to be changed",
            (true, false) => "set",
        };
        table.row([
            shown(&person.name),
            person.role.to_string(),
            yes(person.audits),
            yes(person.enabled),
            password.to_owned(),
            known_in(person.source).to_owned(),
            or_dash((!person.note.is_empty()).then_some(&person.note)),
        ]);
    }
    table
}

pub(super) fn known_in(source: KnownIn) -> &'static str {
    match source {
        KnownIn::File => "file",
        KnownIn::Store => "store",
    }
}
