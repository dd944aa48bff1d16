//! Who would get a message.

use std::process::ExitCode;

use admin::api::{DecidedBy, KnownBy, Match, Outcome, Verdict};
use serde_json::json;
use text_table::{Table, units::counted};

use super::cells::{number, or_dash, shown};
use super::shown::{EXIT_CODES, exit_code};
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};
use crate::output::{fitted, print};

/// Explain who would receive a message, and why others would not. Nothing is published.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct MatchArguments {
    #[command(flatten)]
    node: HttpPort,
    /// The topic.
    topic: String,
    /// The QoS of the message.
    #[arg(short, long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// The client that would publish it.
    #[arg(long, value_name = "CLIENT")]
    publisher: Option<String>,
    /// The user that the publisher has authenticated as; without it: that of its connection or session, or nobody.
    #[arg(long, value_name = "NAME", requires = "publisher")]
    publisher_user: Option<String>,
    /// Explain why this client would not receive the message. Can be given several times.
    #[arg(long = "why", value_name = "CLIENT")]
    clients: Vec<String>,
    /// The maximum number of receivers to list, 1 to 500.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Print the broker's answer unchanged, as JSON.
    #[arg(long)]
    json: bool,
    /// Print cells whole. Without it, long cells are cut and end with `…`: on a terminal to its width, elsewhere to 200 characters.
    #[arg(long)]
    wide: bool,
}

pub(crate) fn matching(arguments: &MatchArguments) -> Result<ExitCode, Failure> {
    let question = json!({
        "topic": arguments.topic,
        "qos": arguments.qos,
        "publisher": arguments.publisher,
        "publisher_user": arguments.publisher_user,
        "clients": arguments.clients,
        "limit": arguments.limit,
    });
    let text = arguments.node.post("/api/v1/match", &question)?;
    let found: Match = parse(&text)?;
    match arguments.json {
        true => print(&(text + "\n"))?,
        false => print(&page(&found, arguments.wide))?,
    }
    Ok(exit_code(&found.partial))
}

/// What decides, for people.
fn rule(verdict: &Verdict) -> String {
    match (verdict.by, verdict.line) {
        (DecidedBy::File, Some(line)) => format!("line {line} of the rule file"),
        (DecidedBy::List, Some(line)) => format!("line {line} of the rules for everybody"),
        (DecidedBy::Login, Some(line)) => format!("rule {line} of its login"),
        (DecidedBy::Superuser, _) => "its login allows everything".to_owned(),
        _ => "no rule: authorization.noMatch".to_owned(),
    }
}

fn page(found: &Match, wide: bool) -> String {
    let counts = &found.counts;
    let from = found.publisher.as_ref();
    let from = from.map_or(String::new(), |of| {
        let denied = of.verdict.as_ref().filter(|verdict| !verdict.may);
        let denied = denied.map_or(String::new(), |verdict| {
            format!(", which may not publish it ({})", rule(verdict))
        });
        // A verdict about a client that nobody knows may be another one when it logs in.
        let doubt = match of.known_by {
            Some(KnownBy::Nothing) => {
                " (not connected, and without a session: judged as a client without a user; --publisher-user names one)"
            }
            _ => "",
        };
        format!(", from {}{denied}{doubt}", shown(&of.client_id))
    });
    let at_least = if found.counted_all { "" } else { "at least " };
    let mut page = format!(
        "{}, QoS {}{from}: {at_least}{} delivered, {} queued, {} dropped, {}\n",
        shown(&found.topic),
        found.qos,
        number(Some(counts.delivered)),
        number(Some(counts.queued)),
        number(Some(counts.dropped)),
        counted(counts.groups, "group", "groups"),
    );
    let header = ["OUTCOME", "RECEIVER", "NODE", "FILTER", "QOS", "WHY"];
    let mut table = Table::new(header).with_text([1, 2, 3, 5]);
    for receiver in &found.receivers {
        let outcome = match receiver.outcome {
            Outcome::Delivered => "delivered",
            Outcome::Queued => "queued",
            Outcome::Dropped => "dropped",
            Outcome::OneOf => "one of",
        };
        let who = receiver.client_id.as_deref().or(receiver.group.as_deref());
        let rule = receiver.rule.as_ref().map(rule);
        let detail = receiver.detail.clone().or(rule);
        let why = match (&receiver.reason, &detail, receiver.members) {
            (Some(reason), Some(detail), _) => format!("{reason}: {detail}"),
            (Some(reason), None, _) => reason.clone(),
            (None, _, Some(members)) => counted(members, "member", "members"),
            (None, ..) => "-".to_owned(),
        };
        table.row([
            outcome.to_owned(),
            or_dash(who),
            or_dash(receiver.node_name.as_deref()),
            shown(&receiver.filter),
            receiver.qos.to_string(),
            why,
        ]);
    }
    for not in &found.not {
        table.row([
            "not".to_owned(),
            shown(&not.client_id),
            "-".to_owned(),
            or_dash(not.closest_filter.as_deref()),
            "-".to_owned(),
            format!("{}: {}", not.reason, not.detail),
        ]);
    }
    page += &fitted(table, wide).to_string();
    page
}
