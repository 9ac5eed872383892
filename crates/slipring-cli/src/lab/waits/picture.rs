//! The trade at a glance: for each arrival pattern, how late against how much of a core, a labelled
//! point for each strategy.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::{Record, Scene};

const COLUMNS: usize = 2;
const PANEL: (u32, u32) = (620, 400);
const TITLE: u32 = 56;
/// As the library scales fonts: so many pixels of height, about.
const TEXT: f64 = 15.0;
/// Width of a character of that size, on the safe side: who shows the picture chooses the font.
const CHARACTER: i32 = 7;
/// Height of a line of text.
const LINE: i32 = 14;
/// Radius of a point.
const POINT: i32 = 5;

/// Colours that are told apart by people who see fewer of them, too; dark enough for text.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 90, 160),
    RGBColor(190, 70, 0),
    RGBColor(0, 120, 90),
    RGBColor(160, 60, 120),
    RGBColor(110, 90, 0),
    RGBColor(30, 30, 30),
    RGBColor(110, 70, 190),
    RGBColor(170, 30, 40),
    RGBColor(0, 130, 170),
    RGBColor(80, 120, 0),
    RGBColor(200, 0, 120),
    RGBColor(110, 110, 110),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A strategy's place in a panel.
struct Point<'a> {
    strategy: &'a str,
    /// In percent.
    x: f64,
    /// In microseconds.
    y: f64,
    colour: RGBColor,
}

/// The picture, as SVG.
pub fn draw(record: &Record) -> Result<String> {
    let mut svg = String::new();
    draw_into(&mut svg, record).map_err(|error| anyhow!("the picture cannot be drawn: {error}"))?;
    Ok(svg)
}

fn draw_into(svg: &mut String, record: &Record) -> Result<(), Box<dyn std::error::Error>> {
    let rows = record.arrivals.len().div_ceil(COLUMNS).max(1);
    let columns = record.arrivals.len().clamp(1, COLUMNS);
    let size = (PANEL.0 * columns as u32, TITLE + PANEL.1 * rows as u32);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!(
        "Ways to wait, slipring {}: further down is sooner, further left is cheaper",
        record.slipring
    );
    root.draw(&Text::new(title, (16, 12), ("sans-serif", 22).into_font()))?;
    let machine = &record.machine;
    let about = format!(
        "{}, {} cores; {}, {}",
        machine.cpu.as_deref().unwrap_or("unknown"),
        machine.cores,
        record.size,
        record.date
    );
    root.draw(&Text::new(
        about,
        (16, 38),
        ("sans-serif", TEXT).into_font().color(&BLACK.mix(0.6)),
    ))?;

    // One scale for all panels, so that they can be compared.
    let panels: Vec<(&Scene, Vec<Point>)> =
        record.arrivals.iter().map(|scene| (scene, points(scene))).collect();
    let latencies = || panels.iter().flat_map(|(_, points)| points).map(|point| point.y);
    let low = latencies().fold(f64::INFINITY, f64::min).clamp(0.01, 1e6) / 2.5;
    let high = latencies().fold(0.0, f64::max).max(low * 10.0) * 2.5;
    let (_, below) = root.split_vertically(TITLE);
    for (area, (scene, points)) in below.split_evenly((rows, columns)).iter().zip(&panels) {
        panel(area, &root, scene, points, (low, high))?;
    }
    root.present()?;
    Ok(())
}

/// What is drawn of a scene: what the waiter used, or, if there was a bystander, what that one
/// lost. Nothing where the system tells neither.
fn points(scene: &Scene) -> Vec<Point<'_>> {
    let points = scene.strategies.iter().enumerate().filter_map(|(i, series)| {
        let share = series.median.bystander_loss.or(series.median.waiter_share)?;
        let (x, y) = ((share * 100.0).clamp(0.0, 100.0), (series.median.p50_ns / 1e3).max(0.01));
        Some(Point { strategy: &series.strategy, x, y, colour: COLOURS[i % COLOURS.len()] })
    });
    points.collect()
}

