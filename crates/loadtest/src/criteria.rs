//! What a run must show for its rate to hold: `p99<20ms,loss=0`.
//!
//! A list, separated by commas, of figure, relation and value:
//!
//! - `mean`, `p50`, `p95`, `p99`, `p999` and `max` of the headline latency, or of another one as in
//!   `connect.p99`, `subscribe.p99`, `ack.p99` and `deliver.p99`; values such as `20ms`;
//! - `loss`, `duplicated`, `reordered`, `stray` and `disconnects`; a count, or a share such as `0.01%`:
//!   of the deliveries that should have come, of those that came, and of the connections;
//! - `cpu`, in percent of the whole machine; `memory`, such as `2GB`; both are of all processes of the
//!   broker that are watched;
//! - `rate`, what came out in percent of what was asked for.
//!
//! Invariant: what was not measured does not hold.
//!
//! Deliberately absent: choosing the rates to judge; that is `search.rs`.

use std::fmt;
use std::str::FromStr;

use report::{Counts, Latencies, Latency, Record};

/// What a run must show. Its `Display` is read as the same criteria.
#[derive(Clone, Debug)]
pub struct Criteria(List<Figure>);

/// What came of judging a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether no criterion is broken.
    pub holds: bool,
    /// A sentence for each criterion that is, such as `p99 31.2 ms is not < 20 ms`.
    pub broken: Vec<String>,
}

/// Why criteria are not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CriteriaError {
    /// A criterion has no relation, and so perhaps no value.
    NoRelation(String),
    /// There is no such relation.
    Relation(String),
    /// There is no such figure.
    Figure {
        /// As it was written.
        name: String,
        /// The known figure that looks most like it.
        nearest: String,
        /// All figures that there are.
        known: Vec<String>,
    },
    /// The value does not fit the figure.
    Value {
        /// The figure.
        figure: String,
        /// The value as it was written.
        value: String,
        /// What should be there.
        expected: &'static str,
    },
}

impl fmt::Display for CriteriaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRelation(part) => write!(
                f,
                "`{part}` should be a figure, one of < <= = >= >, and a value, such as p99<20ms"
            ),
            Self::Relation(sign) => write!(f, "`{sign}` should be one of < <= = >= >"),
            Self::Figure {
                name,
                nearest,
                known,
            } => write!(
                f,
                "`{name}` is no figure; the nearest is `{nearest}`; there are {}",
                known.join(", ")
            ),
            Self::Value {
                figure,
                value,
                expected,
            } => write!(f, "`{value}` for {figure} should be {expected}"),
        }
    }
}

impl std::error::Error for CriteriaError {}

impl FromStr for Criteria {
    type Err = CriteriaError;

    fn from_str(text: &str) -> Result<Self, CriteriaError> {
        List::parse(text, &()).map(Self)
    }
}

impl fmt::Display for Criteria {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What criteria can be about.
pub(crate) trait Figured: fmt::Display + Copy {
    /// What decides which figures there are.
    type Scope;
    /// What is judged.
    type Run;

    /// The figure of this name, if there is one.
    fn find(name: &str, scope: &Self::Scope) -> Option<Self>;

    /// The names of all figures.
    fn known(scope: &Self::Scope) -> Vec<String>;

    /// The units of its values, and what to say of other values.
    fn values(&self) -> (&'static [Unit], &'static str);

    /// The unit tells counts from shares.
    fn in_unit(self, unit: &Unit) -> Self;

    /// Its value in the smallest unit, or why there is none.
    fn measured(&self, run: &Self::Run) -> Result<f64, &'static str>;
}

/// Criteria of one kind of runs.
#[derive(Clone, Debug)]
pub(crate) struct List<F>(Vec<Criterion<F>>);

impl<F: Figured> List<F> {
    pub(crate) fn parse(text: &str, scope: &F::Scope) -> Result<Self, CriteriaError> {
        let criteria = text.split(',').map(|one| Criterion::parse(one, scope));
        criteria.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn judge(&self, run: &F::Run) -> Verdict {
        Verdict::of(self.0.iter(), run)
    }
}

impl<F: fmt::Display> fmt::Display for List<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, criterion) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{criterion}")?;
        }
        Ok(())
    }
}

