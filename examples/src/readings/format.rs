//! Times and numbers, read and written the same way everywhere.

use std::io::Write as _;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

static TIMES: DateTimePrinter = DateTimePrinter::new();

/// The last second that has a name (the years end with 9999).
pub fn last_second() -> i64 {
    Timestamp::MAX.as_second()
}

/// Reads a time such as `2013-01-01T06:00:00Z` as seconds since 1970 in UTC. A fraction of a second
/// is cut.
pub fn parse_time(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// Appends a time as [`parse_time`] reads it.
pub fn push_time(out: &mut Vec<u8>, seconds: i64) {
    // Every time comes from a parsed one and a shift that was checked beforehand (`Input::feed`).
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    TIMES.print_timestamp(&time, &mut *out).expect("a vector takes all");
}

/// Reads a number; infinities and "not a number" are no measurements, so no numbers either.
pub fn parse_number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|n| n.is_finite())
}

/// Appends a number in the fewest digits that read back as the same number, without an exponent:
/// like `{}`, but faster.
pub fn push_number(out: &mut Vec<u8>, number: f64) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format(number);
    // `zmij` has its own way with whole numbers and with very large and very small ones.
    match text.strip_suffix(".0") {
        Some(whole) => out.extend_from_slice(whole.as_bytes()),
        None if text.contains('e') => write!(out, "{number}").expect("a vector takes all"),
        None => out.extend_from_slice(text.as_bytes()),
    }
}

/// A count with its thousands set apart: `1,234,567`.
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration in the unit that suits it: `850 ns`, `1.25 µs`, `3.40 ms`, `2.10 s`.
pub fn duration(nanoseconds: u64) -> String {
    let n = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.2} µs", n / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", n / 1e6),
        _ => format!("{:.2} s", n / 1e9),
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
    fn numbers_are_written_as_short_as_display_writes_them() {
        let mut n = 1e-12_f64;
        while n < 1e22 {
            for n in [n, -n, n.floor(), n * 10.357019999999999, n / 3.0] {
                // Of two equally short texts in equal distance, the two choose differently.
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
    fn what_is_not_finite_is_no_number() {
        for text in ["", " 1", "1 ", "inf", "-infinity", "NaN", "1e999", "0x1", "1,5", "--1"] {
            assert_eq!(parse_number(text), None, "{text}");
        }
        assert_eq!(parse_number("-0.5"), Some(-0.5));
    }

    #[test]
    fn times_go_through_unchanged() {
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

    #[test]
    fn counts_and_durations_are_easy_to_read() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([850, 1_250, 3_400_000].map(duration), ["850 ns", "1.25 µs", "3.40 ms"]);
    }
}
