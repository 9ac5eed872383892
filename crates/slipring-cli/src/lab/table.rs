//! Results as tables: one behind each panel of an experiment's plots, for terminals and reports.

use std::fmt::Write as _;

use slipring_support::tables::markdown;

use super::catalogue;
use super::experiment::Finding;
use super::figure::{Figure, PlotKind};
use super::machine::Model;
use super::panels::{Panel, panels};
use super::record::{Record, Results, Series};
use super::statistics::Spread;
use super::wording::{marks, number, percent, wrapped};

/// The cells of a table. The first column names the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Title of the plot that the table belongs to, with the panel's value.
    pub title: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Whether some cell is marked as measured with more threads than cores.
    pub oversubscribed: bool,
}

/// Mark of cells that were measured with more threads than cores.
pub const OVERSUBSCRIBED: &str = "*";
/// Explains the figure that follows a median or a mean.
const LEGEND: &str = "± half the distance of the quartiles; of means, half the 95 % interval";
/// Heads the statements of the source and their verdicts.
const FINDINGS: &str = "Does the shape of the source's curves appear?";
/// A cell without a value.
const MISSING: &str = "–";

/// Returns all results as text, for a terminal of this width, or for a pipe or file.
pub fn all(record: &Record, width: Option<usize>) -> String {
    let mut text = heading(record, width);
    let line = |text: &str| wrapped(text, width) + "\n";
    for results in &record.experiments {
        let Some(experiment) = catalogue::find(&results.experiment) else { continue };
        let about = experiment.about();
        let headline = experiment.headline(results, &record.noise);
        let _ = write!(text, "\n{}{}", line(about.title), line(&headline));
        for table in about.figures.iter().flat_map(|figure| tables(figure, results)) {
            let shown = markdown(&table.header, &table.rows, width);
            let _ = writeln!(text, "\n{}{shown}", line(&table.title));
        }
        let findings = experiment.findings(results);
        if !findings.is_empty() {
            text += &format!("\n{}\n", line(FINDINGS));
        }
        for Finding { says, appears, numbers } in findings {
            text += &line(&format!("- {says}: {appears} ({numbers})"));
        }
        if !results.notes.is_empty() {
            text.push('\n');
        }
        results.notes.iter().for_each(|note| text += &line(&format!("- {note}")));
    }
    if !record.experiments.is_empty() {
        text.push('\n');
        text += &line(LEGEND);
    }
    let marks = marks(record);
    if !marks.is_empty() {
        text.push('\n');
    }
    marks.iter().for_each(|mark| text += &line(mark));
    text
}

/// Returns the lines before the tables: versions, machine, noise.
fn heading(record: &Record, width: Option<usize>) -> String {
    let Record { slipring, size, date, machine, noise, .. } = record;
    if let Some(model) = &record.simulated {
        return simulated_heading(record, model, width);
    }
    let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
    let cores = machine.cores;
    let text = format!(
        "slipring {slipring}, lab, {size}, {date}\n{cores} core{} of {cpu}\n\
         noise floor: {} computing, {} handing over\n",
        if cores == 1 { "" } else { "s" },
        percent(noise.computing),
        percent(noise.handover),
    );
    wrapped(&text, width)
}

/// Returns the lines before the tables of a simulation. They have no date, so that the same
/// simulation prints the same text.
fn simulated_heading(record: &Record, model: &Model, width: Option<usize>) -> String {
    let parameters = model.parameters.iter().map(|(name, value)| format!("{name} {value}"));
    let text = format!(
        "slipring {}, lab, {}, SIMULATED: counts and shapes of a model, no speeds\n\
         {}, {} virtual cores\nmodel: {}\n",
        record.slipring,
        record.size,
        model.name,
        model.cores,
        parameters.collect::<Vec<_>>().join(", "),
    );
    wrapped(&text, width)
}

/// Returns the tables behind a plot: one for each panel.
pub fn tables(figure: &Figure, results: &Results) -> Vec<Table> {
    panels(figure, results).iter().map(|panel| table(figure, panel)).collect()
}

/// Returns the table behind a panel.
pub fn table(figure: &Figure, panel: &Panel<'_>) -> Table {
    let title = match &panel.label {
        Some(label) => format!("{}: {label}", figure.title),
        None => figure.title.to_owned(),
    };
    let (header, rows) = match &figure.kind {
        PlotKind::Lines { x, metric, .. } | PlotKind::Means { x, metric, .. } => {
            by_value(panel, &figure.kind, x, metric)
        }
        PlotKind::Scatter { x, y } => by_metrics(panel, &[x, y]),
        PlotKind::HeatMap { row, column, metric } => by_pair(panel, row, column, metric),
        PlotKind::Percentiles { metric } => by_percentile(panel, metric),
    };
    let oversubscribed = panel.series.iter().any(|series| series.oversubscribed);
    Table { title, header, rows, oversubscribed }
}

