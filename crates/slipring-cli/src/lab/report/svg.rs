//! Parts that all plots share: the frame, axes, markers of contenders, and texts for readers who do
//! not see the drawing.
//!
//! The drawings name classes of `style.css` in place of colours, so that one drawing suits light,
//! dark and printed pages. A contender has a colour, a marker and a dash pattern, and is recognised
//! by any one of them.

use maud::{Markup, Render, html};

use super::scale::Scale;
use crate::lab::wording::number;

/// Width of all drawings, in the drawing's units.
pub const WIDTH: f64 = 560.0;
/// Height of a line of text.
pub const LINE: f64 = 17.0;
/// Largest number of lines in a plot that writes each line's name at the line's end.
pub const NAMED_AT_MOST: usize = 10;
/// Width of names at the ends of lines.
const NAME_WIDTH: f64 = 140.0;

const COLOURS: usize = 8;
const SHAPES: usize = 7;
const DASHES: usize = 4;

/// A drawing with its texts.
#[derive(Debug)]
pub struct Plot {
    pub height: f64,
    pub title: String,
    /// The main figures in words.
    pub description: String,
    pub body: Markup,
}

impl Plot {
    /// Returns the drawing, whose texts have ids that begin with `id`.
    pub fn markup(&self, id: &str) -> Markup {
        let (title, text) = (format!("{id}-title"), format!("{id}-text"));
        let view = format!("0 0 {WIDTH} {:.0}", self.height);
        html! {
            div.scroll tabindex="0" role="group" aria-label=(format!("Plot: {}", self.title)) {
                svg role="img" viewBox=(view) aria-labelledby=(title) aria-describedby=(text) {
                    title id=(title) { (self.title) }
                    desc id=(text) { (self.description) }
                    (self.body)
                }
            }
        }
    }
}

/// A coordinate with one decimal.
#[derive(Clone, Copy, Debug)]
pub struct Px(pub f64);

impl Render for Px {
    fn render_to(&self, buffer: &mut String) {
        let rounded = if self.0.is_finite() { (self.0 * 10.0).round() / 10.0 } else { 0.0 };
        buffer.push_str(&rounded.to_string());
    }
}

/// Returns the `points` of a line or an area.
fn points(all: impl IntoIterator<Item = (f64, f64)>) -> String {
    let all: Vec<String> = all
        .into_iter()
        .map(|(x, y)| format!("{},{}", Px(x).render().0, Px(y).render().0))
        .collect();
    all.join(" ")
}

/// Draws a straight line.
pub fn stroke(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    html! {
        line class=(class) x1=(Px(from.0)) y1=(Px(from.1)) x2=(Px(to.0)) y2=(Px(to.1)) {}
    }
}

/// A point of a line: its horizontal place, and its spread.
#[derive(Clone, Copy, Debug)]
pub struct SpreadPoint {
    pub x: f64,
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

/// Draws a contender's line through the medians, and a band for their spreads. A single point gets
/// a whisker instead.
pub fn banded(index: usize, places: &[SpreadPoint]) -> Markup {
    let classes = classes(index);
    let above = places.iter().map(|place| (place.x, place.high));
    let below = places.iter().rev().map(|place| (place.x, place.low));
    let medians = places.iter().map(|place| (place.x, place.median));
    html! {
        @if let [SpreadPoint { x, low, high, .. }] = *places {
            (stroke(&format!("whisker {classes}"), (x, low), (x, high)))
        } @else {
            polygon class=(format!("band {classes}")) points=(points(above.chain(below))) {}
            polyline class=(format!("line {classes}")) points=(points(medians)) {}
        }
    }
}

/// Draws each contender's name at the end of its line, to the right of the frame.
pub fn end_labels(frame: &Frame, ends: &[(usize, &str, (f64, f64))]) -> Markup {
    let wanted: Vec<f64> = ends.iter().map(|(.., (_, y))| *y).collect();
    let places = spread_labels(&wanted, frame.top, frame.bottom);
    html! {
        @for ((index, name, (x, y)), place) in ends.iter().zip(places) {
            (stroke("leader", (x + 6.0, *y), (frame.right + 8.0, place)))
            @let class = format!("label {}", colour(*index));
            (label(&class, (frame.right + 11.0, place + 4.0), &shortened(name, NAME_WIDTH)))
        }
    }
}

/// Returns the margin that the longest name at the end of a line needs.
pub fn end_margin<'a>(names: impl Iterator<Item = &'a str>) -> f64 {
    names.map(text_width).fold(0.0, f64::max).clamp(30.0, NAME_WIDTH) + 22.0
}

