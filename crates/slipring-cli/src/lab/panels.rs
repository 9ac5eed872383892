//! The series that a plot shows, by panel and row. Plots and their tables are made from the same
//! series.

use super::figure::{Figure, PlotKind};
use super::metric::Value;
use super::record::{Results, Series, distinct};

/// A figure that names this in place of a parameter has one panel for each contender. A figure that
/// names a parameter has one panel for each value of the parameter.
const CONTENDER: &str = "contender";

/// The series of one panel of a figure.
#[derive(Debug)]
pub struct Panel<'a> {
    /// The common value of the panel's series, such as `workers 4`; `None` if the figure has one
    /// panel.
    pub label: Option<String>,
    /// Series that have values of the figure's metrics.
    pub series: Vec<&'a Series>,
    /// Names of the parameters that the panels and the axes use.
    used: Vec<&'static str>,
}

/// Series that differ only in the parameters on the axes: a line of a plot, a row of a table.
#[derive(Debug)]
pub struct Row<'a> {
    /// The contender, with the values of those parameters that are on no axis and differ between
    /// series.
    pub name: String,
    pub contender: &'a str,
    pub series: Vec<&'a Series>,
}

/// Returns the panels of a figure that have any values.
pub fn panels<'a>(figure: &Figure, results: &'a Results) -> Vec<Panel<'a>> {
    let (axes, metrics) = match figure.kind {
        PlotKind::Lines { x, metric, .. } | PlotKind::Means { x, metric, .. } => {
            (vec![x], vec![metric])
        }
        PlotKind::Scatter { x, y } => (Vec::new(), vec![x, y]),
        PlotKind::HeatMap { row, column, metric } => (vec![row, column], vec![metric]),
        PlotKind::Percentiles { metric } => (Vec::new(), vec![metric]),
    };
    let has_values = |series: &&Series| {
        metrics.iter().all(|metric| match figure.kind {
            PlotKind::Percentiles { .. } => series
                .curves
                .get(*metric)
                .is_some_and(|curves| curves.rounds.iter().any(|round| !round.is_empty())),
            _ => !series.values(metric).is_empty(),
        }) && axes.iter().all(|axis| series.at(axis).is_some())
    };
    let series: Vec<&Series> = results.series.iter().filter(has_values).collect();
    let by_value = match figure.panels {
        None => vec![(None, series)],
        Some(CONTENDER) => by_contender(&None, series),
        Some(name) => {
            let values = distinct(series.iter().filter_map(|series| series.at(name)));
            let within = |value| {
                let label = Some(format!("{name} {value}"));
                (label, series.iter().copied().filter(|of| of.at(name) == Some(value)).collect())
            };
            values.into_iter().map(within).collect()
        }
    };
    // A field of a heat map shows one contender.
    let is_map = matches!(figure.kind, PlotKind::HeatMap { .. });
    let all: Vec<(Option<String>, Vec<&Series>)> = by_value
        .into_iter()
        .flat_map(|(label, series)| {
            let contenders = distinct(series.iter().map(|series| &series.contender));
            if is_map && contenders.len() > 1 {
                by_contender(&label, series)
            } else {
                vec![(label, series)]
            }
        })
        .collect();
    let used: Vec<&str> = figure.panels.into_iter().chain(axes).collect();
    all.into_iter()
        .filter(|(_, series)| !series.is_empty())
        .map(|(label, series)| Panel { label, series, used: used.clone() })
        .collect()
}

fn by_contender<'a>(
    label: &Option<String>,
    series: Vec<&'a Series>,
) -> Vec<(Option<String>, Vec<&'a Series>)> {
    let contenders = distinct(series.iter().map(|series| series.contender.as_str()));
    let within = |contender: &str| {
        let own = match label {
            Some(label) => format!("{label}, {contender}"),
            None => contender.to_owned(),
        };
        let series = series.iter().copied().filter(|series| series.contender == contender);
        (Some(own), series.collect())
    };
    contenders.into_iter().map(within).collect()
}

