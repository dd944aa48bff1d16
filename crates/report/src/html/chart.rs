//! A chart of lines as SVG that stands in a page.
//!
//! Invariant: what is drawn lies within the axes, and a line has no more points than can be told apart.
//!
//! Deliberately absent: texts of records; title, legend and caption are HTML.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::axis::{Axis, Unit};
use super::escaped::Escaped;

/// Twice as large as the page shows it: the library puts points on whole pixels.
const SIZE: (u32, u32) = (880, 480);

/// Points of a line; more would lie on the same pixels.
const POINTS: usize = 1_600;

/// Of text, as the library counts: 1.24 times what it writes.
const TEXT: f64 = 28.0 * 1.24;

/// Room for texts around the plot, in pixels.
const LEFT: u32 = 126;
const BELOW: u32 = 52;
const ABOVE: u32 = 14;
const RIGHT: u32 = 40;

/// Places of a chart at most that show figures when one points at them.
const PLACES: usize = 240;

/// Height of a mark, of that of the chart.
const MARK: f64 = 0.07;

const GRID: RGBColor = RGBColor(0xe5, 0xe9, 0xf0);
const FRAME: RGBColor = RGBColor(0xb6, 0xbf, 0xcc);
const LABEL: RGBColor = RGBColor(0x5b, 0x66, 0x77);
const SHADE: RGBColor = RGBColor(0xf1, 0xf3, 0xf7);
const LEVEL: RGBColor = RGBColor(0x64, 0x70, 0x82);

/// Told apart by people who are colour-blind too; after the last they begin again.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x1f, 0x6f, 0xeb),
    RGBColor(0xe8, 0x6a, 0x17),
    RGBColor(0x0f, 0x9d, 0x7a),
    RGBColor(0x9b, 0x3f, 0xc9),
    RGBColor(0xc9, 0x25, 0x4c),
    RGBColor(0x8a, 0x6d, 0x0b),
    RGBColor(0x17, 0xa2, 0xc4),
    RGBColor(0x4b, 0x55, 0x63),
];

