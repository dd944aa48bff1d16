//! The grammar of scenario names.
//!
//! - BifroMQ: `[share_|fanout_][true_|false_]PUBLISHERS_SUBSCRIBERS_qosQ_pBYTES_RATEmps[_Nn[_Vv]]`;
//!   `true` means clean sessions; the standalone report leaves `_Nn` out.
//! - BifroMQ: `conn-tcp-CONNECTIONS-RATE_Nn_true|false`.
//! - EMQX: `qosQ-pBYTES-IN-OUT`, message rates in and out; connections are in the table only.
//! - TBMQ: the row's name.
//! - Any of these with `_cold` behind it: the same on a new data folder, as BifroMQ's section of cold starts
//!   has it, whose rows are printed without the suffix.
//!
//! Counts may end in `k` or `M`, of either case. Where a name leaves something open, the rows of the
//! report decide; where they do not, the name is refused with its readings.

use std::fmt;

use mqtt_proto::QoS;

use super::{Plan, Source};
use crate::published::{Published, published};
use crate::topology::Topology;

/// Counts and rates end here; a report of more is a typing error.
const HIGHEST: u64 = 1_000_000_000;

const COUNT: &str = "a count above 0, such as 300, 1.2k or 1M";

/// Ends the name of a load on a new data folder.
const COLD: &str = "_cold";

/// Why a name is not read.
#[derive(Clone, PartialEq, Debug)]
pub enum NameError {
    /// It looks like no report's names.
    UnknownForm,
    /// One part of it is wrong.
    Part {
        /// As it stands in the name.
        part: String,
        /// What should be there.
        expected: &'static str,
    },
    /// It looks like EMQX's names but is not in EMQX's table, which alone knows the connections.
    Unlisted,
    /// Voters of clean sessions, which are not replicated, or more voters than nodes.
    Voters,
    /// It can be read in several ways; each one's `Display` is a name without that fault.
    Ambiguous(Vec<Plan>),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownForm => f.write_str("no report names its scenarios like this"),
            Self::Part { part, expected } => write!(f, "`{part}` should be {expected}"),
            Self::Unlisted => f.write_str(
                "not in EMQX's table, and its names say message rates but not how many connections",
            ),
            Self::Voters => f.write_str(
                "voters keep persistent sessions, and there are no more of them than nodes",
            ),
            Self::Ambiguous(readings) => {
                f.write_str("can be read in several ways; name one of these:")?;
                for plan in readings {
                    write!(f, "\n  {plan}  ({})", plan.reading())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for NameError {}

pub(super) fn parse(name: &str) -> Result<Plan, NameError> {
    let Some(warm) = name.strip_suffix(COLD) else {
        return parse_warm(name);
    };
    match parse_warm(warm) {
        Ok(plan) => Ok(cold(plan)),
        Err(NameError::Ambiguous(readings)) => Err(NameError::Ambiguous(
            readings.into_iter().map(cold).collect(),
        )),
        Err(error) => Err(error),
    }
}

/// The plan on a new data folder. It keeps no published row of a broker that had run before.
fn cold(plan: Plan) -> Plan {
    let is_row = |row: &&'static Published| {
        is_cold(row) && warm_of_row(row).is_some_and(|warm| warm.name == plan.name)
    };
    Plan {
        published: published().iter().find(is_row),
        name: format!("{}{COLD}", plan.name),
        is_cold: true,
        ..plan
    }
}

fn is_cold(row: &Published) -> bool {
    row.section.ends_with("cold start")
}

/// Reads a name without `_cold`.
fn parse_warm(name: &str) -> Result<Plan, NameError> {
    if let Some(rest) = name.strip_prefix("conn-tcp-") {
        return connections(rest);
    }
    if name.starts_with("qos") {
        return emqx(name);
    }
    let of_tbmq =
        |row: &&Published| row.product == "TBMQ" && row.scenario.eq_ignore_ascii_case(name);
    if let Some(plan) = published().iter().find(of_tbmq).and_then(tbmq) {
        return Ok(plan);
    }
    messages(name)
}

pub(super) fn of_row(row: &'static Published) -> Option<Plan> {
    let warm = warm_of_row(row)?;
    Some(if is_cold(row) { cold(warm) } else { warm })
}

fn warm_of_row(row: &'static Published) -> Option<Plan> {
    match Spec::parse(row.scenario) {
        Ok(spec) => Some(spec.plan(Reading::of_row(row))),
        Err(_) => parse_warm(row.scenario).ok(),
    }
}

/// Who publishes to whom, the numbers aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Pairs,
    Shared,
    FanOut,
}

/// What BifroMQ's names may leave open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reading {
    shape: Shape,
    clean_session: bool,
}

