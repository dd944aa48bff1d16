//! The parts of a workload in words: as a table before a run, as a sentence in its record.

use loadtest::workload::{Activity, Churn, Messages, Pace, Part, Retained, Wills};
use loadtest::{Topology, Workload};
use text_table::{Table, units::counted};

/// A row per part, and one for all of them.
pub(super) fn table(workload: &Workload) -> Table {
    let mut table = Table::new([
        "part",
        "connections",
        "connects/s",
        "msg/s",
        "payload",
        "QoS",
        "when",
    ]);
    for part in &workload.parts {
        let connect_rate = part
            .connect_rate
            .map_or_else(|| "as accepted".to_owned(), |rate| rate.to_string());
        let (payload, qos) = match &part.activity {
            Activity::Messages(Messages {
                payload_len, qos, ..
            })
            | Activity::Wills(Wills {
                payload_len, qos, ..
            })
            | Activity::Retained(Retained {
                payload_len, qos, ..
            }) => (payload_len.to_string(), qos.as_u8().to_string()),
            Activity::Background { .. } | Activity::Churn(_) => ("-".to_owned(), "-".to_owned()),
        };
        table.row([
            format!("{}: {}", part.name, what(&part.activity)),
            part.activity.connections().to_string(),
            connect_rate,
            asked(workload, std::slice::from_ref(part)),
            payload,
            qos,
            when(part),
        ]);
    }
    table.row([
        "total".to_owned(),
        workload.connections().to_string(),
        String::new(),
        asked(workload, &workload.parts),
    ]);
    table
}

/// A row per group of a part with groups that are listed, with what it sends or should receive per second;
/// `None` if there is no such part.
pub(super) fn groups(workload: &Workload) -> Option<Table> {
    let listed = workload.parts.iter().find_map(|part| match &part.activity {
        Activity::Messages(messages) => match &messages.topology {
            Topology::Listed(listed) => Some((messages, listed)),
            _ => None,
        },
        _ => None,
    });
    let (messages, listed) = listed?;
    let mut table = Table::new([
        "group",
        "clients",
        "client identifiers",
        "topic or filter",
        "QoS",
        "session",
    ]);
    for group in &listed.publishers {
        table.row([
            "publishers".to_owned(),
            group.count.to_string(),
            numbered(&group.client_id_prefix, group.count),
            format!("{}{}…", group.topic_prefix, group.client_id_prefix),
            messages.qos.as_u8().to_string(),
            "clean".to_owned(),
        ]);
    }
    for group in &listed.subscribers {
        let session = if group.clean_session {
            "clean"
        } else {
            "persistent"
        };
        table.row([
            "subscribers".to_owned(),
            group.count.to_string(),
            numbered(&group.client_id_prefix, group.count),
            group.filter.clone(),
            group.qos.as_u8().to_string(),
            session.to_owned(),
        ]);
    }
    Some(table)
}

/// The first and the last of so many client identifiers.
fn numbered(prefix: &str, count: usize) -> String {
    match count {
        0 => "-".to_owned(),
        1 => format!("{prefix}0"),
        _ => format!("{prefix}0 to {}", count - 1),
    }
}

/// All parts in one line.
pub(super) fn sentence(parts: &[Part]) -> String {
    let each = parts.iter().map(|part| {
        let what = what(&part.activity);
        match (part.from_s, part.for_s) {
            (0.0, None) => format!("{}: {what}", part.name),
            _ => format!("{}: {what}, {}", part.name, when(part)),
        }
    });
    each.collect::<Vec<_>>().join("; ")
}

/// Messages per second of these parts.
fn asked(workload: &Workload, parts: &[Part]) -> String {
    let of_parts = Workload {
        parts: parts.to_vec(),
        login: workload.login.clone(),
    };
    let asked = of_parts.asked_per_second();
    asked.map_or_else(|| "as delivered".to_owned(), |rate| format!("{rate:.0}"))
}

