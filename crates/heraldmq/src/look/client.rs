//! One client as a page, and its end.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use admin::api::{At, Client, ClientState, Gone, PublisherHold, SubscriptionChanged};
use serde_json::json;

use super::cells::{ago, number, or_dash, shown};
use super::shown::{EXIT_CODES, exit_code, get_client, path_of};
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};
use crate::output::print;

/// Show one client: its connection, session, queue, subscriptions and drops; or change its subscriptions.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ClientArguments {
    #[command(flatten)]
    node: HttpPort,
    /// The client identifier.
    #[arg(value_name = "CLIENT")]
    client: String,
    /// Subscribe the client to this topic filter. Its rules and limits apply; it need not be connected.
    #[arg(long, value_name = "FILTER")]
    subscribe: Option<String>,
    /// The QoS of the new subscription.
    #[arg(short, long, value_name = "0|1|2", default_value_t = 0, requires = "subscribe", value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// Remove the subscription with exactly this topic filter.
    #[arg(long, value_name = "FILTER", conflicts_with = "subscribe")]
    unsubscribe: Option<String>,
    /// Print the broker's answer unchanged, as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn one(arguments: &ClientArguments) -> Result<ExitCode, Failure> {
    let (node, client_id) = (&arguments.node, &arguments.client);
    if let Some(filter) = &arguments.subscribe {
        let subscription = json!({ "filter": filter, "qos": arguments.qos });
        let body = json!({ "client_id": client_id, "subscription": subscription });
        return changed(&node.post("/api/v1/subscribe", &body)?, arguments.json);
    }
    if let Some(filter) = &arguments.unsubscribe {
        let body = json!({ "client_id": client_id, "filter": filter });
        return changed(&node.post("/api/v1/unsubscribe", &body)?, arguments.json);
    }
    let text = get_client(node, client_id)?;
    let client: Client = parse(&text)?;
    match arguments.json {
        true => print(&(text + "\n"))?,
        false => print(&page(&client, SystemTime::now()))?,
    }
    Ok(exit_code(&client.partial))
}

/// Says what became of a subscription.
fn changed(text: &str, json: bool) -> Result<ExitCode, Failure> {
    let changed: SubscriptionChanged = parse(text)?;
    let (id, filter) = (shown(&changed.client_id), shown(&changed.given_filter));
    let place = match changed.state {
        ClientState::Away => "away".to_owned(),
        _ => format!("connected to {}", or_dash(changed.node_name.as_deref())),
    };
    let line = match changed.qos {
        Some(qos) => format!("{id} ({place}) is subscribed to {filter} with QoS {qos}\n"),
        None => format!("{id} ({place}) is not subscribed to {filter} any more\n"),
    };
    print(if json { text } else { &line })?;
    Ok(ExitCode::SUCCESS)
}

/// The page: first the sentence that matters.
fn page(client: &Client, now: SystemTime) -> String {
    let mut page = sentence(client) + "\n";
    let mut section = |title: &str, facts: Vec<(&str, String)>| {
        let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        // Writing to a string does not fail.
        let _ = writeln!(page, "\n{title}");
        for (name, fact) in facts {
            let _ = writeln!(page, "  {name:width$}  {fact}");
        }
    };
    if let Some(connection) = &client.connection {
        let mut facts = vec![
            ("node", or_dash(client.node_name.as_deref())),
            ("address", shown(&connection.address)),
            ("listener", or_dash(connection.listener.as_deref())),
            ("MQTT", connection.version.clone()),
            (
                "connected",
                format!("{} ago", ago(Some(&connection.connected_at), now)),
            ),
            ("keep alive", format!("{} s", connection.keep_alive_s)),
            ("receive maximum", connection.receive_maximum.to_string()),
        ];
        if connection.write_blocked {
            facts.push((
                "write blocked",
                "it does not read what is sent to it".to_owned(),
            ));
        }
        section("Connection", facts);
    }
    if let Some(held) = &client.held {
        section("Held", held_facts(held, now));
    }
    if let Some(session) = &client.session {
        let expiry = session
            .expiry_s
            .map_or("never".to_owned(), |s| format!("{s} s"));
        section(
            "Session",
            vec![
                ("user", or_dash(client.user.as_deref())),
                (
                    "durable",
                    if session.durable { "yes" } else { "no" }.to_owned(),
                ),
                ("expires after", expiry),
                (
                    "ends",
                    or_dash(session.ends_at.as_ref().map(At::to_string).as_deref()),
                ),
                ("inbox shard", number(session.shard.map(u64::from))),
            ],
        );
    }
    if let Some(queue) = &client.queue {
        section(
            "Queue",
            vec![
                ("messages", number(Some(queue.messages))),
                ("bytes", number(Some(queue.bytes))),
                ("oldest", age_of(queue.oldest_at.as_ref(), now)),
                ("in flight", number(client.in_flight)),
                (
                    "waits for",
                    or_dash(client.waits_for.map(|waits_for| waits_for.name())),
                ),
                ("limit", number(queue.limit_messages)),
                ("when full", or_dash(queue.full.as_deref())),
            ],
        );
    }
    if let Some(subscriptions) = &client.subscriptions {
        let title = format!("Subscriptions ({})", number(Some(subscriptions.count)));
        let first = subscriptions.first.iter();
        let facts = first.map(|row| (row.given_filter.as_str(), format!("QoS {}", row.qos)));
        section(&title, facts.collect());
    }
    if let Some(will) = &client.will {
        let fact = format!("QoS {}, delay {} s", will.qos, will.delay_s);
        section("Will", vec![(will.topic.as_str(), fact)]);
    }
    if let Some(departure) = &client.last_departure {
        let address = or_dash(departure.address.as_deref());
        section(
            "Last departure",
            vec![
                ("at", departure.at.to_string()),
                ("node", shown(&departure.node_name)),
                ("reason", shown(&departure.reason)),
                ("address", address),
            ],
        );
    }
    if !client.recent_drops.is_empty() {
        let times: Vec<String> = client
            .recent_drops
            .iter()
            .map(|of| of.at.to_string())
            .collect();
        let facts = client
            .recent_drops
            .iter()
            .zip(&times)
            .map(|(of, at)| (at.as_str(), format!("{}  {}", of.reason, shown(&of.topic))));
        section("Last drops", facts.collect());
    }
    page
}

