//! `heraldmq context`: names for brokers, with what reaches them.
//!
//! Deliberately absent: the choice of a context by other commands; see `choice.rs`.

mod choice;
mod file;

use std::path::{self, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};
use text_table::Table;

use crate::failure::{Failure, complain};
use crate::output::{fitted, print};

use choice::{CONTEXT_VARIABLE, DEFAULT_URL, URL_VARIABLE};
use file::{Context, Url};

pub(crate) use choice::{Choice, Options, variable};
pub(crate) use file::Contexts;

/// Keep the URLs and keys of brokers under names, and choose the one that commands ask.
///
/// Commands that ask a broker's HTTP port take the first of these: --url, --context, HERALDMQ_URL, HERALDMQ_CONTEXT, the context in
/// use, http://127.0.0.1:8091. Contexts are in $XDG_CONFIG_HOME/heraldmq/contexts.json, or in ~/.config/heraldmq/contexts.json.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq context add plant --url https://mq-1.plant.example:8091 --ca-file ca.pem --key-file operator.key
  heraldmq context use plant
  heraldmq nodes                     asks plant
  heraldmq nodes --context lab       asks lab, this time

A context has the path of a key file, not the key. The key of a context is sent to the URL of that context, and to no other.

Exit codes: 0 done; 1 the file cannot be written; 2 wrong command line, or a broken file; 3 there is no such context.";

#[derive(Subcommand)]
enum Command {
    /// Add a context.
    Add {
        /// Up to 64 letters, digits, `-`, `_` and `.`.
        #[arg(value_parser = file::name)]
        name: String,
        /// The broker's HTTP port, such as http://127.0.0.1:8091.
        #[arg(long, value_parser = |text: &str| Url::try_from(text.to_owned()))]
        url: Url,
        /// File with a key that `heraldmq api-key add` printed, or with the token in the broker's `http.tokenFile`.
        #[arg(long, visible_alias = "token-file", value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// Certificates of the authorities that the broker's certificate is verified with (PEM), for https://. Without
        /// it: those of the system.
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
        /// A description, which the list shows.
        #[arg(
            long,
            value_name = "TEXT",
            default_value = "",
            hide_default_value = true
        )]
        description: String,
        /// Replace the context of this name, if there is one.
        #[arg(long)]
        replace: bool,
    },
    /// Make commands ask the broker of a context from now on.
    Use {
        /// The name of the context.
        name: String,
    },
    /// List the contexts; `*` marks the one in use.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a context.
    Show {
        /// Without it, the one that HERALDMQ_CONTEXT names, or the one in use.
        name: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a context. If it is the one in use, no context is in use afterwards.
    Remove {
        /// The name of the context.
        name: String,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Add {
            name,
            url,
            key_file,
            ca_file,
            description,
            replace,
        } => {
            let context = Context {
                url: url.clone(),
                key_file: absolute(key_file.as_ref())?,
                ca_file: absolute(ca_file.as_ref())?,
                description: description.clone(),
            };
            Contexts::change(|contexts| {
                if contexts.contexts.contains_key(name) && !replace {
                    let why = format!("there is a context `{name}` already; --replace replaces it");
                    return Err(Failure::Usage(why));
                }
                contexts.contexts.insert(name.clone(), context.clone());
                Ok(())
            })
        }
        Command::Use { name } => {
            Contexts::change(|contexts| {
                if !contexts.contexts.contains_key(name) {
                    return Err(Failure::NotFound(contexts.unknown(name)));
                }
                contexts.in_use = Some(name.clone());
                Ok(())
            })?;
            for name in [URL_VARIABLE, CONTEXT_VARIABLE] {
                if variable(name).is_some() {
                    complain(&format!(
                        "{name} is set, and comes before the context in use"
                    ));
                }
            }
            Ok(())
        }
        Command::List { json: true } => {
            let contexts = Contexts::read()?;
            let rows = contexts.contexts.iter();
            let rows = rows.map(|(name, context)| row(&contexts, name, context));
            print(&format!(
                "{}\n",
                json!({ "items": rows.collect::<Vec<_>>() })
            ))
        }
        Command::List { json: false } => {
            let contexts = Contexts::read()?;
            if contexts.contexts.is_empty() {
                complain("there are no contexts; `heraldmq context add` adds one");
            }
            print(&fitted(table(&contexts), false).to_string())
        }
        Command::Show { name, json } => {
            let contexts = Contexts::read()?;
            let name = name.clone().or_else(|| variable(CONTEXT_VARIABLE));
            let Some(name) = name.or_else(|| contexts.in_use.clone()) else {
                let why = format!("no context is in use; commands ask {DEFAULT_URL}");
                return Err(Failure::NotFound(why));
            };
            let Some(context) = contexts.contexts.get(&name) else {
                return Err(Failure::NotFound(contexts.unknown(&name)));
            };
            match json {
                true => print(&format!("{}\n", row(&contexts, &name, context))),
                false => print(&page(&name, context)),
            }
        }
        Command::Remove { name } => {
            let was_in_use = Contexts::change(|contexts| {
                if contexts.contexts.remove(name).is_none() {
                    return Err(Failure::NotFound(contexts.unknown(name)));
                }
                let was_in_use = contexts.in_use.as_ref() == Some(name);
                contexts.in_use = contexts.in_use.take().filter(|used| used != name);
                Ok(was_in_use)
            })?;
            if was_in_use {
                complain(&format!(
                    "no context is in use any more; commands ask {DEFAULT_URL}"
                ));
            }
            Ok(())
        }
    }
}

/// A path that means the same file from any folder.
fn absolute(given: Option<&PathBuf>) -> Result<Option<PathBuf>, Failure> {
    let absolute = given.map(path::absolute).transpose();
    absolute.map_err(|error| Failure::Usage(format!("the path of a file: {error}")))
}

fn text(path: Option<&PathBuf>) -> String {
    path.map_or_else(|| "-".to_owned(), |path| path.display().to_string())
}

fn row(contexts: &Contexts, name: &str, context: &Context) -> Value {
    json!({
        "name": name,
        "in_use": contexts.in_use.as_deref() == Some(name),
        "url": context.url.as_str(),
        "key_file": context.key_file,
        "ca_file": context.ca_file,
        "description": context.description,
    })
}

fn table(contexts: &Contexts) -> Table {
    let mut table = Table::new(["", "NAME", "URL", "KEY FILE", "DESCRIPTION"]).with_text(1..5);
    for (name, context) in &contexts.contexts {
        let mark = match contexts.in_use.as_ref() == Some(name) {
            true => "*",
            false => "",
        };
        table.row([
            mark,
            name,
            context.url.as_str(),
            &text(context.key_file.as_ref()),
            &context.description,
        ]);
    }
    table
}

fn page(name: &str, context: &Context) -> String {
    format!(
        "name         {name}\nurl          {}\nkey file     {}\nca file      {}\ndescription  {}\n",
        context.url.as_str(),
        text(context.key_file.as_ref()),
        text(context.ca_file.as_ref()),
        match context.description.as_str() {
            "" => "-",
            description => description,
        },
    )
}
