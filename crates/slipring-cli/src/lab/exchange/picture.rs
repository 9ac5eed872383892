//! The figures of the experiment as a picture: reading time and latency for each way, first for the
//! paper's block, then by the size of the block.

use anyhow::{Result, anyhow};
use indicatif::BinaryBytes;
use plotters::coord::Shift;
use plotters::prelude::*;
use slipring_support::numbers::significant;
use slipring_support::pictures::{COLOURS, add_dark_style};

use super::measured::Series;
use super::record::Record;
use crate::lab::interval::Interval;

/// Size of a panel, in pixels.
const PANEL: (u32, u32) = (680, 420);
/// Height of the title and the legend, in pixels.
const HEAD: u32 = 134;
/// Font size of labels, in the units of `plotters`.
const TEXT: f64 = 14.0;
/// Columns of the legend.
const LEGEND_COLUMNS: usize = 4;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A figure of a series.
type Figure = fn(&Series) -> Option<Interval>;

/// Draws the picture as SVG.
pub fn draw(record: &Record) -> Result<String> {
    let mut svg = String::new();
    draw_into(&mut svg, record).map_err(|error| anyhow!("the picture cannot be drawn: {error}"))?;
    add_dark_style(&mut svg);
    Ok(svg)
}

fn draw_into(svg: &mut String, record: &Record) -> Drawn {
    let size = (PANEL.0 * 2, HEAD + PANEL.1 * 2);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("Exchange of a block, slipring {}: lower is faster", record.head.slipring);
    root.draw(&Text::new(title, (16, 12), ("sans-serif", 22).into_font()))?;
    let machine = &record.head.machine;
    let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
    let about =
        format!("{cpu}, {} cores; {}, {}", machine.cores, record.head.size, record.head.date);
    root.draw(&Text::new(about, (16, 40), ("sans-serif", TEXT).into_font()))?;
    let ways = record.ways();
    for (number, way) in ways.iter().enumerate() {
        let (column, line) = (number % LEGEND_COLUMNS, number / LEGEND_COLUMNS);
        let at = (16 + column as i32 * 330, 66 + line as i32 * 20);
        let end = (at.0 + 22, at.1 + 6);
        root.draw(&PathElement::new([(at.0, at.1 + 6), end], colour(number).stroke_width(4)))?;
        let name =
            Text::new((*way).to_owned(), (at.0 + 30, at.1), ("sans-serif", TEXT).into_font());
        root.draw(&name)?;
    }
    let (_, body) = root.split_vertically(HEAD);
    let panels = body.split_evenly((2, 2));
    let figures: [(&str, Figure); 2] =
        [("Time to read", Series::read), ("From written to begun", Series::latency)];
    for (row, (what, figure)) in figures.into_iter().enumerate() {
        bars(&panels[row * 2], record, &ways, what, figure)?;
        lines(&panels[row * 2 + 1], record, &ways, what, figure)?;
    }
    root.present()?;
    Ok(())
}

fn colour(number: usize) -> RGBColor {
    let (red, green, blue) = COLOURS[number % COLOURS.len()];
    RGBColor(red, green, blue)
}

/// Returns whether the series was measured with writer and reader on the two cores on which all
/// block sizes are measured. A series of the one-thread way counts, too.
fn is_apart(record: &Record, series: &Series) -> bool {
    let apart = record.apart().is_some_and(|place| place.reader == series.placement.reader);
    apart || series.way == "one-thread"
}

/// Returns the range of some values for a logarithmic axis, in microseconds.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    if values.is_empty() { 0.1..10.0 } else { least / 2.0..most * 2.0 }
}

/// For each way with the paper's block, draws bars with their intervals: in full colour for warm
/// caches, and in light colour for cold caches.
fn bars(area: &Area, record: &Record, ways: &[&str], what: &str, figure: Figure) -> Drawn {
    let of_paper: Vec<(&Series, Interval)> = record
        .paper()
        .filter(|series| is_apart(record, series))
        .filter_map(|series| Some((series, figure(series)?)))
        .collect();
    let range = range(of_paper.iter().map(|(_, interval)| interval.mean / 1e3));
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{what}, 1 MiB; light: cold caches"), ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(8)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..ways.len() as f64, range.clone().log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_max_light_lines(1)
        .y_desc("µs")
        .y_label_formatter(&|value| significant(*value))
        .draw()?;
    for (series, interval) in of_paper {
        let Some(number) = ways.iter().position(|way| *way == series.way) else { continue };
        let (left, opacity) = if series.cold { (0.5, 0.4) } else { (0.12, 1.0) };
        let left = number as f64 + left;
        let (right, middle) = (left + 0.38, left + 0.19);
        let mean = interval.mean / 1e3;
        let style = colour(number).mix(opacity).filled();
        chart.draw_series([Rectangle::new([(left, range.start), (right, mean)], style)])?;
        if let Some(half) = interval.half_width.map(|half| half / 1e3) {
            let ends = [mean - half, mean + half].map(|end| end.clamp(range.start, range.end));
            let whisker = ends.map(|end| (middle, end)).to_vec();
            chart.draw_series([PathElement::new(whisker, BLACK.stroke_width(1))])?;
        }
    }
    Ok(())
}

/// Draws, for each way with warm caches, a line over the block sizes.
fn lines(area: &Area, record: &Record, ways: &[&str], what: &str, figure: Figure) -> Drawn {
    let warm: Vec<(&Series, Interval)> = record
        .measured
        .series
        .iter()
        .filter(|series| !series.cold && is_apart(record, series))
        .filter_map(|series| Some((series, figure(series)?)))
        .collect();
    let y = range(warm.iter().map(|(_, interval)| interval.mean / 1e3));
    let exponents = || warm.iter().map(|(series, _)| (series.bytes as f64).log2());
    let x = exponents().fold(63.0, f64::min) - 0.5..exponents().fold(0.0, f64::max) + 0.5;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{what}, warm caches, by the block's size"), ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y.log_scale())?;
    chart
        .configure_mesh()
        .y_max_light_lines(1)
        .y_desc("µs")
        .disable_x_mesh()
        .x_label_formatter(&|exponent| BinaryBytes(exponent.exp2() as u64).to_string())
        .y_label_formatter(&|value| significant(*value))
        .draw()?;
    for (number, way) in ways.iter().enumerate() {
        let mut points: Vec<(f64, f64)> = warm
            .iter()
            .filter(|(series, _)| series.way == *way)
            .map(|(series, interval)| ((series.bytes as f64).log2(), interval.mean / 1e3))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.draw_series(LineSeries::new(points.clone(), colour(number).stroke_width(2)))?;
        chart.draw_series(
            points.into_iter().map(|at| Circle::new(at, 3, colour(number).filled())),
        )?;
    }
    Ok(())
}
