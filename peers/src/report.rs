//! What was measured, as tables for people and as lines for programs, and what it says of the
//! library's claims.

use std::fmt::Write as _;
use std::io;

use crate::measure::{Kind, Series};

/// One JSON line a series: the raw values in the order measured.
pub fn json(series: &[Series]) -> io::Result<String> {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        table: &'a str,
        column: &'a str,
        contender: &'a str,
        kind: Kind,
        metric: &'a str,
        values: Vec<f64>,
    }
    let mut lines = String::new();
    for Series { table, column, contender, kind, metric, values } in series {
        let values = values.iter().map(|value| (value * 1000.0).round() / 1000.0).collect();
        lines += &serde_json::to_string(&Line { table, column, contender, kind: *kind, metric, values })?;
        lines.push('\n');
    }
    Ok(lines)
}

/// A Markdown table for each table name: contenders down, columns across; medians, and in brackets
/// where the middle four fifths lie.
pub fn tables(series: &[Series]) -> String {
    let mut out = String::new();
    for table in distinct(series.iter().map(|s| s.table.as_str())) {
        let of_table: Vec<&Series> = series.iter().filter(|s| s.table == table).collect();
        let several = distinct(of_table.iter().map(|s| s.metric)).len() > 1;
        let heading = |s: &Series| if several { format!("{} {}", s.column, s.metric) } else { s.column.clone() };
        let columns = distinct(of_table.iter().map(|s| heading(s)));
        let _ = writeln!(out, "### {table}\n\n| | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len()));
        for contender in distinct(of_table.iter().map(|s| s.contender.as_str())) {
            let row: Vec<&&Series> = of_table.iter().filter(|s| s.contender == contender).collect();
            let ours = row.iter().any(|s| s.kind == Kind::Ours);
            let _ = write!(out, "| {} |", if ours { format!("**{contender}**") } else { contender.to_owned() });
            for column in &columns {
                let cell = row.iter().find(|s| heading(s) == *column);
                let _ = write!(
                    out,
                    " {} |",
                    cell.map_or("—".to_owned(), |s| {
                        let (low, high) = s.middle();
                        format!("{} ({}–{})", figure(s.median()), figure(low), figure(high))
                    })
                );
            }
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

/// Three digits, as far as they mean anything.
fn figure(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// The distinct ones, in order of first appearance.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}