impl Reading {
    fn of_row(row: &Published) -> Self {
        let shape = if row.section.ends_with("shared") {
            Shape::Shared
        } else if row.section.ends_with("fan-out") {
            Shape::FanOut
        } else {
            Shape::Pairs
        };
        Self {
            shape,
            clean_session: row.section.starts_with("clean"),
        }
    }

    fn prefix(self) -> &'static str {
        match (self.shape, self.clean_session) {
            (Shape::Pairs, true) => "true_",
            (Shape::Pairs, false) => "false_",
            (Shape::Shared, true) => "share_true_",
            (Shape::Shared, false) => "share_false_",
            (Shape::FanOut, true) => "fanout_true_",
            (Shape::FanOut, false) => "fanout_false_",
        }
    }
}

/// What BifroMQ's names say in any case.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Spec {
    publishers: usize,
    subscribers: usize,
    qos: QoS,
    payload_len: usize,
    rate: f64,
    nodes: Option<u32>,
    voters: Option<u32>,
}

impl Spec {
    /// Reads a name without prefix.
    fn parse(name: &str) -> Result<Self, NameError> {
        let parts: Vec<&str> = name.split('_').collect();
        let [
            publishers,
            subscribers,
            qos_part,
            payload,
            rate,
            ref tail @ ..,
        ] = *parts.as_slice()
        else {
            return Err(NameError::UnknownForm);
        };
        let (nodes, voters) = match *tail {
            [] => (None, None),
            [nodes] => (Some(nodes), None),
            [nodes, voters] => (Some(nodes), Some(voters)),
            _ => return Err(NameError::UnknownForm),
        };
        let spec = Self {
            publishers: count(publishers).ok_or_else(|| wrong(publishers, COUNT))?,
            subscribers: count(subscribers).ok_or_else(|| wrong(subscribers, COUNT))?,
            qos: qos(qos_part)?,
            payload_len: payload
                .strip_prefix('p')
                .and_then(whole)
                .ok_or_else(|| wrong(payload, "the payload's bytes, such as p256"))?,
            rate: rate
                .strip_suffix("mps")
                .and_then(decimal)
                .ok_or_else(|| wrong(rate, "messages per second, such as 50mps or 0.5mps"))?,
            nodes: nodes.map(nodes_of).transpose()?,
            voters: voters
                .map(|part| {
                    let number = part.strip_suffix('v').and_then(small);
                    number.ok_or_else(|| wrong(part, "the number of voters, such as 3v"))
                })
                .transpose()?,
        };
        if spec.voters > spec.nodes {
            return Err(NameError::Voters);
        }
        Ok(spec)
    }

    /// Topologies that the numbers of connections allow; the reports know no others.
    fn shapes(&self) -> &'static [Shape] {
        let (publishers, subscribers) = (self.publishers, self.subscribers);
        if publishers == 1 && subscribers == 1 {
            &[Shape::Pairs]
        } else if publishers == subscribers && self.nodes.is_some() {
            // The cluster report's shared subscriptions have far fewer members than publishers.
            &[Shape::Pairs]
        } else if publishers == subscribers {
            &[Shape::Pairs, Shape::Shared]
        } else if publishers > subscribers {
            &[Shape::Shared]
        } else if publishers == 1 {
            &[Shape::FanOut]
        } else {
            &[Shape::FanOut, Shape::Shared]
        }
    }

    fn row(&self, reading: Reading) -> Option<&'static Published> {
        published().iter().find(|row| {
            row.product == "BifroMQ"
                && !is_cold(row)
                && Reading::of_row(row) == reading
                && Self::parse(row.scenario).as_ref() == Ok(self)
        })
    }

    fn plan(&self, reading: Reading) -> Plan {
        let Self {
            publishers,
            subscribers,
            ..
        } = *self;
        let published = self.row(reading);
        let name = published.map_or_else(|| self.spell(), |row| row.scenario.to_owned());
        Plan {
            source: match self.nodes {
                Some(_) => Source::BifroMqCluster,
                None => Source::BifroMqStandalone,
            },
            topology: match reading.shape {
                Shape::Pairs => Topology::Pairs { pairs: publishers },
                Shape::Shared => Topology::Shared {
                    publishers,
                    members: subscribers,
                },
                Shape::FanOut => Topology::FanOut {
                    publishers,
                    subscribers,
                },
            },
            // One row's name and its columns disagree; the total it prints follows from the column.
            rate: published.and_then(|row| row.rate).unwrap_or(self.rate),
            payload_len: self.payload_len,
            qos: self.qos,
            clean_session: reading.clean_session,
            is_cold: false,
            nodes: self.nodes.unwrap_or(1),
            voters: self.voters,
            background: 0,
            connect_rate: None,
            published,
            name: format!("{}{name}", reading.prefix()),
        }
    }

    fn spell(&self) -> String {
        let mut name = format!(
            "{}_{}_qos{}_p{}_{}mps",
            short(self.publishers),
            short(self.subscribers),
            self.qos.as_u8(),
            self.payload_len,
            self.rate,
        );
        if let Some(nodes) = self.nodes {
            name += &format!("_{nodes}n");
        }
        if let Some(voters) = self.voters {
            name += &format!("_{voters}v");
        }
        name
    }
}