/// Why its packets wait, or have waited.
fn held_facts(held: &PublisherHold, now: SystemTime) -> Vec<(&'static str, String)> {
    let since = match &held.since {
        Some(at) => format!("{} ago", ago(Some(at), now)),
        None => "not any more".to_owned(),
    };
    let mut facts = vec![
        ("because", held.reason.words().to_owned()),
        ("since", since),
        ("last minute", format!("{:.1} % of it", held.share_percent)),
    ];
    if let Some(subscriber) = &held.subscriber {
        facts.push(("subscriber", shown(subscriber)));
    }
    if let Some(option) = &held.option {
        let limit = held.limit.map(|limit| format!(" = {limit}"));
        facts.push(("option", shown(option) + limit.unwrap_or_default().as_str()));
    }
    facts
}

/// The age of what is oldest.
fn age_of(at: Option<&At>, now: SystemTime) -> String {
    match at {
        Some(at) => format!("{} ago", ago(Some(at), now)),
        None => "-".to_owned(),
    }
}

/// What a person asks first.
fn sentence(client: &Client) -> String {
    let id = shown(&client.client_id);
    let node = or_dash(client.node_name.as_deref());
    let mut sentence = match client.state {
        ClientState::Connected => format!("{id} is connected to {node}"),
        ClientState::Connecting => format!("{id} connects to {node}"),
        ClientState::Closing => format!("{id} is being disconnected from {node}"),
        ClientState::Away => format!("{id} is away"),
    };
    if let Some(queue) = &client.queue {
        let limit = queue.limit_messages.unwrap_or(u64::MAX);
        let waiting = number(Some(queue.messages));
        match queue.messages {
            0 => sentence += ", and nothing waits for it",
            n if n >= limit => {
                let limit = number(queue.limit_messages);
                sentence += &format!(", and its queue is full ({waiting} of {limit})");
            }
            1 => sentence += ", and 1 message waits for it",
            _ => sentence += &format!(", and {waiting} messages wait for it"),
        }
    }
    if let Some(held) = client.held.as_ref().filter(|held| held.since.is_some()) {
        sentence += &format!("; what it sends waits because {}", held.reason.words());
    }
    sentence
}

/// Disconnect a client. Its session stays, and it may come back; `heraldmq ban` keeps it out.
///
/// A client of MQTT 5.0 gets DISCONNECT with the reason code 0x98, "administrative action"; for clients of earlier versions the
/// connection closes. Most clients connect again at once.
///
/// A session that outlives its connection stays, with its subscriptions and the messages that wait for it: one with a session expiry
/// interval (5.0), or without clean session (3.1.1 and 3.1). Any other session ends with the connection, and --end-session ends each.
/// The broker publishes the client's will: at once, or after the will delay if the session stays and the client is not back by then.
#[derive(clap::Args)]
#[command(after_help = DISCONNECT_EXAMPLES)]
pub(crate) struct DisconnectArguments {
    #[command(flatten)]
    node: HttpPort,
    /// The client identifier.
    #[arg(value_name = "CLIENT")]
    client: String,
    /// End the session too, also that of a client that is away: its subscriptions and the messages that wait for it are deleted.
    #[arg(long)]
    end_session: bool,
}

const DISCONNECT_EXAMPLES: &str = "\
Examples:
  heraldmq disconnect press-17 --key-file operator.key
  heraldmq disconnect press-17 --end-session --key-file operator.key
  heraldmq ban add --client press-17 --for 1h --key-file operator.key    disconnect it, and refuse it for an hour

Exit codes: 0 disconnected; 1 refused, or the node does not answer; 2 wrong command line; 3 there is no such client.";

pub(crate) fn disconnect(arguments: &DisconnectArguments) -> Result<ExitCode, Failure> {
    let DisconnectArguments {
        node,
        client,
        end_session,
    } = arguments;
    let gone: Gone = match path_of(client) {
        Some(path) => {
            let path = match end_session {
                true => path.replacen("/clients/", "/sessions/", 1),
                false => path,
            };
            parse(&node.delete(&path)?)?
        }
        None => {
            let action = if *end_session {
                "end_session"
            } else {
                "disconnect"
            };
            let body = json!({ "action": action, "client_ids": [client] });
            done(&node.post("/api/v1/actions", &body)?)?
        }
    };
    let id = shown(&gone.client_id);
    let what = match (gone.disconnected, gone.session_ended) {
        (true, true) => "was disconnected, and its session has ended",
        (true, false) => "was disconnected",
        (false, true) => "was away, and its session has ended",
        (false, false) => "is not connected",
    };
    print(&format!("{id} {what}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What an action did to its only client.
fn done(answer: &str) -> Result<Gone, Failure> {
    let results: serde_json::Value = parse(answer)?;
    let result = &results[0];
    if let Some(status) = result["problem"]["status"].as_u64() {
        let detail = result["problem"]["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        return Err(match status {
            404 => Failure::NotFound(detail),
            _ => Failure::Runtime(detail),
        });
    }
    parse(&result["done"].to_string())
}
