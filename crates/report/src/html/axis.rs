//! Where the ticks of an axis stand and what is written at them.
//!
//! Invariant: an axis is longer than 0 and has few ticks, whatever figures it is made for.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use text_table::units;

/// Beyond this a figure is nonsense, and drawing it would overflow.
const LARGEST: f64 = 1e15;

/// Shorter axes would need more decimals than there is room for.
const SHORTEST: f64 = 1e-3;

/// What the figures of an axis are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// Things, or things per second.
    Count,
    /// Milliseconds.
    Ms,
    /// Percent.
    Percent,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// What one is divided by on an axis up to `end`, and how that is written.
    fn scale(self, end: f64) -> (f64, &'static str) {
        match self {
            Self::Count if end >= 2e6 => (1e6, "M"),
            Self::Count if end >= 2e3 => (1e3, "k"),
            Self::Count => (1.0, ""),
            Self::Ms => (1.0, " ms"),
            Self::Percent => (1.0, " %"),
            Self::Bytes if end >= 1e10 => (1e9, " GB"),
            Self::Bytes => (1e6, " MB"),
            Self::Seconds => (1.0, " s"),
        }
    }
}

impl Unit {
    /// A figure as a person reads it.
    pub(super) fn text(self, figure: f64) -> String {
        match self {
            Self::Count => units::rate(figure),
            Self::Ms => format!("{} ms", units::ms(figure)),
            Self::Percent => format!("{} %", units::one_decimal(figure)),
            Self::Bytes => units::bytes(figure),
            Self::Seconds => format!("{} s", units::one_decimal(figure)),
        }
    }
}

/// An axis with ticks at a text each.
#[derive(Clone)]
pub(super) struct Axis {
    /// Where it begins.
    pub(super) start: f64,
    /// Where it ends.
    pub(super) end: f64,
    /// In ascending order.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to a tick above `largest`.
    pub(super) fn up_to(largest: f64, unit: Unit) -> Self {
        let shortest = if unit == Unit::Bytes { 1e6 } else { SHORTEST };
        let step = step(within(largest, shortest) * 1.05 / 4.0);
        let intervals = (within(largest, shortest) * 1.05 / step).ceil();
        Self::stepped(intervals * step, step, unit)
    }

    /// From 0 to `largest` itself, which need not be a tick.
    pub(super) fn ending_at(largest: f64, unit: Unit) -> Self {
        let end = within(largest, 1.0);
        Self::stepped(end, step(end / 6.0), unit)
    }

    fn stepped(end: f64, step: f64, unit: Unit) -> Self {
        let (scale, suffix) = unit.scale(end);
        let decimals = (-(step / scale).log10().floor()).max(0.0) as usize;
        let intervals = (end / step + 1e-9) as u32;
        let tick = |index: u32| {
            let value = f64::from(index) * step;
            (value, format!("{:.decimals$}{suffix}", value / scale))
        };
        let zero = (0.0, "0".to_owned());
        Self {
            start: 0.0,
            end,
            ticks: std::iter::once(zero)
                .chain((1..=intervals).map(tick))
                .collect(),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.start) / (self.end - self.start);
        let share = share.clamp(0.0, 1.0);
        first + (f64::from(last - first) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|&(position, _)| position).collect()
    }

    fn range(&self) -> Range<f64> {
        self.start..self.end
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(position, _)| position == value);
        tick.map_or_else(String::new, |(_, text)| text.clone())
    }
}

/// Also for a figure that is not a number.
fn within(value: f64, shortest: f64) -> f64 {
    value.max(shortest).min(LARGEST)
}

/// The next of 1, 2 and 5 times a power of ten.
fn step(at_least: f64) -> f64 {
    let power = 10_f64.powf(at_least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    let enough = steps.into_iter().find(|&step| step >= at_least);
    enough.unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_end_above_the_largest() {
        let axis = Axis::up_to(49_987.0, Unit::Count);
        assert_eq!(texts(&axis), ["0", "20k", "40k", "60k"]);
        assert_eq!(axis.end, 60_000.0);
        let axis = Axis::up_to(0.7, Unit::Ms);
        assert_eq!(texts(&axis), ["0", "0.2 ms", "0.4 ms", "0.6 ms", "0.8 ms"]);
        let axis = Axis::up_to(61e6, Unit::Bytes);
        assert_eq!(texts(&axis), ["0", "20 MB", "40 MB", "60 MB", "80 MB"]);
    }

    #[test]
    fn time_ends_where_the_run_does() {
        let axis = Axis::ending_at(74.0, Unit::Seconds);
        assert_eq!(axis.end, 74.0);
        assert_eq!(texts(&axis), ["0", "20 s", "40 s", "60 s"]);
    }

    #[test]
    fn no_figure_makes_an_axis_empty_or_crowded() {
        let figures = [
            0.0,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::MAX,
            f64::MIN_POSITIVE,
        ];
        for figure in figures {
            for unit in [Unit::Count, Unit::Ms, Unit::Percent, Unit::Bytes] {
                for axis in [Axis::up_to(figure, unit), Axis::ending_at(figure, unit)] {
                    assert!(axis.end > axis.start && axis.end.is_finite(), "{figure}");
                    assert!((1..=8).contains(&axis.ticks.len()), "{figure} {unit:?}");
                }
            }
        }
    }
}
