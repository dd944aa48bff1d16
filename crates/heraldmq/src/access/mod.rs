//! `heraldmq user`, `user-group`, `rules`, `person`, `key`, `audit` and `control`: who may log in at a running broker and do what, by its
//! HTTP port.
//!
//! Invariant: a password is in no argument and on no terminal; a secret is printed only by the command that has it generated, and
//! hashes only by `control export --with-secrets`.
//!
//! Deliberately absent: what a record may hold, and whether rules are right; the broker says so. Files of passwords and rules; see
//! `passwd.rs` and `acl.rs`.

mod audit;
mod control;
mod export;
mod groups;
mod import;
mod keys;
mod people;
mod record;
mod rules;
mod users;

use std::process::ExitCode;

use crate::failure::Failure;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    User(users::UserArguments),
    UserGroup(groups::UserGroupArguments),
    Rules(rules::RulesArguments),
    Person(people::PersonArguments),
    Key(keys::KeyArguments),
    Audit(audit::AuditArguments),
    Control(control::ControlArguments),
}

pub(crate) fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::User(arguments) => users::run(arguments),
        Command::UserGroup(arguments) => groups::run(arguments),
        Command::Rules(arguments) => rules::run(arguments),
        Command::Person(arguments) => people::run(arguments),
        Command::Key(arguments) => keys::run(arguments),
        Command::Audit(arguments) => audit::run(arguments),
        Command::Control(arguments) => control::run(arguments).map(|()| ExitCode::SUCCESS),
    }
}
