//! Sensor readings as lines of text, their parser, and the check of a contender's readings.

use std::fmt::Write as _;
use std::ops::Range;

use anyhow::{Context as _, Result, anyhow, ensure};
use fastrand::Rng;
use hdrhistogram::Histogram;
use jiff::Timestamp;
use slipring_machine::Clock;

/// Number of machines in the readings.
const MACHINES: u32 = 59;
/// Number of dimensions that each machine measures.
const DIMENSIONS: u32 = 120;
/// Time of the first reading: 2017-01-01, in milliseconds since 1970.
const FIRST: i64 = 1_483_228_800_000;
/// Largest latency that the histogram distinguishes from larger ones, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// A reading of one dimension of one machine: the event that the workers build.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Milliseconds since 1970.
    pub time: i64,
    pub machine: u32,
    pub dimension: u32,
    pub value: f64,
}

impl Reading {
    /// Parses a line of the input.
    pub fn parse(line: &str) -> Result<Reading> {
        let mut fields = line.split(',');
        let mut field = || fields.next().ok_or_else(|| anyhow!("a field is missing: `{line}`"));
        let time: Timestamp = field()?.parse().with_context(|| format!("no time: `{line}`"))?;
        let reading = Reading {
            time: time.as_millisecond(),
            machine: field()?.parse().with_context(|| format!("no machine: `{line}`"))?,
            dimension: field()?.parse().with_context(|| format!("no dimension: `{line}`"))?,
            value: field()?.parse().with_context(|| format!("no value: `{line}`"))?,
        };
        ensure!(fields.next().is_none(), "too many fields: `{line}`");
        Ok(reading)
    }
}

/// A checksum of readings that depends on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Checksum(u64);

impl Checksum {
    fn add(&mut self, reading: &Reading) {
        let place = u64::from(reading.machine) << 32 | u64::from(reading.dimension);
        for word in [reading.time as u64, place, reading.value.to_bits()] {
            self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }
}

/// The input of a run: lines in order of time, and the checksum of their content.
#[derive(Debug)]
pub struct Readings {
    text: String,
    lines: Vec<Range<usize>>,
    checksum: Checksum,
}

impl Readings {
    /// Generates `count` readings, at most 9 ms apart.
    pub fn generate(count: usize, seed: u64) -> Readings {
        let mut random = Rng::with_seed(seed);
        let mut all = Readings {
            text: String::new(),
            lines: Vec::with_capacity(count),
            checksum: Checksum::default(),
        };
        let mut time = FIRST;
        for _ in 0..count {
            time += random.i64(1..10);
            // The value has six decimals at most, so that its text is exact.
            let value = f64::from(random.i32(-999_999_999..=999_999_999)) / 1e6;
            let reading = Reading {
                time,
                machine: random.u32(0..MACHINES),
                dimension: random.u32(0..DIMENSIONS),
                value,
            };
            all.checksum.add(&reading);
            let start = all.text.len();
            let stamp = Timestamp::from_millisecond(time).unwrap_or(Timestamp::UNIX_EPOCH);
            let Reading { machine, dimension, .. } = reading;
            let _ = write!(all.text, "{stamp:.3},{machine},{dimension},{value}");
            all.lines.push(start..all.text.len());
        }
        all
    }

    /// Returns the lines, in order of time.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &str> {
        self.lines.iter().map(|line| &self.text[line.clone()])
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }
}

#[cfg(test)]
impl Readings {
    /// Generates readings, and replaces one line by a text that is no reading.
    pub fn with_a_wrong_line(count: usize, at: usize) -> Readings {
        let mut all = Readings::generate(count, 1);
        let start = all.text.len();
        all.text.push_str("wrong,1,2,3");
        all.lines[at] = start..all.text.len();
        all
    }

    /// Generates readings with two neighbouring lines in the wrong order.
    pub fn with_swapped_lines(count: usize, at: usize) -> Readings {
        let mut all = Readings::generate(count, 1);
        all.lines.swap(at, at + 1);
        all
    }
}

