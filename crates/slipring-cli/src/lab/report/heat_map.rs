//! Heat maps: a field for each pair of values of two parameters, with the value of a metric as its
//! colour and its text.

use maud::{Markup, html};

use super::scale::Scale;
use super::svg::{Frame, Plot, Px, WIDTH, label, shortened, text_width};
use crate::lab::wording::number;

/// Number of colours.
const STEPS: usize = 9;
/// Smallest width of a field that has room for its value.
const READABLE: f64 = 30.0;

/// The content of a heat map.
#[derive(Debug)]
pub struct HeatMap {
    pub title: String,
    /// Names of the parameters.
    pub row: String,
    pub column: String,
    /// Metric and unit.
    pub metric: String,
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    /// Values by row and column; `None` if not measured.
    pub fields: Vec<Vec<Option<f64>>>,
}

impl HeatMap {
    pub fn extent(&self) -> impl Iterator<Item = f64> + Clone {
        self.fields.iter().flatten().flatten().copied()
    }

    /// Draws the plot.
    pub fn plot(&self, low: f64, high: f64) -> Plot {
        let scale = Scale::fitting([low, high].into_iter());
        let longest = self.rows.iter().map(|name| text_width(name)).fold(0.0, f64::max);
        let left = longest.clamp(24.0, 150.0) + 16.0;
        let width = ((WIDTH - left - 8.0) / self.columns.len().max(1) as f64).min(90.0);
        let height = width.clamp(14.0, 32.0);
        let frame = Frame {
            left,
            right: left + width * self.columns.len() as f64,
            top: 44.0,
            bottom: 44.0 + height * self.rows.len() as f64,
        };
        let step = |value: f64| {
            // The colours span the values, not the axis.
            let [from, place, to] = [low, value, high].map(|of| scale.place_or_end(of));
            let share = if to > from { (place - from) / (to - from) } else { 0.0 };
            ((share * STEPS as f64) as usize).min(STEPS - 1)
        };
        let key = frame.bottom + 22.0;
        // Every column that has room for its name shows it.
        let widest = self.columns.iter().map(|name| text_width(name).min(80.0)).fold(0.0, f64::max);
        let every = ((widest + 6.0) / width).ceil().max(1.0) as usize;
        let title = format!("{} down, {} across", self.row, self.column);
        let (least, kind) =
            (number(low), if scale.is_logarithmic() { " (logarithmic)" } else { "" });
        let largest = format!("{} {}{kind}", number(high), shortened(&self.metric, 160.0));
        let from = frame.left + text_width(&least) + 8.0;
        let body = html! {
            (label("axis", (2.0, 14.0), &shortened(&title, WIDTH - 10.0)))
            @for (at, name) in self.columns.iter().enumerate().filter(|(at, _)| at % every == 0) {
                @let middle = frame.left + (at as f64 + 0.5) * width;
                (label("tick middle", (middle, frame.top - 6.0), &shortened(name, 80.0)))
            }
            @for (down, (name, fields)) in self.rows.iter().zip(&self.fields).enumerate() {
                @let top = frame.top + down as f64 * height;
                @let base = top + height / 2.0 + 4.0;
                (label("tick end", (frame.left - 8.0, base), &shortened(name, 150.0)))
                @for (across, field) in fields.iter().enumerate() {
                    @let x = frame.left + across as f64 * width;
                    @let class = field.map_or("none".to_owned(), |value| format!("h{}", step(value)));
                    (rectangle(&class, (x, top), (width, height)))
                    @if width >= READABLE {
                        @let value = field.map_or("–".to_owned(), short);
                        (label(&format!("inside {class}"), (x + width / 2.0, base), &value))
                    }
                }
            }
            (label("axis", (frame.left, key + 10.0), &least))
            @for at in 0..STEPS {
                (rectangle(&format!("h{at}"), (from + at as f64 * 16.0, key), (16.0, 12.0)))
            }
            (label("axis", (from + 16.0 * STEPS as f64 + 8.0, key + 10.0), &largest))
        };
        Plot {
            height: key + 24.0,
            title: self.title.clone(),
            description: self.description(),
            body,
        }
    }

    fn description(&self) -> String {
        let named = self.rows.iter().zip(&self.fields).flat_map(|(row, fields)| {
            self.columns
                .iter()
                .zip(fields)
                .filter_map(move |(column, field)| Some((row, column, (*field)?)))
        });
        let mut all: Vec<(&String, &String, f64)> = named.collect();
        all.sort_by(|one, other| one.2.total_cmp(&other.2));
        let (Some(least), Some(largest)) = (all.first(), all.last()) else {
            return format!("{}: not measured.", self.metric);
        };
        let at = |(row, column, value): &(&String, &String, f64)| {
            format!("{} at {} {row} and {} {column}", number(*value), self.row, self.column)
        };
        format!(
            "{} by {} and {}. Least: {}. Largest: {}. Median of all fields: {}.",
            self.metric,
            self.row,
            self.column,
            at(least),
            at(largest),
            number(all[all.len() / 2].2)
        )
    }
}

fn rectangle(class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> Markup {
    html! {
        rect.field.(class) x=(Px(x)) y=(Px(y)) width=(Px(width)) height=(Px(height)) {}
    }
}

/// Formats a number so that it fits into a field.
fn short(value: f64) -> String {
    if value.abs() < 1e4 { number(value) } else { super::svg::tick_name(three_digits(value)) }
}

fn three_digits(value: f64) -> f64 {
    let unit = 10_f64.powf(value.abs().log10().floor() - 2.0);
    (value / unit).round() * unit
}
