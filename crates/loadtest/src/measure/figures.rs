//! A run as tables with the columns of the reports, as warnings, and as JSON.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::Measured;
use crate::plan::Plan;
use crate::process::Cpu;
use crate::published::Published;
use crate::report::{Table, histogram_json, latency_json};
use crate::scenario::Topology;

/// Share of its one core from which the tool, if it is late at all, counts as the limit. By itself the
/// share says little: with time to spare the tool wakes for each message, pressed it takes many at once.
const TOOL_BUSY: f64 = 0.8;

/// Part of the latency that the tool's own lateness may be.
const LATENESS_PART: u64 = 4;

/// Lateness that is never blamed on the tool: what a machine that does other things too shows.
const LATENESS_NS: u64 = 1_000_000;

/// Share of the messages asked for below which the load was not kept up.
const KEPT_UP: f64 = 0.98;

/// Shown where there is no figure.
const NONE: &str = "-";

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Topology::Idle { .. } = self.plan.topology {
            writeln!(f, "{}", self.connection_table())?;
        } else {
            writeln!(f, "{}\n{}", self.message_table(), self.fault_table())?;
        }
        write!(f, "{}", self.cpu_table())
    }
}

impl Measured {
    /// The latency that the reports would show: to delivery, or to acknowledgement where nobody
    /// subscribes.
    fn latency(&self) -> &Histogram<u64> {
        match self.plan.topology {
            Topology::FanIn { .. } => &self.outcome.acknowledgement,
            _ => &self.outcome.delivery,
        }
    }

    fn message_table(&self) -> Table {
        let mut table = Table::new([
            "",
            "total msg/s",
            "mean ms",
            "p99 ms",
            "max ms",
            "CPU %",
            "memory",
        ]);
        let asked = format!("{:.0}", self.plan.total_per_second());
        table.row(["asked for", &asked, NONE, NONE, NONE, NONE, NONE]);
        let [mean, p99, max] = latency_cells(self.latency());
        let rate = format!("{:.0}", self.messages_per_second());
        let cpu = self.broker.map(|b| of_machine(b.measuring, self.time));
        table.row([
            "measured",
            &rate,
            &mean,
            &p99,
            &max,
            &percent(cpu),
            &self.memory(),
        ]);
        if let Some(row) = self.plan.published {
            table.row([
                label(row),
                number(row.total_per_second),
                number(row.mean_ms),
                number(row.p99_ms),
                NONE.to_owned(),
                number(row.cpu_percent),
                gigabytes(row),
            ]);
        }
        table
    }

    fn connection_table(&self) -> Table {
        let mut table = Table::new([
            "",
            "connections",
            "connects/s",
            "mean ms",
            "p99 ms",
            "max ms",
            "CPU %",
            "memory",
            "KB each",
        ]);
        let connections = self.plan.connections();
        let rate = connections as f64 / self.connect_time.as_secs_f64();
        let [mean, p99, max] = latency_cells(&self.outcome.connecting);
        let cpu = self
            .broker
            .map(|b| of_machine(b.connecting, self.connect_time));
        let each = self.broker.map(|b| {
            let grown = b.resident.saturating_sub(b.resident_before);
            grown as f64 / 1024.0 / connections as f64
        });
        table.row([
            "measured".to_owned(),
            connections.to_string(),
            format!("{rate:.0}"),
            mean,
            p99,
            max,
            percent(cpu),
            self.memory(),
            each.map_or_else(|| NONE.to_owned(), |each| format!("{each:.1}")),
        ]);
        if let Some(row) = self.plan.published {
            let connections = row.connections.map(|connections| connections as f64);
            let rate = self.plan.published_connect_rate();
            table.row([
                label(row),
                number(connections),
                number(rate),
                NONE.to_owned(),
                NONE.to_owned(),
                NONE.to_owned(),
                number(row.cpu_percent),
                gigabytes(row),
            ]);
        }
        table
    }

    fn fault_table(&self) -> Table {
        let mut table = Table::new([
            "whole run",
            "sent",
            "acknowledged",
            "delivered",
            "lost",
            "duplicated",
            "reordered",
            "stray",
        ]);
        let (totals, faults) = (&self.outcome.totals, &self.outcome.faults);
        let counts = [
            totals.sent,
            totals.acknowledged,
            totals.delivered,
            faults.lost,
            faults.duplicated,
            faults.reordered,
            faults.stray,
        ];
        let cells = counts.iter().map(u64::to_string);
        table.row(["messages".to_owned()].into_iter().chain(cells));
        table
    }