impl Verdict {
    fn of<'a, F: Figured + 'a>(
        criteria: impl Iterator<Item = &'a Criterion<F>>,
        run: &F::Run,
    ) -> Self {
        let broken: Vec<_> = criteria.filter_map(|one| one.broken(run)).collect();
        Self {
            holds: broken.is_empty(),
            broken,
        }
    }
}

impl Criteria {
    /// Judges a run by these criteria alone.
    #[must_use]
    pub fn judge_alone(&self, record: &Record) -> Verdict {
        self.0.judge(record)
    }

    /// Judges a run by all criteria and, unless one of them is about the rate, by `rate>=98%`; the latter
    /// only where messages are asked for.
    #[must_use]
    pub fn judge(&self, record: &Record) -> Verdict {
        let says_rate = |criterion: &Criterion<Figure>| matches!(criterion.figure, Figure::Rate);
        let asks_for_messages = record.asked_per_second != 0.0;
        let kept_up = (asks_for_messages && !self.0.0.iter().any(says_rate)).then_some(KEPT_UP);
        Verdict::of(self.0.0.iter().chain(&kept_up), record)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Criterion<F> {
    figure: F,
    relation: Relation,
    value: Value,
}

/// Judged unless a criterion is about the rate. A broker that did not keep up may have fine latencies
/// for what it did do.
const KEPT_UP: Criterion<Figure> = Criterion {
    figure: Figure::Rate,
    relation: Relation::AtLeast,
    value: Value {
        number: 98.0,
        unit: &PERCENT,
    },
};

impl<F: Figured> Criterion<F> {
    fn parse(text: &str, scope: &F::Scope) -> Result<Self, CriteriaError> {
        let text = text.trim();
        let is_sign = |character: char| "<>=!".contains(character);
        let no_relation = || CriteriaError::NoRelation(text.to_owned());
        let at = text.find(is_sign).ok_or_else(no_relation)?;
        let (name, rest) = text.split_at(at);
        let value = rest.trim_start_matches(is_sign);
        let (sign, _) = rest.split_at(rest.len() - value.len());
        let relation = Relation::parse(sign)?;
        let name = name.trim();
        let figure =
            F::find(name, scope).ok_or_else(|| CriteriaError::unknown::<F>(name, scope))?;
        let value = Value::parse(value.trim(), &figure)?;
        Ok(Self {
            figure: figure.in_unit(value.unit),
            relation,
            value,
        })
    }

    /// What to say if the run breaks it.
    fn broken(&self, run: &F::Run) -> Option<String> {
        let figure = self.figure;
        let measured = match figure.measured(run) {
            Ok(measured) => measured,
            Err(reason) => return Some(format!("{figure} was not measured: {reason}")),
        };
        let relation = self.relation;
        if relation.holds(measured, self.value.in_smallest_unit()) {
            return None;
        }
        let Value { number, unit } = self.value;
        let measured = unit.spaced(&rounded(measured / unit.scale, number));
        let bound = unit.spaced(&number.to_string());
        Some(format!("{figure} {measured} is not {relation} {bound}"))
    }
}

impl<F: fmt::Display> fmt::Display for Criterion<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Value { number, unit } = self.value;
        write!(f, "{}{}{number}{}", self.figure, self.relation, unit.name)
    }
}

/// At most three decimals, unless these would make it look like `bound`.
fn rounded(number: f64, bound: f64) -> String {
    let short = (number * 1e3).round() / 1e3;
    let shown = if short == bound { number } else { short };
    shown.to_string()
}

#[derive(Clone, Copy, Debug)]
enum Relation {
    Below,
    AtMost,
    Equal,
    AtLeast,
    Above,
}

impl Relation {
    fn parse(sign: &str) -> Result<Self, CriteriaError> {
        match sign {
            "<" => Ok(Self::Below),
            "<=" => Ok(Self::AtMost),
            "=" => Ok(Self::Equal),
            ">=" => Ok(Self::AtLeast),
            ">" => Ok(Self::Above),
            _ => Err(CriteriaError::Relation(sign.to_owned())),
        }
    }

