//! `slipring lab cores`: the round trip between every two CPUs.

mod trips;

use std::time::Duration;

use anyhow::{Result, bail};
use slipring_machine::allowed_cpus;
use slipring_support::numbers::{median, significant};

use self::trips::{Pair, by_atomics, by_rings};
use super::experiment::{About, Case, CaseResult, Experiment, Line, Reference, Source, Unsuitable};
use super::figure::{Figure, PlotKind};
use super::metric::Fixed::Text;
use super::metric::{Better, Metric};
use super::record::{Results, Series};
use super::size::Size;
use super::statistics::{Noise, Spread, Verdict, compare};
use crate::lab::machine::MeasuredMachine;

/// Median of the round trips of one repetition.
static TRIP: Metric = Metric { name: "round trip", unit: "ns", better: Better::Less };
static P99: Metric = Metric { name: "round trip p99", unit: "ns", better: Better::Less };

static ABOUT: About = About {
    name: "cores",
    title: "Round trips between CPUs",
    paragraph: "\
How long a message takes from one CPU to another depends on which two they are: two hardware \
threads of one core share its caches, cores of one cluster share a cache, and cores of different \
sockets share none. The experiment binds two threads to two CPUs, sends a number there and an \
answer back, and repeats that for each pair of CPUs that this process may use. One contender is two \
words in memory, each on cache lines of its own: the least that a round trip can take. The other \
one is two of slipring's rings, whose waiting strategy spins. Each trip is timed by itself, and a \
field of the map is the median. The fields on the diagonal have both threads on one CPU, where a \
thread that waits yields to the other one, so they show the cost of two switches of threads. Each \
answer is checked. Both contenders pause between polls by the processor's hint for spinning.",
    drawing: "\
CPU a                               CPU b

ask  ───── word or ring: n ───────> answer
     <──── word or ring: not n ────",
    source: Source {
        citation: "Nicolas Viennot: core-to-core-latency, a program that measures the latency \
                   between CPU cores, 2022",
        address: Some("https://github.com/nviennot/core-to-core-latency"),
        machine: "Some thirty processors from Intel, AMD, Apple, Amazon and others.",
        finding: "One way between two cores of a socket takes 16 to 200 ns on most processors of \
                  the last decade, between two hardware threads of a core 4 to 10 ns, and between \
                  two sockets more than 100 ns. Processors that are made of clusters are visible \
                  as squares in the map.",
        figures: &[Reference {
            title: "One way between two cores, compare-and-swap",
            x: "cores",
            unit: "ns",
            // The publication gives the time for one direction, but this lab measures round trips.
            metric: None,
            at: &[],
            lines: &[
                Line {
                    contender: "AMD EPYC 7R13",
                    ours: None,
                    values: &[
                        (Text("one core"), 9.8),
                        (Text("one cluster"), 23.0),
                        (Text("one socket"), 107.0),
                        (Text("two sockets"), 197.0),
                    ],
                },
                Line {
                    contender: "AMD Ryzen 9 5950X",
                    ours: None,
                    values: &[(Text("one cluster"), 17.0), (Text("one socket"), 85.0)],
                },
                Line {
                    contender: "Intel Xeon Platinum 8375C",
                    ours: None,
                    values: &[
                        (Text("one core"), 8.1),
                        (Text("one socket"), 51.0),
                        (Text("two sockets"), 108.0),
                    ],
                },
                Line {
                    contender: "AWS Graviton3",
                    ours: None,
                    values: &[(Text("one socket"), 46.0)],
                },
            ],
        }],
    },
    figures: &[
        Figure {
            title: "Round trip, median",
            panels: Some("contender"),
            kind: PlotKind::HeatMap { row: "from", column: "to", metric: "round trip" },
        },
        Figure {
            title: "Round trip, 99th percentile",
            panels: Some("contender"),
            kind: PlotKind::HeatMap { row: "from", column: "to", metric: "round trip p99" },
        },
    ],
};

const ATOMICS: &str = "atomics";
const RINGS: &str = "rings";

/// A way to measure trips between two CPUs.
type Measure = fn(Pair, u64) -> Result<Vec<u64>>;

