//! `heraldmq user`: whom MQTT clients log in as.

use std::process::ExitCode;

use admin::api::{AccessUser, Proof};
use clap::{ArgAction, Subcommand};
use serde_json::{Map, Value, json};
use text_table::Table;
use zeroize::Zeroizing;

use super::record::{EXIT_CODES, How, or_null, path_of, print_record};
use crate::failure::Failure;
use crate::http_port::{HttpPort, Sent};
use crate::look::{Listed, Shown, Walk, or_dash, print_list, shown};
use crate::output::print;
use crate::passwd;

const USERS: &str = "/api/v1/users";

/// What the broker says of a user and does not take.
const READ_ONLY: [&str; 3] = ["name", "revision", "proofs"];

/// Add, list, change and remove users of MQTT clients, while the broker runs.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct UserArguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq user add ann --group operators                  asks for the password
  heraldmq user add meter-17 --generate > meter-17.secret  a random secret, printed once
  heraldmq user set ann --class gateways --note 'until March'
  heraldmq user disable ann --dry-run
  heraldmq user list --group operators

A change holds at the asked node when the command ends, and at the other nodes a moment later.";

#[derive(Subcommand)]
enum Command {
    /// Add a user.
    Add {
        /// The MQTT user name.
        name: String,
        #[command(flatten)]
        proof: NewProof,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        how: How,
    },
    /// List users.
    List {
        #[command(flatten)]
        node: HttpPort,
        /// Only users whose names start with this.
        #[arg(value_name = "PREFIX")]
        prefix: Option<String>,
        /// Only users in this group.
        #[arg(long)]
        group: Option<String>,
        /// Only users that are enabled, or only those that are not.
        #[arg(long, value_name = "BOOL")]
        enabled: Option<bool>,
        #[command(flatten)]
        walk: Walk,
        #[command(flatten)]
        shown: Shown,
    },
    /// Show a user.
    Show {
        #[command(flatten)]
        node: HttpPort,
        /// The MQTT user name.
        name: String,
        /// Print the broker's answer unchanged, as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change what is said of a user. What is not given stays.
    Set {
        /// The MQTT user name.
        name: String,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        how: How,
    },
    /// Give a user another password, and disconnect its clients.
    Passwd {
        /// The MQTT user name.
        name: String,
        #[command(flatten)]
        proof: Password,
        #[command(flatten)]
        how: How,
    },
    /// Let clients log in as a user again.
    Enable {
        /// The MQTT user name.
        name: String,
        #[command(flatten)]
        how: How,
    },
    /// Let nobody log in as a user, and disconnect its clients.
    Disable {
        /// The MQTT user name.
        name: String,
        #[command(flatten)]
        how: How,
    },
    /// Remove a user, and disconnect its clients.
    Remove {
        /// The MQTT user name.
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
    /// Have the broker make a random secret, and print it. It is shown only once.
    #[arg(long, conflicts_with = "stdin")]
    generate: bool,
}

#[derive(clap::Args)]
struct NewProof {
    #[command(flatten)]
    password: Password,
    /// Read hashes from standard input, one a line, as they stand behind the user in a password file.
    #[arg(long, conflicts_with_all = ["stdin", "generate"])]
    hash_stdin: bool,
}

impl Password {
    /// Puts it into a body.
    fn add_to(&self, body: &mut Map<String, Value>) -> Result<(), Failure> {
        let (field, value) = match self.generate {
            true => ("generate", json!(true)),
            false => ("password", json!(*passwd::password(self.stdin)?)),
        };
        body.insert(field.to_owned(), value);
        Ok(())
    }
}

/// What is said of a user.
#[derive(clap::Args)]
struct Fields {
    /// A group that it is in; several may be given, which are all its groups then.
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
    /// It is in no group.
    #[arg(long, conflicts_with = "groups")]
    no_groups: bool,
    /// A rule of its own without WHO, such as 'allow publish a/#'; several may be given, which are all its rules then.
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<String>,
    /// It has no rules of its own.
    #[arg(long, conflicts_with = "rules")]
    no_rules: bool,
    /// The client identifiers that it may connect with, in which `*` stands for any text; '' for all.
    #[arg(long, value_name = "PATTERN")]
    client_ids: Option<String>,
    /// The class of its clients; '' for none of its own.
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Whether its clients may do everything, whatever rules say.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    superuser: Option<bool>,
    /// When it ends, such as 2026-11-24T10:12:03Z; '' for never.
    #[arg(long, value_name = "TIME")]
    ends_at: Option<String>,
    /// A note for people.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Fields {
    /// Puts what is given into a body.
    fn add_to(&self, body: &mut Map<String, Value>) {
        let lists = [
            ("groups", &self.groups, self.no_groups),
            ("rules", &self.rules, self.no_rules),
        ];
        for (field, given, none) in lists {
            if none || !given.is_empty() {
                body.insert(field.to_owned(), json!(given));
            }
        }
        if let Some(groups) = body.get_mut("groups").and_then(Value::as_array_mut) {
            groups.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            groups.dedup();
        }
        let texts = [
            ("client_ids", &self.client_ids),
            ("class", &self.class),
            ("ends_at", &self.ends_at),
        ];
        for (field, given) in texts {
            if let Some(text) = given {
                body.insert(field.to_owned(), or_null(text));
            }
        }
        if let Some(note) = &self.note {
            body.insert("note".to_owned(), json!(note));
        }
        if let Some(superuser) = self.superuser {
            body.insert("superuser".to_owned(), json!(superuser));
        }
    }
}

pub(crate) fn run(arguments: &UserArguments) -> Result<ExitCode, Failure> {
    let done = match &arguments.command {
        Command::Add {
            name,
            proof,
            fields,
            how,
        } => add(name, proof, fields, how),
        Command::List {
            node,
            prefix,
            group,
            enabled,
            walk,
            shown,
        } => {
            let mut query = Vec::new();
            query.extend(prefix.clone().map(|prefix| ("prefix", prefix)));
            query.extend(group.clone().map(|group| ("group", group)));
            query.extend(enabled.map(|enabled| ("enabled", enabled.to_string())));
            let listed = Listed::all("users").only_some(!query.is_empty());
            return print_list(node, USERS, query, (walk, shown), listed, table);
        }
        Command::Show { node, name, json } => {
            let text = node.get(&path_of(USERS, name))?;
            match json {
                true => print(&(text + "\n")),
                false => print_record(&text),
            }
        }
        Command::Set { name, fields, how } => {
            how.change(&path_of(USERS, name), &READ_ONLY, |user| {
                fields.add_to(user);
                Ok(())
            })
        }
        Command::Passwd { name, proof, how } => {
            let mut body = Map::new();
            proof.add_to(&mut body)?;
            let path = path_of(USERS, name) + "/password";
            how.send(&Sent {
                body: Some(&Value::Object(body)),
                ..Sent::of("POST", &path)
            })
        }
        Command::Enable { name, how } => enable(name, true, how),
        Command::Disable { name, how } => enable(name, false, how),
        Command::Remove { name, how } => how.send(&Sent::of("DELETE", &path_of(USERS, name))),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn add(name: &str, proof: &NewProof, fields: &Fields, how: &How) -> Result<(), Failure> {
    let mut body = Map::new();
    body.insert("name".to_owned(), name.into());
    fields.add_to(&mut body);
    match proof.hash_stdin {
        true => {
            let hash = std::io::read_to_string(std::io::stdin());
            let hash = hash.map_err(|error| Failure::Runtime(format!("the hashes: {error}")))?;
            body.insert("hash".to_owned(), json!(*Zeroizing::new(hash)));
        }
        false => proof.password.add_to(&mut body)?,
    }
    how.send(&Sent {
        body: Some(&Value::Object(body)),
        ..Sent::of("POST", USERS)
    })
}

fn enable(name: &str, enabled: bool, how: &How) -> Result<(), Failure> {
    how.change(&path_of(USERS, name), &READ_ONLY, |user| {
        user.insert("enabled".to_owned(), json!(enabled));
        Ok(())
    })
}

fn table(users: &[AccessUser]) -> Table {
    let header = [
        "USER", "ENABLED", "PROOF", "GROUPS", "RULES", "CLASS", "ENDS", "NOTE",
    ];
    let mut table = Table::new(header).with_text(0..4).with_text(5..8);
    for user in users {
        let proof = |proof: &Proof| match proof {
            Proof::Password => "password",
            Proof::Scram => "scram",
            Proof::Secret => "secret",
        };
        let mut proofs: Vec<&str> = user.proofs.iter().map(proof).collect();
        proofs.dedup();
        let list = |all: &str| or_dash((!all.is_empty()).then_some(all));
        let ends = user.ends_at.as_ref().map(ToString::to_string);
        table.row([
            shown(&user.name),
            if user.enabled { "yes" } else { "no" }.to_owned(),
            list(&proofs.join(" ")),
            list(&user.groups.join(" ")),
            match user.superuser {
                true => "superuser".to_owned(),
                false => user.rules.len().to_string(),
            },
            or_dash(user.class.as_deref()),
            or_dash(ends.as_deref()),
            list(&user.note),
        ]);
    }
    table
}
