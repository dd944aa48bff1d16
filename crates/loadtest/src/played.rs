//! From what a run yielded to its record.

use std::time::Duration;

use hdrhistogram::Histogram;
use mqtt_proto::QoS;
use report::{
    Columns, Counts, FORMAT, Latencies, Latency, Load, Machine, PartFigures, PayloadBytes, Phase,
    PublishedFigures, PublisherCounts, QosNumber, Record, Scaling, Setting, SystemUsage,
};

use text_table::units::counted;

use crate::coordinator::{Moment, Played, tool_cpu};
use crate::engine::Progress;
use crate::meter::{Headline, add_buckets, buckets, histogram};
use crate::plan::{Plan, Source};
use crate::protocol::PartFinish;
use crate::published::Published;
use crate::topology::Topology;
use crate::traffic::Totals;
use crate::verify::{Findings, Tally};
use crate::workload::{Activity, Pace, Part, Workload};
use host::Cpu;

/// Share of its one core from which a worker, if it is late at all, counts as the limit. By itself the
/// share says little: with time to spare a worker wakes for each message, pressed it takes many at once.
const TOOL_BUSY: f64 = 0.8;

/// Part of the latency that the tool's own lateness may be.
const LATENESS_PART: f64 = 4.0;

/// Lateness that is never blamed on the tool: what a machine that does other things too shows.
const LATENESS_MS: f64 = 1.0;

/// Share of the messages asked for below which the load was not kept up.
const KEPT_UP: f64 = 0.98;

/// Clocks of several machines that are known less well than this are worth a warning.
const CLOCK_NS: u64 = 500_000;

/// Publishers with faults that a record names.
const NAMED_PUBLISHERS: usize = 1_000;

/// What a record says besides what was measured.
#[derive(Clone, Debug)]
pub struct Title {
    /// The scenario's name.
    pub scenario: String,
    /// Whose run it is.
    pub label: String,
    /// How the scenario was read.
    pub reading: String,
    /// RFC 3339.
    pub started_at: String,
    /// In the order to show.
    pub settings: Vec<Setting>,
    /// This one.
    pub machine: Machine,
    /// The scenario as its report has it, if it is one of a report.
    pub plan: Option<Plan>,
}

impl Played {
    /// Puts everything in order.
    #[must_use]
    pub fn record(self, workload: &Workload, title: Title) -> Record {
        let merged = Merged::new(&self);
        let seconds = seconds_between(&self.start, &self.end);
        let headline = Headline::of(workload);
        let tool = tool_cpu(&self.start, &self.end);
        let counted = self.end.progress.counted - self.start.progress.counted;
        let mut record = Record {
            format: FORMAT,
            tool: concat!("heraldmq bench ", env!("CARGO_PKG_VERSION")).to_owned(),
            scenario: title.scenario,
            label: title.label,
            reading: title.reading,
            started_at: title.started_at,
            settings: title.settings,
            machine: title.machine,
            published: title.plan.as_ref().and_then(published_figures),
            columns: columns(workload, title.plan.as_ref()),
            load: load(workload),
            connections: self.connections as u64,
            connect_seconds: self.connect_seconds,
            seconds,
            asked_per_second: workload.asked_in(seconds).unwrap_or(0.0),
            messages_per_second: counted as f64 / seconds,
            counts: merged.counts(&self.last),
            latencies: merged.latencies(),
            headline: headline.name().to_owned(),
            system: self.systems(),
            tool_cpu_user_s: tool.user.as_secs_f64(),
            tool_cpu_system_s: tool.system.as_secs_f64(),
            workers: self.finishes.len() as u32,
            publishers: merged.publishers(&self.sent),
            samples: Vec::new(),
            parts: self.parts(workload, &merged, seconds),
            warnings: Vec::new(),
        };
        record.warnings = self.warnings(workload, title.plan.as_ref(), &record);
        record.warnings.extend(merged.lost_at_qos_0(workload));
        record.samples = self.samples;
        record
    }

