//! The page as text: rows below the headings of what they are about.

use std::fmt::Write;

use super::Row;

const HEAD: &str = "\
# Limits

Written by `cargo run -p xtask -- limits --page` from the declarations in the code, which the last column names. Limits with the name of an option
can be set; the [configuration](configuration.md) says their defaults. What one client can cause by what it sends is measured with every
kind of packet: [adversary](../internals/adversary.md).
";

const COLUMNS: &str = "| What is bounded | By | At the limit | Declared in |\n|---|---|---|---|\n";

/// Headings, and how the places of their rows begin. The longest one that fits a place decides; a place that none fits
/// is below the last heading.
const THEMES: &[(&str, &[&str])] = &[
    (
        "Clients and their sessions",
        &[
            "limits.session",
            "limits.topic",
            "limits.connection.inflightMaximum",
            "crates/mqtt-session",
            "crates/broker-core/src/backpressure",
            "crates/broker-core/src/dispatch",
            "crates/broker-core/src/linger",
            "crates/broker-core/src/inbox",
            "crates/broker-core/src/session",
            "crates/broker-core/src/share.rs",
            "crates/broker-core/src/subscribe",
            "crates/broker-core/src/will",
        ],
    ),
    (
        "Connections",
        &[
            "limits.connection",
            "crates/transport",
            "crates/net",
            "crates/broker/src/settings.rs",
            "crates/broker/src/descriptors.rs",
            "crates/broker-core/src/connect",
            "crates/broker-core/src/end",
        ],
    ),
    (
        "Messages and event loops",
        &[
            "crates/broker-core",
            "crates/net/src/event_loop.rs",
            "crates/net/src/io.rs",
        ],
    ),
    (
        "Nodes and memory",
        &[
            "limits.node",
            "crates/broker-core/src/quotas.rs",
            "crates/broker-core/src/node.rs",
            "crates/heraldmq",
        ],
    ),
    (
        "Stores",
        &[
            "retain",
            "crates/broker-core/src/retained",
            "crates/store",
            "crates/store-state",
            "crates/consensus",
        ],
    ),
    (
        "Clusters",
        &[
            "crates/cluster",
            "crates/peer-protocol",
            "crates/route-exchange",
            "crates/broker-core/src/peers",
            "crates/broker/src/cluster_bans.rs",
        ],
    ),
    (
        "Logins, rules and abuse",
        &[
            "abuse",
            "authentication",
            "authorization",
            "crates/authentication",
            "crates/authorization",
            "crates/broker-core/src/rights",
            "crates/broker-core/src/rejudge",
            "crates/guard",
        ],
    ),
    (
        "People and the HTTP API",
        &["crates/admin", "crates/broker", "crates/inspection"],
    ),
];

/// All rows; those of a heading in the order in which they are given.
pub(super) fn render(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for (index, (heading, _)) in THEMES.iter().enumerate() {
        let below: Vec<&Row> = rows
            .iter()
            .filter(|row| theme(&row.place) == index)
            .collect();
        if !below.is_empty() {
            let _ = write!(text, "\n## {heading}\n\n{COLUMNS}");
        }
        for row in below {
            let _ = writeln!(
                text,
                "| {} | {} | {} | `{}` |",
                row.what, row.by, row.at_limit, row.path
            );
        }
    }
    text
}

/// Which heading a place is below.
fn theme(place: &str) -> usize {
    let begins = |prefix: &&&str| {
        place.strip_prefix(**prefix).is_some_and(|rest| {
            !rest.starts_with(|next: char| next == '-' || next.is_alphanumeric())
        })
    };
    let longest = |prefixes: &[&str]| {
        prefixes
            .iter()
            .filter(begins)
            .map(|prefix| prefix.len())
            .max()
    };
    THEMES
        .iter()
        .enumerate()
        .filter_map(|(index, (_, prefixes))| Some((longest(prefixes)?, index)))
        .max()
        .map_or(THEMES.len() - 1, |(_, index)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_decides() {
        for (place, heading) in [
            ("crates/net/src/layered.rs", "Connections"),
            ("crates/net/src/event_loop.rs", "Messages and event loops"),
            ("crates/store-state/src/level.rs", "Stores"),
            ("crates/broker-core/src/peers/mod.rs", "Clusters"),
            ("limits.session.queueBytes", "Clients and their sessions"),
            ("elsewhere", "People and the HTTP API"),
        ] {
            let found = THEMES.get(theme(place)).map(|(heading, _)| *heading);
            assert_eq!(found, Some(heading), "{place}");
        }
    }
}
