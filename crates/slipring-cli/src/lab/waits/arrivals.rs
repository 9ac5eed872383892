//! When events arrive: patterns, their schedules, and how long each is watched.
//!
//! A schedule depends on the pattern and on a seed, on nothing else: every strategy is given the
//! same one, however late it is.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Enough to see that everything works: no figures.
    Smoke,
    /// A few minutes.
    Quick,
    /// What records are made with.
    Full,
}

impl Size {
    /// Picks by size.
    pub fn pick<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pick("smoke", "quick", "full"))
    }
}

/// How events arrive.
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
    /// An event after 20 seconds of silence; only with --full, unless named
    #[value(name = "quiet-20s")]
    Quiet20s,
    /// 10 million events at once, as fast as they go
    Burst,
    /// As fast as they go, through three stages for each core
    Crowd,
    /// As poisson-10k, the producer asleep between events, beside a process that works on the same
    /// cores
    Bystander,
}

impl Arrival {
    /// What is measured unless some are named.
    pub fn usual(size: Size) -> impl Iterator<Item = Self> {
        Self::value_variants()
            .iter()
            .copied()
            .filter(move |&arrival| arrival != Self::Quiet20s || size == Size::Full)
    }

    /// Its name on the command line and in reports.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The pattern of its events.
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
            Self::Crowd => Pattern::AtOnce { events: size.pick(1_000, 500_000, 500_000) },
        }
    }

    /// For how long events arrive in one run. Longer than a second, so that there is a worst
    /// second; a burst takes as long as it takes.
    pub fn length(self, size: Size) -> Duration {
        match self.pattern(size) {
            Pattern::AtOnce { .. } => Duration::ZERO,
            Pattern::Regular { gap } if self == Self::Quiet1s => 2 * gap,
            Pattern::Regular { gap } if self == Self::Quiet20s => gap,
            _ => Duration::from_millis(size.pick(20, 1_250, 2_000)),
        }
    }

    /// How often each strategy has its turn.
    pub fn rounds(self, size: Size) -> u32 {
        match self {
            Self::Quiet20s => 1,
            _ => size.pick(2, 2, 5),
        }
    }

    /// How many stages the events go through, each on a thread of its own, on a machine with so
    /// many cores.
    pub fn stages(self, cores: usize) -> usize {
        if self == Self::Crowd { 3 * cores } else { 1 }
    }

    /// Whether a second process works beside it.
    pub fn in_company(self) -> bool {
        self == Self::Bystander
    }
}

/// Gaps between events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Independent of each other, so long in the mean.
    Poisson {
        /// The mean.
        gap: Duration,
    },
    /// All the same.
    Regular {
        /// The one there is.
        gap: Duration,
    },
    /// Many short ones and a long one, in turn. It begins with a long one.
    OnOff {
        /// How many events are in a row.
        events: u64,
        /// Between two events in a row.
        gap: Duration,
        /// Before a row.
        silence: Duration,
    },
    /// None: so many events as fast as they go.
    AtOnce {
        /// How many.
        events: u64,
    },
}

impl Pattern {
    /// The moments of its events until `length` is over, in nanoseconds from the start.
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
            Self::Poisson { gap } => write!(f, "independent events, {gap:?} apart in the mean"),
            Self::Regular { gap } => write!(f, "an event every {gap:?}"),
            Self::OnOff { events, gap, silence } => {
                write!(f, "{events} events {gap:?} apart, then silence for {silence:?}")
            }
            Self::AtOnce { events } => write!(f, "{events} events as fast as they go"),
        }
    }
}

/// The moments of events, drawn while they are needed: a list would push what is measured out of
/// the producer's caches.
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
            // The logarithm of what is above 0 and at most 1.
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
    fn a_schedule_is_the_same_for_everybody_with_the_same_seed() {
        for arrival in Arrival::usual(Size::Quick)
            .filter(|&arrival| !matches!(arrival, Arrival::Burst | Arrival::Crowd))
        {
            assert_eq!(schedule(arrival, 7), schedule(arrival, 7), "{arrival:?}");
            assert!(schedule(arrival, 7).is_sorted(), "{arrival:?}");
        }
        assert_ne!(schedule(Arrival::Poisson1k, 7), schedule(Arrival::Poisson1k, 8));
    }

    #[test]
    fn independent_events_come_at_their_rate_and_vary_as_they_should() {
        for (arrival, rate) in [
            (Arrival::Poisson1k, 1_000.0),
            (Arrival::Poisson10k, 10_000.0),
            (Arrival::Poisson100k, 100_000.0),
        ] {
            let moments = schedule(arrival, 1);
            let per_second = moments.len() as f64 / 20.0;
            assert!((per_second / rate - 1.0).abs() < 0.02, "{arrival:?}: {per_second}");
            // Of exponential gaps as many as 1/e are longer than the mean.
            let long =
                moments.windows(2).filter(|pair| (pair[1] - pair[0]) as f64 > 1e9 / rate).count();
            let share = long as f64 / moments.len() as f64;
            assert!((share - (-1.0f64).exp()).abs() < 0.01, "{arrival:?}: {share}");
        }
    }

    #[test]
    fn other_patterns_are_exact() {
        let moments = schedule(Arrival::Regular10k, 0);
        assert_eq!((moments.len(), moments[0], moments[1]), (200_000, 100_000, 200_000));
        let quiet = schedule(Arrival::Quiet1s, 0);
        assert_eq!((quiet.len(), quiet[0]), (20, 1_000_000_000));

        let moments = schedule(Arrival::OnOff, 0);
        assert_eq!(&moments[..2], [5_000_000, 5_005_000]);
        assert_eq!(moments[200] - moments[199], 5_000_000);
        assert_eq!(moments[201] - moments[200], 5_000);

        let burst: Vec<u64> =
            Arrival::Burst.pattern(Size::Smoke).schedule(0, Duration::ZERO).collect();
        assert_eq!(burst, [0; 100_000]);
    }

    #[test]
    fn whatever_is_measured_has_events_and_a_worst_second_unless_it_is_only_a_test() {
        for size in [Size::Smoke, Size::Quick, Size::Full] {
            for &arrival in Arrival::value_variants() {
                let length = arrival.length(size);
                assert!(
                    arrival.pattern(size).schedule(0, length).next().is_some(),
                    "{arrival:?} {size}"
                );
                assert!(
                    size == Size::Smoke
                        || matches!(arrival, Arrival::Burst | Arrival::Crowd)
                        || length > Duration::from_millis(1_200),
                    "{arrival:?} {size}"
                );
            }
        }
        assert!(!Arrival::usual(Size::Quick).any(|arrival| arrival == Arrival::Quiet20s));
        assert!(Arrival::usual(Size::Full).any(|arrival| arrival == Arrival::Quiet20s));
    }
}