    /// False for what is no number.
    fn holds(self, measured: f64, bound: f64) -> bool {
        match self {
            Self::Below => measured < bound,
            Self::AtMost => measured <= bound,
            Self::Equal => measured == bound,
            Self::AtLeast => measured >= bound,
            Self::Above => measured > bound,
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Below => "<",
            Self::AtMost => "<=",
            Self::Equal => "=",
            Self::AtLeast => ">=",
            Self::Above => ">",
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    /// How many of the smallest unit of its kind.
    scale: f64,
}

impl Unit {
    /// For a sentence: words stand apart from their number, signs do not.
    fn spaced(&self, number: &str) -> String {
        let is_word = self.name.starts_with(char::is_alphabetic);
        let space = if is_word { " " } else { "" };
        format!("{number}{space}{}", self.name)
    }
}

const fn unit(name: &'static str, scale: f64) -> Unit {
    Unit { name, scale }
}

const NO_UNIT: Unit = unit("", 1.0);
pub(crate) const PERCENT: Unit = unit("%", 1.0);

pub(crate) static TIMES: [Unit; 6] = [
    unit("ns", 1.0),
    unit("µs", 1e3),
    unit("μs", 1e3), // the Greek letter rather than the micro sign; they look the same
    unit("us", 1e3),
    unit("ms", 1e6),
    unit("s", 1e9),
];

static SIZES: [Unit; 9] = [
    unit("B", 1.0),
    unit("KB", 1e3),
    unit("MB", 1e6),
    unit("GB", 1e9),
    unit("TB", 1e12),
    unit("KiB", 1024.0),
    unit("MiB", 1_048_576.0),
    unit("GiB", 1_073_741_824.0),
    unit("TiB", 1_099_511_627_776.0),
];

pub(crate) static COUNT_OR_SHARE: [Unit; 2] = [NO_UNIT, PERCENT];
static PERCENTAGE: [Unit; 1] = [PERCENT];

pub(crate) const A_TIME: &str = "a time in ns, us, µs, ms or s, such as 20ms";
pub(crate) const A_COUNT_OR_SHARE: &str = "a whole number, or a share in percent such as 0.01%";

/// Why a figure was not measured.
pub(crate) const NO_LATENCY: &str = "no such latency was recorded";
pub(crate) const NO_SHARE: &str = "there was nothing to have a share of";

/// A number of a unit, as it was written.
#[derive(Clone, Copy, Debug)]
struct Value {
    number: f64,
    unit: &'static Unit,
}

impl Value {
    fn parse(text: &str, figure: &impl Figured) -> Result<Self, CriteriaError> {
        let (units, expected) = figure.values();
        let read = || {
            let is_part = |character: char| character.is_ascii_digit() || character == '.';
            let name = text.trim_start_matches(is_part);
            let (digits, _) = text.split_at(text.len() - name.len());
            let number: f64 = digits.parse().ok()?;
            let same = |unit: &&Unit| unit.name.eq_ignore_ascii_case(name.trim());
            let unit = units.iter().find(same)?;
            let is_possible =
                number.is_finite() && (!unit.name.is_empty() || number.fract() == 0.0);
            is_possible.then_some(Self { number, unit })
        };
        read().ok_or_else(|| CriteriaError::Value {
            figure: figure.to_string(),
            value: text.to_owned(),
            expected,
        })
    }

    /// What is converted is rounded to whole ns and bytes, as it is measured, so that 1.001 ms
    /// equals 1001 us.
    fn in_smallest_unit(&self) -> f64 {
        if self.unit.scale == 1.0 {
            return self.number;
        }
        (self.number * self.unit.scale).round()
    }
}

/// A figure of a record.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// In ns; of the headline latency if no other is named.
    Time(Option<&'static Interval>, &'static Statistic),
    Count(&'static Tally),
    /// The same in percent.
    Share(&'static Tally),
    /// In percent of the whole machine.
    Cpu,
    /// In bytes.
    Memory,
    /// In percent of what was asked for.
    Rate,
}

/// From where to where a latency runs.
#[derive(Debug)]
struct Interval {
    name: &'static str,
    /// The name of its field, by which records refer to it.
    field: &'static str,
    of: fn(&Latencies) -> Option<&Latency>,
}

static INTERVALS: [Interval; 4] = [
    Interval {
        name: "connect",
        field: "connect",
        of: |latencies| latencies.connect.as_ref(),
    },
    Interval {
        name: "subscribe",
        field: "subscribe",
        of: |latencies| latencies.subscribe.as_ref(),
    },
    Interval {
        name: "ack",
        field: "acknowledge",
        of: |latencies| latencies.acknowledge.as_ref(),
    },
    Interval {
        name: "deliver",
        field: "deliver",
        of: |latencies| latencies.deliver.as_ref(),
    },
];

/// A figure of a distribution.
#[derive(Debug)]
pub(crate) struct Statistic {
    pub(crate) name: &'static str,
    pub(crate) ms: fn(&Latency) -> f64,
}

const fn statistic(name: &'static str, ms: fn(&Latency) -> f64) -> Statistic {
    Statistic { name, ms }
}

pub(crate) static STATISTICS: [Statistic; 6] = [
    statistic("mean", |latency| latency.mean_ms),
    statistic("p50", |latency| latency.p50_ms),
    statistic("p95", |latency| latency.p95_ms),
    statistic("p99", |latency| latency.p99_ms),
    statistic("p999", |latency| latency.p999_ms),
    statistic("max", |latency| latency.max_ms),
];

impl Statistic {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        let name = if name == "p99.9" { "p999" } else { name };
        STATISTICS.iter().find(|statistic| statistic.name == name)
    }
}

/// Something that is counted one by one.
#[derive(Debug)]
struct Tally {
    name: &'static str,
    of: fn(&Counts) -> u64,
    /// What a share is of.
    whole: fn(&Record) -> u64,
}

static TALLIES: [Tally; 5] = [
    Tally {
        name: "loss",
        of: |counts| counts.lost,
        whole: |record| {
            let Counts {
                delivered,
                duplicated,
                stray,
                lost,
                ..
            } = record.counts;
            let arrived = delivered.saturating_sub(duplicated).saturating_sub(stray);
            arrived.saturating_add(lost)
        },
    },
    Tally {
        name: "duplicated",
        of: |counts| counts.duplicated,
        whole: |record| record.counts.delivered,
    },
    Tally {
        name: "reordered",
        of: |counts| counts.reordered,
        whole: |record| record.counts.delivered,
    },
    Tally {
        name: "stray",
        of: |counts| counts.stray,
        whole: |record| record.counts.delivered,
    },
    Tally {
        name: "disconnects",
        of: |counts| counts.disconnects,
        whole: |record| record.connections,
    },
];

impl Figure {
    fn named(name: &str) -> Option<Self> {
        let simple = match name {
            "cpu" => Some(Self::Cpu),
            "memory" => Some(Self::Memory),
            "rate" => Some(Self::Rate),
            "lost" => return Self::named("loss"),
            _ => None,
        };
        let tally = || TALLIES.iter().find(|tally| tally.name == name);
        simple
            .or_else(|| tally().map(Self::Count))
            .or_else(|| Self::time(name))
    }

    fn time(name: &str) -> Option<Self> {
        if let Some(statistic) = Statistic::find(name) {
            return Some(Self::Time(None, statistic));
        }
        let (interval, statistic) = name.split_once('.')?;
        let interval = INTERVALS.iter().find(|known| known.name == interval)?;
        Some(Self::Time(Some(interval), Statistic::find(statistic)?))
    }
}

impl Figured for Figure {
    type Scope = ();
    type Run = Record;

    fn find(name: &str, (): &()) -> Option<Self> {
        Self::named(name)
    }

    fn known((): &()) -> Vec<String> {
        known_figures()
    }

    fn values(&self) -> (&'static [Unit], &'static str) {
        match self {
            Self::Time(..) => (&TIMES, A_TIME),
            Self::Count(_) | Self::Share(_) => (&COUNT_OR_SHARE, A_COUNT_OR_SHARE),
            Self::Memory => (&SIZES, "a size in B, KB, MB, GB, TB, KiB, MiB, GiB or TiB"),
            Self::Cpu | Self::Rate => (&PERCENTAGE, "in percent, such as 80%"),
        }
    }

    fn in_unit(self, unit: &Unit) -> Self {
        match self {
            Self::Count(tally) if unit.name == PERCENT.name => Self::Share(tally),
            figure => figure,
        }
    }

    fn measured(&self, record: &Record) -> Result<f64, &'static str> {
        match self {
            Self::Time(interval, statistic) => {
                let interval = interval.or_else(|| headline(record));
                let latency = interval.and_then(|interval| (interval.of)(&record.latencies));
                let ms = (statistic.ms)(latency.ok_or(NO_LATENCY)?);
                Ok((ms * 1e6).round())
            }
            Self::Count(tally) => Ok((tally.of)(&record.counts) as f64),
            Self::Share(tally) => percent(
                (tally.of)(&record.counts) as f64,
                (tally.whole)(record) as f64,
            )
            .ok_or(NO_SHARE),
            Self::Cpu => cpu_percent(record),
            Self::Memory => memory_bytes(record),
            Self::Rate => percent(record.messages_per_second, record.asked_per_second)
                .ok_or("no messages were asked for"),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(None, statistic) => f.write_str(statistic.name),
            Self::Time(Some(interval), statistic) => {
                write!(f, "{}.{}", interval.name, statistic.name)
            }
            Self::Count(tally) | Self::Share(tally) => f.write_str(tally.name),
            Self::Cpu => f.write_str("cpu"),
            Self::Memory => f.write_str("memory"),
            Self::Rate => f.write_str("rate"),
        }
    }
}

fn headline(record: &Record) -> Option<&'static Interval> {
    INTERVALS
        .iter()
        .find(|interval| interval.field == record.headline)
}

