//! What a run without an end must show: `p99<20ms,not_sent=0`, as of [`crate::Criteria`], with figures of its own.
//!
//! - `mean`, `p50`, `p95`, `p99`, `p999` and `max`, and the same of each latency by its name: `connect.p99`; for
//!   subscribers `deliver.p99`; for publishers `send.p99` (from due to handed to the connection) and, above QoS 0,
//!   `ack.p99`. Without a name: `deliver`, `ack`, `send` or `connect`, the first of them that there is.
//! - `disconnects`, `connect_failures`, `not_connected`; for publishers `sent`, `not_sent`, `refused` and, above QoS 0,
//!   `unacknowledged`; for subscribers `received`. A count, or a share.
//! - `away`: the time without a connection after a break, of all clients together.
//!
//! Invariant: what was not measured does not hold.
//!
//! Deliberately absent: loss, which nobody knows here.

use std::fmt;

use mqtt_proto::QoS;
use report::{Latencies, Latency};

use super::counts::{Count, Counts};
use super::order::Activity;
use crate::criteria::{
    A_COUNT_OR_SHARE, A_TIME, COUNT_OR_SHARE, CriteriaError, Figured, List, NO_LATENCY, NO_SHARE,
    PERCENT, STATISTICS, Statistic, TIMES, Unit, Verdict, percent,
};

/// What a run must show.
#[derive(Clone, Debug)]
pub struct Criteria(List<Figure>);

/// What is judged.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// At the end.
    pub counts: Counts,
    /// Of the whole run.
    pub latencies: Latencies,
}

impl Criteria {
    /// Reads criteria for a run of clients that do this.
    ///
    /// # Errors
    /// A figure that such clients do not have, a relation or a value that there is not.
    pub fn parse(text: &str, activity: &Activity) -> Result<Self, CriteriaError> {
        List::parse(text, &Scope::of(activity)).map(Self)
    }

    /// Judges a run.
    #[must_use]
    pub fn judge(&self, outcome: &Outcome) -> Verdict {
        self.0.judge(outcome)
    }
}

/// Which figures there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    Connect,
    Subscribe,
    Publish,
    /// Above QoS 0.
    PublishAcknowledged,
}

impl Scope {
    fn of(activity: &Activity) -> Self {
        match activity {
            Activity::Connect => Self::Connect,
            Activity::Subscribe { .. } => Self::Subscribe,
            Activity::Publish(publishing) if publishing.qos == QoS::AtMostOnce => Self::Publish,
            Activity::Publish(_) => Self::PublishAcknowledged,
        }
    }

    fn intervals(self) -> impl Iterator<Item = &'static Interval> {
        INTERVALS
            .iter()
            .filter(move |one| one.scopes.contains(&self))
    }

    fn tallies(self) -> impl Iterator<Item = &'static Tally> {
        TALLIES.iter().filter(move |one| one.scopes.contains(&self))
    }
}

/// A figure of a run.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// In ns. Without a name if nobody wrote one.
    Time(&'static Interval, &'static Statistic, Named),
    Count(&'static Tally),
    /// The same in percent.
    Share(&'static Tally),
    /// In ns.
    Away,
}

/// Whether the latency was written before the statistic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named {
    Yes,
    No,
}

/// From where to where a latency runs.
#[derive(Debug)]
struct Interval {
    name: &'static str,
    scopes: &'static [Scope],
    of: fn(&Latencies) -> Option<&Latency>,
}

const ALL: &[Scope] = &[
    Scope::Connect,
    Scope::Subscribe,
    Scope::Publish,
    Scope::PublishAcknowledged,
];
const SUBSCRIBE: &[Scope] = &[Scope::Subscribe];
const PUBLISH: &[Scope] = &[Scope::Publish, Scope::PublishAcknowledged];
const ACKNOWLEDGED: &[Scope] = &[Scope::PublishAcknowledged];

/// The first one of a scope is meant where none is named.
static INTERVALS: [Interval; 4] = [
    Interval {
        name: "deliver",
        scopes: SUBSCRIBE,
        of: |latencies| latencies.deliver.as_ref(),
    },
    Interval {
        name: "ack",
        scopes: ACKNOWLEDGED,
        of: |latencies| latencies.acknowledge.as_ref(),
    },
    Interval {
        name: "send",
        scopes: PUBLISH,
        of: |latencies| latencies.due_to_sent.as_ref(),
    },
    Interval {
        name: "connect",
        scopes: ALL,
        of: |latencies| latencies.connect.as_ref(),
    },
];

/// Something that is counted one by one.
#[derive(Debug)]
struct Tally {
    name: &'static str,
    scopes: &'static [Scope],
    of: fn(&Counts) -> u64,
    /// What a share is of.
    whole: fn(&Counts) -> u64,
}

static TALLIES: [Tally; 8] = [
    Tally {
        name: "disconnects",
        scopes: ALL,
        of: |counts| counts[Count::Disconnects],
        whole: |counts| counts[Count::Connects],
    },
    Tally {
        name: "connect_failures",
        scopes: ALL,
        of: |counts| counts[Count::ConnectFailures],
        whole: |counts| counts[Count::Connects] + counts[Count::ConnectFailures],
    },
    Tally {
        name: "not_connected",
        scopes: ALL,
        of: |counts| counts[Count::NeverConnected],
        whole: |counts| counts[Count::ConnectsDue],
    },
    Tally {
        name: "sent",
        scopes: PUBLISH,
        of: |counts| counts[Count::Sent],
        whole: |counts| counts[Count::Due],
    },
    Tally {
        name: "not_sent",
        scopes: PUBLISH,
        of: Counts::not_sent,
        whole: |counts| counts[Count::Due],
    },
    Tally {
        name: "unacknowledged",
        scopes: ACKNOWLEDGED,
        of: Counts::unacknowledged,
        whole: |counts| counts[Count::Sent],
    },
    Tally {
        name: "refused",
        scopes: ACKNOWLEDGED,
        of: |counts| counts[Count::Refused],
        whole: |counts| counts[Count::Sent],
    },
    Tally {
        name: "received",
        scopes: SUBSCRIBE,
        of: |counts| counts[Count::Received],
        whole: |counts| counts[Count::Received],
    },
];

