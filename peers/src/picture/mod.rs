//! Draws tables whose columns are numbers. The picture has a panel for each table, with a line for
//! each contender and a legend.
//!
//! A point is the median. A thin bar extends from the 10th to the 90th percentile. Contenders of a
//! panel differ in colour and in the shape of their points; slipring's lines are thick.

mod axis;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use slipring_support::numbers::significant;
use slipring_support::pictures::{COLOURS, add_dark_style};

use crate::measure::{ContenderKind, Series};
use axis::Axis;

const COLUMNS: usize = 2;
/// Size of a panel without its legend, in pixels.
const PANEL: (u32, u32) = (680, 380);
/// Height of the title, in pixels.
const TITLE: u32 = 64;
/// Height of a line of a legend, in pixels.
const LEGEND_LINE: u32 = 20;
/// Distance between a panel's legend and the panel below it, in pixels.
const GAP: u32 = 16;
/// Font size of labels, in the units of `plotters`.
const TEXT: f64 = 14.0;
/// Half of the width of a point, in pixels.
const RADIUS: i32 = 4;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Returns the number and the unit of a column such as `2 stages`.
fn number(column: &str) -> Option<(f64, &str)> {
    let (number, unit) = column.split_once(' ')?;
    Some((number.parse().ok().filter(|number: &f64| number.is_finite())?, unit))
}

/// Returns the tables that can be drawn: those with two columns or more, all of which are numbers
/// of one unit.
pub fn drawable<'a>(columns: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<&'a str> {
    let mut tables: Vec<(&str, Vec<&str>)> = Vec::new();
    for (table, column) in columns {
        match tables.iter_mut().find(|(name, _)| *name == table) {
            Some((_, columns)) if columns.contains(&column) => {}
            Some((_, columns)) => columns.push(column),
            None => tables.push((table, vec![column])),
        }
    }
    let unit =
        |column: &&str| number(column).map(|(_, unit)| unit.trim_end_matches('s').to_owned());
    tables.retain(|(_, columns)| {
        let first = unit(&columns[0]);
        columns.len() > 1 && first.is_some() && columns.iter().all(|column| unit(column) == first)
    });
    tables.into_iter().map(|(table, _)| table).collect()
}

/// A table that is drawn.
struct Panel<'a> {
    table: &'a str,
    unit: &'a str,
    lines: Vec<Line<'a>>,
}

/// The points of one contender, from left to right.
struct Line<'a> {
    contender: &'a str,
    kind: ContenderKind,
    /// Number that selects the line's colour and the shape of its points.
    look: usize,
    points: Vec<Point>,
}

/// One column's values of a contender, in nanoseconds per event.
struct Point {
    /// Number of the column.
    at: f64,
    median: f64,
    /// 10th percentile.
    low: f64,
    /// 90th percentile.
    high: f64,
}

/// Draws the tables that can be drawn, as SVG. `about` says where the values come from.
pub fn draw(series: &[Series], about: &str) -> Result<String, String> {
    let mut svg = String::new();
    draw_into(&mut svg, &panels(series), about)
        .map_err(|error| format!("the picture cannot be drawn: {error}"))?;
    add_dark_style(&mut svg);
    Ok(svg)
}

fn panels(series: &[Series]) -> Vec<Panel<'_>> {
    let per_event = || series.iter().filter(|series| series.metric == "ns");
    let tables = drawable(per_event().map(|series| (&*series.table, &*series.column)));
    let panel = |table| {
        let (mut unit, mut lines) = ("", Vec::<Line>::new());
        for series in per_event().filter(|series| series.table == table) {
            let Some((at, column_unit)) = number(&series.column) else { continue };
            // The unit of the last column wins, because that unit is a plural.
            unit = column_unit;
            let (low, high) = series.middle();
            let point = Point { at, median: series.median(), low, high };
            match lines.iter_mut().find(|line| line.contender == series.contender) {
                Some(line) => line.points.push(point),
                None => lines.push(Line {
                    contender: &series.contender,
                    kind: series.kind,
                    look: 0,
                    points: vec![point],
                }),
            }
        }
        Panel { table, unit, lines }
    };
    let mut panels: Vec<Panel> = tables.into_iter().map(panel).collect();
    choose_looks(&mut panels);
    panels
}

/// Chooses a look for each line, so that all looks of a panel differ and a contender has the same
/// look in most panels.
fn choose_looks<'a>(panels: &mut [Panel<'a>]) {
    const LOOKS: usize = COLOURS.len();
    let mut contenders: Vec<&'a str> = Vec::new();
    for panel in panels {
        let mut taken = [false; LOOKS];
        for line in &mut panel.lines {
            let known = contenders.iter().position(|contender| *contender == line.contender);
            let first = known.unwrap_or_else(|| {
                contenders.push(line.contender);
                contenders.len() - 1
            });
            let mut looks = (first..first + LOOKS).map(|look| look % LOOKS);
            line.look = looks.find(|&look| !taken[look]).unwrap_or(first % LOOKS);
            taken[line.look] = true;
        }
    }
}