/// Draws a text at a place. The class says whether the text begins, ends or is centred there.
pub fn label(class: &str, (x, y): (f64, f64), text: &str) -> Markup {
    html! { text class=(class) x=(Px(x)) y=(Px(y)) { (text) } }
}

/// Estimates the width of a text. The reader's font may be wide.
pub fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c as u32 >= 0x1100 { 13.5 } else { 7.2 }).sum()
}

/// Shortens a text to a width.
pub fn shortened(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        if text_width(&short) + 20.0 > width {
            break;
        }
        short.push(c);
    }
    short.trim_end().to_owned() + "…"
}

/// The area of a drawing in which values are plotted.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Frame {
    pub fn x(&self, place: f64) -> f64 {
        self.left + place * (self.right - self.left)
    }

    pub fn y(&self, place: f64) -> f64 {
        self.bottom - place * (self.bottom - self.top)
    }

    /// Draws a vertical axis with its ticks, and its title above.
    pub fn vertical_axis(&self, scale: &Scale, title: &str) -> Markup {
        html! {
            (label("axis", (2.0, 14.0), &with_kind(title, scale)))
            @for tick in scale.ticks(6) {
                @let y = self.y(scale.place_or_end(tick));
                (stroke("grid", (self.left, y), (self.right, y)))
                (label("tick end", (self.left - 6.0, y + 4.0), &tick_name(tick)))
            }
            (stroke("frame", (self.left, self.bottom), (self.right, self.bottom)))
        }
    }

    /// Draws the names of a horizontal axis above the frame, too, for tall plots.
    pub fn names_above(&self, scale: &Scale) -> Markup {
        html! {
            @for tick in scale.ticks(6) {
                @let x = self.x(scale.place_or_end(tick));
                (label("tick middle", (x, self.top - 4.0), &tick_name(tick)))
            }
        }
    }

    /// Draws a horizontal axis of a scale.
    pub fn horizontal_axis(&self, scale: &Scale, title: &str) -> Markup {
        let ticks = scale.ticks(6).into_iter();
        let places: Vec<(f64, String)> =
            ticks.map(|tick| (scale.place_or_end(tick), tick_name(tick))).collect();
        self.horizontal_ticks(&places, &with_kind(title, scale))
    }

    /// Draws a horizontal axis with ticks at some places. Names that would overlap are left out.
    pub fn horizontal_ticks(&self, ticks: &[(f64, String)], title: &str) -> Markup {
        let half = |name: &str| text_width(name) / 2.0 + 3.0;
        let mut begin = f64::NEG_INFINITY;
        // The last name is always shown.
        let last = ticks.last().map(|(place, name)| self.x(*place) - half(name));
        let shown: Vec<bool> = ticks
            .iter()
            .enumerate()
            .map(|(at, (place, name))| {
                let (x, half) = (self.x(*place), half(name));
                let end = if at + 1 == ticks.len() { None } else { last };
                let fits =
                    end.is_none() || (x - half >= begin && end.is_none_or(|end| x + half <= end));
                if fits {
                    begin = x + half;
                }
                fits
            })
            .collect();
        html! {
            @for ((place, name), shown) in ticks.iter().zip(shown) {
                @let x = self.x(*place);
                (stroke("grid", (x, self.top), (x, self.bottom)))
                @if shown {
                    (label("tick middle", (x, self.bottom + 17.0), name))
                }
            }
            (label("axis middle", ((self.left + self.right) / 2.0, self.bottom + 36.0), title))
        }
    }
}

fn with_kind(title: &str, scale: &Scale) -> String {
    if scale.is_logarithmic() { format!("{title} (logarithmic)") } else { title.to_owned() }
}

/// Formats a tick. A letter such as `k` stands for thousands and larger units.
pub fn tick_name(value: f64) -> String {
    let plain = |value: f64| format!("{}", (value * 1e6).round() / 1e6);
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.001 => format!("{value:e}"),
        size if size < 1e4 => plain(value),
        size if size < 1e6 => plain(value / 1e3) + "k",
        size if size < 1e9 => plain(value / 1e6) + "M",
        size if size < 1e12 => plain(value / 1e9) + "G",
        _ => format!("{value:.0e}"),
    }
}