impl<'a> Panel<'a> {
    /// Returns the rows, in the order of series.
    pub fn rows(&self) -> Vec<Row<'a>> {
        // Parameters whose values distinguish series of one contender.
        let names =
            distinct(self.series.iter().flat_map(|of| of.point.iter().map(|(name, _)| name)));
        let varying: Vec<&String> = names
            .into_iter()
            .filter(|name| !self.used.contains(&name.as_str()))
            .filter(|name| distinct(self.series.iter().map(|series| series.at(name))).len() > 1)
            .collect();
        let mut rows: Vec<Row<'a>> = Vec::new();
        for series in &self.series {
            let mut name = series.contender.clone();
            for parameter in &varying {
                if let Some(value) = series.at(parameter) {
                    name += &format!(", {parameter} {value}");
                }
            }
            match rows.iter_mut().find(|row| row.name == name) {
                Some(row) => row.series.push(series),
                None => rows.push(Row { name, contender: &series.contender, series: vec![series] }),
            }
        }
        rows
    }

    /// Returns the values of a parameter: numbers in ascending order, names in the order of the
    /// series.
    pub fn values_of(&self, parameter: &str) -> Vec<&'a Value> {
        let mut values = distinct(self.series.iter().filter_map(|series| series.at(parameter)));
        if values.iter().all(|value| matches!(value, Value::Number(_))) {
            values.sort();
        }
        values
    }

    /// Returns a metric with its unit.
    pub fn unit(&self, metric: &str) -> String {
        let of = |series: &&Series| {
            let values = series.metrics.get(metric).map(|values| &values.unit);
            values.or_else(|| series.curves.get(metric).map(|curves| &curves.unit)).cloned()
        };
        match self.series.iter().find_map(of) {
            Some(unit) if !unit.is_empty() => format!("{metric}, {unit}"),
            _ => metric.to_owned(),
        }
    }
}

impl<'a> Row<'a> {
    /// Returns the series whose parameter has this value.
    pub fn at(&self, parameter: &str, value: &Value) -> Option<&'a Series> {
        self.series.iter().copied().find(|series| series.at(parameter) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::metric::Better;
    use crate::lab::record::Values;

    fn series(contender: &str, point: &[(&str, Value)], metric: &str) -> Series {
        let values = Values { unit: "ns".to_owned(), better: Better::Less, values: vec![1.0] };
        Series {
            contender: contender.to_owned(),
            point: point.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            threads: 1,
            cpus: Vec::new(),
            oversubscribed: false,
            metrics: [(metric.to_owned(), values)].into(),
            curves: Default::default(),
        }
    }

    fn results(series: Vec<Series>) -> Results {
        Results {
            experiment: "test".to_owned(),
            rounds: 1,
            seconds: 0.0,
            notes: Vec::new(),
            series,
        }
    }

    fn names(panel: &Panel<'_>) -> Vec<String> {
        panel.rows().into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn parameters_that_are_on_no_axis_tell_rows_apart() {
        let mut all = Vec::new();
        for (load, workers) in [(1, 8), (1, 2), (9, 8), (9, 2)] {
            let point = [("workers", Value::Number(workers)), ("load", Value::Number(load))];
            all.push(series("ring", &point, "time"));
        }
        all.push(series("paced", &[("workers", Value::Number(2))], "latency"));
        let results = results(all);
        let kind = PlotKind::Lines { x: "workers", metric: "time", logarithmic: false };
        let figure = Figure { title: "Time", panels: None, kind };
        let one = panels(&figure, &results);
        assert_eq!(one.len(), 1);
        assert_eq!(names(&one[0]), ["ring, load 1", "ring, load 9"]);
        assert_eq!(one[0].values_of("workers"), [&Value::Number(2), &Value::Number(8)]);
        assert_eq!(one[0].unit("time"), "time, ns");

        let kind = PlotKind::Lines { x: "workers", metric: "time", logarithmic: false };
        let two = panels(&Figure { title: "Time", panels: Some("load"), kind }, &results);
        let labels: Vec<Option<&str>> = two.iter().map(|panel| panel.label.as_deref()).collect();
        assert_eq!(labels, [Some("load 1"), Some("load 9")]);
        assert_eq!(names(&two[1]), ["ring"]);
    }

    #[test]
    fn a_heat_map_has_a_panel_for_each_contender() {
        let point = [("from", Value::Number(0)), ("to", Value::Number(1))];
        let results = results(vec![series("a", &point, "trip"), series("b", &point, "trip")]);
        for by in [None, Some("contender")] {
            let kind = PlotKind::HeatMap { row: "from", column: "to", metric: "trip" };
            let found = panels(&Figure { title: "Trips", panels: by, kind }, &results);
            let labels: Vec<Option<&str>> =
                found.iter().map(|panel| panel.label.as_deref()).collect();
            assert_eq!(labels, [Some("a"), Some("b")]);
        }
    }
}