fn draw_into(svg: &mut String, panels: &[Panel], about: &str) -> Drawn {
    let rows: Vec<&[Panel]> = panels.chunks(COLUMNS).collect();
    let height = |row: &&[Panel]| {
        let lines = row.iter().map(|panel| panel.legend_columns().1).max().unwrap_or(0);
        PANEL.1 + LEGEND_LINE * lines as u32 + GAP
    };
    let size = (PANEL.0 * COLUMNS as u32, TITLE + rows.iter().map(height).sum::<u32>());
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let title = "slipring beside its peers: nanoseconds per event, lower is faster";
    root.draw(&Text::new(title, (16, 12), ("sans-serif", 22).into_font()))?;
    let about = format!("{about}; medians, with bars from the 10th to the 90th percentile");
    root.draw(&Text::new(about, (16, 40), ("sans-serif", TEXT).into_font()))?;

    let (_, mut below) = root.split_vertically(TITLE);
    for row in rows {
        let (areas, rest) = below.split_vertically(height(&row));
        below = rest;
        for (area, panel) in areas.split_evenly((1, COLUMNS)).iter().zip(row) {
            let (chart, legend) = area.split_vertically(PANEL.1);
            panel.draw(&root, &chart)?;
            panel.draw_legend(&legend)?;
        }
    }
    root.present()?;
    Ok(())
}

impl Panel<'_> {
    fn draw(&self, root: &Area, area: &Area) -> Drawn {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let mut numbers: Vec<f64> = points().map(|point| point.at).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        let values = points().flat_map(|point| [point.low, point.median, point.high]);
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(24)
            .caption(self.table, ("sans-serif", 18))
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(Axis::with_ticks(&numbers), Axis::of_values(values))?;
        chart
            .configure_mesh()
            .x_desc(self.unit)
            .y_desc("ns per event")
            .x_label_formatter(&|&number| binary(number))
            .y_label_formatter(&|&value| significant(value))
            .label_style(("sans-serif", TEXT))
            .max_light_lines(0)
            .bold_line_style(BLACK.mix(0.12))
            .draw()?;

        for line in &self.lines {
            let colour = colour(line.look);
            let width = if line.kind == ContenderKind::Ours { 3 } else { 1 };
            let medians = line.points.iter().map(|point| (point.at, point.median));
            chart.draw_series(LineSeries::new(medians, colour.stroke_width(width)))?;
            let bars = line.points.iter().map(|point| {
                let ends = [(point.at, point.low), (point.at, point.high)];
                PathElement::new(ends, colour.stroke_width(1))
            });
            chart.draw_series(bars)?;
        }
        // Points are drawn after all lines, so that no line crosses a point. Their coordinates are
        // relative to the whole picture, so they are drawn on `root`.
        let plane = chart.plotting_area();
        for line in &self.lines {
            for point in &line.points {
                draw_point(root, line.look, plane.map_coordinate(&(point.at, point.median)))?;
            }
        }
        Ok(())
    }

    /// Returns how many names fit beside each other in the legend, and how many lines the legend
    /// has. A character counts as 8 pixels, because the reader's font may be wide.
    fn legend_columns(&self) -> (usize, usize) {
        let longest = self.lines.iter().map(|line| line.contender.chars().count()).max();
        let cell = 8 * longest.unwrap_or(1) + 6 * RADIUS as usize;
        let columns = ((PANEL.0 as usize - 32) / cell).max(1);
        (columns, self.lines.len().div_ceil(columns))
    }

    /// Draws each contender's point and name, line by line.
    fn draw_legend(&self, area: &Area) -> Drawn {
        let (columns, lines) = self.legend_columns();
        let cell = (PANEL.0 as usize - 32) / columns;
        for (index, line) in self.lines.iter().enumerate() {
            let (column, row) = (index / lines, index % lines);
            let x = (16 + column * cell) as i32 + RADIUS;
            let y = (LEGEND_LINE * row as u32 + LEGEND_LINE / 2) as i32;
            draw_point(area, line.look, (x, y))?;
            let style = ("sans-serif", TEXT).into_font().color(&BLACK);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(line.contender, (x + 3 * RADIUS, y), style))?;
        }
        Ok(())
    }
}

/// Formats a number of slots or bytes with binary prefixes, as they are powers of two.
fn binary(number: f64) -> String {
    for (unit, prefix) in [(1_048_576.0, "Mi"), (1024.0, "Ki")] {
        if number >= unit && number % unit == 0.0 {
            return format!("{} {prefix}", number / unit);
        }
    }
    number.to_string()
}

/// Returns the colour of a look.
fn colour(look: usize) -> RGBColor {
    let (red, green, blue) = COLOURS[look];
    RGBColor(red, green, blue)
}

/// Draws a point in the colour and shape of a look.
fn draw_point(area: &Area, look: usize, (x, y): (i32, i32)) -> Drawn {
    let colour = colour(look);
    let (left, right, top, bottom) = (x - RADIUS, x + RADIUS, y - RADIUS, y + RADIUS);
    match look % 6 {
        0 => area.draw(&Circle::new((x, y), RADIUS, colour.filled())),
        1 => area.draw(&Rectangle::new([(left, top), (right, bottom)], colour.filled())),
        2 => area.draw(&Polygon::new([(left, bottom), (right, bottom), (x, top)], colour)),
        3 => area.draw(&Polygon::new([(left, y), (x, bottom), (right, y), (x, top)], colour)),
        4 => {
            let style = colour.stroke_width(2);
            area.draw(&PathElement::new([(left, top), (right, bottom)], style))?;
            area.draw(&PathElement::new([(left, bottom), (right, top)], style))
        }
        _ => area.draw(&Circle::new((x, y), RADIUS, colour.stroke_width(2))),
    }?;
    Ok(())
}