/// The last stage of each contender: it takes the readings in order of time, checks them, and notes
/// their latency.
#[derive(Debug)]
pub struct Retriever {
    clock: Clock,
    last: i64,
    count: usize,
    checksum: Checksum,
    latency: Histogram<u64>,
}

impl Retriever {
    /// Creates a retriever. `clock` is the clock that the producer reads when it claims.
    pub fn new(clock: Clock) -> Result<Retriever> {
        let latency = Histogram::new_with_max(LONGEST, 3).context("the histogram of latencies")?;
        let checksum = Checksum::default();
        Ok(Retriever { clock, last: i64::MIN, count: 0, checksum, latency })
    }

    /// Takes the next reading, which the producer claimed at the clock time `claimed`. A reading
    /// that is not later than the previous one is an error.
    pub fn retrieve(&mut self, reading: &Reading, claimed: u64) -> Result<()> {
        ensure!(
            reading.time > self.last,
            "reading {} of time {} came after one of time {}",
            self.count,
            reading.time,
            self.last
        );
        self.last = reading.time;
        self.count += 1;
        self.checksum.add(reading);
        self.latency.saturating_record(self.clock.ns().saturating_sub(claimed));
        Ok(())
    }

    /// Compares the retrieved readings with the input. Returns the times from claim to retriever,
    /// in nanoseconds.
    pub fn finish(self, input: &Readings) -> Result<Histogram<u64>> {
        let (found, expected) = (self.count, input.len());
        ensure!(found == expected, "{found} of {expected} readings were released");
        ensure!(self.checksum == input.checksum, "a reading differs from the input");
        Ok(self.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retrieve(input: &Readings, readings: &[Reading]) -> Result<Histogram<u64>> {
        let mut retriever = Retriever::new(Clock::start())?;
        readings.iter().try_for_each(|reading| retriever.retrieve(reading, 0))?;
        retriever.finish(input)
    }

    fn parsed(input: &Readings) -> Vec<Reading> {
        input.lines().map(|line| Reading::parse(line).unwrap()).collect()
    }

    #[test]
    fn parsed_lines_are_what_was_generated() {
        let input = Readings::generate(2_000, 7);
        let readings = parsed(&input);
        assert_eq!(retrieve(&input, &readings).unwrap().len(), 2_000);
        // Another seed gives other readings, so an equal checksum means something.
        assert!(retrieve(&Readings::generate(2_000, 8), &readings).is_err());
    }

    #[test]
    fn a_lost_a_doubled_a_swapped_and_a_changed_reading_are_detected() {
        let input = Readings::generate(100, 7);
        let right = parsed(&input);
        let error = |change: fn(&mut Vec<Reading>)| {
            let mut readings = right.clone();
            change(&mut readings);
            retrieve(&input, &readings).unwrap_err().to_string()
        };
        let lost = error(|readings| _ = readings.remove(40));
        assert_eq!(lost, "99 of 100 readings were released");
        let swapped = error(|readings| readings.swap(40, 41));
        assert!(swapped.starts_with("reading 41 of time"), "{swapped}");
        let doubled = error(|readings| readings.insert(40, readings[40]));
        assert!(doubled.starts_with("reading 41 of time"), "{doubled}");
        let changes: [fn(&mut Vec<Reading>); 4] = [
            |readings| readings[40].machine += 1,
            |readings| readings[40].dimension += 1,
            |readings| readings[40].value += 1e-6,
            |readings| readings[99].time += 1,
        ];
        for change in changes {
            assert_eq!(error(change), "a reading differs from the input");
        }
    }

    #[test]
    fn a_line_that_is_no_reading_is_refused() {
        for line in [
            "",
            "2017-01-01T00:00:00Z",
            "2017-01-01T00:00:00Z,1,2",
            "2017-01-01T00:00:00Z,1,2,3,4",
            "2017-01-01T00:00:00Z,x,2,3",
            "today,1,2,3",
        ] {
            assert!(Reading::parse(line).is_err(), "{line}");
        }
    }
}
