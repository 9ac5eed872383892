//! Charts over a parameter: for numbers, lines with bands of the repetitions' spread; for names,
//! rows of dots with whiskers.

use maud::{Markup, html};

use super::scale::Scale;
use super::svg::{
    Frame, LINE, NAMED_AT_MOST, Plot, SpreadPoint, WIDTH, banded, colour, end_labels, end_margin,
    label, marker, shortened, spread_text, stroke, text_width,
};
use crate::lab::metric::Value;
use crate::lab::statistics::Spread;
use crate::lab::wording::number;

/// An axis of numbers is logarithmic if the ratio of its largest to its smallest number exceeds
/// this.
const WIDE: u64 = 16;

/// Height above which a plot has the names of its axis at both ends.
const TALL: f64 = 420.0;

/// The content of a chart.
#[derive(Debug)]
pub struct Chart {
    pub title: String,
    /// Name of the parameter.
    pub x: String,
    /// Metric and unit.
    pub y: String,
    /// Values of the parameter, in order.
    pub values: Vec<Value>,
    pub lines: Vec<Line>,
}

/// A contender's line.
#[derive(Debug)]
pub struct Line {
    pub name: String,
    /// Number of the marker.
    pub index: usize,
    /// A point for each value of the parameter; `None` if that value was not measured.
    pub points: Vec<Option<Point>>,
}

/// A measured point.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub spread: Spread,
    pub oversubscribed: bool,
}

impl Chart {
    /// Returns all values that the scale must hold.
    pub fn extent(&self) -> impl Iterator<Item = f64> + Clone {
        let points = self.lines.iter().flat_map(|line| line.points.iter().flatten());
        points.flat_map(|point| [point.spread.low, point.spread.high, point.spread.median])
    }

    /// Returns whether the chart has lines, and so needs a legend. A chart without lines has rows
    /// of dots, and each row's name stands beside it.
    pub fn has_lines(&self) -> bool {
        self.numbers().is_some()
    }

    /// Returns the parameter's values if there are two or more, and all of them are numbers.
    fn numbers(&self) -> Option<Vec<u64>> {
        let number = |value: &Value| match value {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        };
        let numbers: Vec<u64> = self.values.iter().map(number).collect::<Option<_>>()?;
        (numbers.len() > 1).then_some(numbers)
    }

    /// Draws the chart.
    pub fn plot(&self, scale: &Scale) -> Plot {
        let (height, body) = match self.numbers() {
            Some(numbers) => self.lines(&numbers, scale),
            None => self.dots(scale),
        };
        Plot { height, title: self.title.clone(), description: self.description(scale), body }
    }

