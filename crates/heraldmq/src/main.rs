//! The `heraldmq` command: the broker, the check of its configuration and of its rules, a look at its
//! data folder, its file of passwords, its users and rules, its bans, its cluster, names for brokers, its outlets, a look into its process, two small clients for a first try, the load test, and
//! its own manual.
//!
//! Invariant: whatever goes wrong ends in one clear message on standard error and one of the exit
//! codes in `failure.rs`; standard output carries only what was asked for.
//!
//! Deliberately absent: anything that a broker does; `serve` starts the `broker` crate and forwards
//! signals to it.
//!
//! Where to read next: one file per subcommand.

mod access;
mod acl;
#[cfg(feature = "jemalloc")]
mod allocator;
mod api_key;
mod ban;
#[cfg_attr(not(feature = "bench"), path = "bench_left_out.rs")]
mod bench;
mod check_config;
mod class;
mod client;
mod cluster;
mod context;
mod failure;
mod http_port;
mod layers;
mod look;
mod manual;
mod outlet;
mod output;
mod passwd;
mod profile;
mod publish;
mod ready;
mod secrets;
mod serve;
mod store;
mod subscribe;
mod transport_options;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use failure::Failure;

/// A message broker for MQTT 3.1, 3.1.1 and 5.0.
#[derive(Parser)]
#[command(name = "heraldmq", version, long_version = version::LONG.as_str(), arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq serve                          a broker on 127.0.0.1:1883
  heraldmq sub -v -t 'sensors/#'          print what arrives
  heraldmq pub -t sensors/a -m 21.5       send a message

`heraldmq <command> --help` says more about each.";

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    CheckConfig(check_config::Arguments),
    Acl(acl::Arguments),
    Class(class::Arguments),
    Store(store::Arguments),
    Passwd(passwd::Arguments),
    ApiKey(api_key::Arguments),
    Secrets(secrets::Arguments),
    #[command(flatten)]
    Look(look::Command),
    Ban(ban::Arguments),
    #[command(flatten)]
    Access(access::Command),
    Cluster(cluster::Arguments),
    Context(context::Arguments),
    Outlet(outlet::Arguments),
    Profile(profile::Arguments),
    Ready(ready::Arguments),
    Bench(bench::Arguments),
    Size(bench::size::Arguments),
    #[command(visible_alias = "publish")]
    Pub(publish::Arguments),
    #[command(visible_alias = "subscribe")]
    Sub(subscribe::Arguments),
    Completions(manual::CompletionsArguments),
    Man(manual::ManArguments),
    /// The process of an outlet, which a broker starts.
    #[command(hide = true)]
    OutletProcess,
}

fn main() -> ExitCode {
    abort_at_a_panic();
    let outcome = match Cli::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::CheckConfig(arguments) => check_config::run(&arguments),
        Command::Acl(arguments) => {
            return ended(acl::run(&arguments));
        }
        Command::Class(arguments) => return ended(class::run(&arguments)),
        Command::Store(arguments) => store::run(&arguments),
        Command::Passwd(arguments) => passwd::run(&arguments),
        Command::ApiKey(arguments) => api_key::run(&arguments),
        Command::Secrets(arguments) => secrets::run(&arguments),
        Command::Look(command) => return ended(look::run(&command)),
        Command::Ban(arguments) => ban::run(&arguments),
        Command::Access(command) => return ended(access::run(&command)),
        Command::Cluster(arguments) => cluster::run(&arguments),
        Command::Context(arguments) => context::run(&arguments),
        Command::Outlet(arguments) => outlet::run(&arguments),
        Command::OutletProcess => return outlet::process(),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Ready(arguments) => ready::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Size(arguments) => bench::size::run(&arguments),
        Command::Pub(arguments) => publish::run(&arguments),
        Command::Sub(arguments) => subscribe::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments, Cli::command()),
        Command::Man(arguments) => manual::pages(&arguments, Cli::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn ended(outcome: Result<ExitCode, Failure>) -> ExitCode {
    outcome.unwrap_or_else(Failure::report)
}

/// A broken invariant must not go on: a panic of any thread ends the process, in each profile as in the release build, which
/// is compiled so (`Cargo.toml`).
fn abort_at_a_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn no_option_contradicts_another() {
        Cli::command().debug_assert();
    }
}
