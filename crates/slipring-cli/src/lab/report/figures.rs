//! The plots of an experiment's results, with the tables behind them.

use maud::{Markup, html};

use super::chart::{Chart, Line, Point};
use super::heat_map::HeatMap;
use super::percentiles::{Curve, Percentiles};
use super::scale::Scale;
use super::scatter::{Dot, Scatter};
use super::svg::{Plot, legend};
use crate::lab::figure::{Figure, PlotKind};
use crate::lab::metric::Value;
use crate::lab::panels::{Panel, Row, panels};
use crate::lab::record::{Results, Series, distinct};
use crate::lab::statistics::Spread;
use crate::lab::table::{self, Table};

/// Draws a figure: its title, its legend, and a plot and a table for each panel.
pub fn figure(figure: &Figure, results: &Results, level: u8, id: &str) -> Markup {
    let panels = panels(figure, results);
    let names = Names::of(results, &panels);
    html! {
        section.figure {
            (heading(level, figure.title))
            @if panels.is_empty() {
                p { "Nothing was measured for this figure." }
            } @else {
                (plots(figure, &panels, &names, id))
                @for panel in &panels { (details(&table::table(figure, panel), &figure.kind)) }
            }
        }
    }
}

/// Returns a heading of a level from 2 to 5.
pub fn heading(level: u8, text: &str) -> Markup {
    html! {
        @match level {
            2 => h2 { (text) },
            3 => h3 { (text) },
            4 => h4 { (text) },
            _ => h5 { (text) },
        }
    }
}

/// Number of colours. Further contenders begin again with the first colour.
const COLOURS: usize = 8;

/// The names of contenders and rows. A name's place in the list determines its marker. A contender
/// has one colour in all figures of an experiment, and its rows have markers of different shapes.
struct Names<'a> {
    contenders: Vec<&'a str>,
    /// Names of rows, by contender.
    rows: Vec<Vec<String>>,
}

impl<'a> Names<'a> {
    fn of(results: &'a Results, panels: &[Panel<'a>]) -> Self {
        let contenders = results.contenders();
        let all: Vec<Row<'a>> = panels.iter().flat_map(Panel::rows).collect();
        let of = |contender: &&str| {
            let own = all.iter().filter(|row| row.contender == *contender);
            distinct(own.map(|row| row.name.clone()))
        };
        let rows = contenders.iter().map(of).collect();
        Self { contenders, rows }
    }

    fn index(&self, row: &Row<'_>) -> usize {
        let of = self.contenders.iter().position(|name| *name == row.contender).unwrap_or(0);
        let variant = self.rows[of].iter().position(|name| *name == row.name).unwrap_or(0);
        // The added number is a multiple of the number of colours, so the colour stays the same.
        of + variant * self.contenders.len().next_multiple_of(COLOURS)
    }
}

fn plots(figure: &Figure, panels: &[Panel<'_>], names: &Names<'_>, id: &str) -> Markup {
    let title = |panel: &Panel<'_>| match &panel.label {
        Some(label) => format!("{}: {label}", figure.title),
        None => figure.title.to_owned(),
    };
    let indices = || {
        let all = panels.iter().flat_map(Panel::rows);
        distinct(all.map(|row| (names.index(&row), row.name.clone())))
    };
    let mut hidden = 0;
    let mut key = None;
    let drawn: Vec<Plot> = match &figure.kind {
        PlotKind::Lines { x, metric, logarithmic } | PlotKind::Means { x, metric, logarithmic } => {
            let charts: Vec<Chart> = panels
                .iter()
                .map(|panel| {
                    chart(panel, figure, title(panel), Axes { x, metric }, |row| names.index(row))
                })
                .collect();
            let scale = scale_of(charts.iter().flat_map(Chart::extent), *logarithmic);
            hidden = charts.iter().map(|chart| chart.hidden(&scale)).sum();
            key = charts.iter().any(Chart::has_lines).then(|| (indices(), true));
            charts.iter().map(|chart| chart.plot(&scale)).collect()
        }
        PlotKind::Scatter { x, y } => {
            let plots: Vec<Scatter> = panels
                .iter()
                .map(|panel| Scatter {
                    title: title(panel),
                    x: panel.unit(x),
                    y: panel.unit(y),
                    dots: dots(panel, x, y, |row| names.index(row)),
                })
                .collect();
            let of = |spread: fn(&Dot) -> &Spread| {
                let all: Vec<f64> = plots
                    .iter()
                    .flat_map(|plot| &plot.dots)
                    .flat_map(|dot| [spread(dot).low, spread(dot).high])
                    .collect();
                Scale::fitting(all.into_iter())
            };
            let (across, up) = (of(|dot| &dot.x), of(|dot| &dot.y));
            key = Some((indices(), false));
            hidden = plots.iter().map(|plot| plot.hidden(&across, &up)).sum();
            plots.iter().map(|plot| plot.plot(&across, &up)).collect()
        }
        PlotKind::HeatMap { row, column, metric } => {
            let maps: Vec<HeatMap> = panels
                .iter()
                .map(|panel| heat_map(panel, title(panel), row, column, metric))
                .collect();
            let all = || maps.iter().flat_map(HeatMap::extent);
            let (low, high) =
                (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
            maps.iter().map(|map| map.plot(low, high)).collect()
        }
        PlotKind::Percentiles { metric } => {
            let plots: Vec<Percentiles> = panels
                .iter()
                .map(|panel| Percentiles {
                    title: title(panel),
                    metric: panel.unit(metric),
                    curves: curves(panel, metric, |row| names.index(row)),
                })
                .collect();
            let all: Vec<f64> = plots.iter().flat_map(Percentiles::extent).collect();
            let scale = Scale::fitting(all.into_iter());
            key = Some((indices(), true));
            hidden = plots.iter().map(|plot| plot.hidden(&scale)).sum();
            plots.iter().map(|plot| plot.plot(&scale)).collect()
        }
    };
    html! {
        @if let Some((names, with_lines)) = &key {
            (legend(names.iter().map(|(index, name)| (*index, name.as_str())), *with_lines))
        }
        div class=(if drawn.len() > 1 { "panels" } else { "panels single" }) {
            @for (at, (plot, panel)) in drawn.iter().zip(panels).enumerate() {
                div.panel {
                    @if let Some(label) = &panel.label { p.panel-title { (label) } }
                    (plot.markup(&format!("{id}-{at}")))
                }
            }
        }
        @if hidden > 0 {
            p.small {
                (hidden) @if hidden == 1 { " value" } @else { " values" }
                " of 0 or less: a logarithmic axis has no place for these; the table has them."
            }
        }
        @if panels.iter().flat_map(|panel| &panel.series).any(|series| series.oversubscribed) {
            p.small { "* more threads than CPUs" }
        }
    }
}

/// Returns the scale of a metric's axis.
pub fn scale_of(values: impl Iterator<Item = f64>, logarithmic: bool) -> Scale {
    if logarithmic { Scale::logarithmic(values) } else { Scale::linear(values) }
}

/// The axes of a chart.
#[derive(Clone, Copy)]
struct Axes<'a> {
    /// Parameter of the horizontal axis.
    x: &'a str,
    /// Metric of the vertical axis.
    metric: &'a str,
}