/// The contenders.
const CONTENDERS: [(&str, Measure); 2] = [(ATOMICS, by_atomics), (RINGS, by_rings)];

pub struct Cores;

impl Experiment for Cores {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn cases(&self, size: Size, _: &MeasuredMachine) -> Result<Vec<Case>> {
        let allowed = allowed_cpus();
        if allowed.is_empty() {
            bail!(Unsuitable("this system does not bind threads to CPUs: run it on Linux".into()));
        }
        if allowed.len() < 2 {
            bail!(Unsuitable(
                "too few cores: a trip between two CPUs needs two that this process may use".into()
            ));
        }
        let cpus = sample(&allowed, most(size));
        let trips = size.pick(500, 20_000, 30_000);
        let mut cases = Vec::new();
        for (contender, measure) in CONTENDERS {
            for &from in &cpus {
                for &to in &cpus {
                    let pair = Pair { from, to };
                    cases.push(Case {
                        contender: contender.to_owned(),
                        point: vec![("from", from.into()), ("to", to.into())],
                        threads: 2,
                        cpus: vec![from, to],
                        expected: Duration::from_nanos(if from == to { 4_000 } else { 500 })
                            * trips as u32,
                        run: Box::new(move |_| outcome(measure(pair, trips)?)),
                    });
                }
            }
        }
        Ok(cases)
    }

    fn rounds(&self, size: Size) -> u32 {
        size.pick(2, 5, 9)
    }

    fn missing(&self, size: Size, machine: &MeasuredMachine) -> Vec<String> {
        let allowed = allowed_cpus();
        let cpus = sample(&allowed, most(size));
        let mut missing = vec![
            format!(
                "The source counts one way, half of a round trip by compare-and-swap of one word; \
                 a trip here is there and back by two words, and contains one reading of the clock \
                 ({} ns).",
                significant(machine.clock_ns),
            ),
            "Pairs of one CPU are two threads that yield to each other; the source has none."
                .to_owned(),
        ];
        if cpus.len() < allowed.len() {
            let names: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            missing.push(format!(
                "Of {} CPUs, {} were measured, at equal distances in the system's order: {}.",
                allowed.len(),
                cpus.len(),
                names.join(", "),
            ));
        }
        missing
    }

    fn headline(&self, results: &Results, noise: &Noise) -> String {
        let (atomics, rings) = (apart(results, ATOMICS), apart(results, RINGS));
        let said = |name: &str, all: &[&Series]| {
            let medians = medians(all);
            let range = match (medians.first(), medians.last()) {
                (Some(low), Some(high)) if medians.len() > 1 => {
                    let (low, high) = (significant(*low), significant(*high));
                    if low == high {
                        String::new()
                    } else {
                        format!(" ({low} to {high} ns by pair)")
                    }
                }
                _ => String::new(),
            };
            (!medians.is_empty()).then(|| {
                format!("{} ns by two {name}{range}", significant(median(medians.clone())))
            })
        };
        let parts: Vec<String> =
            [said("words", &atomics), said("rings", &rings)].into_iter().flatten().collect();
        let verdict = match compare(&by_round(&rings), &by_round(&atomics), noise.floor()) {
            Some(Verdict::Differs(ratio)) if ratio > 1.0 => {
                format!(": the rings take {} times as long", significant(ratio))
            }
            Some(Verdict::Differs(ratio)) => {
                format!(": the words take {} times as long", significant(1.0 / ratio))
            }
            Some(Verdict::WithinNoise) => ", which differ by no more than noise".to_owned(),
            None => String::new(),
        };
        format!(
            "On this machine, a round trip between two CPUs takes {}{verdict}.",
            parts.join(" and "),
        )
    }
}

/// Returns the largest number of CPUs that are measured. There is a limit because each pair takes
/// time.
fn most(size: Size) -> usize {
    size.pick(4, 16, 32)
}

/// Returns at most `most` CPUs, evenly spaced over the list, among them the first and the last one.
fn sample(allowed: &[usize], most: usize) -> Vec<usize> {
    if allowed.len() <= most {
        return allowed.to_vec();
    }
    (0..most).map(|number| allowed[number * (allowed.len() - 1) / (most - 1)]).collect()
}