    /// Of a load that has several.
    fn parts(&self, workload: &Workload, merged: &Merged, seconds: f64) -> Vec<PartFigures> {
        if workload.parts.len() < 2 {
            return Vec::new();
        }
        let of = |(number, part): (usize, &Part)| {
            let finishes = || self.finishes.iter().filter_map(|f| f.parts.get(number));
            let times = |select: fn(&PartFinish) -> &Vec<(u64, u64)>| {
                let mut all = histogram();
                finishes().for_each(|finish| add_buckets(&mut all, select(finish)));
                latency(&all).map(|latency| Latency {
                    buckets_ns: Vec::new(),
                    ..latency
                })
            };
            let mut totals = Totals::default();
            finishes().for_each(|finish| totals += finish.totals);
            let faults = merged.findings.get(number).map(Findings::faults);
            let faults = faults.unwrap_or_default();
            PartFigures {
                name: part.name.clone(),
                asked_per_second: part.asked_in(seconds).unwrap_or(0.0),
                counts: Counts {
                    sent: totals.sent,
                    acknowledged: totals.acknowledged,
                    delivered: totals.delivered,
                    lost: faults.lost,
                    duplicated: faults.duplicated,
                    reordered: faults.reordered,
                    stray: faults.stray,
                    disconnects: 0,
                },
                acknowledge: times(|part| &part.acknowledge),
                deliver: times(|part| &part.deliver),
            }
        };
        workload.parts.iter().enumerate().map(of).collect()
    }

    fn systems(&self) -> Vec<SystemUsage> {
        let used = |number: usize, from: &Moment, to: &Moment| {
            let (from, to) = (from.reading(number)?, to.reading(number)?);
            Some(Cpu {
                user: to.cpu_user.saturating_sub(from.cpu_user),
                system: to.cpu_system.saturating_sub(from.cpu_system),
            })
        };
        let resident = |number: usize, moment: &Moment| {
            let reading = moment.reading(number);
            reading.map_or(0, |reading| reading.resident_bytes)
        };
        let of = |(number, name): (usize, &String)| {
            let measuring = used(number, &self.start, &self.end).unwrap_or_default();
            let connecting = used(number, &self.before, &self.connected).unwrap_or_default();
            let samples = self.samples.iter().filter_map(|sample| {
                let usage = sample.system.get(number).copied().flatten();
                usage.map(|usage| usage.resident_bytes)
            });
            SystemUsage {
                name: name.clone(),
                cpu_user_s: measuring.user.as_secs_f64(),
                cpu_system_s: measuring.system.as_secs_f64(),
                connecting_cpu_s: connecting.total().as_secs_f64(),
                resident_bytes_before: resident(number, &self.before),
                resident_bytes: resident(number, &self.end),
                resident_bytes_max: samples.max().unwrap_or(0),
            }
        };
        self.system_names.iter().enumerate().map(of).collect()
    }

    /// What keeps the figures from meaning what they seem to, a sentence each.
    fn warnings(&self, workload: &Workload, plan: Option<&Plan>, record: &Record) -> Vec<String> {
        let mut warnings = Vec::new();
        warnings.extend(self.tool_was_limit(record));
        let asked = record.asked_per_second;
        if asked > 0.0 && record.messages_per_second < asked * KEPT_UP {
            warnings.push(format!(
                "the load was not kept up: {:.0} of {asked:.0} msg/s",
                record.messages_per_second
            ));
        }
        if record.counts.disconnects > 0 {
            let count = record.counts.disconnects;
            warnings.push(format!(
                "connections broke off {count} times during the load"
            ));
        }
        if self.last.refused > 0 {
            let refused = counted(self.last.refused, "message", "messages");
            warnings.push(format!("the broker refused {refused}"));
        }
        for finish in &self.finishes {
            for complaint in &finish.complaints {
                if !warnings.contains(complaint) {
                    warnings.push(complaint.clone());
                }
            }
        }
        if workload
            .parts
            .iter()
            .any(|part| is_unconfirmed(&part.activity))
        {
            warnings.push(
                "QoS 0 without subscribers: counted is what was sent; nobody confirms that the broker \
                 took it"
                    .to_owned(),
            );
        }
        if let Some(plan) = plan.filter(|plan| plan.nodes > 1) {
            let loaded = record.system.len().max(1);
            if loaded < plan.nodes as usize {
                let nodes = plan.nodes;
                warnings.push(format!(
                    "the report's cluster had {}; {} watched here",
                    counted(nodes.into(), "node", "nodes"),
                    counted(loaded as u64, "node was", "nodes were")
                ));
            }
        }
        let measuring = record.samples.iter().chain(&self.samples);
        if measuring
            .filter(|sample| sample.phase == Phase::Measure)
            .any(|sample| sample.system.iter().any(Option::is_none))
        {
            warnings.push("the broker's process could not be read all the time".to_owned());
        }
        warnings.extend(self.clocks_differ());
        warnings
    }

