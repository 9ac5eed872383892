//! Medians, and numbers as people read them.

use std::time::Duration;

use indicatif::HumanFloatCount;

/// Returns the middle value, or the mean of the two middle values; 0 if there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match values.as_slice() {
        [] => 0.0,
        values => (values[low] + values[high]) / 2.0,
    }
}

/// Formats a number with three significant digits and with commas between thousands.
///
/// Written by hand, because `HumanFloatCount` takes a number of decimals, not of significant
/// digits.
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        size if size < 0.005 => return "0".to_owned(),
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{:.decimals$}", HumanFloatCount(value))
}

/// Formats a duration in the unit that suits its size: `850ns`, `1.25µs`, `3.4ms`, `2.1s`.
///
/// Written by hand, because `HumanDuration` and `FormattedDuration` round to whole seconds.
pub fn duration(duration: Duration) -> String {
    // The debug format of the standard library chooses the unit; rounding first keeps the text
    // short.
    let nanoseconds = duration.as_nanos() as u64;
    let unit = 1000_u64.pow(nanoseconds.checked_ilog(1000).unwrap_or(0).min(3));
    let step = (unit / 100).max(1);
    format!("{:?}", Duration::from_nanos((nanoseconds + step / 2) / step * step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_none_one_odd_and_even() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0]), 3.0);
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), 3.0);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let cases = [
            (0.0, "0"),
            (-0.0001, "0"),
            (0.25, "0.25"),
            (-4.567, "-4.57"),
            (5.5, "5.5"),
            (12.345, "12.3"),
            (99.97, "100"),
            (123.4, "123"),
            (-123.4, "-123"),
            (9_876_543.2, "9,876,543"),
        ];
        for (value, text) in cases {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn durations_have_two_decimals_at_most() {
        let cases = [
            (0, "0ns"),
            (850, "850ns"),
            (1_250, "1.25µs"),
            (1_254, "1.25µs"),
            (3_400_000, "3.4ms"),
            (999_999, "1ms"),
            (61_000_000_000, "61s"),
        ];
        for (nanoseconds, text) in cases {
            assert_eq!(duration(Duration::from_nanos(nanoseconds)), text);
        }
    }
}
