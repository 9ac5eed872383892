//! The trade-off as a picture: for each arrival pattern a panel of median latency against processor
//! time, with a numbered point for each strategy and one legend for all panels.
//!
//! A point is a coloured bead with the strategy's number. Beads that would overlap stand side by
//! side in a row above their points; a line leads from each bead to the dot of its point.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use slipring_support::numbers::significant;
use slipring_support::pictures::{COLOURS, add_dark_style};

use super::measured::ArrivalResult;
use super::record::Record;

const COLUMNS: usize = 2;
/// Size of a panel, in pixels.
const PANEL: (u32, u32) = (620, 400);
/// Height of the title, in pixels.
const TITLE: u32 = 64;
/// Height of a line of the legend, in pixels.
const LEGEND_LINE: u32 = 24;
/// Font size of labels, in the units of `plotters`.
const TEXT: f64 = 15.0;
/// Radius of a bead, in pixels.
const RADIUS: i32 = 9;
/// Radius of the dot of a point whose bead stands in a row, in pixels.
const DOT: i32 = 3;
/// Distance from a row of beads to the nearest of its dots, in pixels.
const ROW_DISTANCE: i32 = 26;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A strategy's figures in a panel.
struct Point {
    /// Index of the strategy.
    strategy: usize,
    /// Processor time or the bystander's loss, in percent.
    x: f64,
    /// Median latency, in microseconds.
    y: f64,
}

/// Draws the picture as SVG.
pub fn draw(record: &Record) -> Result<String> {
    let mut svg = String::new();
    draw_into(&mut svg, record).map_err(|error| anyhow!("the picture cannot be drawn: {error}"))?;
    add_dark_style(&mut svg);
    Ok(svg)
}

fn draw_into(svg: &mut String, record: &Record) -> Result<(), Box<dyn std::error::Error>> {
    let rows = record.measured.arrivals.len().div_ceil(COLUMNS).max(1);
    let width = PANEL.0 * COLUMNS as u32;
    let names = strategies(record);
    let legend_lines = names.len().div_ceil(legend_columns(&names)) as u32;
    let head = TITLE + LEGEND_LINE * legend_lines + 12;
    let root =
        SVGBackend::with_string(svg, (width, head + PANEL.1 * rows as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!(
        "Wait strategies, slipring {}: lower is faster, further left costs less",
        record.head.slipring
    );
    root.draw(&Text::new(title, (16, 12), ("sans-serif", 22).into_font()))?;
    let machine = &record.head.machine;
    let about = format!(
        "{}, {} cores; {}, {}",
        machine.cpu.as_deref().unwrap_or("unknown processor"),
        machine.cores,
        record.head.size,
        record.head.date
    );
    root.draw(&Text::new(about, (16, 40), ("sans-serif", TEXT).into_font()))?;
    legend(&root, &names)?;

    // All panels share one scale, so that they can be compared.
    let panels: Vec<(&ArrivalResult, Vec<Point>)> =
        record.measured.arrivals.iter().map(|result| (result, points(result, &names))).collect();
    let latencies = || panels.iter().flat_map(|(_, points)| points).map(|point| point.y);
    let low = latencies().fold(f64::INFINITY, f64::min).clamp(0.01, 1e6) / 2.5;
    let high = latencies().fold(0.0, f64::max).max(low * 10.0) * 2.5;
    let (_, below) = root.split_vertically(head);
    for (area, (result, points)) in below.split_evenly((rows, COLUMNS)).iter().zip(&panels) {
        panel(area, &root, result, points, (low, high))?;
    }
    root.present()?;
    Ok(())
}

/// Returns the names of all strategies; a strategy's number is its index here, plus one.
fn strategies(record: &Record) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for series in record.measured.arrivals.iter().flat_map(|result| &result.strategies) {
        if !names.contains(&series.strategy.as_str()) {
            names.push(&series.strategy);
        }
    }
    names
}

/// Returns how many names fit beside each other. A character counts as 8 pixels, because the
/// reader's font may be wide.
fn legend_columns(names: &[&str]) -> usize {
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(1);
    let cell = 8 * longest + 4 * RADIUS as usize;
    ((PANEL.0 as usize * COLUMNS - 32) / cell).max(1)
}

/// Draws each strategy's bead and name, line by line.
fn legend(root: &Area, names: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let columns = legend_columns(names);
    let lines = names.len().div_ceil(columns);
    let cell = (PANEL.0 as usize * COLUMNS - 32) / columns;
    for (index, name) in names.iter().enumerate() {
        let (column, line) = (index / lines, index % lines);
        let x = (16 + column * cell) as i32 + RADIUS;
        let y = (TITLE + LEGEND_LINE * line as u32) as i32 + RADIUS;
        bead(root, index, (x, y))?;
        let style = ("sans-serif", TEXT).into_font().color(&BLACK);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(*name, (x + RADIUS + 6, y), style))?;
    }
    Ok(())
}