/// Returns the class of a contender's colour.
pub fn colour(index: usize) -> String {
    format!("c{}", index % COLOURS)
}

/// Returns the classes of a contender's colour and dashes.
fn classes(index: usize) -> String {
    format!("{} d{}", colour(index), index % DASHES)
}

/// Draws a contender's marker.
pub fn marker(index: usize, x: f64, y: f64) -> Markup {
    const UP: [(f64, f64); 3] = [(0.0, -5.0), (4.8, 3.6), (-4.8, 3.6)];
    const DOWN: [(f64, f64); 3] = [(0.0, 5.0), (4.8, -3.6), (-4.8, -3.6)];
    const DIAMOND: [(f64, f64); 4] = [(0.0, -5.4), (5.4, 0.0), (0.0, 5.4), (-5.4, 0.0)];
    let circle = |class: &str, radius: f64| {
        let class = format!("{class} {}", colour(index));
        html! { circle class=(class) cx=(Px(x)) cy=(Px(y)) r=(Px(radius)) {} }
    };
    let polygon = |class: &str, corners: &[(f64, f64)]| {
        let class = format!("{class} {}", colour(index));
        let corners = points(corners.iter().map(|(dx, dy)| (x + dx, y + dy)));
        html! { polygon class=(class) points=(corners) {} }
    };
    let square = |half: f64| [(-half, -half), (half, -half), (half, half), (-half, half)];
    match index % SHAPES {
        0 => circle("marker", 4.0),
        1 => polygon("marker", &square(3.7)),
        2 => polygon("marker", &UP),
        3 => polygon("marker", &DIAMOND),
        4 => polygon("marker", &DOWN),
        5 => circle("hollow", 3.6),
        _ => polygon("hollow", &square(3.4)),
    }
}

/// Returns the list of contenders with their markers.
pub fn legend<'a>(names: impl IntoIterator<Item = (usize, &'a str)>, with_lines: bool) -> Markup {
    html! {
        ul.legend {
            @for (index, name) in names {
                li {
                    svg.sample viewBox="0 0 34 14" aria-hidden="true" {
                        @if with_lines {
                            (stroke(&format!("line {}", classes(index)), (1.0, 7.0), (33.0, 7.0)))
                        }
                        (marker(index, 17.0, 7.0))
                    }
                    span { (name) }
                }
            }
        }
    }
}

/// Chooses places for labels, in the labels' order. No label overlaps another, and each is as near
/// as possible to its wanted place.
fn spread_labels(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let distance = ((bottom - top) / wanted.len().max(1) as f64).min(LINE - 2.0);
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut places = wanted.to_vec();
    let mut next = top;
    for index in &order {
        places[*index] = places[*index].max(next);
        next = places[*index] + distance;
    }
    let mut limit = bottom;
    for index in order.iter().rev() {
        places[*index] = places[*index].min(limit);
        limit = places[*index] - distance;
    }
    places
}

/// Says a spread in words.
pub fn spread_text(spread: &crate::lab::statistics::Spread) -> String {
    if spread.low == spread.high {
        number(spread.median)
    } else {
        format!(
            "{} (quartiles {} and {})",
            number(spread.median),
            number(spread.low),
            number(spread.high)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_order_and_distance() {
        let wanted = [50.0, 50.0, 51.0, 10.0, 199.0];
        let places = spread_labels(&wanted, 0.0, 200.0);
        let mut sorted = places.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 13.9), "{places:?}");
        assert!(places[0] < places[2] && places[3] == 10.0, "{places:?}");
        let many = spread_labels(&[5.0; 40], 0.0, 100.0);
        assert!(many.iter().all(|place| (-1e-9..=100.0).contains(place)), "{many:?}");
    }

    #[test]
    fn long_names_are_shortened_at_characters() {
        assert_eq!(shortened("ring", 100.0), "ring");
        let short = shortened("größte Warteschlange der Welt", 80.0);
        assert!(short.ends_with('…') && text_width(&short) <= 80.0, "{short}");
        assert!(shortened("日本語の名前", 40.0).ends_with('…'));
    }

    #[test]
    fn ticks_have_short_names() {
        let names = [0.0, 0.5, 20.0, 15_000.0, 2e6, 3e10, 1e-6].map(tick_name);
        assert_eq!(names, ["0", "0.5", "20", "15k", "2M", "30G", "1e-6"]);
    }
}
