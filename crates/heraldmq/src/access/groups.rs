//! `heraldmq user-group`: rules that several users have.

use std::process::ExitCode;

use admin::api::AccessGroup;
use clap::Subcommand;
use serde_json::{Map, Value, json};
use text_table::Table;

use super::record::{EXIT_CODES, How, or_null, path_of, print_record};
use crate::failure::Failure;
use crate::http_port::{HttpPort, Sent};
use crate::look::{Listed, Shown, Walk, or_dash, print_list, shown};
use crate::output::print;

const GROUPS: &str = "/api/v1/groups";

/// What the broker says of a group and does not take.
const READ_ONLY: [&str; 2] = ["name", "revision"];

/// Add, list, change and remove groups of users, while the broker runs. `heraldmq groups` is about shared subscriptions.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct UserGroupArguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq user-group add operators --rule 'allow subscribe plants/#' --rule 'allow publish plants/%u/cmd'
  heraldmq user-group set operators --priority 10
  heraldmq user-group list
  heraldmq user-group remove operators";

#[derive(Subcommand)]
enum Command {
    /// Add a group.
    Add {
        /// The name of the group.
        name: String,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        how: How,
    },
    /// List groups.
    List {
        #[command(flatten)]
        node: HttpPort,
        /// Only groups whose names start with this.
        #[arg(value_name = "PREFIX")]
        prefix: Option<String>,
        #[command(flatten)]
        walk: Walk,
        #[command(flatten)]
        shown: Shown,
    },
    /// Show a group.
    Show {
        #[command(flatten)]
        node: HttpPort,
        /// The name of the group.
        name: String,
        /// Print the broker's answer unchanged, as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change a group. What is not given stays.
    Set {
        /// The name of the group.
        name: String,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        how: How,
    },
    /// Remove a group that no user is in and no group includes.
    Remove {
        /// The name of the group.
        name: String,
        #[command(flatten)]
        how: How,
    },
}

/// What is said of a group.
#[derive(clap::Args)]
struct Fields {
    /// Of the groups of a user, the one with the largest number is judged first.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// A rule without WHO, such as 'allow publish a/#'; several may be given, which are all its rules then.
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<String>,
    /// It has no rules.
    #[arg(long, conflicts_with = "rules")]
    no_rules: bool,
    /// A group whose rules follow its own; several may be given, which are all that it includes then.
    #[arg(long = "include", value_name = "NAME")]
    includes: Vec<String>,
    /// It includes no group.
    #[arg(long, conflicts_with = "includes")]
    no_includes: bool,
    /// The class of clients of its users that have none of their own; '' for none.
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// A note for people.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Fields {
    /// Puts what is given into a body.
    fn add_to(&self, body: &mut Map<String, Value>) {
        let lists = [
            ("rules", &self.rules, self.no_rules),
            ("includes", &self.includes, self.no_includes),
        ];
        for (field, given, none) in lists {
            if none || !given.is_empty() {
                body.insert(field.to_owned(), json!(given));
            }
        }
        if let Some(priority) = self.priority {
            body.insert("priority".to_owned(), json!(priority));
        }
        if let Some(class) = &self.class {
            body.insert("class".to_owned(), or_null(class));
        }
        if let Some(note) = &self.note {
            body.insert("note".to_owned(), json!(note));
        }
    }
}

pub(crate) fn run(arguments: &UserGroupArguments) -> Result<ExitCode, Failure> {
    let done = match &arguments.command {
        Command::Add { name, fields, how } => {
            let mut body = Map::new();
            body.insert("name".to_owned(), json!(name));
            fields.add_to(&mut body);
            how.send(&Sent {
                body: Some(&Value::Object(body)),
                ..Sent::of("POST", GROUPS)
            })
        }
        Command::List {
            node,
            prefix,
            walk,
            shown,
        } => {
            let query: Vec<_> = prefix
                .clone()
                .map(|prefix| ("prefix", prefix))
                .into_iter()
                .collect();
            let listed = Listed::all("groups of users").only_some(prefix.is_some());
            return print_list(node, GROUPS, query, (walk, shown), listed, table);
        }
        Command::Show { node, name, json } => {
            let text = node.get(&path_of(GROUPS, name))?;
            match json {
                true => print(&(text + "\n")),
                false => print_record(&text),
            }
        }
        Command::Set { name, fields, how } => {
            how.change(&path_of(GROUPS, name), &READ_ONLY, |group| {
                fields.add_to(group);
                Ok(())
            })
        }
        Command::Remove { name, how } => how.send(&Sent::of("DELETE", &path_of(GROUPS, name))),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn table(groups: &[AccessGroup]) -> Table {
    let header = ["GROUP", "PRIORITY", "RULES", "INCLUDES", "CLASS", "NOTE"];
    let mut table = Table::new(header).with_text(0..1).with_text(3..6);
    for group in groups {
        let list = |all: &str| or_dash((!all.is_empty()).then_some(all));
        table.row([
            shown(&group.name),
            group.priority.to_string(),
            group.rules.len().to_string(),
            list(&group.includes.join(" ")),
            or_dash(group.class.as_deref()),
            list(&group.note),
        ]);
    }
    table
}
