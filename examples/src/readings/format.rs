//! Parses and writes the times and numbers of files.

use std::io::Write as _;

use jiff::civil::Time;
use jiff::fmt::temporal::{DateTimeParser, DateTimePrinter, Pieces};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

static PARSER: DateTimeParser = DateTimeParser::new();
static TIMES: DateTimePrinter = DateTimePrinter::new();

/// The reason why a text is no point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFault {
    /// The text is no time, or a time that does not exist or is out of range.
    Invalid,
    /// The text is a date, perhaps with a time of day, and neither the text nor the options name a
    /// zone.
    NoZone,
}

/// Returns the last second that can be written, in the year 9999.
pub fn last_second() -> i64 {
    Timestamp::MAX.as_second()
}

/// Parses a time such as `2013-01-01T06:00:00Z` as seconds since 1970 in UTC. A fraction of a
/// second is dropped.
///
/// `zone` applies to a time without a zone, such as `2013-01-01 06:00`. A date alone means its
/// midnight. A time that the zone skips is moved forward by the gap; of a time that the zone
/// repeats, the first occurrence counts.
///
/// # Errors
///
/// Fails if the text is not a time, or if it names no zone and `zone` is absent.
pub fn parse_time(text: &[u8], zone: Option<&TimeZone>) -> Result<i64, TimeFault> {
    if text.last().is_some_and(|last| last.eq_ignore_ascii_case(&b'z')) {
        // The usual case, a time in UTC, has the fastest parser.
        let time = PARSER.parse_timestamp(text).map_err(|_| TimeFault::Invalid)?;
        return Ok(time.as_second());
    }
    let pieces = Pieces::parse(text).map_err(|_| TimeFault::Invalid)?;
    let time = pieces.date().to_datetime(pieces.time().unwrap_or(Time::midnight()));
    let time = if let Some(offset) = pieces.to_numeric_offset() {
        offset.to_timestamp(time)
    } else if pieces.time_zone_annotation().is_some() {
        PARSER.parse_zoned(text).map(|zoned: Zoned| zoned.timestamp())
    } else {
        zone.ok_or(TimeFault::NoZone)?.to_ambiguous_timestamp(time).compatible()
    };
    time.map(Timestamp::as_second).map_err(|_| TimeFault::Invalid)
}

/// Parses a zone: a name of the IANA database, such as `Europe/Berlin` or `UTC`, or an offset, such
/// as `+02:00`.
pub fn parse_zone(text: &str) -> Option<TimeZone> {
    PARSER.parse_time_zone(text).ok()
}

/// Appends a time in the format that [`parse_time`] parses.
pub fn push_time(out: &mut Vec<u8>, seconds: i64) {
    // The time is always in range: every time is a parsed one plus a shift that `Input::feed` has
    // checked.
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
                // If two texts are equally long and equally far from the number, the two formatters
                // may choose different ones.
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
            push_time(&mut out, parse_time(text.as_bytes(), None).unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        assert_eq!(parse_time(b"2013-01-01T06:00:00Z", None), Ok(1_357_020_000));
        for text in [
            "",
            "NA",
            "2013-02-30T00:00:00Z",
            "2013-01-01T25:00:00Z",
            "2013-02-30",
            "2013-01-01T25:00",
            "2013-01-01T06:00:00+99:00",
            "2013-01-01T06:00:00[No/Where]",
            "06:00",
            "Z",
        ] {
            for zone in [None, Some(&TimeZone::UTC)] {
                assert_eq!(parse_time(text.as_bytes(), zone), Err(TimeFault::Invalid), "{text}");
            }
        }
    }

    #[test]
    fn a_time_has_a_zone_of_its_own_or_gets_one() {
        let berlin = parse_zone("Europe/Berlin").unwrap();
        let at = |text: &str, zone: Option<&TimeZone>| {
            parse_time(text.as_bytes(), zone).map(|seconds| {
                let mut out = Vec::new();
                push_time(&mut out, seconds);
                String::from_utf8(out).unwrap()
            })
        };
        for own in [
            "2013-07-01T06:00:00Z",
            "2013-07-01 06:00:00z",
            "2013-07-01T08:00:00.75+02:00",
            "2013-07-01 08:00+02:00",
            "2013-07-01T08:00:00+02:00[Europe/Berlin]",
            "2013-07-01T02:00:00[America/New_York]",
        ] {
            for zone in [None, Some(&berlin)] {
                assert_eq!(at(own, zone).as_deref(), Ok("2013-07-01T06:00:00Z"), "{own}");
            }
        }
        for (text, expected) in [
            ("2013-01-01 06:00:00", "2013-01-01T05:00:00Z"),
            ("2013-07-01T06:00", "2013-07-01T04:00:00Z"),
            ("2013-07-01 06:00:00.5", "2013-07-01T04:00:00Z"),
            ("2013-07-01", "2013-06-30T22:00:00Z"),
            // Tries the hour that summer time skips, and the hour that its end repeats.
            ("2013-03-31 02:30:00", "2013-03-31T01:30:00Z"),
            ("2013-10-27 02:30:00", "2013-10-27T00:30:00Z"),
        ] {
            assert_eq!(at(text, Some(&berlin)).as_deref(), Ok(expected), "{text}");
            assert_eq!(at(text, None), Err(TimeFault::NoZone), "{text}");
        }
        let east = parse_zone("+05:30").unwrap();
        assert_eq!(at("2013-07-01 06:00", Some(&east)).as_deref(), Ok("2013-07-01T00:30:00Z"));
        assert_eq!(parse_zone("UTC"), Some(TimeZone::UTC));
        for text in ["", "Nowhere", "Europe/Berlin ", "+9900", "2 hours"] {
            assert!(parse_zone(text).is_none(), "{text}");
        }
    }

    /// The time zones must also be known on machines that have no database of time zones.
    #[test]
    fn zones_are_part_of_the_program() {
        let bundled = jiff::tz::TimeZoneDatabase::bundled();
        assert!(bundled.get("Europe/Berlin").is_ok());
    }
}
