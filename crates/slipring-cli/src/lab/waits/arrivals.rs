//! Arrival patterns: schedules of events, and the time for which each pattern is measured.
//!
//! A schedule depends on the pattern and a seed alone, so every strategy meets the same schedule,
//! however late it handles the events.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;
use indicatif::HumanCount;

use crate::lab::size::Size;

/// An arrival pattern, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arrival {
    /// Independent events, 1,000 a second
    #[value(name = "poisson-1k")]
    Poisson1k,
    /// Independent events, 10,000 a second
    #[value(name = "poisson-10k")]
    Poisson10k,
    /// Independent events, 100,000 a second
    #[value(name = "poisson-100k")]
    Poisson100k,
    /// An event every 100 µs
    #[value(name = "regular-10k")]
    Regular10k,
    /// 200 events 5 µs apart, then 5 ms of silence, again and again
    OnOff,
    /// An event after a second of silence, again and again
    #[value(name = "quiet-1s")]
    Quiet1s,
    /// An event after 20 seconds of silence, only with --full or by name
    #[value(name = "quiet-20s")]
    Quiet20s,
    /// 10 million events, as fast as possible
    Burst,
    /// Events as fast as possible, through three stages for each core
    Oversubscribed,
    /// Like poisson-10k, while a second process works on the same cores
    Bystander,
}

impl Arrival {
    /// Returns the patterns that are measured unless the user names some.
    pub fn defaults(size: Size) -> impl Iterator<Item = Self> {
        Self::value_variants()
            .iter()
            .copied()
            .filter(move |&arrival| arrival != Self::Quiet20s || size == Size::Full)
    }

    /// Returns the patterns that a run of all experiments measures: in a smoke or quick run the
    /// ones that differ most, and in a full run all but the one that takes minutes.
    pub fn in_all(size: Size) -> impl Iterator<Item = Self> {
        const FEW: [Arrival; 4] =
            [Arrival::Poisson10k, Arrival::OnOff, Arrival::Burst, Arrival::Bystander];
        Self::defaults(size).filter(move |arrival| match size {
            Size::Full => *arrival != Arrival::Quiet20s,
            Size::Smoke | Size::Quick => FEW.contains(arrival),
        })
    }

    /// Returns the name on the command line and in reports.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the gaps between events.
    pub fn pattern(self, size: Size) -> Pattern {
        let per_second =
            |events: u64| Pattern::Poisson { gap: Duration::from_secs(1) / events as u32 };
        match self {
            Self::Poisson1k => per_second(1_000),
            Self::Poisson10k | Self::Bystander => per_second(10_000),
            Self::Poisson100k => per_second(100_000),
            Self::Regular10k => Pattern::Regular { gap: Duration::from_micros(100) },
            Self::OnOff => Pattern::OnOff {
                events: 200,
                gap: Duration::from_micros(5),
                silence: Duration::from_millis(5),
            },
            Self::Quiet1s => {
                Pattern::Regular { gap: Duration::from_millis(size.pick(10, 1_000, 1_000)) }
            }
            Self::Quiet20s => {
                Pattern::Regular { gap: Duration::from_millis(size.pick(20, 20_000, 20_000)) }
            }
            Self::Burst => Pattern::AtOnce { events: size.pick(100_000, 10_000_000, 10_000_000) },
            Self::Oversubscribed => Pattern::AtOnce { events: size.pick(1_000, 500_000, 500_000) },
        }
    }

    /// Returns how long events arrive in one run: more than a second, because the busiest second is
    /// reported. It is zero for bursts, whose length depends on the strategy.
    pub fn length(self, size: Size) -> Duration {
        match self.pattern(size) {
            Pattern::AtOnce { .. } => Duration::ZERO,
            Pattern::Regular { gap } if self == Self::Quiet1s => 2 * gap,
            Pattern::Regular { gap } if self == Self::Quiet20s => gap,
            _ => Duration::from_millis(size.pick(20, 1_250, 2_000)),
        }
    }

    /// Returns how many runs each strategy has.
    pub fn rounds(self, size: Size) -> u32 {
        match self {
            Self::Quiet20s => 1,
            _ => size.pick(2, 2, 5),
        }
    }

    /// Returns the number of stages that follow one another, each on its own thread, on a machine
    /// with `cores` cores.
    pub fn stages(self, cores: usize) -> usize {
        if self == Self::Oversubscribed { 3 * cores } else { 1 }
    }

    /// Returns whether a second process works on the same cores.
    pub fn has_bystander(self) -> bool {
        self == Self::Bystander
    }
}

/// The gaps between events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Independent, exponentially distributed gaps.
    Poisson {
        /// Mean gap.
        gap: Duration,
    },
    /// Equal gaps.
    Regular {
        /// The gap.
        gap: Duration,
    },
    /// Trains of events, with silence before each train.
    OnOff {
        /// Number of events in a train.
        events: u64,
        /// Gap between two events of a train.
        gap: Duration,
        /// Gap before the first event of a train.
        silence: Duration,
    },
    /// No gaps: events published as fast as possible.
    AtOnce {
        /// Number of events.
        events: u64,
    },
}