    fn tool_was_limit(&self, record: &Record) -> Option<String> {
        let late_ms = record.latencies.tool_lateness.as_ref()?.p99_ms;
        let latency = match record.headline.as_str() {
            "deliver" => &record.latencies.deliver,
            _ => &record.latencies.acknowledge,
        };
        let latency_ms = latency
            .as_ref()
            .map_or(f64::INFINITY, |latency| latency.p99_ms);
        let shares = self.end.tool.iter().zip(&self.start.tool);
        let busiest = shares
            .map(|(end, start)| (*end - *start).total().as_secs_f64() / record.seconds)
            .fold(0.0, f64::max);
        let is_limit = busiest >= TOOL_BUSY || late_ms > latency_ms / LATENESS_PART;
        (late_ms > LATENESS_MS && is_limit).then(|| {
            let percent = busiest * 100.0;
            let cause = if busiest >= TOOL_BUSY {
                "use more --workers, or a lower --scale or --rate-scale"
            } else {
                "the machine had no core for it in time: give it cores of its own, or use a lower --scale \
                 or --rate-scale"
            };
            format!(
                "this tool was the limit, not only the broker: messages were {late_ms:.1} ms late (p99), and \
                 its busiest worker used {percent:.0} % of a core; {cause}"
            )
        })
    }

    fn clocks_differ(&self) -> Option<String> {
        let unknown = |before: u64, after: u64, drift: u64| before.max(after) + drift;
        let worst = self.clocks.iter().map(|(name, before, after)| {
            let drift = before.offset_ns.abs_diff(after.offset_ns);
            let unknown = unknown(before.uncertainty_ns, after.uncertainty_ns, drift);
            (unknown, name)
        });
        let (ns, name) = worst.max()?;
        (ns > CLOCK_NS).then(|| {
            let ms = ns as f64 / 1e6;
            format!(
                "clocks: that of {name} is known to {ms:.1} ms; latencies between machines are no better"
            )
        })
    }
}

fn is_unconfirmed(activity: &Activity) -> bool {
    match activity {
        Activity::Messages(messages) => {
            messages.topology.publishers() > 0
                && messages.topology.subscribers() == 0
                && messages.qos.as_u8() == 0
        }
        _ => false,
    }
}

fn seconds_between(start: &Moment, end: &Moment) -> f64 {
    let ns = end.mark_ns.saturating_sub(start.mark_ns);
    Duration::from_nanos(ns.max(1)).as_secs_f64()
}

/// All workers' findings as one.
struct Merged {
    /// By part.
    findings: Vec<Findings>,
    /// By part and publisher.
    acknowledged: Vec<Vec<u32>>,
    connect: Histogram<u64>,
    subscribe: Histogram<u64>,
    deliver: Histogram<u64>,
    acknowledge: Histogram<u64>,
    due_to_sent: Histogram<u64>,
    tool_lateness: Histogram<u64>,
}

