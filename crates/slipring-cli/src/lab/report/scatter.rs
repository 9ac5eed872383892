//! One metric against another: a marker for each contender, with whiskers of both spreads.

use maud::{Markup, html};

use super::scale::Scale;
use super::svg::{Frame, Plot, WIDTH, colour, label, marker, shortened, stroke, text_width};
use crate::lab::statistics::Spread;
use crate::lab::wording::number;

/// The content of a scatter plot.
#[derive(Debug)]
pub struct Scatter {
    pub title: String,
    /// Metrics and units.
    pub x: String,
    pub y: String,
    pub dots: Vec<Dot>,
}

/// A contender's dot.
#[derive(Debug)]
pub struct Dot {
    pub name: String,
    /// Number of the marker.
    pub index: usize,
    pub x: Spread,
    pub y: Spread,
    pub oversubscribed: bool,
}

impl Scatter {
    /// Draws the plot.
    pub fn plot(&self, across: &Scale, up: &Scale) -> Plot {
        let frame = Frame { left: 52.0, right: WIDTH - 20.0, top: 28.0, bottom: 320.0 };
        let x = |value: f64| frame.x(across.place_or_end(value));
        let y = |value: f64| frame.y(up.place_or_end(value));
        let dots: Vec<&Dot> = self.dots.iter().filter(|dot| dot.has_place(across, up)).collect();
        let centres: Vec<(f64, f64)> =
            dots.iter().map(|dot| (x(dot.x.median), y(dot.y.median))).collect();
        let labels = labels(&dots, &centres, &frame);
        let body = html! {
            (frame.vertical_axis(up, &self.y))
            (frame.horizontal_axis(across, &self.x))
            @for (dot, (at, level)) in dots.iter().zip(&centres) {
                @let class = format!("whisker {}", colour(dot.index));
                (stroke(&class, (x(dot.x.low), *level), (x(dot.x.high), *level)))
                (stroke(&class, (*at, y(dot.y.low)), (*at, y(dot.y.high))))
                (marker(dot.index, *at, *level))
            }
            @for (dot, label) in dots.iter().zip(&labels) { (label_of(dot, label.as_ref())) }
        };
        Plot {
            height: frame.bottom + 46.0,
            title: self.title.clone(),
            description: self.description(),
            body,
        }
    }

    /// Returns the number of dots that logarithmic scales cannot show.
    pub fn hidden(&self, across: &Scale, up: &Scale) -> usize {
        self.dots.iter().filter(|dot| !dot.has_place(across, up)).count()
    }

    fn description(&self) -> String {
        const NAMED: usize = 20;
        let mut text = format!("{} across, {} up.", self.x, self.y);
        for dot in self.dots.iter().take(NAMED) {
            text +=
                &format!(" {}: {} and {}.", dot.name, number(dot.x.median), number(dot.y.median));
        }
        if self.dots.len() > NAMED {
            text += &format!(" {} more contenders are in the table.", self.dots.len() - NAMED);
        }
        text
    }
}

impl Dot {
    fn has_place(&self, across: &Scale, up: &Scale) -> bool {
        across.place(self.x.median).is_some() && up.place(self.y.median).is_some()
    }
}

/// The area of a label.
#[derive(Clone, Copy, Debug)]
struct Label {
    left: f64,
    base: f64,
    width: f64,
}

impl Label {
    fn overlaps(&self, other: &Label) -> bool {
        self.left < other.left + other.width
            && other.left < self.left + self.width
            && (self.base - other.base).abs() < 13.0
    }

    fn covers(&self, (x, y): (f64, f64)) -> bool {
        (self.left - 5.0..self.left + self.width + 5.0).contains(&x)
            && (self.base - 15.0..self.base + 5.0).contains(&y)
    }
}

fn label_of(dot: &Dot, at: Option<&Label>) -> Markup {
    let mark = if dot.oversubscribed { "*" } else { "" };
    let text = format!("{}{mark}", shortened(&dot.name, 150.0));
    let class = format!("label {}", colour(dot.index));
    html! { @if let Some(at) = at { (label(&class, (at.left, at.base), &text)) } }
}

/// Chooses a place beside each dot where the label covers no other label or dot. A dot without such
/// a place has no label; the legend names it.
fn labels(dots: &[&Dot], centres: &[(f64, f64)], frame: &Frame) -> Vec<Option<Label>> {
    let mut placed: Vec<Label> = Vec::new();
    let place = |(dot, (x, y)): (&&Dot, &(f64, f64))| {
        let width = text_width(&dot.name).min(150.0) + 4.0;
        let sides = [
            (x + 9.0, y + 4.0),
            (x - 9.0 - width, y + 4.0),
            (x - width / 2.0, y - 10.0),
            (x - width / 2.0, y + 19.0),
            (x + 7.0, y - 8.0),
            (x + 7.0, y + 16.0),
        ];
        let free =
            sides.into_iter().map(|(left, base)| Label { left, base, width }).find(|label| {
                label.left >= frame.left
                    && label.left + width <= WIDTH - 2.0
                    && (frame.top..frame.bottom).contains(&label.base)
                    && !placed.iter().any(|other| label.overlaps(other))
                    && !centres.iter().any(|centre| label.covers(*centre))
            });
        placed.extend(free);
        free
    };
    dots.iter().zip(centres).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cover_neither_each_other_nor_a_dot() {
        let one = |value: f64| Spread { low: value, median: value, high: value };
        let dots: Vec<Dot> = (0..30)
            .map(|index| Dot {
                name: format!("contender {index}"),
                index,
                x: one(0.0),
                y: one(0.0),
                oversubscribed: false,
            })
            .collect();
        let centres: Vec<(f64, f64)> = (0..30)
            .map(|i| (f64::from(i * 97 % 400) + 60.0, f64::from(i * 31 % 250) + 40.0))
            .collect();
        let frame = Frame { left: 52.0, right: 540.0, top: 28.0, bottom: 320.0 };
        let labels: Vec<Label> = labels(&dots.iter().collect::<Vec<_>>(), &centres, &frame)
            .into_iter()
            .flatten()
            .collect();
        assert!(labels.len() > 10, "{}", labels.len());
        for (at, label) in labels.iter().enumerate() {
            assert!(!labels[..at].iter().any(|other| label.overlaps(other)));
            assert!(!centres.iter().any(|centre| label.covers(*centre)));
        }
    }
}