/// A chart as it stands in the page.
pub(super) struct Drawing {
    pub(super) title: String,
    /// Beside the title.
    pub(super) unit: String,
    /// An `svg` element.
    pub(super) svg: String,
    /// Below; may be empty.
    pub(super) caption: String,
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weight {
    /// What the chart is about.
    Thick,
    /// What stands behind it.
    Thin,
    /// What is told apart from both.
    Dashed,
}

/// Points that are connected, and gaps where there are none.
pub(super) struct Line {
    /// Of the record, which decides the colour.
    pub(super) record: usize,
    pub(super) weight: Weight,
    /// In ascending order; a `None` interrupts the line.
    pub(super) points: Vec<Option<(f64, f64)>>,
    /// What it is, for one who points at it.
    pub(super) name: String,
}

impl Line {
    /// The figure that is nearest to a place, if it is nearer than `reach`.
    fn near(&self, place: f64, reach: f64) -> Option<f64> {
        let distance = |x: f64| (x - place).abs();
        let points = self.points.iter().flatten();
        let nearest = points.min_by(|(a, _), (b, _)| distance(*a).total_cmp(&distance(*b)));
        nearest
            .filter(|(x, _)| distance(*x) <= reach)
            .map(|&(_, figure)| figure)
    }
}

/// What is drawn.
pub(super) struct Chart {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Parts of the x axis that are not measured.
    pub(super) shades: Vec<Range<f64>>,
    /// Dashed horizontal lines.
    pub(super) levels: Vec<f64>,
    /// Moments, as short strokes on the x axis.
    pub(super) marks: Vec<Mark>,
    /// Of the figures that one who points at a place is shown; `None`: none are.
    pub(super) pointed: Option<Unit>,
}

/// Something that happened.
pub(super) struct Mark {
    /// Of the record, which decides the colour.
    pub(super) record: usize,
    /// When.
    pub(super) at: f64,
}

type Fault<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;
type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;

/// The colour of a record's lines, for style sheets.
pub(super) fn css_color(record: usize) -> String {
    let RGBColor(red, green, blue) = color(record);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn color(record: usize) -> RGBColor {
    COLORS[record % COLORS.len()]
}

impl Chart {
    /// An `svg` element, or a paragraph that says why it could not be drawn.
    pub(super) fn svg(&self) -> String {
        let mut svg = String::new();
        let drawn = self.draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area());
        match drawn.map_err(|fault| fault.to_string()) {
            Ok(()) => self.with_figures(svg),
            Err(fault) => format!("<p>not drawn: {}</p>\n", Escaped(&fault)),
        }
    }

    /// Adds invisible strips whose titles, which browsers show beside the pointer, have the figures of each place.
    fn with_figures(&self, mut svg: String) -> String {
        let (Some(unit), Some(end)) = (self.pointed, svg.rfind("</svg>")) else {
            return svg;
        };
        let mut strips = String::new();
        let longest = self.lines.iter().max_by_key(|line| line.points.len());
        let xs = longest.map(|line| line.points.iter().flatten().map(|&(x, _)| x));
        let inside = |x: &f64| (self.x.start..=self.x.end).contains(x);
        let xs: Vec<f64> = xs.into_iter().flatten().filter(inside).collect();
        let step = xs.len().div_ceil(PLACES).max(1);
        let places: Vec<f64> = xs.into_iter().step_by(step).collect();
        let width = f64::from(SIZE.0 - LEFT - RIGHT);
        let pixel =
            |x: f64| f64::from(LEFT) + (x - self.x.start) / (self.x.end - self.x.start) * width;
        for (index, &place) in places.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| places.get(before));
            let from = before.map_or(self.x.start, |before| before.midpoint(place));
            let after = places.get(index + 1);
            let to = after.map_or(self.x.end, |after| after.midpoint(place));
            let reach = (to - from).max(f64::MIN_POSITIVE);
            let mut title = Unit::Seconds.text(place);
            for line in &self.lines {
                if let Some(figure) = line.near(place, reach) {
                    title += &format!("\n{}: {}", line.name, unit.text(figure));
                }
            }
            strips += &format!(
                "<rect x=\"{:.1}\" y=\"{ABOVE}\" width=\"{:.1}\" height=\"{}\" fill=\"#000\" \
                 fill-opacity=\"0\"><title>{}</title></rect>\n",
                pixel(from),
                pixel(to) - pixel(from),
                SIZE.1 - ABOVE - BELOW,
                Escaped(&title)
            );
        }
        svg.insert_str(end, &strips);
        svg
    }

    fn draw<'a>(&self, canvas: &Canvas<'a>) -> Result<(), Fault<'a>> {
        let mut plot = ChartBuilder::on(canvas)
            .margin_top(ABOVE)
            .margin_right(RIGHT)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        self.draw_shades(&mut plot)?;
        self.draw_grid(&mut plot)?;
        self.draw_levels(&mut plot)?;
        for weight in [Weight::Thin, Weight::Dashed, Weight::Thick] {
            for line in self.lines.iter().filter(|line| line.weight == weight) {
                self.draw_line(&mut plot, line)?;
            }
        }
        self.draw_marks(&mut plot)?;
        canvas.present()
    }

    fn draw_marks<'a>(&self, plot: &mut Plot<'a, '_>) -> Result<(), Fault<'a>> {
        let top = self.y.start + (self.y.end - self.y.start) * MARK;
        let inside = |mark: &&Mark| (self.x.start..=self.x.end).contains(&mark.at);
        for mark in self.marks.iter().filter(inside) {
            let ends = [(mark.at, self.y.start), (mark.at, top)];
            plot.draw_series(LineSeries::new(ends, color(mark.record).stroke_width(6)))?;
        }
        Ok(())
    }

    fn draw_shades<'a>(&self, plot: &mut Plot<'a, '_>) -> Result<(), Fault<'a>> {
        let shades = self.shades.iter().map(|shade| {
            let corners = [(shade.start, self.y.start), (shade.end, self.y.end)];
            Rectangle::new(corners, SHADE.filled())
        });
        plot.draw_series(shades)?;
        Ok(())
    }

    fn draw_grid<'a>(&self, plot: &mut Plot<'a, '_>) -> Result<(), Fault<'a>> {
        plot.configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(FRAME.stroke_width(2))
            .set_all_tick_mark_size(6)
            .label_style(("sans-serif", TEXT).into_font().color(&LABEL))
            .draw()
    }

    fn draw_levels<'a>(&self, plot: &mut Plot<'a, '_>) -> Result<(), Fault<'a>> {
        for &level in &self.levels {
            let ends = [(self.x.start, level), (self.x.end, level)];
            plot.draw_series(DashedLineSeries::new(ends, 12, 8, LEVEL.stroke_width(3)))?;
        }
        Ok(())
    }

    fn draw_line<'a>(&self, plot: &mut Plot<'a, '_>, line: &Line) -> Result<(), Fault<'a>> {
        let color = color(line.record);
        let style = match line.weight {
            Weight::Thick => color.stroke_width(4),
            Weight::Thin => color.mix(0.6).stroke_width(2),
            Weight::Dashed => color.stroke_width(3),
        };
        let inside = |&(x, y): &(f64, f64)| {
            (self.x.start..=self.x.end).contains(&x) && (self.y.start..=self.y.end).contains(&y)
        };
        for run in line.points.split(Option::is_none) {
            let points: Vec<_> = run.iter().flatten().copied().filter(inside).collect();
            match points[..] {
                [] => {}
                [point] => drop(plot.draw_series([Circle::new(point, 4, color.filled())])?),
                _ if line.weight == Weight::Dashed => {
                    let dashes = DashedLineSeries::new(extremes(&points), 14, 8, style);
                    plot.draw_series(dashes)?;
                }
                _ => drop(plot.draw_series(LineSeries::new(extremes(&points), style))?),
            }
        }
        Ok(())
    }
}