fn when(part: &Part) -> String {
    match (part.from_s, part.for_s) {
        (0.0, None) => "all the time".to_owned(),
        (from, None) => format!("from {from} s on"),
        (from, Some(lasts)) => format!("{from} to {} s", from + lasts),
    }
}

fn what(activity: &Activity) -> String {
    match activity {
        Activity::Messages(messages) => messages_in_words(messages),
        Activity::Background { connections } => format!(
            "{} at rest",
            counted(*connections as u64, "connection", "connections")
        ),
        Activity::Churn(churn) => churn_in_words(churn),
        Activity::Wills(wills) => format!(
            "{} with wills, {} break off per second",
            counted(wills.connections as u64, "client", "clients"),
            wills.per_second
        ),
        Activity::Retained(retained) => format!(
            "{}, {} come per second for {} each",
            counted(retained.readers as u64, "reader", "readers"),
            retained.per_second,
            counted(
                retained.topics as u64,
                "retained message",
                "retained messages"
            )
        ),
    }
}

fn messages_in_words(messages: &Messages) -> String {
    let mut words = messages.topology.to_string();
    let publishers = messages.topology.publishers();
    words += &match messages.pace {
        Pace::Open { per_second } => {
            let each = per_second / publishers.max(1) as f64;
            format!(", each publisher {each} msg/s")
        }
        Pace::Closed { window } => format!(", each publisher {window} under way"),
    };
    if let Some(rate) = messages.read_rate {
        words += &format!(", each subscriber reads {rate} bytes/s");
    }
    if messages.retain {
        words += ", retained";
    }
    if let Topology::Listed(listed) = &messages.topology {
        let persistent = listed.subscribers.iter().filter(|g| !g.clean_session);
        let persistent: usize = persistent.map(|group| group.count).sum();
        if persistent > 0 {
            words += &format!(", {persistent} of the subscribers with persistent sessions");
        }
    } else if !messages.clean_session {
        words += ", persistent sessions of subscribers";
    }
    words
}

fn churn_in_words(churn: &Churn) -> String {
    let how = if churn.abrupt {
        "break off"
    } else {
        "leave and come back"
    };
    let mut words = format!(
        "{}, {} {how} per second",
        counted(churn.connections as u64, "connection", "connections"),
        churn.per_second
    );
    if churn.subscribe {
        words += ", each with a subscription";
    }
    if !churn.clean_session {
        words += ", persistent sessions";
    }
    words
}

#[cfg(test)]
mod tests {
    use loadtest::workload::Login;
    use mqtt_proto::{ProtocolVersion, QoS};

    use super::*;

    fn workload() -> Workload {
        let slow = Messages {
            topology: Topology::Pairs { pairs: 5 },
            payload_len: 1_024,
            qos: QoS::AtMostOnce,
            pace: Pace::Open { per_second: 500.0 },
            clean_session: false,
            retain: false,
            read_rate: Some(10_240),
        };
        let mut slow = Part::new("slow", Activity::Messages(slow));
        (slow.from_s, slow.for_s) = (10.0, Some(20.0));
        let rest = Activity::Background { connections: 100 };
        Workload {
            parts: vec![Part::new("rest", rest), slow],
            login: Login::new(ProtocolVersion::V5),
        }
    }

    #[test]
    fn the_sentence_names_all_that_tells_one_part_from_another() {
        assert_eq!(
            sentence(&workload().parts),
            "rest: 100 connections at rest; slow: 5 pairs, each publisher 100 msg/s, each subscriber \
             reads 10240 bytes/s, persistent sessions of subscribers, 10 to 30 s"
        );
    }

    #[test]
    fn the_table_ends_with_the_sums() {
        let text = table(&workload()).to_string();
        let row = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let rows: Vec<Vec<String>> = text.lines().map(row).collect();
        let slow = rows[2].join(" ");
        assert!(
            slow.ends_with(" sessions of subscribers 10 as accepted 500 1024 0 10 to 30 s"),
            "{slow}"
        );
        assert_eq!(rows[3], ["total", "110", "500"]);
    }
}
