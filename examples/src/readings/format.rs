//! Parses and writes the times and numbers of files.

use std::io::Write as _;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

static TIMES: DateTimePrinter = DateTimePrinter::new();

/// Returns the last second that can be written, in the year 9999.
pub fn last_second() -> i64 {
    Timestamp::MAX.as_second()
}

/// Parses a time such as `2013-01-01T06:00:00Z` as seconds since 1970 in UTC. A fraction of a
/// second is dropped.
pub fn parse_time(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// Appends a time in the format that [`parse_time`] parses.
pub fn push_time(out: &mut Vec<u8>, seconds: i64) {
    // Always in range: every time is a parsed one plus a shift that `Input::feed` has checked.
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    TIMES.print_timestamp(&time, &mut *out).expect("writing to a vector cannot fail");
}

/// Parses a finite number. Infinities and "not a number" are no measurements.
pub fn parse_number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|n| n.is_finite())
}

/// Appends a number with the fewest digits that parse to the same number, without an exponent. It
/// writes the same as `{}`, but faster.
pub fn push_number(out: &mut Vec<u8>, number: f64) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format(number);
    // `zmij` writes whole numbers with `.0`, and very large and very small ones with an exponent.
    match text.strip_suffix(".0") {
        Some(whole) => out.extend_from_slice(whole.as_bytes()),
        None if text.contains('e') => {
            write!(out, "{number}").expect("writing to a vector cannot fail")
        }
        None => out.extend_from_slice(text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(n: f64) -> String {
        let mut out = Vec::new();
        push_number(&mut out, n);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_as_short_as_display_writes_them() {
        let mut n = 1e-12_f64;
        while n < 1e22 {
            for n in [n, -n, n.floor(), n * 10.357019999999999, n / 3.0] {
                // The two choose differently between texts of equal length and equal distance.
                let (text, display) = (number(n), n.to_string());
                assert!(
                    text == display || text.len() == display.len() && text.parse() == Ok(n),
                    "{text} {display}"
                );
            }
            n *= 1.7;
        }
        for n in [0.0, -0.0, 1012.0, 39.02, 0.01, f64::MAX, f64::MIN_POSITIVE] {
            assert_eq!(number(n), n.to_string());
        }
    }

    #[test]
    fn text_that_is_not_a_finite_number_is_refused() {
        for text in ["", " 1", "1 ", "inf", "-infinity", "NaN", "1e999", "0x1", "1,5", "--1"] {
            assert_eq!(parse_number(text), None, "{text}");
        }
        assert_eq!(parse_number("-0.5"), Some(-0.5));
    }

    #[test]
    fn parsed_times_are_written_unchanged() {
        for text in [
            "2013-01-01T06:00:00Z",
            "2016-02-29T23:59:59Z",
            "1969-12-31T23:00:00Z",
            "9999-12-30T22:00:00Z",
        ] {
            let mut out = Vec::new();
            push_time(&mut out, parse_time(text).unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        assert_eq!(parse_time("2013-01-01T06:00:00Z"), Some(1_357_020_000));
        for text in [
            "",
            "NA",
            "2013-01-01",
            "2013-02-30T00:00:00Z",
            "2013-01-01T25:00:00Z",
            "2013-01-01T06:00:00",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
