//! The chart of latency by percentile, from the buckets of the whole run.
//!
//! Deliberately absent: percentiles that rest on less than one message.

use super::axis::Axis;
use super::chart::{Chart, Drawing, Line, Weight};
use crate::record::{Latency, Record};

/// Percentiles with a tick. Each further nine takes as much room as the one before.
const TICKS: [(f64, &str); 6] = [
    (0.5, "50"),
    (0.75, "75"),
    (0.9, "90"),
    (0.99, "99"),
    (0.999, "99.9"),
    (0.9999, "99.99"),
];

/// Points between the first and the last percentile.
const STEPS: u32 = 120;

/// The chart of the headline latencies; `None` if no record has buckets of at least two messages.
pub(super) fn drawing(records: &[&Record]) -> Option<Drawing> {
    let latencies = records.iter().map(|record| record.headline_latency());
    let lines: Vec<Line> = latencies
        .enumerate()
        .zip(records)
        .filter_map(|((number, latency), record)| Some((number, latency?, record)))
        .filter_map(|(number, latency, record)| line(number, &record.label, latency))
        .collect();
    if lines.is_empty() {
        return None;
    }
    let figures = lines.iter().flat_map(|line| line.points.iter().flatten());
    let figures = figures.map(|&(_, figure)| figure);
    let lowest = figures.clone().fold(f64::INFINITY, f64::min);
    let highest = figures.fold(f64::NEG_INFINITY, f64::max);
    let chart = Chart {
        x: nines_axis(),
        y: decades_axis(lowest, highest),
        lines,
        shades: Vec::new(),
        levels: Vec::new(),
        marks: Vec::new(),
        pointed: None,
    };
    let kind = records.first()?.headline_kind();
    Some(Drawing {
        title: "Latency by percentile".to_owned(),
        unit: kind.map_or_else(String::new, |kind| kind.title.to_owned()),
        svg: chart.svg(),
        caption: "each step to the right leaves out a tenth of the messages that were left; \
                  logarithmic upwards"
            .to_owned(),
    })
}

/// How many nines a share has: 1 at 90 %, 2 at 99 %.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// The share that so many nines leave out.
fn left(nines: f64) -> f64 {
    10_f64.powf(-nines)
}

fn nines_axis() -> Axis {
    let ticks = TICKS.map(|(share, text)| (nines(share), text.to_owned()));
    Axis {
        start: nines(TICKS[0].0),
        end: nines(TICKS[TICKS.len() - 1].0),
        ticks: ticks.to_vec(),
    }
}

/// From the tick below `lowest` to the tick above `highest`, both logarithms of ms; with ticks at 2 and 5
/// if there are few decades.
fn decades_axis(lowest: f64, highest: f64) -> Axis {
    let (first, last) = (lowest.floor() as i32, highest.ceil() as i32);
    let factors: &[i32] = if last - first <= 2 { &[1, 2, 5] } else { &[1] };
    let all: Vec<(f64, String)> = (first..=last)
        .flat_map(|decade| factors.iter().map(move |&factor| tick(decade, factor)))
        .collect();
    let below = all.iter().rposition(|&(at, _)| at <= lowest).unwrap_or(0);
    let above = all.iter().position(|&(at, _)| at > highest);
    let above = above.unwrap_or(all.len() - 1).max(below + 1);
    let ticks = all[below..=above].to_vec();
    Axis {
        start: ticks[0].0,
        end: ticks[ticks.len() - 1].0,
        ticks,
    }
}

fn tick(decade: i32, factor: i32) -> (f64, String) {
    let ms = f64::from(factor) * 10_f64.powi(decade);
    let decimals = (-decade).max(0) as usize;
    (ms.log10(), format!("{ms:.decimals$} ms"))
}

/// `None` if there is less than one message beyond the first percentile.
fn line(record: usize, label: &str, latency: &Latency) -> Option<Line> {
    let counts = latency.buckets_ns.iter().map(|&(_, count)| count);
    let total = counts.map(u128::from).sum();
    let (first, last) = (nines(TICKS[0].0), nines(TICKS[TICKS.len() - 1].0));
    let points: Vec<Option<(f64, f64)>> = (0..=STEPS)
        .map(|step| first + (last - first) * f64::from(step) / f64::from(STEPS))
        .take_while(|nines| left(*nines) * total as f64 >= 1.0)
        .map(|nines| {
            let ns = at_most(&latency.buckets_ns, total, 1.0 - left(nines));
            Some((nines, (ns.max(1) as f64 / 1e6).log10()))
        })
        .collect();
    (!points.is_empty()).then_some(Line {
        record,
        weight: Weight::Thick,
        points,
        name: label.to_owned(),
    })
}

/// The time that this share of all is not above.
fn at_most(buckets_ns: &[(u64, u64)], total: u128, share: f64) -> u64 {
    let wanted = (share * total as f64).ceil() as u128;
    let mut passed = 0;
    let mut reached = buckets_ns.iter().skip_while(|&&(_, count)| {
        passed += u128::from(count);
        passed < wanted
    });
    let found = reached.next().or(buckets_ns.last());
    found.map_or(0, |&(highest_ns, _)| highest_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_share_is_found_in_its_bucket() {
        let buckets = [(10, 50), (20, 40), (30, 9), (40, 1)];
        let found = [0.5, 0.51, 0.9, 0.99, 1.0].map(|share| at_most(&buckets, 100, share));
        assert_eq!(found, [10, 20, 20, 30, 40]);
    }

    #[test]
    fn a_line_ends_where_less_than_one_message_is_left() {
        let mut latency = fixture::pairs("a", 1.0).latencies.deliver.unwrap();
        latency.buckets_ns = vec![(1_000_000, 90), (10_000_000, 10)];
        let points = line(0, "a", &latency).unwrap().points;
        let last = points.last().unwrap().unwrap();
        assert!((1.95..=2.0).contains(&last.0), "{last:?}");
        assert!((last.1 - 1.0).abs() < 1e-9, "{last:?}");
        latency.buckets_ns = vec![(1_000_000, 1)];
        assert!(line(0, "a", &latency).is_none());
        latency.buckets_ns.clear();
        assert!(line(0, "a", &latency).is_none());
    }

    #[test]
    fn decades_surround_what_is_shown() {
        let texts = |lowest: f64, highest: f64| {
            let axis = decades_axis(lowest.log10(), highest.log10());
            axis.ticks
                .into_iter()
                .map(|(_, text)| text)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            texts(0.3, 4.0),
            ["0.2 ms", "0.5 ms", "1 ms", "2 ms", "5 ms"]
        );
        assert_eq!(
            texts(0.05, 70.0),
            ["0.01 ms", "0.1 ms", "1 ms", "10 ms", "100 ms"]
        );
        assert_eq!(texts(1.0, 1.0), ["1 ms", "2 ms"]);
    }
}
