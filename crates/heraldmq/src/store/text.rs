//! A survey as people read it.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use store::{
    Accepted, Finding, LogSurvey, NodeSurvey, Outcome, Recovered, ShardLog, ShardSurvey, UnixMs,
};
use store_state::api::StoreId;
use text_table::Table;
use text_table::units::{count, counted};

/// Shown where there is nothing, or nothing that could be read.
const NONE: &str = "-";

const TORN: &str = "\
note: the last write of the log is not whole; a broker cuts it off when it starts
";

const LEFT: &str = "\
shards without a replica here stay without a leader; if no node that is left has one, repeat the command with
--begin-lost-shards-anew: they begin empty
";

/// What a folder holds.
pub(super) fn inspection(survey: &NodeSurvey) -> String {
    let mut text = format!("{}\n{}\n", node(survey), shards(survey));
    let _ = write!(text, "{}", rows(survey));
    let fullest = fullest(survey);
    if !fullest.is_empty() {
        let _ = write!(text, "\n{fullest}");
    }
    let found = survey.findings.len() as u64 + survey.more_findings;
    if found > 0 {
        let folder = survey.folder.display();
        let _ = writeln!(
            text,
            "\nwrong: {}; `heraldmq store verify {folder}` says what",
            count(found)
        );
    }
    text
}

/// Whether a folder is right, and what is wrong with it.
pub(super) fn verdict(survey: &NodeSurvey) -> String {
    let mut text = String::new();
    for found in &survey.findings {
        let _ = writeln!(text, "{}", finding(found));
    }
    if survey.more_findings > 0 {
        let _ = writeln!(text, "and {} more", count(survey.more_findings));
    }
    if survey.log.as_ref().is_some_and(|log| log.torn_bytes > 0) {
        text.push_str(TORN);
    }
    if !survey.findings.is_empty() {
        return text;
    }
    let logs = || every_shard(survey).filter_map(|(_, shard)| shard.log);
    let entries: u64 = logs().map(|log| log.replay_entries).sum();
    let requests: u64 = logs().map(|log| log.replay_requests).sum();
    let read: u64 = every_shard(survey)
        .flat_map(|(_, shard)| &shard.rows)
        .map(|kind| kind.rows)
        .sum();
    let replay = match entries {
        0 => "nothing to apply again".to_owned(),
        _ => format!(
            "{} in {} to apply again",
            counted(requests, "request", "requests"),
            counted(entries, "entry", "entries")
        ),
    };
    let _ = writeln!(text, "OK: {} read, {replay}", counted(read, "row", "rows"));
    text
}

/// What has become of each shard, and what is lost.
pub(super) fn recovery(recovered: &[Recovered]) -> String {
    let mut text = String::new();
    for shard in recovered {
        let Recovered {
            store,
            shard,
            outcome,
        } = shard;
        let _ = match outcome {
            Outcome::SoleVoter => writeln!(text, "{store} {shard}: this node decides alone"),
            Outcome::Left => writeln!(
                text,
                "{store} {shard}: this node has no replica of it; what it held is lost"
            ),
            Outcome::BegunAnew { removed_inboxes } => {
                let held = held(*store);
                let _ = writeln!(text, "{store} {shard}: BEGINS ANEW; LOST: {held}");
                match removed_inboxes {
                    0 => Ok(()),
                    1 => writeln!(
                        text,
                        "{store} {shard}: 1 inbox on this node belongs to its lost sessions, and is removed"
                    ),
                    count => writeln!(
                        text,
                        "{store} {shard}: {count} inboxes on this node belong to its lost sessions, and are removed"
                    ),
                }
            }
        };
    }
    if recovered.iter().any(|shard| shard.outcome == Outcome::Left) {
        text.push_str(LEFT);
    }
    text
}

/// What shards lack from now on.
pub(super) fn accepted(accepted: &[Accepted]) -> String {
    let mut text = String::new();
    for Accepted {
        store,
        shard,
        missing,
    } in accepted
    {
        let _ = match missing {
            Some(missing) => writeln!(
                text,
                "{store} {shard}: goes on; LOST: {missing} of its log, with what was acknowledged in these"
            ),
            None => writeln!(text, "{store} {shard}: nothing is missing"),
        };
    }
    text
}

/// Nodes that must not come back.
pub(super) fn evicted(nodes: &[u64]) -> String {
    nodes
        .iter()
        .map(|node| {
            format!(
                "node {node:016x}: evicted; it can only join as a new node, with an empty folder\n"
            )
        })
        .collect()
}