/// Returns a strategy's colour.
fn colour(index: usize) -> RGBColor {
    let (red, green, blue) = COLOURS[index % COLOURS.len()];
    RGBColor(red, green, blue)
}

/// Draws a strategy's number in its colour.
fn bead(root: &Area, index: usize, at: (i32, i32)) -> Result<(), Box<dyn std::error::Error>> {
    let colour = colour(index);
    root.draw(&Circle::new(at, RADIUS, colour.filled()))?;
    // The colour is almost white, so that the style sheet for dark backgrounds leaves it as it is.
    let style = ("sans-serif", 12).into_font().color(&RGBColor(255, 255, 254));
    let style = style.pos(Pos::new(HPos::Center, VPos::Center));
    root.draw(&Text::new((index + 1).to_string(), at, style))?;
    Ok(())
}

/// Returns the points of a panel. A strategy has no point if the system did not provide its
/// processor time.
fn points(result: &ArrivalResult, names: &[&str]) -> Vec<Point> {
    let points = result.strategies.iter().filter_map(|series| {
        let strategy = names.iter().position(|name| *name == series.strategy)?;
        let share = series.median.bystander_loss.or(series.median.waiter_share)?;
        let (x, y) = ((share * 100.0).clamp(0.0, 100.0), (series.median.p50_ns / 1e3).max(0.01));
        Some(Point { strategy, x, y })
    });
    points.collect()
}

fn panel(
    area: &Area,
    root: &Area,
    result: &ArrivalResult,
    points: &[Point],
    (low, high): (f64, f64),
) -> Result<(), Box<dyn std::error::Error>> {
    let horizontal = match result.bystander_alone {
        Some(_) => "work that the second process lost, %",
        None => "share of a core that the waiter used, %",
    };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .caption(&result.arrival, ("sans-serif", 19))
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..100.0, (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(horizontal)
        .y_desc("median latency, µs")
        .x_labels(11)
        .y_labels(6)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|&y| significant(y))
        .label_style(("sans-serif", TEXT))
        .max_light_lines(0)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;

    let plane = chart.plotting_area();
    let places: Vec<(i32, i32)> =
        points.iter().map(|point| plane.map_coordinate(&(point.x, point.y))).collect();
    let (across, down) = plane.get_pixel_range();
    let frame = Frame { left: across.start, right: across.end, top: down.start, bottom: down.end };
    // Lines are drawn before beads, so that no line crosses a number. The places are in the
    // coordinates of the whole picture, so the root draws them.
    let beads = arrange(&places, frame);
    for ((point, &place), &bead) in points.iter().zip(&places).zip(&beads) {
        let colour = colour(point.strategy);
        if bead != place {
            root.draw(&PathElement::new([place, bead], colour.mix(0.7)))?;
            root.draw(&Circle::new(place, DOT, colour.filled()))?;
        }
    }
    for (point, &at) in points.iter().zip(&beads) {
        bead(root, point.strategy, at)?;
    }
    Ok(())
}

/// A rectangle, in pixels of the whole picture.
#[derive(Clone, Copy, Debug)]
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

/// A group of points: a single point with its bead at its place, or several with their beads in a
/// row above or below them.
struct Group {
    /// Indices of the points, from left to right.
    points: Vec<usize>,
    /// Place of the leftmost bead.
    first_bead: (i32, i32),
    /// The area of all beads and dots, which no other group may use.
    area: Frame,
}