impl Merged {
    fn new(played: &Played) -> Self {
        let of_part = |number: usize| {
            let finishes = played.finishes.iter();
            finishes.filter_map(move |finish| finish.parts.get(number))
        };
        let all_of = |select: fn(&PartFinish) -> &Vec<(u64, u64)>| {
            let mut all = histogram();
            for part in played.finishes.iter().flat_map(|finish| &finish.parts) {
                add_buckets(&mut all, select(part));
            }
            all
        };
        let mut connect = histogram();
        let mut subscribe = histogram();
        for finish in &played.finishes {
            add_buckets(&mut connect, &finish.connect);
            add_buckets(&mut subscribe, &finish.subscribe);
        }
        let findings = played.sent.iter().enumerate().map(|(number, sent)| {
            let of_workers: Vec<Findings> = of_part(number).map(|p| p.findings.clone()).collect();
            Findings::merge(&of_workers, sent)
        });
        let acknowledged = (0..played.sent.len()).map(|number| {
            of_part(number)
                .flat_map(|p| p.acknowledged.clone())
                .collect()
        });
        Self {
            findings: findings.collect(),
            acknowledged: acknowledged.collect(),
            connect,
            subscribe,
            deliver: all_of(|part| &part.deliver),
            acknowledge: all_of(|part| &part.acknowledge),
            due_to_sent: all_of(|part| &part.due_to_sent),
            tool_lateness: all_of(|part| &part.tool_lateness),
        }
    }

    /// A loss that the standard allows.
    fn lost_at_qos_0(&self, workload: &Workload) -> Option<String> {
        let lost = |(part, findings): (&Part, &Findings)| match &part.activity {
            Activity::Messages(messages) if messages.delivery_qos() == QoS::AtMostOnce => {
                findings.faults().lost
            }
            _ => 0,
        };
        let lost: u64 = workload.parts.iter().zip(&self.findings).map(lost).sum();
        (lost > 0).then(|| {
            format!("{lost} of the messages lost were delivered at QoS 0, at which a broker may drop them")
        })
    }

    fn counts(&self, progress: &Progress) -> Counts {
        let mut counts = Counts {
            sent: progress.totals.sent,
            acknowledged: progress.totals.acknowledged,
            delivered: progress.totals.delivered,
            disconnects: progress.disconnects,
            ..Counts::default()
        };
        for faults in self.findings.iter().map(Findings::faults) {
            counts.lost += faults.lost;
            counts.duplicated += faults.duplicated;
            counts.reordered += faults.reordered;
            counts.stray += faults.stray;
        }
        counts
    }

    fn latencies(&self) -> Latencies {
        Latencies {
            connect: latency(&self.connect),
            subscribe: latency(&self.subscribe),
            acknowledge: latency(&self.acknowledge),
            deliver: latency(&self.deliver),
            tool_lateness: latency(&self.tool_lateness),
            due_to_sent: latency(&self.due_to_sent),
        }
    }

    /// Those with faults, worst first. Publishers of several parts are numbered through.
    fn publishers(&self, sent: &[Vec<u32>]) -> Vec<PublisherCounts> {
        let mut all = Vec::new();
        let mut first = 0;
        for (number, findings) in self.findings.iter().enumerate() {
            let at = |counts: &[Vec<u32>], publisher: usize| {
                let count = counts
                    .get(number)
                    .and_then(|of_part| of_part.get(publisher));
                u64::from(count.copied().unwrap_or(0))
            };
            let faulty = findings
                .tallies
                .iter()
                .enumerate()
                .filter(|(_, t)| t.is_faulty());
            all.extend(faulty.map(|(publisher, tally)| {
                let Tally {
                    delivered,
                    lost,
                    duplicated,
                    reordered,
                } = *tally;
                PublisherCounts {
                    publisher: (first + publisher) as u32,
                    sent: at(sent, publisher),
                    acknowledged: at(&self.acknowledged, publisher),
                    delivered,
                    lost,
                    duplicated,
                    reordered,
                }
            }));
            first += findings.tallies.len();
        }
        all.sort_by_key(|p: &PublisherCounts| {
            std::cmp::Reverse(p.lost + p.duplicated + p.reordered)
        });
        all.truncate(NAMED_PUBLISHERS);
        all
    }
}