    fn lines<'a>(&'a self, numbers: &[u64], scale: &Scale) -> (f64, Markup) {
        let named = self.lines.len() <= NAMED_AT_MOST;
        let names = self.lines.iter().map(|line| line.name.as_str());
        let margin = if named { end_margin(names) } else { 16.0 };
        let frame = Frame { left: 52.0, right: WIDTH - margin, top: 28.0, bottom: 300.0 };
        let (least, largest) = (numbers[0], numbers[numbers.len() - 1]);
        let is_wide = least > 0 && largest / least >= WIDE;
        let across = |number: u64| {
            let (number, low, high) = (number as f64, least as f64, largest as f64);
            let place = if is_wide {
                (number / low).ln() / (high / low).ln()
            } else {
                (number - low) / (high - low)
            };
            0.03 + 0.94 * place
        };
        let ticks: Vec<(f64, String)> =
            numbers.iter().map(|number| (across(*number), number.to_string())).collect();
        let title = if is_wide { format!("{} (logarithmic)", self.x) } else { self.x.clone() };
        let y = |value: f64| frame.y(scale.place_or_end(value));
        let place = |(number, Point { spread, .. }): &(u64, Point)| SpreadPoint {
            x: frame.x(across(*number)),
            low: y(spread.low),
            median: y(spread.median),
            high: y(spread.high),
        };
        let mut drawn: Vec<(&Line, Vec<(SpreadPoint, bool)>)> = Vec::new();
        let mut bands = Vec::new();
        for line in &self.lines {
            let mut points = Vec::new();
            for run in runs(line, numbers, scale) {
                let places: Vec<SpreadPoint> = run.iter().map(place).collect();
                let marks = run.iter().map(|(_, point)| point.oversubscribed);
                bands.push(banded(line.index, &places));
                points.extend(places.into_iter().zip(marks));
            }
            drawn.push((line, points));
        }
        let end = |(line, points): &(&'a Line, Vec<(SpreadPoint, bool)>)| {
            let (place, _) = points.last()?;
            Some((line.index, line.name.as_str(), (place.x, place.median)))
        };
        let ends: Vec<(usize, &str, (f64, f64))> = drawn.iter().filter_map(end).collect();
        let body = html! {
            (frame.vertical_axis(scale, &self.y))
            (frame.horizontal_ticks(&ticks, &title))
            @for band in &bands { (band) }
            @for (line, points) in &drawn {
                @for (place, oversubscribed) in points {
                    (marker(line.index, place.x, place.median))
                    @if *oversubscribed { (label("tick middle", (place.x, place.median - 6.0), "*")) }
                }
            }
            @if named { (end_labels(&frame, &ends)) }
        };
        (frame.bottom + 46.0, body)
    }

    /// Draws a row for each value and contender.
    fn dots(&self, scale: &Scale) -> (f64, Markup) {
        let is_single = self.lines.len() == 1;
        let name = |value: &Value, line: &Line| {
            if is_single { value.to_string() } else { line.name.clone() }
        };
        let mut rows = Vec::new();
        let mut heads = Vec::new();
        let mut y = 38.0;
        for (at, value) in self.values.iter().enumerate() {
            if !is_single {
                heads.push((y, format!("{} {value}", self.x)));
                y += LINE + 2.0;
            }
            for line in &self.lines {
                rows.push((
                    y,
                    name(value, line),
                    line.index,
                    line.points.get(at).copied().flatten(),
                ));
                y += LINE + 2.0;
            }
            y += if is_single { 0.0 } else { 8.0 };
        }
        let longest = rows.iter().map(|(_, name, ..)| text_width(name)).fold(0.0, f64::max);
        let frame = Frame {
            left: longest.clamp(60.0, 190.0) + 16.0,
            right: WIDTH - 62.0,
            top: 18.0,
            bottom: y,
        };
        let body = html! {
            (frame.horizontal_axis(scale, &self.y))
            @if y > TALL { (frame.names_above(scale)) }
            @for (y, head) in heads { (label("head", (2.0, y), &shortened(&head, WIDTH - 20.0))) }
            @for (y, name, index, point) in rows {
                (stroke("row", (frame.left, y - 4.0), (frame.right, y - 4.0)))
                (label("tick end", (frame.left - 8.0, y), &shortened(&name, 190.0)))
                @match point {
                    Some(point) => (dot(&frame, scale, index, y, &point)),
                    None => (label("missing", (frame.left + 6.0, y), "not measured")),
                }
            }
        };
        (y + 46.0, body)
    }

    /// Says the main figures.
    fn description(&self, scale: &Scale) -> String {
        const NAMED: usize = 12;
        let mut text = format!("{} by {}.", self.y, self.x);
        for line in self.lines.iter().take(NAMED) {
            let measured: Vec<(&Value, &Point)> = self
                .values
                .iter()
                .zip(&line.points)
                .filter_map(|(value, point)| Some((value, point.as_ref()?)))
                .collect();
            text += &match measured.as_slice() {
                [] => format!(" {}: not measured.", line.name),
                [(value, point)] => {
                    format!(" {}: {} at {value}.", line.name, spread_text(&point.spread))
                }
                few if few.len() <= 6 => {
                    let all: Vec<String> = few
                        .iter()
                        .map(|(value, point)| format!("{} at {value}", number(point.spread.median)))
                        .collect();
                    format!(" {}: {}.", line.name, all.join(", "))
                }
                [(first, from), .., (last, to)] => format!(
                    " {}: {} at {first}, {} at {last}.",
                    line.name,
                    number(from.spread.median),
                    number(to.spread.median)
                ),
            };
        }
        if self.lines.len() > NAMED {
            text += &format!(" {} more contenders are in the table.", self.lines.len() - NAMED);
        }
        let medians = self.lines.iter().flat_map(|line| line.points.iter().flatten());
        let hidden = medians.filter(|point| scale.place(point.spread.median).is_none()).count();
        if hidden > 0 {
            text += &format!(" {hidden} values of 0 or less have no place on a logarithmic axis.");
        }
        text
    }

    /// Returns the number of values that a logarithmic scale cannot show.
    pub fn hidden(&self, scale: &Scale) -> usize {
        let points = self.lines.iter().flat_map(|line| line.points.iter().flatten());
        points.filter(|point| scale.place(point.spread.median).is_none()).count()
    }
}

/// Draws a dot with its whisker and its value, in a row whose text is at height `y`.
fn dot(frame: &Frame, scale: &Scale, index: usize, y: f64, point: &Point) -> Markup {
    let Spread { low, median, high } = point.spread;
    let [left, middle, right] = [low, median, high].map(|of| frame.x(scale.place_or_end(of)));
    let mark = if point.oversubscribed { "*" } else { "" };
    html! {
        (stroke(&format!("whisker {}", colour(index)), (left, y - 4.0), (right, y - 4.0)))
        @if scale.place(median).is_some() { (marker(index, middle, y - 4.0)) }
        (label("value", (right + 9.0, y), &format!("{}{mark}", number(median))))
    }
}

/// Returns the runs of consecutive measured points. A missing value ends a run, so the line has a
/// gap there.
fn runs(line: &Line, numbers: &[u64], scale: &Scale) -> Vec<Vec<(u64, Point)>> {
    let mut runs: Vec<Vec<(u64, Point)>> = vec![Vec::new()];
    for (number, point) in numbers.iter().zip(&line.points) {
        match point.filter(|point| scale.place(point.spread.median).is_some()) {
            Some(point) => runs.last_mut().into_iter().for_each(|run| run.push((*number, point))),
            None => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}