impl Group {
    /// Places the beads of these points within the frame.
    fn new(mut points: Vec<usize>, places: &[(i32, i32)], frame: Frame) -> Self {
        // The beads are in the order of their points, so that few lines cross.
        points.sort_by_key(|&point| places[point]);
        let (xs, ys): (Vec<i32>, Vec<i32>) = points.iter().map(|&point| places[point]).unzip();
        let count = points.len() as i32;
        let least = |values: &[i32]| values.iter().copied().min().unwrap_or(0);
        let most = |values: &[i32]| values.iter().copied().max().unwrap_or(0);
        let (top, bottom) = (least(&ys), most(&ys));
        let y = match count {
            1 => top,
            _ if top - ROW_DISTANCE >= frame.top => top - ROW_DISTANCE,
            _ => (bottom + ROW_DISTANCE).min(frame.bottom),
        };
        let width = 2 * RADIUS * (count - 1);
        let x = xs.iter().sum::<i32>() / count - width / 2;
        let x = x.min(frame.right - width).max(frame.left);
        let area = Frame {
            left: (x - RADIUS).min(least(&xs) - DOT),
            right: (x + width + RADIUS).max(most(&xs) + DOT),
            top: (y - RADIUS).min(top - DOT),
            bottom: (y + RADIUS).max(bottom + DOT),
        };
        Self { points, first_bead: (x, y), area }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (one, other) = (&self.area, &other.area);
        one.left < other.right
            && other.left < one.right
            && one.top < other.bottom
            && other.top < one.bottom
    }
}