fn chart(
    panel: &Panel<'_>,
    figure: &Figure,
    title: String,
    Axes { x, metric }: Axes<'_>,
    index: impl Fn(&Row<'_>) -> usize,
) -> Chart {
    let point = |series: &Series| {
        let spread = figure.kind.spread(series.values(metric))?;
        Some(Point { spread, oversubscribed: series.oversubscribed })
    };
    let values: Vec<Value> = panel.values_of(x).into_iter().cloned().collect();
    let line = |row: Row<'_>| Line {
        points: values.iter().map(|value| point(row.at(x, value)?)).collect(),
        index: index(&row),
        name: row.name,
    };
    let lines = panel.rows().into_iter().map(line).collect();
    Chart { title, x: x.to_owned(), y: panel.unit(metric), values, lines }
}

/// Returns a series' point in a chart.
pub fn point(series: &Series, metric: &str) -> Option<Point> {
    let spread = Spread::of(series.values(metric))?;
    Some(Point { spread, oversubscribed: series.oversubscribed })
}

fn dots(panel: &Panel<'_>, x: &str, y: &str, index: impl Fn(&Row<'_>) -> usize) -> Vec<Dot> {
    let dot = |row: Row<'_>| {
        let series = row.series.first()?;
        Some(Dot {
            index: index(&row),
            x: Spread::of(series.values(x))?,
            y: Spread::of(series.values(y))?,
            oversubscribed: series.oversubscribed,
            name: row.name,
        })
    };
    panel.rows().into_iter().filter_map(dot).collect()
}

fn heat_map(panel: &Panel<'_>, title: String, row: &str, column: &str, metric: &str) -> HeatMap {
    let (rows, columns) = (panel.values_of(row), panel.values_of(column));
    let field = |down: &Value, across: &Value| {
        let mut all = panel.series.iter();
        let series = all.find(|of| of.at(row) == Some(down) && of.at(column) == Some(across))?;
        Some(Spread::of(series.values(metric))?.median)
    };
    HeatMap {
        title,
        row: row.to_owned(),
        column: column.to_owned(),
        metric: panel.unit(metric),
        fields: rows
            .iter()
            .map(|down| columns.iter().map(|across| field(down, across)).collect())
            .collect(),
        rows: rows.iter().map(|value| value.to_string()).collect(),
        columns: columns.iter().map(|value| value.to_string()).collect(),
    }
}

fn curves(panel: &Panel<'_>, metric: &str, index: impl Fn(&Row<'_>) -> usize) -> Vec<Curve> {
    let curve = |row: Row<'_>| {
        let series = row.series.first()?;
        let rounds = &series.curves.get(metric)?.rounds;
        let longest = rounds.iter().max_by_key(|round| round.len())?;
        let points = longest.iter().filter_map(|(quantile, _)| {
            Some((*quantile, table::quantile_of(series, metric, *quantile)?))
        });
        Some(Curve { index: index(&row), points: points.collect(), name: row.name })
    };
    panel.rows().into_iter().filter_map(curve).collect()
}

/// Returns a table that stays folded until a reader opens it.
pub fn details(table: &Table, kind: &PlotKind) -> Markup {
    let values = match kind {
        PlotKind::Means { .. } => "Mean ± half the width of its 95 % interval.",
        PlotKind::Percentiles { .. } => "Medians over the repetitions.",
        _ => "Median ± half the distance of the quartiles.",
    };
    html! {
        details {
            summary { "Table: " (table.title) }
            (markup(table, values))
        }
    }
}

/// Returns a table that scrolls within its box. `values` is the meaning of the cells, for the
/// caption.
pub fn markup(table: &Table, values: &str) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label=(format!("Table: {}", table.title)) {
            table {
                caption { (table.title) ". " (values) }
                thead { tr { @for name in &table.header { th scope="col" { (name) } } } }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
