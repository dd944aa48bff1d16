//! A profile as a flame graph: a picture (SVG) in which each function is as wide as it was seen often, above the function that called it.
//!
//! Deliberately absent: scripts, so that any viewer shows the picture and a page with a strict policy may embed it. A browser enlarges it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::stacks::NamedStack;

/// Of the picture, in px.
const WIDTH: f64 = 1_600.0;

/// Of a function, in px.
const ROW: usize = 17;

/// Above and below the functions, in px.
const MARGIN: usize = 30;

/// Of a letter of the font below, in px.
const LETTER: f64 = 6.7;

/// What is narrower is not drawn, in px: 10,000 stacks would make a file that no viewer opens.
const NARROWEST: f64 = 0.2;

/// A function below the same callers.
#[derive(Default)]
struct Node<'a> {
    count: i64,
    callees: BTreeMap<&'a str, Self>,
}

impl<'a> Node<'a> {
    /// All threads of a profile.
    fn of(stacks: &'a [NamedStack]) -> Self {
        let mut root = Self::default();
        for stack in stacks {
            root.count += stack.count;
            let mut node = &mut root;
            let functions = stack.functions.iter().rev();
            let functions = functions.map(|named| named.function.as_str());
            for name in std::iter::once(stack.thread.as_str()).chain(functions) {
                node = node.callees.entry(name).or_default();
                node.count += stack.count;
            }
        }
        root
    }

    /// Rows that are drawn, this one included, if a sample is `sample` px wide.
    fn rows(&self, sample: f64) -> usize {
        let drawn = self.callees.values().filter(|it| it.is_drawn(sample));
        1 + drawn.map(|it| it.rows(sample)).max().unwrap_or(0)
    }

    fn is_drawn(&self, sample: f64) -> bool {
        self.count as f64 * sample >= NARROWEST
    }
}

/// Writes SVG of 1,600 px by 17 px for each level of calls. A rectangle has the whole name, the number of samples, and their share as
/// its tooltip. Functions whose rectangle would be narrower than 0.2 px are left out, with those that they call.
///
/// # Errors
/// `to` takes nothing.
pub(super) fn write(title: &str, stacks: &[NamedStack], to: impl Write) -> io::Result<()> {
    let root = Node::of(stacks);
    let sample = WIDTH / root.count.max(1) as f64;
    let rows = root.rows(sample);
    let height = rows * ROW + 2 * MARGIN;
    let mut drawing = Drawing {
        to,
        all: root.count.max(1),
        sample,
        bottom: height - MARGIN,
    };
    let (middle, title) = (WIDTH / 2.0, escaped(title));
    writeln!(
        drawing.to,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">
<rect width="100%" height="100%" fill="#fffaf0"/>
<text x="{middle}" y="20" font-size="15" text-anchor="middle">{title}</text>"##
    )?;
    drawing.node("all threads", &root, 0.0, 0)?;
    writeln!(drawing.to, "</svg>")?;
    drawing.to.flush()
}

struct Drawing<W> {
    to: W,
    /// Samples of the profile.
    all: i64,
    /// Width of one, in px.
    sample: f64,
    /// Where the lowest row ends, in px from above.
    bottom: usize,
}

impl<W: Write> Drawing<W> {
    /// A function that begins `x` px from the left, and what it calls.
    fn node(&mut self, name: &str, node: &Node<'_>, x: f64, level: usize) -> io::Result<()> {
        let width = node.count as f64 * self.sample;
        let y = self.bottom - (level + 1) * ROW;
        let whole = escaped(name);
        let seen = text_table::units::counted(node.count.unsigned_abs(), "sample", "samples");
        let share = node.count as f64 * 100.0 / self.all as f64;
        writeln!(
            self.to,
            r#"<g><title>{whole} ({seen}, {share:.2} %)</title><rect x="{x:.2}" y="{y}" width="{:.2}" height="{}" rx="1" fill="{}"/>{}</g>"#,
            // A line of background before the next rectangle, where there is room.
            (width - 0.5).max(NARROWEST),
            ROW - 1,
            colour(name),
            match clipped(name, width) {
                Some(text) => format!(
                    r#"<text x="{:.2}" y="{}">{}</text>"#,
                    x + 3.0,
                    y + 12,
                    escaped(&text)
                ),
                None => String::new(),
            }
        )?;
        let mut x = x;
        for (name, callee) in &node.callees {
            if callee.is_drawn(self.sample) {
                self.node(name, callee, x, level + 1)?;
            }
            x += callee.count as f64 * self.sample;
        }
        Ok(())
    }
}

