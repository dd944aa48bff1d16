//! `heraldmq size`: how many nodes of which machine a scenario takes, and what that costs a month.
//!
//! Where to read next: the crate `sizing`, which reckons.

mod text;
mod values;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use loadtest::workload::{Activity, Login, Messages, Pace};
use loadtest::{Listed, Topology, Workload};
use mqtt_proto::{ProtocolVersion, QoS};
use serde::de::DeserializeOwned;
use sizing::{Cluster, Demand, Prices, Purchase, Quality, Slopes, fit};

use super::quantity::{Count, Rate, Size};
use super::scenario::{Chosen, Scenario, Share};
use super::{print, yaml};
use crate::failure::Failure;

/// What is reckoned with unless a file says something else.
const SLOPES: &str = sizing::SLOPES;
const PRICES: &str = sizing::PRICES;

/// Estimate the nodes that a load needs, and their monthly cost.
///
/// The load is a scenario of a report, a workload file, or given by options; options override the scenario or file. The
/// output shows each term with its formula and the measured slope that it uses. `heraldmq bench slopes` measures the
/// slopes on your machine.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A scenario's name as `heraldmq bench list` shows it, or a workload file (.yml, .json).
    #[arg(value_name = "SCENARIO")]
    scenario: Option<String>,
    /// Clients that are connected at the same time.
    #[arg(long, value_name = "N", value_parser = Count::from_str)]
    connections: Option<Count>,
    /// Persistent sessions, connected or not.
    #[arg(long, value_name = "N", value_parser = Count::from_str)]
    sessions: Option<Count>,
    /// Messages per second from all publishers.
    #[arg(long, value_name = "N", value_parser = Rate::from_str)]
    publish_rate: Option<Rate>,
    /// Receivers of each message.
    #[arg(long, value_name = "N", value_parser = non_negative)]
    fan_out: Option<f64>,
    /// Share of the deliveries that go to persistent sessions at QoS 1 or 2.
    #[arg(long, value_name = "SHARE", value_parser = share_or_none)]
    durable: Option<f64>,
    /// QoS of messages and subscriptions.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: Option<u8>,
    /// Bytes of a payload.
    #[arg(long, value_name = "BYTES", value_parser = Size::from_str)]
    payload: Option<Size>,
    /// Bytes of a topic name.
    #[arg(long, value_name = "BYTES", value_parser = Size::from_str, default_value = "32")]
    topic: Size,
    /// How long messages are kept for persistent sessions whose clients are away.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    retention: Option<Duration>,
    /// Share of the persistent sessions whose clients are away at a time; with --retention.
    #[arg(long, value_name = "SHARE", default_value = "0.1")]
    away: Share,
    /// Retained messages.
    #[arg(long, value_name = "N", value_parser = Count::from_str)]
    retained: Option<Count>,
    /// Connections that are opened per second.
    #[arg(long, value_name = "N", value_parser = Rate::from_str)]
    connect_rate: Option<Rate>,
    /// Seconds between a silent client's PINGREQs.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    keep_alive: u16,
    /// Connections use TLS.
    #[arg(long)]
    tls: bool,
    /// Voting replicas of each shard: 1, 3 or 5. Default: those of the scenario, else 3 if nodes may fail, else 1.
    #[arg(long, value_parser = voters)]
    voters: Option<u8>,
    /// Nodes that may be down while the others carry the whole load. Default: 1 with three voters, 2 with five.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=50))]
    may_fail: Option<u8>,
    /// A file with the output of `heraldmq bench slopes`.
    #[arg(long, value_name = "FILE")]
    slopes: Option<PathBuf>,
    #[command(flatten)]
    buying: Buying,
    /// Print a values file for the Helm chart, for pods instead of machines.
    #[arg(long)]
    values: bool,
}

