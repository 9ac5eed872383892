//! The source's figures beside those that were measured here.
//!
//! If the figures of the source and the measured figures have the same metric and unit, they share
//! one axis. All other figures are compared as *shapes*: the figures of each side are divided by
//! the largest of them, so that only the form remains. If one side has rates and the other has
//! times, each rate is first turned into the time of an event.

use maud::{Markup, html};

use super::chart::{Chart, Line, Point};
use super::figures::{heading, markup, scale_of};
use super::scale::Scale;
use super::svg::legend;
use crate::lab::experiment::{About, Reference};
use crate::lab::figure::PlotKind;
use crate::lab::metric::Value;
use crate::lab::record::{Results, Series, distinct};
use crate::lab::statistics::Spread;
use crate::lab::table::Table;
use crate::lab::wording::number;

/// Draws each figure of the source beside the results.
pub fn comparisons(about: &About, results: &Results, level: u8, id: &str) -> Markup {
    html! {
        @for (at, reference) in about.source.figures.iter().enumerate() {
            (comparison(about, reference, results, level, &format!("{id}-source{at}")))
        }
    }
}

fn comparison(
    about: &About,
    reference: &Reference,
    results: &Results,
    level: u8,
    id: &str,
) -> Markup {
    let ours = Ours::of(about, reference, results);
    let theirs = theirs(reference);
    let Some(ours) = ours else {
        return html! {
            section.figure {
                (heading(level, &format!("In the source: {}", reference.title)))
                p { "Nothing was measured here that can stand beside this figure of the source." }
                (single(&theirs, &format!("{id}-theirs")))
                (markup(&table(reference, &theirs, None), "As published."))
            }
        };
    };
    let here = ours.chart(reference);
    let (left, right) = if ours.same_unit {
        (plain(&theirs), plain(&here))
    } else {
        (normalised(&theirs, ours.inverse), normalised(&here, false))
    };
    let is_wide = extent_ratio(&left).max(extent_ratio(&right)) >= 20.0;
    let scale = scale_of(left.extent().chain(right.extent()), is_wide);
    let name = |(index, line): (usize, &crate::lab::experiment::Line)| match line.ours {
        Some(ours) => (index, format!("{}; here {ours}", line.contender)),
        None => (index, format!("{}; not measured here", line.contender)),
    };
    let names: Vec<(usize, String)> = reference.lines.iter().enumerate().map(name).collect();
    html! {
        section.figure {
            (heading(level, &format!("Beside the source: {}", reference.title)))
            p {
                @if ours.same_unit {
                    "The same metric in the same unit, on different machines: "
                    "both sides have one axis."
                } @else {
                    "The source states " (reference.unit) ", and the lab " (ours.unit) ". "
                    "So each side is divided by its largest value, and only the form can be "
                    "compared."
                    @if ours.inverse {
                        " The source's rates are shown as times: one divided by the rate."
                    }
                }
            }
            @if left.has_lines() {
                (legend(names.iter().map(|(index, name)| (*index, name.as_str())), true))
            }
            div.panels {
                @for (side, chart) in [("In the source", &left), ("On this machine", &right)] {
                    div.panel {
                        p.panel-title { (side) }
                        (chart.plot(&scale).markup(&format!("{id}-{}", side.len())))
                    }
                }
            }
            (markup(&table(reference, &theirs, Some((&ours, &here))), VALUES))
        }
    }
}

fn single(chart: &Chart, id: &str) -> Markup {
    let scale = Scale::fitting(chart.extent().collect::<Vec<_>>().into_iter());
    html! { div.panels.single { div.panel { (chart.plot(&scale).markup(id)) } } }
}

/// The metric of the lab that is shown beside a figure of the source.
struct Ours<'a> {
    results: &'a Results,
    metric: String,
    unit: String,
    /// Whether the metric has the source's unit and meaning.
    same_unit: bool,
    /// Whether the source states rates where the lab measures times.
    inverse: bool,
}

impl<'a> Ours<'a> {
    fn of(about: &About, reference: &Reference, results: &'a Results) -> Option<Self> {
        // If no metric has the same meaning, the metric of the first plot over the same parameter
        // is used instead.
        let plotted = about.figures.iter().find_map(|figure| match figure.kind {
            PlotKind::Lines { x, metric, .. } if x == reference.x => Some(metric),
            _ => None,
        });
        let metric = reference.metric.or(plotted)?;
        let unit =
            results.series.iter().find_map(|series| series.metrics.get(metric))?.unit.clone();
        let same_unit = reference.metric.is_some() && unit == reference.unit;
        let inverse = !same_unit && is_rate(reference.unit) && !is_rate(&unit);
        let ours = Self { results, metric: metric.to_owned(), unit, same_unit, inverse };
        let found = reference.lines.iter().any(|line| {
            line.values
                .iter()
                .any(|(x, _)| ours.series(reference, line.ours, &Value::from(*x)).is_some())
        });
        found.then_some(ours)
    }