/// What of a name is shown in so many px; `None`: there is room for nothing that says something.
fn clipped(name: &str, width: f64) -> Option<String> {
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    if name.chars().count() <= room {
        return Some(name.to_owned());
    }
    let kept: String = name.chars().take(room.checked_sub(2)?).collect();
    (room > 4).then(|| kept + "..")
}

/// Between red and yellow, the same for the same name.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!(
        "hsl({},{}%,{}%)",
        hash % 50,
        75 + hash / 64 % 20,
        62 + hash / 2_048 % 10
    )
}

/// As text of XML, which has no control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::stacks::tests::stack;
    use super::*;

    fn drawn(stacks: &[NamedStack]) -> String {
        let mut svg = Vec::new();
        write("CPU of <a>", stacks, &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    #[test]
    fn a_graph_has_callees_above_their_callers_as_wide_as_they_were_seen_often() {
        let svg = drawn(&[
            stack("loop-0", 3, &["copy", "<[T; 4]>::walk", "main"]),
            stack("loop-1", 1, &["main"]),
        ]);
        assert!(svg.contains(">CPU of &lt;a&gt;</text>"), "{svg}");
        let rectangle = |title: &str| {
            let title = format!("<title>{title}</title>");
            let mut lines = svg.lines().filter(|line| line.contains(&title));
            let line = lines.next().unwrap_or_else(|| panic!("{title}: {svg}"));
            assert_eq!(lines.next(), None, "{title}");
            let value = |name: &str| -> f64 {
                let (_, value) = line
                    .split_once(&format!("<rect {name}"))
                    .unwrap_or_else(|| line.split_once(&format!(" {name}")).unwrap());
                value.split('"').nth(1).unwrap().parse().unwrap()
            };
            (value("x="), value("y="), value("width="))
        };
        let bottom = 5.0 * ROW as f64 + MARGIN as f64;
        let at = |level: f64| bottom - level * ROW as f64;
        let expected = [
            ("all threads (4 samples, 100.00 %)", (0.0, at(1.0), 1_599.5)),
            ("loop-0 (3 samples, 75.00 %)", (0.0, at(2.0), 1_199.5)),
            ("main (3 samples, 75.00 %)", (0.0, at(3.0), 1_199.5)),
            (
                "&lt;[T; 4]&gt;::walk (3 samples, 75.00 %)",
                (0.0, at(4.0), 1_199.5),
            ),
            ("copy (3 samples, 75.00 %)", (0.0, at(5.0), 1_199.5)),
            ("loop-1 (1 sample, 25.00 %)", (1_200.0, at(2.0), 399.5)),
            ("main (1 sample, 25.00 %)", (1_200.0, at(3.0), 399.5)),
        ];
        for (title, place) in expected {
            assert_eq!(rectangle(title), place, "{title}");
        }
        assert!(!svg.contains("script"));
    }

    #[test]
    fn what_is_too_narrow_to_be_seen_is_left_out_and_what_follows_keeps_its_place() {
        let svg = drawn(&[
            stack("loop-0", 1, &["rare", "main"]),
            stack("loop-0", 9_999, &["seen", "main"]),
        ]);
        assert!(
            !svg.contains("rare")
                && svg.contains(r#"<title>seen (9,999 samples, 99.99 %)</title><rect x="0.16""#),
            "{svg}"
        );
    }

    #[test]
    fn a_name_is_cut_off_where_its_rectangle_ends() {
        let width = |letters: f64| letters * LETTER + 6.5;
        assert_eq!(
            clipped("net::turn", width(9.0)).as_deref(),
            Some("net::turn")
        );
        assert_eq!(
            clipped("net::turn", width(8.0)).as_deref(),
            Some("net::t..")
        );
        assert_eq!(clipped("net::turn", width(4.0)), None);
        assert_eq!(clipped("net::turn", 0.3), None);
        assert_eq!(colour("net::turn"), colour("net::turn"));
        assert_ne!(colour("net::turn"), colour("net::read"));
    }
}