/// Returns a place for each point's bead, so that no bead covers another bead or a dot.
///
/// Each point begins as a group of its own. Groups that overlap are merged until none do. The
/// merging ends, because every merge leaves one group fewer.
fn arrange(places: &[(i32, i32)], frame: Frame) -> Vec<(i32, i32)> {
    let mut groups: Vec<Group> =
        (0..places.len()).map(|point| Group::new(vec![point], places, frame)).collect();
    while let Some((first, second)) = (0..groups.len())
        .flat_map(|second| (0..second).map(move |first| (first, second)))
        .find(|&(first, second)| groups[first].overlaps(&groups[second]))
    {
        let mut points = groups.swap_remove(second).points;
        points.append(&mut groups[first].points);
        groups[first] = Group::new(points, places, frame);
    }
    let mut beads = vec![(0, 0); places.len()];
    for Group { points, first_bead: (x, y), .. } in &groups {
        for (i, &point) in points.iter().enumerate() {
            beads[point] = (x + 2 * RADIUS * i as i32, *y);
        }
    }
    beads
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use slipring_support::pictures::DARK;

    use super::*;
    use crate::lab::machine::MeasuredMachine;
    use crate::lab::record;
    use crate::lab::size::Size;
    use crate::lab::statistics::Noise;
    use crate::lab::waits::figures::Figures;
    use crate::lab::waits::measured::{Measured, Series, StrategyRun};
    use crate::lab::waits::wake::Wake;

    /// Returns a record of twelve strategies with figures as on a real machine: most of them lie
    /// near two corners.
    fn record() -> Record {
        let figures = [
            ("busy-spin", 0.27, 1.0),
            ("yielding", 0.29, 0.999),
            ("sleeping", 0.9, 0.3),
            ("blocking", 30.0, 0.02),
            ("phased-backoff:1us,5us,blocking", 28.0, 0.05),
            ("alternating-yield-block:50us,200us", 9.0, 0.5),
            ("alternating-spin-block:50us,200us", 8.8, 0.51),
            ("alternating-yield-sleep:50us,200us", 0.31, 0.98),
            ("alternating-spin-sleep:50us,200us", 0.3, 0.99),
            ("adaptive", 0.3, 1.0),
            ("adaptive:25%", 25.0, 0.04),
            ("yielding:1000", 0.28, 1.0),
        ];
        let series = figures.map(|(strategy, us, share)| {
            let figures =
                Figures { p50_ns: us * 1e3, waiter_share: Some(share), ..Figures::default() };
            Series::new(
                strategy.to_owned(),
                vec![StrategyRun { events: 1, figures, curve: vec![] }],
            )
        });
        let result = |arrival: &str| ArrivalResult {
            arrival: arrival.to_owned(),
            about: String::new(),
            threads: 2,
            pinned: None,
            seconds: 1.0,
            bystander_alone: None,
            strategies: series.to_vec(),
        };
        let machine = MeasuredMachine {
            cores: 2,
            cpu: Some("R & D <1>".to_owned()),
            kernel: None,
            clock_ns: 1.0,
            description: None,
        };
        let noise = Noise { computing: 0.0, handover: 0.0, repetitions: 5 };
        Record {
            head: record::Record::begin(Size::Smoke, 0, machine, noise),
            measured: Measured {
                pinned: None,
                wake: Wake { times: 1, one_way_ns: 1.0, call_ns: 1.0 },
                began: Instant::now(),
                arrivals: vec![result("regular-10k"), result("on-off"), result("burst")],
            },
        }
    }

    /// Returns how often the picture has this text in this colour.
    fn count(document: &roxmltree::Document, text: &str, fill: &str) -> usize {
        let texts = document.descendants().filter(|node| {
            node.has_tag_name("text") && node.attribute("fill").is_some_and(|found| found == fill)
        });
        texts.filter(|node| node.text().is_some_and(|found| found.trim() == text)).count()
    }

    #[test]
    fn the_legend_names_each_strategy_once_and_each_panel_has_its_bead() {
        let svg = draw(&record()).unwrap();
        let document = roxmltree::Document::parse(&svg).expect("well-formed SVG");
        for (index, name) in strategies(&record()).iter().enumerate() {
            assert_eq!(count(&document, name, "#000000"), 1, "{name}");
            let number = (index + 1).to_string();
            assert_eq!(count(&document, &number, "#FFFFFE"), 1 + 3, "{name}: legend and panels");
        }
    }

    #[test]
    fn a_record_without_results_gives_a_picture() {
        let mut record = record();
        record.measured.arrivals.clear();
        let svg = draw(&record).unwrap();
        assert!(roxmltree::Document::parse(&svg).is_ok());
    }

    /// The style sheet finds shapes by the attributes that `plotters` writes; another version may
    /// write others.
    #[test]
    fn the_dark_style_sheet_matches_background_texts_and_axes() {
        let svg = draw(&record()).unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        for (tag, attribute, value) in [
            ("rect", "fill", "#FFFFFF"),
            ("text", "fill", "#000000"),
            ("polyline", "stroke", "#000000"),
        ] {
            assert!(DARK.contains(&format!("{tag}[{attribute}=\"{value}\"]")));
            let found = document
                .descendants()
                .any(|node| node.has_tag_name(tag) && node.attribute(attribute) == Some(value));
            assert!(found, "no {tag} with {attribute} {value}");
        }
    }

    #[test]
    fn beads_stay_within_the_frame_and_cover_no_other_bead_or_dot() {
        let frame = Frame { left: 0, right: 530, top: 0, bottom: 310 };
        for seed in 0..200 {
            // The points form clusters. Two clusters lie in corners, as the points of spinning
            // strategies and of sleeping strategies do.
            let mut random = fastrand::Rng::with_seed(seed);
            let heaps: Vec<(i32, i32)> = (0..3)
                .map(|_| (random.i32(0..=500), random.i32(20..=290)))
                .chain([(529, 290), (1, 20)])
                .collect();
            let places: Vec<(i32, i32)> = (0..12)
                .map(|_| {
                    let (x, y) = heaps[random.usize(0..heaps.len())];
                    ((x + random.i32(0..30)).min(530), y + random.i32(0..15))
                })
                .collect();
            let beads = arrange(&places, frame);
            for (i, &(x, y)) in beads.iter().enumerate() {
                let inside = (frame.left..=frame.right).contains(&x)
                    && (frame.top..=frame.bottom).contains(&y);
                assert!(inside, "{seed}, {i}: {beads:?}");
                let apart = |&(other_x, other_y): &(i32, i32)| {
                    (x - other_x).abs() >= 2 * RADIUS || (y - other_y).abs() >= 2 * RADIUS
                };
                assert!(beads[..i].iter().all(apart), "{seed}, {i}: {beads:?}");
                let covered = |&(j, &(dot_x, dot_y)): &(usize, &(i32, i32))| {
                    beads[j] != places[j]
                        && (x - dot_x).abs() < RADIUS
                        && (y - dot_y).abs() < RADIUS
                };
                assert_eq!(places.iter().enumerate().find(covered), None, "{seed}, {i}");
            }
        }
    }

    #[test]
    fn a_point_without_neighbours_has_its_bead_at_its_exact_place() {
        let frame = Frame { left: 0, right: 540, top: 0, bottom: 300 };
        assert_eq!(arrange(&[(100, 100), (300, 30)], frame), [(100, 100), (300, 30)]);
        assert_eq!(arrange(&[(100, 100), (104, 102)], frame), [(93, 74), (111, 74)], "a row above");
    }
}