/// How the cluster is bought.
#[derive(clap::Args)]
struct Buying {
    /// A price list; crates/sizing/data/prices.yml is one.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// How machines are paid for: list, or a name of the price list; the built-in one has reserved-1y, reserved-3y, savings-1y
    /// and spot.
    #[arg(long, value_name = "NAME", default_value = LIST)]
    pricing: String,
    /// Zones over which the nodes are spread; traffic between zones costs. Default: 3 if nodes may fail, else 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=10))]
    zones: Option<u8>,
}

/// Machines are paid for as they come.
const LIST: &str = "list";

const EXAMPLES: &str = "\
Examples:
  heraldmq size 15k_15k_qos1_p256_1mps_3n_3v
  heraldmq size conn-tcp-1M-5K_1n_true --tls
  heraldmq size --connections 200k --sessions 200k --publish-rate 50k --qos 1 --durable 1 --may-fail 1 \\
      --retention 24h --away 0.05
  heraldmq size 15k_15k_qos1_p256_1mps_3n_3v --values > size.yaml
  heraldmq bench slopes > slopes.yml && heraldmq size scenario.yml --slopes slopes.yml --prices prices.yml
  heraldmq size 15k_15k_qos1_p256_1mps_3n_3v --pricing reserved-1y --zones 1";

fn non_negative(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number, 0 or more".to_owned())
}

fn share_or_none(text: &str) -> Result<f64, String> {
    let share = non_negative(text).ok().filter(|share| *share <= 1.0);
    share.ok_or_else(|| "expected a share from 0 to 1".to_owned())
}

fn voters(text: &str) -> Result<u8, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        "5" => Ok(5),
        _ => Err("expected 1, 3 or 5".to_owned()),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (demand, title) = arguments.demand()?;
    let slopes: Slopes = built_in_or(arguments.slopes.as_ref(), SLOPES)?;
    let prices: Prices = built_in_or(arguments.buying.prices.as_ref(), PRICES)?;
    let purchase = arguments.purchase(&demand, &prices)?;
    print(&match arguments.values {
        false => answer(&title, &demand, &slopes, &prices, &purchase)?,
        true => {
            let clusters = fitting(&demand, &slopes, &prices, &purchase)?;
            // There is one, and it is the cheapest.
            values::values(&title, &demand, &slopes, &clusters[0])
        }
    });
    Ok(())
}

fn built_in_or<T: DeserializeOwned>(path: Option<&PathBuf>, text: &str) -> Result<T, Failure> {
    match path {
        Some(path) => yaml::read(path),
        None => yaml::parse(text).map_err(Failure::Runtime),
    }
}

fn answer(
    title: &str,
    demand: &Demand,
    slopes: &Slopes,
    prices: &Prices,
    purchase: &Purchase<'_>,
) -> Result<String, Failure> {
    let clusters = fitting(demand, slopes, prices, purchase)?;
    Ok(text::text(
        title, demand, slopes, prices, purchase, &clusters,
    ))
}

/// One cluster or more, the cheapest first.
fn fitting(
    demand: &Demand,
    slopes: &Slopes,
    prices: &Prices,
    purchase: &Purchase<'_>,
) -> Result<Vec<Cluster>, Failure> {
    let clusters = fit(demand, slopes, prices, purchase);
    if clusters.is_empty() {
        let message =
            "no cluster of 200 nodes or fewer of any machine of the price list carries this";
        return Err(Failure::Runtime(message.to_owned()));
    }
    Ok(clusters)
}

