//! `heraldmq ban`: who a running broker does not let in, by its HTTP port.
//!
//! Deliberately absent: what a ban does, and whether one is right; the broker says so.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::Subcommand;
use guard::{Ban, Subject};
use report::Table;
use serde_json::json;
use ureq::Agent;
use ureq::http::Response;

use crate::failure::Failure;

/// How long the broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Say, or change, who a running broker does not let in.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq ban list
  heraldmq ban add --address 203.0.113.0/24 --for 1h --reason 'login flood' --token-file token
  heraldmq ban remove 7 --url http://10.0.0.5:8091 --token-file token

Exit codes: 0 done; 1 the broker does not answer, or refuses; 2 wrong command line.";

#[derive(Subcommand)]
enum Command {
    /// Print the bans.
    List {
        #[command(flatten)]
        node: Node,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Ban a client identifier, a user name, or addresses. Whoever it concerns is disconnected.
    Add {
        #[command(flatten)]
        node: Node,
        #[command(flatten)]
        subject: Named,
        /// For how long, such as 90s, 1h or 7d. Without it the ban stays until it is removed.
        #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
        time: Option<Duration>,
        /// Why, for those who read the list.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Take a ban back.
    Remove {
        #[command(flatten)]
        node: Node,
        /// Its number in the list.
        id: u64,
    },
}

/// A broker, and the right to change something there.
#[derive(clap::Args)]
struct Node {
    /// The broker's HTTP port.
    #[arg(long, default_value = "http://127.0.0.1:8091")]
    url: String,
    /// File with the token that the broker has in `http.tokenFile`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Whom a ban concerns.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Named {
    /// A client identifier.
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// A user name.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// An address, or a network such as 203.0.113.0/24.
    #[arg(long, value_name = "NETWORK")]
    address: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::List { node, json } => list(node, *json),
        Command::Add {
            node,
            subject,
            time,
            reason,
        } => {
            let wanted = json!({
                "client": subject.client,
                "user": subject.user,
                "address": subject.address,
                "seconds": time.map(|time| time.as_secs()),
                "reason": reason,
            });
            let url = node.url("");
            let ban = node.ask(|agent| {
                let request = authorized(agent.post(&url), node.token()?);
                let request = request.content_type("application/json");
                request.send(wanted.to_string()).map_err(unanswered(&url))
            })?;
            print(&table(&[parse(&ban)?]))
        }
        Command::Remove { node, id } => {
            let url = node.url(&format!("/{id}"));
            node.ask(|agent| {
                let request = authorized(agent.delete(&url), node.token()?);
                request.call().map_err(unanswered(&url))
            })?;
            Ok(())
        }
    }
}

fn list(node: &Node, json: bool) -> Result<(), Failure> {
    let url = node.url("");
    let text = node.ask(|agent| agent.get(&url).call().map_err(unanswered(&url)))?;
    if json {
        return print(&(text + "\n"));
    }
    let bans: Vec<Ban> = parse(&text)?;
    print(&table(&bans))
}

impl Node {
    fn url(&self, behind: &str) -> String {
        format!("{}/api/v1/bans{behind}", self.url.trim_end_matches('/'))
    }

    /// The header that shows the token, if there is one.
    fn token(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let token = fs::read_to_string(path)
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        Ok(Some(format!("Bearer {}", token.trim())))
    }

    /// The body of the answer; one that is no success is a failure with the broker's words.
    fn ask(
        &self,
        request: impl FnOnce(&Agent) -> Result<Response<ureq::Body>, Failure>,
    ) -> Result<String, Failure> {
        let agent = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .build()
            .new_agent();
        let mut answer = request(&agent)?;
        let status = answer.status();
        let body = answer.body_mut().read_to_string();
        let body = body.map_err(unanswered(&self.url))?;
        if !status.is_success() {
            let words = body.trim();
            return Err(Failure::Runtime(format!("{}: {status}: {words}", self.url)));
        }
        Ok(body)
    }
}

fn authorized<B>(
    request: ureq::RequestBuilder<B>,
    token: Option<String>,
) -> ureq::RequestBuilder<B> {
    match token {
        Some(token) => request.header("authorization", token),
        None => request,
    }
}

fn unanswered(url: &str) -> impl Fn(ureq::Error) -> Failure {
    move |error| Failure::Runtime(format!("{url}: {error}"))
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::Runtime(format!("the answer is not understood: {error}")))
}

fn table(bans: &[Ban]) -> String {
    let mut table = Table::new(["id", "kind", "who", "expires", "reason"]);
    for ban in bans {
        let (kind, who) = match &ban.subject {
            Subject::Client(name) => ("client", name.to_string()),
            Subject::User(name) => ("user", name.to_string()),
            Subject::Address(network) => ("address", network.to_string()),
        };
        let expires = ban.expires_ms.map_or("never".to_owned(), |at| {
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(at)).to_string()
        });
        let id = ban.id.to_string();
        table.row([id.as_str(), kind, &who, &expires, &ban.reason]);
    }
    table.to_string()
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::Runtime(error.to_string()))
}