fn messages(name: &str) -> Result<Plan, NameError> {
    let (shape, rest) = if let Some(rest) = name.strip_prefix("share_") {
        (Some(Shape::Shared), rest)
    } else if let Some(rest) = name.strip_prefix("fanout_") {
        (Some(Shape::FanOut), rest)
    } else {
        (None, name)
    };
    let (clean_session, rest) = if let Some(rest) = rest.strip_prefix("true_") {
        (Some(true), rest)
    } else if let Some(rest) = rest.strip_prefix("false_") {
        (Some(false), rest)
    } else {
        (None, rest)
    };
    let spec = Spec::parse(rest)?;
    let shapes: &[Shape] = match (&shape, clean_session) {
        (Some(shape), _) => std::slice::from_ref(shape),
        // A prefix that names the session only is that of pairs.
        (None, Some(_)) if spec.shapes().contains(&Shape::Pairs) => &[Shape::Pairs],
        (None, _) => spec.shapes(),
    };
    let sessions: &[bool] = match (clean_session, spec.voters, spec.nodes) {
        (Some(true), Some(_), _) => return Err(NameError::Voters),
        (Some(true), None, _) => &[true],
        (Some(false), ..) | (None, Some(_), _) => &[false],
        // The cluster report says how many voters a persistent session has.
        (None, None, Some(_)) => &[true],
        (None, None, None) => &[true, false],
    };
    let mut readings: Vec<Plan> = Vec::new();
    for &shape in shapes {
        readings.extend(sessions.iter().map(|&clean_session| {
            spec.plan(Reading {
                shape,
                clean_session,
            })
        }));
    }
    if readings.iter().any(|plan| plan.published.is_some()) {
        readings.retain(|plan| plan.published.is_some());
    }
    match readings.as_slice() {
        [_] => readings.pop().ok_or(NameError::UnknownForm),
        _ => Err(NameError::Ambiguous(readings)),
    }
}

/// The rest of a name after `conn-tcp-`.
fn connections(rest: &str) -> Result<Plan, NameError> {
    let parts: Vec<&str> = rest.split('_').collect();
    let [counts, nodes, session] = *parts.as_slice() else {
        return Err(NameError::UnknownForm);
    };
    let (connections, rate) = counts.split_once('-').ok_or(NameError::UnknownForm)?;
    let connections = count(connections).ok_or_else(|| wrong(connections, COUNT))?;
    let rate = count(rate).ok_or_else(|| wrong(rate, COUNT))?;
    let nodes = nodes_of(nodes)?;
    let clean_session = match session {
        "true" => true,
        "false" => false,
        _ => return Err(wrong(session, "true or false")),
    };
    let name = format!(
        "conn-tcp-{}-{}_{nodes}n_{clean_session}",
        short(connections).to_uppercase(),
        short(rate).to_uppercase(),
    );
    Ok(Plan {
        source: Source::BifroMqCluster,
        topology: Topology::Idle { connections },
        rate: 0.0,
        payload_len: 0,
        qos: QoS::AtMostOnce,
        clean_session,
        is_cold: false,
        nodes,
        voters: None,
        background: 0,
        connect_rate: Some(rate as f64),
        published: published().iter().find(|row| row.scenario == name),
        name,
    })
}