fn panel(
    area: &Area,
    root: &Area,
    scene: &Scene,
    points: &[Point],
    (low, high): (f64, f64),
) -> Result<(), Box<dyn std::error::Error>> {
    let horizontal = match scene.bystander_alone {
        Some(_) => "% that the process beside it lost",
        None => "% of a core that the waiter used",
    };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .caption(&scene.arrival, ("sans-serif", 19))
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..100.0, (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(horizontal)
        .y_desc("p50 latency, µs")
        .x_labels(11)
        .y_labels(6)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| if *y < 1.0 { format!("{y:.1}") } else { format!("{y:.0}") })
        .label_style(("sans-serif", TEXT))
        .max_light_lines(0)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;

    let plane: &DrawingArea<_, Cartesian2d<RangedCoordf64, LogCoord<f64>>> = chart.plotting_area();
    let spots: Vec<(i32, i32)> =
        points.iter().map(|point| plane.map_coordinate(&(point.x, point.y))).collect();
    let (across, down) = plane.get_pixel_range();
    let frame = Rect { left: across.start, top: down.start, right: across.end, bottom: down.end };
    let widths: Vec<i32> =
        points.iter().map(|point| CHARACTER * point.strategy.chars().count() as i32).collect();
    // Labels do not know of panels: all of this is in the coordinates of the whole picture.
    for ((point, &spot), label) in points.iter().zip(&spots).zip(place(&spots, &widths, frame)) {
        let end = label.nearest(spot);
        if (end.0 - spot.0).abs().max((end.1 - spot.1).abs()) > 2 * POINT {
            root.draw(&PathElement::new([spot, end], point.colour.mix(0.45)))?;
        }
        // Its room is rather too wide, so the text begins or ends at the side where its point is.
        let (side, anchor) = if label.right < spot.0 {
            (label.right, HPos::Right)
        } else {
            (label.left, HPos::Left)
        };
        let middle = (side, (label.top + label.bottom) / 2);
        let style = ("sans-serif", TEXT)
            .into_font()
            .color(&point.colour)
            .pos(Pos::new(anchor, VPos::Center));
        root.draw(&Text::new(point.strategy, middle, style))?;
        root.draw(&Circle::new(spot, POINT, point.colour.filled()))?;
    }
    Ok(())
}

/// A rectangle in pixels, its edges included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rect {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl Rect {
    fn around((x, y): (i32, i32), radius: i32) -> Self {
        Self { left: x - radius, top: y - radius, right: x + radius, bottom: y + radius }
    }

    fn meets(&self, other: &Self) -> bool {
        self.left <= other.right
            && other.left <= self.right
            && self.top <= other.bottom
            && other.top <= self.bottom
    }

    fn within(&self, other: &Self) -> bool {
        self.left >= other.left
            && self.right <= other.right
            && self.top >= other.top
            && self.bottom <= other.bottom
    }

    /// Where a line from a spot to this label ends: in the middle of the side that is nearer.
    fn nearest(&self, spot: (i32, i32)) -> (i32, i32) {
        let x =
            if spot.0 > self.right { self.right } else { self.left.max(spot.0.min(self.right)) };
        (
            x,
            if x == spot.0 {
                spot.1.clamp(self.top, self.bottom)
            } else {
                (self.top + self.bottom) / 2
            },
        )
    }
}

/// Finds a place for the label of each spot, as near as can be: within the frame, and upon no spot
/// and no other label. While there is such a place, no line from a spot to its label runs through
/// another label, and none through another spot. Where there is none at all, a label stays beside
/// its spot.
fn place(spots: &[(i32, i32)], widths: &[i32], frame: Rect) -> Vec<Rect> {
    let points: Vec<Rect> = spots.iter().map(|&spot| Rect::around(spot, POINT)).collect();
    let mut placed: Vec<Option<Rect>> = vec![None; spots.len()];
    // From the bottom up, so that a heap of points gets a column of labels in the same order.
    let mut order: Vec<usize> = (0..spots.len()).collect();
    order.sort_by_key(|&i| (-spots[i].1, spots[i].0));
    let mut lines: Vec<Line> = Vec::new();
    for i in order {
        let (spot, width) = (spots[i], widths[i]);
        let taken: Vec<Rect> = placed.iter().flatten().copied().collect();
        // Spots that lie upon this one are in the way of any line.
        let apart: Vec<Rect> =
            points.iter().filter(|point| !point.meets(&points[i])).copied().collect();
        let free = |label: &Rect| {
            label.within(&frame) && !points.iter().chain(&taken).any(|other| other.meets(label))
        };
        let clear = |label: &Rect| {
            let line = (spot, label.nearest(spot));
            !taken.iter().any(|other| crosses(line, other))
                && !lines.iter().any(|&line| crosses(line, label))
        };
        let plain =
            |label: &Rect| !apart.iter().any(|point| crosses((spot, label.nearest(spot)), point));
        let places = || candidates(spot, width).filter(free);
        let best = places().find(|label| clear(label) && plain(label));
        let label = best
            .or_else(|| places().find(clear))
            .or_else(|| places().next())
            .or_else(|| candidates(spot, width).next());
        let label = label.unwrap_or(points[i]);
        lines.push((spot, label.nearest(spot)));
        placed[i] = Some(label);
    }
    placed.into_iter().flatten().collect()
}