/// Of many points the lowest and the highest of each neighbourhood, so that no peak is lost.
fn extremes(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS {
        return points.to_vec();
    }
    let neighbours = points.chunks(points.len().div_ceil(POINTS / 2));
    neighbours.flat_map(lowest_and_highest).collect()
}

/// In the order in which they stand.
fn lowest_and_highest(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + use<> {
    let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let ends = [
        points.iter().min_by(by_height).copied(),
        points.iter().max_by(by_height).copied(),
    ];
    let is_falling = ends[0].map(|low| low.0) > ends[1].map(|high| high.0);
    let ends = if is_falling { [ends[1], ends[0]] } else { ends };
    ends.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<Option<(f64, f64)>>) -> Chart {
        Chart {
            x: Axis::ending_at(10.0, Unit::Seconds),
            y: Axis::up_to(9.0, Unit::Ms),
            lines: vec![Line {
                record: 0,
                weight: Weight::Thick,
                points,
                name: "a <b>".to_owned(),
            }],
            shades: Vec::new(),
            levels: Vec::new(),
            marks: Vec::new(),
            pointed: Some(Unit::Ms),
        }
    }

    #[test]
    fn one_who_points_at_a_place_is_shown_its_figures() {
        let points = vec![Some((1.0, 1.5)), Some((2.0, 2.5)), None, Some((4.0, 3.5))];
        let svg = chart(points.clone()).svg();
        let titles: Vec<&str> = svg.split("<title>").skip(1).collect();
        assert_eq!(titles.len(), 3, "{svg}");
        assert!(
            titles[1].starts_with("2.0 s\na &lt;b&gt;: 2.50 ms</title>"),
            "{svg}"
        );
        let many = (0..10_000)
            .map(|x| Some((f64::from(x) / 1e3, 1.0)))
            .collect();
        assert!(chart(many).svg().matches("<title>").count() <= PLACES);
        let silent = Chart {
            pointed: None,
            ..chart(points)
        };
        assert!(!silent.svg().contains("<title>"));
    }

    #[test]
    fn a_gap_interrupts_the_line_and_a_lone_point_is_a_dot() {
        let whole = vec![Some((0.0, 1.0)), Some((1.0, 2.0))];
        let color = css_color(0).to_uppercase();
        let lines = |svg: &str| {
            let in_color = svg.lines().filter(|line| line.contains(&color));
            in_color
                .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&chart(whole.clone()).svg()), ["<polyline"]);
        let broken = [
            whole.clone(),
            vec![None],
            whole,
            vec![None, Some((9.0, 1.0))],
        ];
        let svg = chart(broken.concat()).svg();
        assert_eq!(lines(&svg), ["<polyline", "<polyline", "<circle"]);
    }

    #[test]
    fn labels_are_written() {
        let svg = chart(Vec::new()).svg();
        assert!(
            svg.contains("\n10 ms\n") || svg.contains(">\n10 ms"),
            "{svg}"
        );
        assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
    }

    #[test]
    fn a_long_line_keeps_its_peaks() {
        let mut points: Vec<_> = (0..100_000).map(|x| (f64::from(x), 1.0)).collect();
        points[54_321].1 = 7.0;
        points[54_322].1 = 0.0;
        let fewer = extremes(&points);
        assert!(fewer.len() <= POINTS, "{}", fewer.len());
        assert!(fewer.is_sorted_by(|a, b| a.0 <= b.0));
        assert!(fewer.contains(&(54_321.0, 7.0)) && fewer.contains(&(54_322.0, 0.0)));
    }

    #[test]
    fn what_lies_outside_the_axes_is_not_drawn() {
        let outside = [
            (-5.0, 1.0),
            (1.0, f64::NAN),
            (f64::INFINITY, 1.0),
            (1.0, 1e300),
        ];
        let svg = chart(outside.map(Some).to_vec()).svg();
        let color = css_color(0).to_uppercase();
        assert!(!svg.contains(&color), "{svg}");
    }
}