const NOT_WATCHED: &str = "no process of the broker was watched";

/// Of the machine that the record names: the broker's processes are on it too if they are watched by
/// their identifiers.
fn cpu_percent(record: &Record) -> Result<f64, &'static str> {
    if record.system.is_empty() {
        return Err(NOT_WATCHED);
    }
    let used = record.system.iter();
    let used_s: f64 = used.map(|one| one.cpu_user_s + one.cpu_system_s).sum();
    let available_s = record.seconds * f64::from(record.machine.cores);
    percent(used_s, available_s).ok_or("the time or the cores are not known")
}

/// The most that each process held, in bytes of all together.
fn memory_bytes(record: &Record) -> Result<f64, &'static str> {
    if record.system.is_empty() {
        return Err(NOT_WATCHED);
    }
    let held = record
        .system
        .iter()
        .map(|one| one.resident_bytes_max as f64);
    Ok(held.sum())
}

/// `None` of nothing. Multiplied first, so that 29 of 100 are 29 exactly.
pub(crate) fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part * 100.0 / whole)
}

/// All figures, those of the headline latency first.
fn known_figures() -> Vec<String> {
    let others = ["cpu", "memory", "rate"];
    let headline = STATISTICS.iter().map(|statistic| statistic.name);
    let single = headline
        .chain(TALLIES.iter().map(|tally| tally.name))
        .chain(others)
        .map(str::to_owned);
    let of_intervals = INTERVALS.iter().flat_map(|interval| {
        let full = |statistic: &Statistic| format!("{}.{}", interval.name, statistic.name);
        STATISTICS.iter().map(full)
    });
    single.chain(of_intervals).collect()
}

impl CriteriaError {
    fn unknown<F: Figured>(name: &str, scope: &F::Scope) -> Self {
        let known = F::known(scope);
        let distance = |known: &&String| strsim::damerau_levenshtein(name, known);
        let nearest = known.iter().min_by_key(distance).cloned();
        Self::Figure {
            name: name.to_owned(),
            nearest: nearest.unwrap_or_default(),
            known,
        }
    }
}

#[cfg(test)]
mod tests;