/// Places for a label of this width, the nearest first: right and left of its spot, then further up
/// and down, then further away.
fn candidates((x, y): (i32, i32), width: i32) -> impl Iterator<Item = Rect> {
    let distances = [2, 6, 12, 20, 30, 45].into_iter().map(|times| times * POINT);
    distances.flat_map(move |away| {
        let steps = (0..2 * 24)
            .map(|step| (step + 1) / 2 * (LINE / 2) * if step % 2 == 0 { 1 } else { -1 });
        steps.flat_map(move |rise| {
            let label = |left| Rect {
                left,
                top: y + rise - LINE / 2,
                right: left + width,
                bottom: y + rise + LINE / 2,
            };
            [label(x + away), label(x - away - width), label(x - width / 2)]
        })
    })
}

/// From one place to another.
type Line = ((i32, i32), (i32, i32));

/// Whether a line runs through a rectangle; looked at every few pixels.
fn crosses((from, to): Line, rect: &Rect) -> bool {
    let steps = ((to.0 - from.0).abs().max((to.1 - from.1).abs()) / 3).max(1);
    let at =
        |step| (from.0 + (to.0 - from.0) * step / steps, from.1 + (to.1 - from.1) * step / steps);
    (0..=steps).any(|step| Rect::around(at(step), 0).meets(rect))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::waits::figures::Figures;
    use crate::lab::waits::report::{Run, Series};
    use crate::lab::waits::wake::Wake;
    use crate::machine::Machine;

    /// Twelve strategies as they lie on a machine: most of them near two corners.
    fn crowded() -> Record {
        let places = [
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
        let series = places.map(|(strategy, us, share)| {
            let figures =
                Figures { p50_ns: us * 1e3, waiter_share: Some(share), ..Figures::default() };
            Series::new(strategy.to_owned(), vec![Run { round: 0, events: 1, figures }])
        });
        let scene = |arrival: &str| Scene {
            arrival: arrival.to_owned(),
            about: String::new(),
            seconds: 1.0,
            bystander_alone: None,
            strategies: series.to_vec(),
        };
        Record {
            slipring: "0.0.0",
            date: "today".to_owned(),
            size: "smoke".to_owned(),
            seed: 0,
            machine: Machine {
                cores: 2,
                cpu: Some("R & D <1>".to_owned()),
                kernel: None,
                clock_ns: 1.0,
            },
            pinned: None,
            oversubscribed: false,
            wake: Wake { times: 1, one_way_ns: 1.0, call_ns: 1.0 },
            stopped: None,
            arrivals: vec![scene("regular-10k"), scene("on-off"), scene("burst")],
        }
    }

    #[test]
    fn a_picture_can_be_read_and_labels_each_strategy_in_each_panel() {
        let svg = draw(&crowded()).unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        for name in ["busy-spin", "phased-backoff:1us,5us,blocking"] {
            let labels = document.descendants().filter(|node| {
                node.text().is_some_and(|text| text.trim() == name) && node.is_element()
            });
            assert_eq!(labels.count(), 3, "{name}");
        }
        assert!(
            draw(&Record { arrivals: vec![], ..crowded() }).is_ok(),
            "nothing is a picture, too"
        );
    }

    #[test]
    fn labels_lie_apart_and_inside_however_crowded_their_points_are() {
        let frame = Rect { left: 0, top: 0, right: 530, bottom: 310 };
        for seed in 0..100 {
            // Heaps of points, some of them in corners, as spinning and sleeping strategies make
            // them.
            let mut random = fastrand::Rng::with_seed(seed);
            let heaps: Vec<(i32, i32)> = (0..3)
                .map(|_| (random.i32(0..=500), random.i32(20..=290)))
                .chain([(529, 290), (1, 20)])
                .collect();
            let spots: Vec<(i32, i32)> = (0..12)
                .map(|_| {
                    let (x, y) = heaps[random.usize(0..heaps.len())];
                    ((x + random.i32(0..30)).min(530), y + random.i32(0..15))
                })
                .collect();
            let widths: Vec<i32> = spots.iter().map(|_| CHARACTER * random.i32(8..=35)).collect();
            let labels = place(&spots, &widths, frame);
            for (i, label) in labels.iter().enumerate() {
                assert!(label.within(&frame), "{seed}, {i}: {label:?}");
                assert!(
                    labels[..i].iter().all(|other| !other.meets(label)),
                    "{seed}, {i}: {label:?}"
                );
                assert!(
                    spots.iter().all(|&spot| !Rect::around(spot, POINT).meets(label)),
                    "{seed}, {i}: {label:?}"
                );
            }
        }
    }

    #[test]
    fn a_point_alone_has_its_label_right_beside_it() {
        let frame = Rect { left: 0, top: 0, right: 540, bottom: 300 };
        assert_eq!(place(&[(100, 100)], &[70], frame)[0].left, 100 + 2 * POINT);
        assert_eq!(
            place(&[(530, 100)], &[70], frame)[0].right,
            530 - 2 * POINT,
            "no room on the right"
        );
    }
}
