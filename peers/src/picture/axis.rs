//! An axis with its ticks. It is linear or logarithmic, whichever suits the numbers.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// An axis is linear if its largest number is at most this many times its smallest number.
/// Otherwise the axis is logarithmic.
const LINEAR_AT_MOST: f64 = 10.0;

/// An axis of numbers. `plotters` has linear and logarithmic axes as different types.
pub struct Axis {
    range: Range<f64>,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// Makes a horizontal axis with a tick at each of these numbers.
    pub fn with_ticks(numbers: &[f64]) -> Self {
        let (least, most) = bounds(numbers.iter().copied());
        let logarithmic = is_logarithmic(least, most);
        let range = if logarithmic {
            let margin = (most / least).powf(0.03);
            least / margin..most * margin
        } else {
            let margin = (most - least) * 0.03;
            least - margin..most + margin
        };
        Axis { range, logarithmic, ticks: numbers.to_vec() }
    }

    /// Makes a vertical axis for these values, with ticks at round numbers.
    pub fn of_values(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = bounds(values);
        if is_logarithmic(least, most) {
            let range = least / 1.25..most * 1.25;
            return Axis { ticks: round_powers(&range), range, logarithmic: true };
        }
        let range = least.min(0.0) * 1.05..most.max(f64::MIN_POSITIVE) * 1.05;
        Axis { ticks: round_multiples(&range), range, logarithmic: false }
    }

    /// Returns the share of the axis that lies before a value.
    fn share(&self, value: f64) -> f64 {
        let Range { start, end } = self.range;
        if self.logarithmic {
            // A logarithmic range is positive, and values below it are drawn at its beginning.
            return (value.max(start) / start).ln() / (end / start).ln();
        }
        (value - start) / (end - start)
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;
    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        start + (self.share(*value) * f64::from(end - start)).round() as i32
    }
    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }
    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(value), most.max(value))
    })
}

fn is_logarithmic(least: f64, most: f64) -> bool {
    least > 0.0 && most / least > LINEAR_AT_MOST
}

/// Returns the powers of ten in the range, and twice and five times these if the range is short.
fn round_powers(range: &Range<f64>) -> Vec<f64> {
    let factors: &[f64] = if range.end / range.start > 2000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let all = decades.flat_map(|decade| factors.iter().map(move |f| f * 10f64.powi(decade)));
    all.filter(|tick| range.contains(tick)).collect()
}

/// Returns about five multiples of a round number in the range.
fn round_multiples(range: &Range<f64>) -> Vec<f64> {
    let rough = (range.end - range.start) / 5.0;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|factor| factor * decade);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * decade);
    let first = (range.start / step).ceil() as i64;
    let last = (range.end / step).floor() as i64;
    (first..=last).map(|multiple| multiple as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_past_a_factor_of_ten_is_logarithmic() {
        let axis = Axis::with_ticks(&[64.0, 4096.0, 262_144.0]);
        let [low, middle, high] = [64.0, 4096.0, 262_144.0].map(|x| axis.map(&x, (0, 1000)));
        assert_eq!(middle, 500);
        assert!((20..40).contains(&low) && low + high == 1000, "{low} {high}");
        let axis = Axis::with_ticks(&[0.0, 4.0, 8.0]);
        assert_eq!(axis.map(&4.0, (0, 1000)), 500);
    }

    #[test]
    fn ticks_are_round_and_within_the_range() {
        let ticks = |values: &[f64]| Axis::of_values(values.iter().copied()).ticks;
        assert_eq!(ticks(&[3.0, 9.0]), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(&[-3.0, 9.0]), [0.0, 5.0]);
        assert_eq!(ticks(&[2.0, 90.0]), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(ticks(&[2.0, 9000.0]), [10.0, 100.0, 1000.0, 10_000.0]);
    }
}
