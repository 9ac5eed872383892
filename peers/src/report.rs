//! Renders measured series as tables for people and as JSON lines for programs.

use std::io;

use slipring_support::numbers::significant;
use slipring_support::tables::markdown;

use crate::measure::{ContenderKind, Series};

/// Renders one JSON line for each series, with its values in the order of measurement.
pub fn json(series: &[Series]) -> io::Result<String> {
    let mut lines = String::new();
    for series in series {
        let mut rounded = series.clone();
        rounded.values.iter_mut().for_each(|value| *value = (*value * 1000.0).round() / 1000.0);
        lines += &serde_json::to_string(&rounded)?;
        lines.push('\n');
    }
    Ok(lines)
}

/// Parses what [`json`] has rendered.
pub fn parse(lines: &str) -> Result<Vec<Series>, String> {
    let parse = |(index, line)| {
        let series: Series =
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))?;
        if series.values.is_empty() {
            return Err(format!("line {}: no values", index + 1));
        }
        Ok(series)
    };
    lines.lines().enumerate().map(parse).collect()
}

/// Renders a Markdown table for each table name, with a row for each contender. A cell is the
/// median in nanoseconds, and in brackets the range of the middle four fifths of several
/// repetitions.
///
/// A terminal of `width` characters gets several narrow tables where one would be too wide.
pub fn tables(series: &[Series], width: Option<usize>) -> String {
    let mut text = String::new();
    for table in distinct(series.iter().map(|s| s.table.as_str())) {
        let of_table: Vec<&Series> = series.iter().filter(|s| s.table == table).collect();
        let several = distinct(of_table.iter().map(|s| &s.metric)).len() > 1;
        let heading = |s: &Series| {
            if several { format!("{} {}", s.column, s.metric) } else { s.column.clone() }
        };
        let columns = distinct(of_table.iter().map(|s| heading(s)));
        let rows =
            distinct(of_table.iter().map(|s| s.contender.as_str())).into_iter().map(|name| {
                let row: Vec<&&Series> = of_table.iter().filter(|s| s.contender == name).collect();
                let ours = row.iter().any(|s| s.kind == ContenderKind::Ours);
                let cells = columns.iter().map(|column| {
                    let series = row.iter().find(|s| heading(s) == *column);
                    series.map_or("—".to_owned(), |s| cell(s))
                });
                let name = if ours { format!("**{name}**") } else { name.to_owned() };
                std::iter::once(name).chain(cells).collect()
            });
        let rows: Vec<Vec<String>> = rows.collect();
        let header = [vec![String::new()], columns.clone()].concat();
        text += &format!("### {table}\n\n{}\n\n", markdown(&header, &rows, width));
    }
    text
}

fn cell(series: &Series) -> String {
    if series.values.len() == 1 {
        return significant(series.median());
    }
    let (low, high) = series.middle();
    let [median, low, high] = [series.median(), low, high].map(significant);
    format!("{median} ({low}–{high})")
}

/// Returns the distinct items, in order of first appearance.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}
