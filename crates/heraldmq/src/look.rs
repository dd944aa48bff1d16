//! `heraldmq clients`, `client`, `sessions`, `disconnect`, `subscriptions`, `groups`, `group`, `match`, `shards`, `nodes`, `settings`, `drops`, `alarms`, `failed-logins`, `refused-logins`, `queues`,
//! `queue`, `retained`, `stats`, `top`, `events`: what is in a running broker, from any of its nodes, by the HTTP API.
//!
//! Deliberately absent: what is asked of which node; the one at `--url` asks the others.

mod alarms;
mod cells;
mod client;
mod failed_logins;
mod groups;
mod lists;
mod live;
mod matching;
mod messages;
mod refused_logins;
mod shown;
mod top;

use std::process::ExitCode;

use crate::failure::Failure;

pub(crate) use cells::{or_dash, shown};
pub(crate) use shown::{Listed, Shown, Walk, print_list};

use alarms::AlarmsArguments;
use client::{ClientArguments, DisconnectArguments};
use failed_logins::FailedLoginsArguments;
use groups::{GroupArguments, GroupsArguments};
use lists::{
    ClientsArguments, DropsArguments, NodesArguments, SessionsArguments, SettingsArguments,
    ShardsArguments, SubscriptionsArguments,
};
use live::{EventsArguments, StatsArguments};
use matching::MatchArguments;
use messages::{QueueArguments, QueuesArguments, RetainedArguments};
use refused_logins::RefusedLoginsArguments;
use top::TopArguments;

/// A command on a running broker.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Clients(ClientsArguments),
    Client(ClientArguments),
    #[command(visible_alias = "kick")]
    Disconnect(DisconnectArguments),
    Subscriptions(SubscriptionsArguments),
    Groups(GroupsArguments),
    Group(GroupArguments),
    Match(MatchArguments),
    Sessions(SessionsArguments),
    Drops(DropsArguments),
    Alarms(AlarmsArguments),
    FailedLogins(FailedLoginsArguments),
    RefusedLogins(RefusedLoginsArguments),
    Queues(QueuesArguments),
    Queue(QueueArguments),
    Retained(RetainedArguments),
    Stats(StatsArguments),
    Top(TopArguments),
    Events(EventsArguments),
    Settings(SettingsArguments),
    Nodes(NodesArguments),
    Shards(ShardsArguments),
}

pub(crate) fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Clients(arguments) => lists::clients(arguments),
        Command::Client(arguments) => client::one(arguments),
        Command::Disconnect(arguments) => client::disconnect(arguments),
        Command::Subscriptions(arguments) => lists::subscriptions(arguments),
        Command::Groups(arguments) => groups::groups(arguments),
        Command::Group(arguments) => groups::group(arguments),
        Command::Match(arguments) => matching::matching(arguments),
        Command::Sessions(arguments) => lists::sessions(arguments),
        Command::Drops(arguments) => lists::drops(arguments),
        Command::Alarms(arguments) => alarms::alarms(arguments),
        Command::FailedLogins(arguments) => failed_logins::failed_logins(arguments),
        Command::RefusedLogins(arguments) => refused_logins::refused_logins(arguments),
        Command::Queues(arguments) => messages::queues(arguments),
        Command::Queue(arguments) => messages::queue(arguments),
        Command::Retained(arguments) => messages::retained(arguments),
        Command::Stats(arguments) => live::stats(arguments),
        Command::Top(arguments) => top::top(arguments),
        Command::Events(arguments) => live::events(arguments),
        Command::Settings(arguments) => lists::settings(arguments),
        Command::Nodes(arguments) => lists::nodes(arguments),
        Command::Shards(arguments) => lists::shards(arguments),
    }
}