fn emqx(name: &str) -> Result<Plan, NameError> {
    let parts: Vec<&str> = name.split('-').collect();
    let [qos_part, _, _, _] = *parts.as_slice() else {
        return Err(NameError::UnknownForm);
    };
    let qos = qos(qos_part)?;
    let row = published()
        .iter()
        .find(|row| row.product == "EMQX" && row.scenario.eq_ignore_ascii_case(name))
        .ok_or(NameError::Unlisted)?;
    let of_note = |label: &str| {
        row.note
            .split(", ")
            .find_map(|part| part.strip_prefix(label))
    };
    let numbers = || {
        let (publishers, rate) = of_note("publishers ")?.split_once(" X ")?;
        let publishers = count(publishers)?;
        let topology = match of_note("subscribers ")?.split_once(" X ") {
            None => Topology::FanIn { publishers },
            Some((members, _)) if row.section == "shared" => Topology::Shared {
                publishers,
                members: count(members)?,
            },
            Some((subscribers, _)) => Topology::FanOut {
                publishers,
                subscribers: count(subscribers)?,
            },
        };
        let background = count(of_note("background connections ")?)?;
        Some((topology, decimal(rate)?, background, row.payload_len?))
    };
    let (topology, rate, background, payload_len) = numbers().ok_or(NameError::Unlisted)?;
    Ok(Plan {
        source: Source::Emqx,
        topology,
        rate,
        payload_len,
        qos,
        clean_session: true,
        is_cold: false,
        nodes: 1,
        voters: None,
        background,
        connect_rate: None,
        published: Some(row),
        name: row.scenario.to_owned(),
    })
}

fn tbmq(row: &'static Published) -> Option<Plan> {
    let mut parts = row.scenario.split(", ");
    let publishers = count(parts.next()?.strip_suffix(" publishers")?)?;
    let groups = count(parts.next()?.strip_suffix(" APPLICATION subscribers")?)?;
    let connect_rate = row
        .note
        .split("; ")
        .find_map(|part| part.strip_prefix("connect rate ")?.strip_suffix("/s"));
    Some(Plan {
        source: Source::Tbmq,
        topology: Topology::Groups { publishers, groups },
        rate: row.rate?,
        payload_len: row.payload_len?,
        qos: row.qos?,
        clean_session: false,
        is_cold: false,
        nodes: 25,
        voters: None,
        background: 0,
        connect_rate: connect_rate.and_then(decimal),
        published: Some(row),
        name: row.scenario.to_owned(),
    })
}

fn wrong(part: &str, expected: &'static str) -> NameError {
    NameError::Part {
        part: part.to_owned(),
        expected,
    }
}

fn qos(part: &str) -> Result<QoS, NameError> {
    let level = part.strip_prefix("qos").and_then(|q| q.parse().ok());
    level
        .and_then(QoS::from_u8)
        .ok_or_else(|| wrong(part, "qos0, qos1 or qos2"))
}

fn nodes_of(part: &str) -> Result<u32, NameError> {
    let number = part.strip_suffix('n').and_then(small);
    number.ok_or_else(|| wrong(part, "the number of nodes, such as 3n"))
}

/// Digits only, from 1.
fn whole(text: &str) -> Option<usize> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = text.parse().ok().filter(|_| is_number)?;
    (1..=HIGHEST)
        .contains(&number)
        .then(|| usize::try_from(number).ok())?
}

fn small(text: &str) -> Option<u32> {
    whole(text).and_then(|number| u32::try_from(number).ok())
}

/// Digits with or without a point, above 0.
fn decimal(text: &str) -> Option<f64> {
    let is_number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = text.parse().ok().filter(|_| is_number)?;
    (number > 0.0 && number <= HIGHEST as f64).then_some(number)
}

/// A whole number, written with `k` or `M` or without.
fn count(text: &str) -> Option<usize> {
    let (digits, unit) = match text.bytes().last()? {
        b'k' | b'K' => (text.get(..text.len() - 1)?, 1e3),
        b'm' | b'M' => (text.get(..text.len() - 1)?, 1e6),
        _ => return whole(text),
    };
    // Exact: no more than 1e9 in all, and whole after rounding away what binary fractions add.
    let number = decimal(digits)? * unit;
    let rounded = number.round();
    let is_whole = (number - rounded).abs() < 1e-3 && (1.0..=HIGHEST as f64).contains(&rounded);
    is_whole.then_some(rounded as usize)
}

/// The shortest way to write a count.
fn short(number: usize) -> String {
    if number.is_multiple_of(1_000_000) {
        format!("{}M", number / 1_000_000)
    } else if number.is_multiple_of(1_000) {
        format!("{}k", number / 1_000)
    } else {
        number.to_string()
    }
}