fn outcome(mut trips: Vec<u64>) -> Result<CaseResult> {
    trips.sort_unstable();
    let at = |share: usize| trips[(trips.len() - 1) * share / 100] as f64;
    Ok(CaseResult::default().value(&TRIP, at(50)).value(&P99, at(99)))
}

/// Returns the contender's series that were measured between two different CPUs.
fn apart<'a>(results: &'a Results, contender: &str) -> Vec<&'a Series> {
    let series = results.series.iter();
    series.filter(|of| of.contender == contender && of.at("from") != of.at("to")).collect()
}

/// Returns the medians of series, in ascending order.
fn medians(all: &[&Series]) -> Vec<f64> {
    let spreads = all.iter().filter_map(|series| Spread::of(series.values(TRIP.name)));
    let mut medians: Vec<f64> = spreads.map(|spread| spread.median).collect();
    medians.sort_by(f64::total_cmp);
    medians
}

/// Returns, for each round, the median over all pairs.
fn by_round(all: &[&Series]) -> Vec<f64> {
    let rounds = all.iter().map(|series| series.values(TRIP.name).len()).min().unwrap_or(0);
    let of = |round: usize| all.iter().map(|series| series.values(TRIP.name)[round]).collect();
    (0..rounds).map(|round| median(of(round))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::Values;
    use super::*;

    #[test]
    fn a_sample_has_both_ends_and_no_cpu_twice() {
        assert_eq!(sample(&[0, 3, 5], 4), [0, 3, 5]);
        let all: Vec<usize> = (0..96).collect();
        for most in [2, 4, 16, 32, 95] {
            let chosen = sample(&all, most);
            assert_eq!((chosen.len(), chosen[0], chosen[most - 1]), (most, 0, 95));
            assert!(chosen.is_sorted_by(|one, next| one < next), "{chosen:?}");
        }
    }

    #[test]
    fn percentiles_of_trips() {
        let values = outcome((1..=101).rev().collect()).unwrap().values;
        let named: Vec<_> = values.iter().map(|(metric, value)| (metric.name, *value)).collect();
        assert_eq!(named, [("round trip", 51.0), ("round trip p99", 100.0)]);
    }

    fn series(contender: &str, from: u64, to: u64, values: [f64; 5]) -> Series {
        let trip =
            Values { unit: TRIP.unit.to_owned(), better: TRIP.better, values: values.to_vec() };
        Series {
            contender: contender.to_owned(),
            point: vec![("from".to_owned(), from.into()), ("to".to_owned(), to.into())],
            threads: 2,
            cpus: Vec::new(),
            oversubscribed: false,
            metrics: [(TRIP.name.to_owned(), trip)].into(),
            curves: Default::default(),
        }
    }

    fn headline(series: Vec<Series>) -> String {
        let (experiment, notes) = (ABOUT.name.to_owned(), Vec::new());
        let results = Results { experiment, rounds: 5, seconds: 1.0, notes, series };
        Cores.headline(&results, &Noise { computing: 0.01, handover: 0.05, repetitions: 5 })
    }

    #[test]
    fn the_headline_counts_different_cpus_and_names_no_winner_within_the_noise() {
        let steady = |middle: f64| [-0.2, -0.1, 0.0, 0.1, 0.2].map(|by| middle + by);
        let all = |rings: f64| {
            let pair =
                |of: &str, trip| [series(of, 0, 1, steady(trip)), series(of, 1, 0, steady(trip))];
            let own = [series(ATOMICS, 0, 0, steady(900.0)), series(RINGS, 0, 0, steady(900.0))];
            own.into_iter().chain(pair(ATOMICS, 100.0)).chain(pair(RINGS, rings)).collect()
        };
        assert_eq!(
            headline(all(150.0)),
            "On this machine, a round trip between two CPUs takes 100 ns by two words and 150 ns by \
             two rings: the rings take 1.5 times as long."
        );
        assert!(headline(all(100.1)).contains("no more than noise"));
        let alone = headline(vec![series(RINGS, 0, 1, steady(150.0))]);
        assert!(alone.ends_with("takes 150 ns by two rings."), "{alone}");
    }
}