    fn series(
        &self,
        reference: &Reference,
        contender: Option<&str>,
        x: &Value,
    ) -> Option<&'a Series> {
        let mut at: Vec<(&str, Value)> =
            reference.at.iter().map(|(name, value)| (*name, Value::from(*value))).collect();
        at.push((reference.x, x.clone()));
        let series = self.results.find(contender?, &at)?;
        (!series.values(&self.metric).is_empty()).then_some(series)
    }

    /// Returns the lab's counterparts of the contenders in the source's figure, at the points of
    /// that figure.
    fn chart(&self, reference: &Reference) -> Chart {
        let values = values(reference);
        let line = |(index, line): (usize, &crate::lab::experiment::Line)| {
            let point = |value: &Value| {
                let series = self.series(reference, line.ours, value)?;
                super::figures::point(series, &self.metric)
            };
            let name = line.ours.unwrap_or("not measured").to_owned();
            Line { name, index, points: values.iter().map(point).collect() }
        };
        let lines = reference.lines.iter().enumerate().filter(|(_, line)| line.ours.is_some());
        Chart {
            title: format!("{}, on this machine", reference.title),
            x: reference.x.to_owned(),
            y: format!("{}, {}", self.metric, self.unit),
            lines: lines.map(line).collect(),
            values,
        }
    }
}

/// The meaning of the cells in a table that has both the source's values and the lab's.
const VALUES: &str = "The source's values as published; medians here.";

fn is_rate(unit: &str) -> bool {
    ["/s", "per s", "/second", "hz"].iter().any(|mark| unit.to_lowercase().contains(mark))
}

fn values(reference: &Reference) -> Vec<Value> {
    let all = reference.lines.iter().flat_map(|line| line.values.iter());
    let mut values = distinct(all.map(|(x, _)| Value::from(*x)));
    if values.iter().all(|value| matches!(value, Value::Number(_))) {
        values.sort();
    }
    values
}

fn theirs(reference: &Reference) -> Chart {
    let values = values(reference);
    let line = |(index, line): (usize, &crate::lab::experiment::Line)| {
        let point = |value: &Value| {
            let (_, found) = line.values.iter().find(|(x, _)| Value::from(*x) == *value)?;
            let spread = Spread { low: *found, median: *found, high: *found };
            Some(Point { spread, oversubscribed: false })
        };
        Line { name: line.contender.to_owned(), index, points: values.iter().map(point).collect() }
    };
    let lines = reference.lines.iter().enumerate().map(line).collect();
    Chart {
        title: format!("{}, in the source", reference.title),
        x: reference.x.to_owned(),
        y: reference.unit.to_owned(),
        values,
        lines,
    }
}

fn changed(chart: &Chart, y: &str, change: impl Fn(f64) -> f64) -> Chart {
    let point = |point: &Option<Point>| {
        let Point { spread, oversubscribed } = (*point)?;
        let [one, median, other] = [spread.low, spread.median, spread.high].map(&change);
        Some(Point {
            spread: Spread { low: one.min(other), median, high: one.max(other) },
            oversubscribed,
        })
    };
    Chart {
        title: chart.title.clone(),
        x: chart.x.clone(),
        y: y.to_owned(),
        values: chart.values.clone(),
        lines: chart
            .lines
            .iter()
            .map(|line| Line {
                name: line.name.clone(),
                index: line.index,
                points: line.points.iter().map(point).collect(),
            })
            .collect(),
    }
}

fn plain(chart: &Chart) -> Chart {
    changed(chart, &chart.y, |value| value)
}

/// Divides all values by the largest median. If `inverse` is set, first replaces the values by
/// their reciprocals.
fn normalised(chart: &Chart, inverse: bool) -> Chart {
    let own = |value: f64| match inverse {
        true if value == 0.0 => 0.0,
        true => 1.0 / value,
        false => value,
    };
    let medians = chart.lines.iter().flat_map(|line| line.points.iter().flatten());
    let largest = medians.map(|point| own(point.spread.median).abs()).fold(0.0, f64::max);
    let largest = if largest > 0.0 { largest } else { 1.0 };
    changed(chart, "share of the largest value", |value| own(value) / largest)
}

fn extent_ratio(chart: &Chart) -> f64 {
    let positive = || chart.extent().filter(|value| *value > 0.0);
    let (low, high) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
    if low.is_finite() { high / low } else { 1.0 }
}

/// Makes a table with a row for each contender: the values of the source, and the values that the
/// lab measured.
fn table(reference: &Reference, theirs: &Chart, here: Option<(&Ours<'_>, &Chart)>) -> Table {
    let mut header = vec![format!("contender, by {}", reference.x)];
    header.extend(theirs.values.iter().map(Value::to_string));
    let row = |name: String, line: &Line| {
        let cells = line.points.iter().map(|point| {
            point.map_or("–".to_owned(), |point| {
                let mark = if point.oversubscribed { "*" } else { "" };
                format!("{}{mark}", number(point.spread.median))
            })
        });
        std::iter::once(name).chain(cells).collect::<Vec<String>>()
    };
    let mut rows = Vec::new();
    for line in &theirs.lines {
        rows.push(row(format!("{} in the source, {}", line.name, reference.unit), line));
        if let Some((ours, chart)) = here {
            let beside = chart.lines.iter().filter(|other| other.index == line.index);
            rows.extend(beside.map(|line| row(format!("{} here, {}", line.name, ours.unit), line)));
        }
    }
    let oversubscribed = rows.iter().flatten().any(|cell| cell.ends_with('*'));
    Table { title: reference.title.to_owned(), header, rows, oversubscribed }
}