    fn cpu_table(&self) -> Table {
        let mut table = Table::new([
            "",
            "user s",
            "system s",
            "% of a core",
            "µs per message",
            "late p99 ms",
        ]);
        let mut row = |name: &str, cpu: Cpu, late: String| {
            table.row([
                name.to_owned(),
                format!("{:.2}", cpu.user.as_secs_f64()),
                format!("{:.2}", cpu.system.as_secs_f64()),
                format!("{:.1}", of_core(cpu, self.time) * 100.0),
                self.us_per_message(cpu)
                    .map_or_else(|| NONE.to_owned(), |us| format!("{us:.2}")),
                late,
            ]);
        };
        if let Some(broker) = self.broker {
            row("broker", broker.measuring, NONE.to_owned());
        }
        let [_, late, _] = latency_cells(&self.outcome.lateness);
        row("this tool", self.tool, late);
        table
    }

    fn us_per_message(&self, cpu: Cpu) -> Option<f64> {
        let messages = self.messages();
        (messages > 0).then(|| cpu.total().as_secs_f64() * 1e6 / messages as f64)
    }

    fn memory(&self) -> String {
        self.broker.map_or_else(
            || NONE.to_owned(),
            |broker| format!("{:.1} MB", broker.resident as f64 / 1e6),
        )
    }

    /// What keeps the figures from meaning what they seem to, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let share = of_core(self.tool, self.time);
        let late_ns = self.outcome.lateness.value_at_quantile(0.99);
        let latency_ns = self.latency().value_at_quantile(0.99);
        let is_late = late_ns > LATENESS_NS;
        if is_late && (share >= TOOL_BUSY || late_ns > latency_ns / LATENESS_PART) {
            warnings.push(format!(
                "this tool was the limit, not only the broker: it used {:.0} % of its one core and was \
                 late by {:.1} ms (p99); use a lower --scale or --rate-scale",
                share * 100.0,
                late_ns as f64 / 1e6,
            ));
        }
        let asked = self.plan.total_per_second();
        if asked > 0.0 && self.messages_per_second() < asked * KEPT_UP {
            warnings.push(format!(
                "the load was not kept up: {:.0} of {asked:.0} msg/s",
                self.messages_per_second()
            ));
        }
        if let Topology::FanIn { .. } = self.plan.topology
            && self.plan.qos.as_u8() == 0
        {
            warnings.push(
                "QoS 0 without subscribers: counted is what was sent; nobody confirms that the broker \
                 took it"
                    .to_owned(),
            );
        }
        if self.plan.nodes > 1 {
            warnings.push(format!(
                "the report's cluster had {} nodes; this run loads one",
                self.plan.nodes
            ));
        }
        warnings
    }

    /// All figures, with the histograms bucket by bucket.
    #[must_use]
    pub fn json(&self) -> Value {
        let cpu_json = |cpu: Cpu| {
            json!({
                "user_s": cpu.user.as_secs_f64(),
                "system_s": cpu.system.as_secs_f64(),
                "share_of_core": of_core(cpu, self.time),
                "us_per_message": self.us_per_message(cpu),
            })
        };
        let (outcome, totals, faults) = (&self.outcome, self.outcome.totals, self.outcome.faults);
        json!({
            "plan": self.plan.json(),
            "published": self.plan.published.map(published_json),
            "cores": cores(),
            "seconds": self.time.as_secs_f64(),
            "connect_seconds": self.connect_time.as_secs_f64(),
            "messages_per_second": self.messages_per_second(),
            "whole_run": {
                "sent": totals.sent,
                "acknowledged": totals.acknowledged,
                "delivered": totals.delivered,
                "lost": faults.lost,
                "duplicated": faults.duplicated,
                "reordered": faults.reordered,
                "stray": faults.stray,
            },
            "broker": self.broker.map(|broker| json!({
                "measuring": cpu_json(broker.measuring),
                "connecting_s": broker.connecting.total().as_secs_f64(),
                "cpu_percent_of_machine": of_machine(broker.measuring, self.time),
                "resident_bytes_before": broker.resident_before,
                "resident_bytes": broker.resident,
            })),
            "tool": cpu_json(self.tool),
            "warnings": self.warnings(),
            "histograms": {
                "publish_to_deliver": histogram_json(&outcome.delivery),
                "publish_to_acknowledge": histogram_json(&outcome.acknowledgement),
                "connect_and_subscribe": histogram_json(&outcome.connecting),
                "due_to_sent": histogram_json(&outcome.lag),
                "tool_lateness": histogram_json(&outcome.lateness),
            },
            "latency": latency_json(self.latency()),
        })
    }
}