pub(crate) fn latency(histogram: &Histogram<u64>) -> Option<Latency> {
    if histogram.is_empty() {
        return None;
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e6;
    Some(Latency {
        count: histogram.len(),
        mean_ms: histogram.mean() / 1e6,
        p50_ms: at(0.5),
        p95_ms: at(0.95),
        p99_ms: at(0.99),
        p999_ms: at(0.999),
        max_ms: histogram.max() as f64 / 1e6,
        buckets_ns: buckets(histogram),
    })
}

/// Those of TBMQ's report for its own scenario and for groups that are listed as in its files.
fn columns(workload: &Workload, plan: Option<&Plan>) -> Columns {
    let is_listed = |part: &Part| match &part.activity {
        Activity::Messages(messages) => matches!(messages.topology, Topology::Listed(_)),
        _ => false,
    };
    let is_of_report = plan.is_some_and(|plan| plan.source == Source::Tbmq);
    if is_of_report || workload.parts.iter().any(is_listed) {
        Columns::DeliveryAndAcknowledgement
    } else {
        Columns::Headline
    }
}

fn published_figures(plan: &Plan) -> Option<PublishedFigures> {
    let row: &Published = plan.published?;
    let as_published = Plan::of_row(plan.published?);
    Some(PublishedFigures {
        source: row.source.to_owned(),
        product: row.product.to_owned(),
        version: row.version.to_owned(),
        section: row.section.to_owned(),
        connections: row.connections.map(|connections| connections as u64),
        messages_per_second: row.total_per_second,
        connects_per_second: as_published.as_ref().and_then(|plan| plan.connect_rate),
        mean_ms: row.mean_ms,
        p99_ms: row.p99_ms,
        cpu_percent: row.cpu_percent,
        memory_gb: row.memory_gb.to_owned(),
        note: row.note.to_owned(),
        p95_ms: row.p95_ms,
        acknowledge_mean_ms: row.acknowledge_mean_ms,
        acknowledge_p95_ms: row.acknowledge_p95_ms,
        load: as_published.as_ref().map(full_load).unwrap_or_default(),
        scaling: as_published.map_or_else(Scaling::default, |full| scaling(&full, plan)),
    })
}

/// What part of a scenario in full size is played.
fn scaling(full: &Plan, played: &Plan) -> Scaling {
    let share = |played: f64, full: f64| if full > 0.0 { played / full } else { 1.0 };
    let rates = match full.rate > 0.0 {
        true => (played.rate, full.rate),
        false => (
            played.connect_rate.unwrap_or(1.0),
            full.connect_rate.unwrap_or(1.0),
        ),
    };
    Scaling {
        connections: share(played.connections() as f64, full.connections() as f64),
        rate: share(rates.0, rates.1),
    }
}

fn full_load(plan: &Plan) -> Load {
    if plan.rate == 0.0 {
        return Load::default();
    }
    Load {
        qos: Some(QosNumber(plan.qos.as_u8())),
        payload: Some(PayloadBytes(plan.payload_len as u64)),
        rate: Some(plan.rate),
    }
}

/// What each publisher sends, where all parts with publishers agree.
fn load(workload: &Workload) -> Load {
    let publishing = workload
        .parts
        .iter()
        .filter_map(|part| match &part.activity {
            Activity::Messages(messages) if messages.topology.publishers() > 0 => Some(messages),
            _ => None,
        });
    let loads = publishing.map(|messages| Load {
        qos: Some(QosNumber(messages.qos.as_u8())),
        payload: Some(PayloadBytes(messages.payload_len as u64)),
        rate: match messages.pace {
            Pace::Open { per_second } => Some(per_second / messages.topology.publishers() as f64),
            Pace::Closed { .. } => None,
        },
    });
    let agreed = loads.reduce(|one, other| Load {
        qos: one.qos.filter(|_| one.qos == other.qos),
        payload: one.payload.filter(|_| one.payload == other.payload),
        rate: one.rate.filter(|_| one.rate == other.rate),
    });
    agreed.unwrap_or_default()
}

#[cfg(test)]
mod tests;