impl Arguments {
    /// How the cluster is bought.
    fn purchase<'a>(&self, demand: &Demand, prices: &'a Prices) -> Result<Purchase<'a>, Failure> {
        if let Some(wrong) = prices.pricings.iter().find(|pricing| pricing.share <= 0.0) {
            let message = format!("pricing {}: its share must be above 0", wrong.name);
            return Err(Failure::Usage(message));
        }
        let pricing = match prices.pricing(&self.buying.pricing) {
            None if self.buying.pricing != LIST => {
                let names = prices.pricings.iter().map(|pricing| pricing.name.as_str());
                let names: Vec<&str> = [LIST].into_iter().chain(names).collect();
                let message = format!(
                    "--pricing {}: the price list has {}",
                    self.buying.pricing,
                    names.join(", ")
                );
                return Err(Failure::Usage(message));
            }
            pricing => pricing,
        };
        let usual = if demand.may_fail > 0.0 { 3 } else { 1 };
        let zones = self.buying.zones.unwrap_or(usual).into();
        Ok(Purchase { pricing, zones })
    }

    /// What is asked for, and what it is called.
    fn demand(&self) -> Result<(Demand, String), Failure> {
        let (mut demand, title) = match &self.scenario {
            Some(name) => of_scenario(name)?,
            None => (Demand::default(), "a load by options".to_owned()),
        };
        self.change(&mut demand)?;
        Ok((demand, title))
    }

    fn change(&self, demand: &mut Demand) -> Result<(), Failure> {
        if let Some(qos) = self.qos {
            demand.quality = quality(QoS::from_u8(qos).unwrap_or(QoS::AtMostOnce));
        }
        let fan_out = self.fan_out.unwrap_or(if demand.publishes_per_s > 0.0 {
            demand.fan_out()
        } else {
            1.0
        });
        if let Some(Rate(rate)) = self.publish_rate {
            demand.publishes_per_s = rate;
        }
        let was_durable = if demand.deliveries_per_s > 0.0 {
            demand.durable_per_s / demand.deliveries_per_s
        } else {
            0.0
        };
        demand.deliveries_per_s = demand.publishes_per_s * fan_out;
        let durable = self.durable.unwrap_or(was_durable);
        if durable > 0.0 && demand.quality == Quality::AtMostOnce {
            let message =
                "messages of QoS 0 are not kept for sessions: --durable needs --qos 1 or 2";
            return Err(Failure::Usage(message.to_owned()));
        }
        demand.durable_per_s = demand.deliveries_per_s * durable;
        let count = |count: Option<Count>, now: f64| count.map_or(now, |Count(count)| count as f64);
        demand.connections = count(self.connections, demand.connections);
        demand.sessions = count(self.sessions, demand.sessions);
        demand.retained = count(self.retained, demand.retained);
        if let Some(Size(bytes)) = self.payload {
            demand.payload_bytes = bytes as f64;
        }
        let Size(topic) = self.topic;
        demand.topic_bytes = topic as f64;
        if let Some(Rate(rate)) = self.connect_rate {
            demand.connects_per_s = rate;
        }
        demand.keep_alive_s = self.keep_alive.into();
        demand.tls = self.tls;
        if let Some(retention) = self.retention {
            demand.queued = demand.durable_per_s * self.away.value * retention.as_secs_f64();
        }
        let may_fail = self.may_fail.map(f64::from);
        demand.voters = match self.voters {
            Some(voters) => voters.into(),
            None if may_fail.is_some_and(|nodes| nodes > 1.0) => 5.0,
            None if may_fail.is_some_and(|nodes| nodes > 0.0) => 3.0,
            None => demand.voters,
        };
        demand.may_fail = may_fail.unwrap_or(((demand.voters - 1.0) / 2.0).floor());
        if demand.may_fail > 0.0
            && demand.durable_per_s > 0.0
            && demand.voters < 2.0 * demand.may_fail + 1.0
        {
            let message = format!(
                "with {} a shard stops while {} down: use --voters {}",
                match demand.voters {
                    1.0 => "1 voter".to_owned(),
                    voters => format!("{voters} voters"),
                },
                match demand.may_fail {
                    1.0 => "1 node is".to_owned(),
                    nodes => format!("{nodes} nodes are"),
                },
                2.0 * demand.may_fail + 1.0
            );
            return Err(Failure::Usage(message));
        }
        Ok(())
    }
}