impl Plan {
    /// The plan as JSON; a rate or count that the report leaves out is null.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "name": self.to_string(),
            "source": self.source.to_string(),
            "topology": self.topology.to_string(),
            "publishers": self.topology.publishers(),
            "subscribers": self.topology.subscribers(),
            "background": self.background,
            "rate_per_publisher": self.rate,
            "asked_messages_per_second": self.total_per_second(),
            "payload_bytes": self.payload_len,
            "qos": self.qos.as_u8(),
            "clean_session": self.clean_session,
            "nodes": self.nodes,
            "voters": self.voters,
            "connect_rate": self.connect_rate,
        })
    }

    fn published_connect_rate(&self) -> Option<f64> {
        let as_published = self.published.and_then(Self::of_row);
        as_published.and_then(|plan| plan.connect_rate)
    }
}

fn published_json(row: &Published) -> Value {
    json!({
        "source": row.source,
        "product": row.product,
        "version": row.version,
        "section": row.section,
        "scenario": row.scenario,
        "messages_per_second": row.total_per_second,
        "mean_ms": row.mean_ms,
        "p99_ms": row.p99_ms,
        "cpu_percent_of_machine": row.cpu_percent,
        "memory_gb": row.memory_gb,
        "note": row.note,
    })
}

fn label(row: &Published) -> String {
    format!("published, {} {}", row.product, row.version)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| NONE.to_owned(), |percent| format!("{percent:.1}"))
}

fn gigabytes(row: &Published) -> String {
    match row.memory_gb {
        "" => NONE.to_owned(),
        memory => format!("{memory} GB"),
    }
}

/// Mean, p99 and maximum in ms.
fn latency_cells(histogram: &Histogram<u64>) -> [String; 3] {
    if histogram.is_empty() {
        return [(); 3].map(|()| NONE.to_owned());
    }
    let p99 = histogram.value_at_quantile(0.99) as f64;
    [histogram.mean(), p99, histogram.max() as f64].map(|ns| format!("{:.2}", ns / 1e6))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// 1 is a whole core.
fn of_core(cpu: Cpu, time: Duration) -> f64 {
    cpu.total().as_secs_f64() / time.as_secs_f64()
}

/// In percent of all cores, as the reports have it.
fn of_machine(cpu: Cpu, time: Duration) -> f64 {
    of_core(cpu, time) * 100.0 / cores() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Traffic;

    /// A second in which all that was asked for arrived, and the tool used this many ms.
    fn measured(name: &str, tool_ms: u64) -> Measured {
        let plan: Plan = name.parse().unwrap();
        let mut outcome = Traffic::new(&Topology::Idle { connections: 0 }).outcome();
        outcome.delivery.record(8_000_000).unwrap();
        outcome.totals.delivered = plan.total_per_second() as u64;
        Measured {
            totals: outcome.totals,
            outcome,
            plan,
            time: Duration::from_secs(1),
            connect_time: Duration::from_secs(1),
            broker: None,
            tool: Cpu {
                user: Duration::from_millis(tool_ms),
                system: Duration::ZERO,
            },
        }
    }

    #[test]
    fn a_busy_or_late_tool_is_the_limit() {
        let name = "2k_2k_qos0_p32_100mps_1n";
        let mut idle = measured(name, 500);
        assert_eq!(idle.warnings(), [""; 0]);
        idle.outcome.lateness.record(1_900_000).unwrap();
        assert_eq!(idle.warnings(), [""; 0]);
        for _ in 0..2 {
            idle.outcome.lateness.record(2_100_000).unwrap();
        }
        assert!(
            idle.warnings()[0].contains("2.1 ms"),
            "{:?}",
            idle.warnings()
        );
        let mut busy = measured(name, 800);
        assert_eq!(busy.warnings(), [""; 0]);
        busy.outcome.lateness.record(1_100_000).unwrap();
        let busy = busy.warnings();
        assert!(busy[0].contains("80 % of its one core"), "{busy:?}");
    }

    #[test]
    fn a_load_that_was_not_kept_up_is_told() {
        let mut slow = measured("2k_2k_qos0_p32_100mps_3n", 0);
        slow.totals.delivered = 190_000;
        let warnings = slow.warnings();
        assert!(warnings[0].contains("190000 of 200000"), "{warnings:?}");
        assert!(warnings[1].contains("3 nodes"), "{warnings:?}");
    }

    #[test]
    fn the_published_figures_stand_below_the_measured_ones() {
        let text = measured("2k_2k_qos0_p32_100mps_1n", 0).to_string();
        let published = text.lines().nth(3).unwrap_or_default();
        let cells: Vec<&str> = published.split_whitespace().collect();
        let expected = [
            "published,",
            "BifroMQ",
            "2.1",
            "200000",
            "3.22",
            "24.11",
            "-",
            "80",
            "5-10",
            "GB",
        ];
        assert_eq!(cells, expected, "{text}");
    }
}