impl Pattern {
    /// Returns the times of the events until `length` is over, in nanoseconds from the start.
    pub fn schedule(self, seed: u64, length: Duration) -> Schedule {
        Schedule {
            pattern: self,
            random: Rng::with_seed(seed),
            number: 0,
            at: 0.0,
            end: length.as_nanos() as f64,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson { gap } => write!(f, "independent events, {gap:?} apart on average"),
            Self::Regular { gap } => write!(f, "an event every {gap:?}"),
            Self::OnOff { events, gap, silence } => {
                write!(f, "{events} events {gap:?} apart, then silence for {silence:?}")
            }
            Self::AtOnce { events } => {
                write!(f, "{} events, as fast as possible", HumanCount(*events))
            }
        }
    }
}

/// The times of events, in nanoseconds. Each time is computed when it is needed, because a list
/// would push the ring out of the producer's caches.
#[derive(Clone, Debug)]
pub struct Schedule {
    pattern: Pattern,
    random: Rng,
    number: u64,
    at: f64,
    end: f64,
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let nanos = |gap: Duration| gap.as_nanos() as f64;
        self.at += match self.pattern {
            // `1 - f64()` is above 0 and at most 1, so its logarithm is finite.
            Pattern::Poisson { gap } => -(1.0 - self.random.f64()).ln() * nanos(gap),
            Pattern::Regular { gap } => nanos(gap),
            Pattern::OnOff { events, silence, .. } if self.number.is_multiple_of(events) => {
                nanos(silence)
            }
            Pattern::OnOff { gap, .. } => nanos(gap),
            Pattern::AtOnce { events } if self.number < events => 0.0,
            Pattern::AtOnce { .. } => return None,
        };
        self.number += 1;
        (self.at <= self.end).then_some(self.at as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn schedule(arrival: Arrival, seed: u64) -> Vec<u64> {
        arrival.pattern(Size::Quick).schedule(seed, LONG).collect()
    }

    #[test]
    fn one_seed_gives_one_schedule() {
        for arrival in Arrival::defaults(Size::Quick)
            .filter(|&arrival| !matches!(arrival, Arrival::Burst | Arrival::Oversubscribed))
        {
            assert_eq!(schedule(arrival, 7), schedule(arrival, 7), "{arrival:?}");
            assert!(schedule(arrival, 7).is_sorted(), "{arrival:?}");
        }
        assert_ne!(schedule(Arrival::Poisson1k, 7), schedule(Arrival::Poisson1k, 8));
    }

    #[test]
    fn independent_events_have_their_rate_and_exponential_gaps() {
        for (arrival, rate) in [
            (Arrival::Poisson1k, 1_000.0),
            (Arrival::Poisson10k, 10_000.0),
            (Arrival::Poisson100k, 100_000.0),
        ] {
            let times = schedule(arrival, 1);
            let per_second = times.len() as f64 / 20.0;
            assert!((per_second / rate - 1.0).abs() < 0.02, "{arrival:?}: {per_second}");
            // With exponential gaps, a share of 1/e of the gaps is longer than the mean.
            let long =
                times.windows(2).filter(|pair| (pair[1] - pair[0]) as f64 > 1e9 / rate).count();
            let share = long as f64 / times.len() as f64;
            assert!((share - (-1.0f64).exp()).abs() < 0.01, "{arrival:?}: {share}");
        }
    }

    #[test]
    fn regular_on_off_and_burst_schedules_are_exact() {
        let times = schedule(Arrival::Regular10k, 0);
        assert_eq!((times.len(), times[0], times[1]), (200_000, 100_000, 200_000));
        let quiet = schedule(Arrival::Quiet1s, 0);
        assert_eq!((quiet.len(), quiet[0]), (20, 1_000_000_000));

        let times = schedule(Arrival::OnOff, 0);
        assert_eq!(&times[..2], [5_000_000, 5_005_000]);
        assert_eq!(times[200] - times[199], 5_000_000);
        assert_eq!(times[201] - times[200], 5_000);

        let burst: Vec<u64> =
            Arrival::Burst.pattern(Size::Smoke).schedule(0, Duration::ZERO).collect();
        assert_eq!(burst, [0; 100_000]);
    }

    #[test]
    fn every_pattern_has_events_and_lasts_longer_than_a_second_unless_smoke() {
        for size in [Size::Smoke, Size::Quick, Size::Full] {
            for &arrival in Arrival::value_variants() {
                let length = arrival.length(size);
                assert!(
                    arrival.pattern(size).schedule(0, length).next().is_some(),
                    "{arrival:?} {size}"
                );
                assert!(
                    size == Size::Smoke
                        || matches!(arrival, Arrival::Burst | Arrival::Oversubscribed)
                        || length > Duration::from_millis(1_200),
                    "{arrival:?} {size}"
                );
            }
        }
        assert!(!Arrival::defaults(Size::Quick).any(|arrival| arrival == Arrival::Quiet20s));
        assert!(Arrival::defaults(Size::Full).any(|arrival| arrival == Arrival::Quiet20s));
    }
}
