//! `heraldmq acl`: what the rules say about a client.
//!
//! Invariant: the answer is the broker's own, from the same rules.
//!
//! Deliberately absent: rules that come with a login; only the authenticator knows them.

use std::{
    io::{self, Write},
    iter,
    net::IpAddr,
    path::PathBuf,
    process::ExitCode,
};

use authorization::{Action, Client, Decision, Effect};
use broker::RuleFile;
use clap::Subcommand;
use config::{AuthorizationConfig, Config, Permission};
use mqtt_proto::{SubscriptionFilter, validate_topic_name};

use crate::failure::Failure;

/// Test what the authorization rules allow a client.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq acl test --rules rules.acl --client gw-1 publish gateways/gw-1/up
  heraldmq acl test --config heraldmq.yml --user ann --client a --address 10.0.0.7 subscribe '#'

Exit codes: 0 allowed, 1 denied, 2 the rules, the configuration or the command line is wrong.";

#[derive(Subcommand)]
enum Command {
    /// Say whether a client may do something, and which rule decides.
    ///
    /// Prints allow or deny, then the rule with its file and line, or that authorization.noMatch decides. Rules that a
    /// client gets with its login are not included. Environment variables are ignored.
    #[command(after_help = EXAMPLES)]
    Test(Question),
}

#[derive(clap::Args)]
struct Question {
    /// Configuration file (YAML), with the rule file and authorization.noMatch.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Rule file.
    #[arg(long, value_name = "FILE", required_unless_present = "config")]
    rules: Option<PathBuf>,
    /// User name that authentication has confirmed; without it the client is anonymous.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Client identifier.
    #[arg(long, value_name = "ID")]
    client: String,
    /// Address that the client connects from.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// publish, subscribe, receive, or retain. A retained message needs permission for both publish and retain.
    #[arg(value_name = "ACTION", value_parser = action)]
    action: Action,
    /// The topic name; for subscribe the topic filter.
    #[arg(value_name = "TOPIC")]
    topic: String,
}

/// The exit code is the answer.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Command::Test(question) = &arguments.command;
    let config = question.configuration()?;
    let file = RuleFile::configured(&config).map_err(|error| Failure::Usage(error.to_string()))?;
    let client = Client {
        client_id: &question.client,
        username: question.user.as_deref(),
        address: question.address,
    };
    let decision = file
        .rules
        .decide(&client, question.action, question.asked()?);
    let effect = match (decision, config.no_match) {
        (Some(decision), _) => decision.effect,
        (None, Permission::Allow) => Effect::Allow,
        (None, Permission::Deny) => Effect::Deny,
    };
    let reason = decision.map_or_else(
        || "no rule matches: authorization.noMatch decides".to_owned(),
        |decision| rule(&config, &file, decision),
    );
    // A reader that stopped listening changes nothing about the outcome.
    let _ = writeln!(io::stdout(), "{}\n{reason}", effect.as_str());
    Ok(match effect {
        Effect::Allow => ExitCode::SUCCESS,
        Effect::Deny => ExitCode::FAILURE,
    })
}

impl Question {
    fn configuration(&self) -> Result<AuthorizationConfig, Failure> {
        let mut config = match &self.config {
            Some(file) => {
                Config::load(Some(file), iter::empty(), &[], None)
                    .map_err(|error| Failure::Usage(error.to_string()))?
                    .config
            }
            None => Config::default(),
        }
        .authorization;
        if let Some(rules) = &self.rules {
            config.file = Some(rules.clone());
        }
        Ok(config)
    }

    /// The topic as rules are asked about it.
    fn asked(&self) -> Result<&str, Failure> {
        let topic = &self.topic;
        let checked = if self.action == Action::Subscribe {
            SubscriptionFilter::parse(topic)
                .map(|parsed| parsed.filter)
                .map_err(|error| error.to_string())
        } else {
            validate_topic_name(topic)
                .map(|()| topic.as_str())
                .map_err(|error| error.to_string())
        };
        checked.map_err(|error| Failure::Usage(format!("{topic:?}: {error}")))
    }
}

/// A rule as it stands in its file.
fn rule(config: &AuthorizationConfig, file: &RuleFile, decision: Decision) -> String {
    let path = config.file.as_deref().unwrap_or("".as_ref()).display();
    let line = decision.line;
    let text = file.text.lines().nth(line as usize - 1).unwrap_or_default();
    format!("{path}:{line}: {}", text.trim())
}

fn action(word: &str) -> Result<Action, String> {
    Action::ALL
        .into_iter()
        .find(|action| action.as_str() == word)
        .ok_or_else(|| "expected publish, subscribe, receive or retain".to_owned())
}