/// Returns the median, half the spread, and the mark of an oversubscribed run.
fn cell(series: Option<&Series>, metric: &str) -> String {
    shown(series, series.and_then(|series| Spread::of(series.values(metric))))
}

/// Returns the middle of a spread, half its width, and the mark of an oversubscribed run.
fn shown(series: Option<&Series>, spread: Option<Spread>) -> String {
    let Some((spread, series)) = spread.zip(series) else { return MISSING.to_owned() };
    let mark = mark(series);
    match spread.high - spread.low {
        width if width > 0.0 => {
            format!("{} ±{}{mark}", number(spread.median), number(width / 2.0))
        }
        _ => format!("{}{mark}", number(spread.median)),
    }
}

fn mark(series: &Series) -> &'static str {
    if series.oversubscribed { OVERSUBSCRIBED } else { "" }
}

/// Returns a table with the values of one parameter across, and a row for each contender.
fn by_value(
    panel: &Panel<'_>,
    kind: &PlotKind,
    x: &str,
    metric: &str,
) -> (Vec<String>, Vec<Vec<String>>) {
    let values = panel.values_of(x);
    let mut header = vec![format!("{} by {x}", panel.unit(metric))];
    header.extend(values.iter().map(|value| value.to_string()));
    let rows = panel.rows().into_iter().map(|row| {
        let cells = values.iter().map(|value| {
            let series = row.at(x, value);
            shown(series, series.and_then(|series| kind.spread(series.values(metric))))
        });
        std::iter::once(row.name.clone()).chain(cells).collect()
    });
    (header, rows.collect())
}

/// Returns a table with a column for each metric, and a row for each series.
fn by_metrics(panel: &Panel<'_>, metrics: &[&str]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut header = vec!["contender".to_owned()];
    header.extend(metrics.iter().map(|metric| panel.unit(metric)));
    let rows = panel.rows().into_iter().map(|row| {
        let cells = metrics.iter().map(|metric| cell(row.series.first().copied(), metric));
        std::iter::once(row.name.clone()).chain(cells).collect()
    });
    (header, rows.collect())
}

/// Returns a table whose rows are the values of one parameter, and whose columns are the values of
/// another.
fn by_pair(
    panel: &Panel<'_>,
    row: &str,
    column: &str,
    metric: &str,
) -> (Vec<String>, Vec<Vec<String>>) {
    let columns = panel.values_of(column);
    let mut header = vec![format!("{}: {row} down, {column} across", panel.unit(metric))];
    header.extend(columns.iter().map(|value| value.to_string()));
    let rows = panel.values_of(row).into_iter().map(|down| {
        let cells = columns.iter().map(|across| {
            let found = panel.series.iter().copied();
            let mut found =
                found.filter(|of| of.at(row) == Some(down) && of.at(column) == Some(across));
            cell(found.next(), metric)
        });
        std::iter::once(down.to_string()).chain(cells).collect()
    });
    (header, rows.collect())
}

/// The quantiles that tables show of a curve.
pub const QUANTILES: [(f64, &str); 5] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];

fn by_percentile(panel: &Panel<'_>, metric: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut header = vec![panel.unit(metric)];
    header.extend(QUANTILES.iter().map(|(_, name)| (*name).to_owned()));
    let rows = panel.rows().into_iter().map(|row| {
        let cells = QUANTILES.iter().map(|(quantile, _)| {
            let series = row.series[0];
            let shown = quantile_of(series, metric, *quantile);
            shown.map_or(MISSING.to_owned(), |of| format!("{}{}", number(of.median), mark(series)))
        });
        std::iter::once(row.name.clone()).chain(cells).collect()
    });
    (header, rows.collect())
}

/// Returns the spread, over the repetitions, of a metric's quantile.
pub fn quantile_of(series: &Series, metric: &str, quantile: f64) -> Option<Spread> {
    let rounds = series.curves.get(metric).map_or(&[][..], |curves| &curves.rounds);
    let values: Vec<f64> = rounds.iter().filter_map(|round| at(round, quantile)).collect();
    Spread::of(&values)
}

/// Returns the value of the first point at this quantile or beyond.
fn at(curve: &[(f64, f64)], quantile: f64) -> Option<f64> {
    curve.iter().find(|(at, _)| *at >= quantile).or(curve.last()).map(|(_, value)| *value)
}