impl Figured for Figure {
    type Scope = Scope;
    type Run = Outcome;

    fn find(name: &str, scope: &Scope) -> Option<Self> {
        if name == "away" {
            return Some(Self::Away);
        }
        if let Some(tally) = scope.tallies().find(|tally| tally.name == name) {
            return Some(Self::Count(tally));
        }
        if let Some(statistic) = Statistic::find(name) {
            let interval = scope.intervals().next()?;
            return Some(Self::Time(interval, statistic, Named::No));
        }
        let (interval, statistic) = name.split_once('.')?;
        let interval = scope.intervals().find(|known| known.name == interval)?;
        Some(Self::Time(
            interval,
            Statistic::find(statistic)?,
            Named::Yes,
        ))
    }

    fn known(scope: &Scope) -> Vec<String> {
        let statistics = || STATISTICS.iter().map(|statistic| statistic.name);
        let tallies = scope.tallies().map(|tally| tally.name);
        let single = statistics().chain(tallies).chain(["away"]);
        let of_intervals = scope.intervals().flat_map(|interval| {
            statistics().map(move |statistic| format!("{}.{statistic}", interval.name))
        });
        single.map(str::to_owned).chain(of_intervals).collect()
    }

    fn values(&self) -> (&'static [Unit], &'static str) {
        match self {
            Self::Time(..) | Self::Away => (&TIMES, A_TIME),
            Self::Count(_) | Self::Share(_) => (&COUNT_OR_SHARE, A_COUNT_OR_SHARE),
        }
    }

    fn in_unit(self, unit: &Unit) -> Self {
        match self {
            Self::Count(tally) if unit.name == PERCENT.name => Self::Share(tally),
            figure => figure,
        }
    }

    fn measured(&self, run: &Outcome) -> Result<f64, &'static str> {
        let counts = &run.counts;
        match self {
            Self::Time(interval, statistic, _) => {
                let latency = (interval.of)(&run.latencies).ok_or(NO_LATENCY)?;
                Ok(((statistic.ms)(latency) * 1e6).round())
            }
            Self::Count(tally) => Ok((tally.of)(counts) as f64),
            Self::Share(tally) => {
                let (part, whole) = ((tally.of)(counts), (tally.whole)(counts));
                percent(part as f64, whole as f64).ok_or(NO_SHARE)
            }
            Self::Away => Ok(counts[Count::AwayMs] as f64 * 1e6),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(_, statistic, Named::No) => f.write_str(statistic.name),
            Self::Time(interval, statistic, Named::Yes) => {
                write!(f, "{}.{}", interval.name, statistic.name)
            }
            Self::Count(tally) | Self::Share(tally) => f.write_str(tally.name),
            Self::Away => f.write_str("away"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, scope: Scope) -> Result<Criteria, CriteriaError> {
        List::parse(text, &scope).map(Criteria)
    }

    fn outcome() -> Outcome {
        let mut counts = Counts::default();
        counts[Count::Due] = 200;
        counts[Count::Sent] = 150;
        counts[Count::NotSentAway] = 40;
        counts[Count::NotSentFull] = 10;
        counts[Count::Acknowledged] = 147;
        counts[Count::Refused] = 1;
        counts[Count::AwayMs] = 2_500;
        let latency = |p99_ms| Latency {
            count: 1,
            mean_ms: 1.0,
            p50_ms: 1.0,
            p95_ms: 1.0,
            p99_ms,
            p999_ms: 30.0,
            max_ms: 30.0,
            buckets_ns: Vec::new(),
        };
        let latencies = Latencies {
            acknowledge: Some(latency(20.0)),
            due_to_sent: Some(latency(10.0)),
            ..Latencies::default()
        };
        Outcome { counts, latencies }
    }

    fn broken(text: &str, scope: Scope) -> Vec<String> {
        parse(text, scope).unwrap().judge(&outcome()).broken
    }

    #[test]
    fn what_holds_and_what_does_not() {
        let publish = Scope::PublishAcknowledged;
        let holding =
            "p99=20ms,send.p99=10ms,sent=75%,not_sent=50,not_sent=25%,unacknowledged=2,away=2.5s";
        assert_eq!(broken(holding, publish), [""; 0]);
        assert_eq!(
            broken("not_sent=0,p99<20ms,connect.p99<1s", publish),
            [
                "not_sent 50 is not = 0",
                "p99 20 ms is not < 20 ms",
                "connect.p99 was not measured: no such latency was recorded",
            ]
        );
        assert_eq!(broken("p99=10ms", Scope::Publish), [""; 0], "send at QoS 0");
    }

    #[test]
    fn a_figure_of_other_clients_is_refused_with_the_list() {
        for (text, scope) in [
            ("loss=0", Scope::PublishAcknowledged),
            ("unacknowledged=0", Scope::Publish),
            ("ack.p99<1s", Scope::Publish),
            ("not_sent=0", Scope::Subscribe),
            ("received>1", Scope::Connect),
        ] {
            let error = parse(text, scope).unwrap_err().to_string();
            assert!(error.contains("is no figure"), "{text}: {error}");
            assert!(error.contains("there are mean, p50"), "{text}: {error}");
        }
    }
}