/// What a shard of a store holds.
fn held(store: StoreId) -> &'static str {
    match store {
        StoreId::Session => "its sessions, with their wills, subscriptions and queued messages",
        StoreId::Inbox => "the subscriptions and queued messages of its sessions",
        StoreId::Retain => "its retained messages",
        StoreId::Control => "users, groups and rules, with the audit of their changes",
    }
}

fn finding(found: &Finding) -> String {
    let mut text = match (found.store, found.shard) {
        (Some(store), Some(shard)) => format!("{store} store, shard {shard}"),
        (Some(store), None) => format!("{store} store"),
        _ => "node".to_owned(),
    };
    if let Some(key) = &found.key {
        let _ = write!(text, ", key {key}");
    }
    format!("{text}: {}", found.what)
}

/// What concerns the node as a whole: names and values in two columns.
fn node(survey: &NodeSurvey) -> String {
    let last_alive = survey.last_alive_ms.map(time);
    let incarnation = survey.incarnation.map(count);
    let log = survey.log.as_ref().map(log);
    let lines = [
        ("folder", survey.folder.display().to_string()),
        ("format", survey.format.to_string()),
        ("node", survey.node.clone()),
        ("incarnation", incarnation.unwrap_or_else(none)),
        ("last alive", last_alive.unwrap_or_else(none)),
        ("log", log.unwrap_or_else(none)),
    ];
    lines
        .iter()
        .map(|(name, value)| format!("{name:<12} {value}\n"))
        .collect()
}

fn log(log: &LogSurvey) -> String {
    format!(
        "{}, {}, {}",
        counted(log.files, "file", "files"),
        counted(log.bytes, "byte", "bytes"),
        counted(log.groups, "group", "groups")
    )
}

fn shards(survey: &NodeSurvey) -> Table {
    let mut table = Table::new([
        "store",
        "shard",
        "slots",
        "table bytes",
        "checkpoint",
        "log entries",
        "to apply again",
    ]);
    for (store, shard) in every_shard(survey) {
        let span = |log: ShardLog| match log.next.checked_sub(1) {
            Some(last) => format!("{}–{last}", log.first),
            None => none(),
        };
        table.row([
            store.to_owned(),
            shard.number.to_string(),
            format!("{}–{}", shard.first_slot, shard.last_slot),
            count(shard.table_bytes),
            shard
                .checkpoint
                .map_or_else(none, |index| index.to_string()),
            shard.log.map_or_else(none, span),
            shard
                .log
                .map_or_else(none, |log| count(log.replay_requests)),
        ]);
    }
    table
}

fn rows(survey: &NodeSurvey) -> Table {
    let mut table = Table::new(["store", "shard", "holds", "rows", "bytes"]);
    for (store, shard) in every_shard(survey) {
        for kind in shard.rows.iter().filter(|kind| kind.rows > 0) {
            table.row([
                store.to_owned(),
                shard.number.to_string(),
                kind.kind.to_owned(),
                count(kind.rows),
                count(kind.bytes),
            ]);
        }
    }
    table
}

/// Empty if nothing is queued.
fn fullest(survey: &NodeSurvey) -> String {
    let mut table = Table::new(["fullest inboxes", "shard", "messages", "bytes", "oldest"]);
    let mut inboxes: Vec<_> = every_shard(survey)
        .flat_map(|(_, shard)| shard.fullest.iter().map(|inbox| (shard.number, inbox)))
        .collect();
    if inboxes.is_empty() {
        return String::new();
    }
    inboxes.sort_by_key(|(_, inbox)| u64::MAX - inbox.messages);
    for (shard, inbox) in inboxes.into_iter().take(10) {
        table.row([
            inbox.client.escape_debug().to_string(),
            shard.to_string(),
            count(inbox.messages),
            count(inbox.bytes),
            inbox.oldest_ms.map_or_else(none, |UnixMs(ms)| time(ms)),
        ]);
    }
    table.to_string()
}

fn every_shard(survey: &NodeSurvey) -> impl Iterator<Item = (&'static str, &ShardSurvey)> {
    let stores = survey.stores.iter();
    stores.flat_map(|store| store.shards.iter().map(|shard| (store.name, shard)))
}

/// Unix time in ms, for people.
fn time(ms: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(ms);
    humantime::format_rfc3339_seconds(at).to_string()
}

fn none() -> String {
    NONE.to_owned()
}