fn quality(qos: QoS) -> Quality {
    match qos {
        QoS::AtMostOnce => Quality::AtMostOnce,
        QoS::AtLeastOnce => Quality::AtLeastOnce,
        QoS::ExactlyOnce => Quality::ExactlyOnce,
    }
}

fn of_scenario(name: &str) -> Result<(Demand, String), Failure> {
    let chosen = Chosen {
        name: name.to_owned(),
        second: None,
        scale: Share::default(),
        rate_scale: Share::default(),
    };
    let scenario = chosen.scenario()?;
    let mut demand = of_workload(&scenario.workload(Login::new(ProtocolVersion::V5)));
    if let Scenario::Named(plan) = &scenario {
        demand.voters = plan.voters.unwrap_or(1).into();
    }
    Ok((
        demand,
        format!("{}: {}", scenario.name(), scenario.reading()),
    ))
}

/// What a workload asks for while all of its parts are at it.
fn of_workload(workload: &Workload) -> Demand {
    let mut demand = Demand {
        connections: workload.connections() as f64,
        ..Demand::default()
    };
    let mut payload_bytes = 0.0;
    for part in &workload.parts {
        demand.connects_per_s += part.connect_rate.unwrap_or(0.0);
        match &part.activity {
            Activity::Messages(messages) => {
                let rate = add_messages(&mut demand, messages);
                payload_bytes += rate * messages.payload_len as f64;
            }
            Activity::Background { .. } => {}
            Activity::Churn(churn) => demand.connects_per_s += churn.per_second,
            Activity::Wills(wills) => demand.connects_per_s += wills.per_second,
            Activity::Retained(retained) => {
                demand.retained += retained.topics as f64;
                demand.deliveries_per_s += retained.per_second * retained.topics as f64;
            }
        }
    }
    if demand.publishes_per_s > 0.0 {
        demand.payload_bytes = payload_bytes / demand.publishes_per_s;
    }
    demand
}

/// Returns messages per second from its publishers.
fn add_messages(demand: &mut Demand, messages: &Messages) -> f64 {
    let rate = match messages.pace {
        Pace::Open { per_second } => per_second,
        // As fast as it goes is no demand.
        Pace::Closed { .. } => 0.0,
    };
    let deliveries = rate * messages.topology.receivers_per_message();
    demand.publishes_per_s += rate;
    demand.deliveries_per_s += deliveries;
    if let Topology::Listed(listed) = &messages.topology {
        add_listed(demand, listed, rate, messages.qos);
    } else if !messages.clean_session {
        demand.sessions += messages.topology.subscribers() as f64;
        if messages.qos > QoS::AtMostOnce {
            demand.durable_per_s += deliveries;
        }
    }
    if messages.qos > QoS::AtMostOnce && demand.quality != Quality::ExactlyOnce {
        demand.quality = quality(messages.qos);
    }
    rate
}

/// Persistent sessions of listed groups, and the messages that these receive. `rate`: messages per second of all publishers.
fn add_listed(demand: &mut Demand, listed: &Listed, rate: f64, qos: QoS) {
    let publishers: usize = listed.publishers.iter().map(|group| group.count).sum();
    let each = rate / publishers.max(1) as f64;
    for group in listed
        .subscribers
        .iter()
        .filter(|group| !group.clean_session)
    {
        demand.sessions += group.count as f64;
        if qos.min(group.qos) == QoS::AtMostOnce {
            continue;
        }
        let filter = group.matching_filter();
        let matched = listed
            .publishers
            .iter()
            .map(|from| from.matched_by(filter).len());
        let matched: usize = matched.sum();
        // Members of a shared subscription receive each message once together.
        let receivers = if group.is_shared() { 1 } else { group.count };
        demand.durable_per_s += each * (matched * receivers) as f64;
    }
}

#[cfg(test)]
mod tests;
