//! `slipring lab ordered`: readings that threads build in parallel, released in order of time.
//!
//! - [`readings`]: the input, its parser, and the check of the released readings
//! - [`one_thread`], [`executor`], [`rings`]: the contenders
//! - [`about`]: the texts

mod about;
mod executor;
mod one_thread;
mod readings;
mod rings;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use slipring_machine::Clock;

use super::experiment::{About, Case, CaseResult, Experiment, Repetition};
use super::metric::{Better, Metric};
use super::record::Results;
use super::size::Size;
use super::standing::{Contest, standing};
use super::statistics::{Noise, Verdict, compare};
use crate::lab::machine::MeasuredMachine;
use about::{CAPACITY, THREADS};
use readings::{Readings, Retriever};

static RATE: Metric = Metric { name: "rate", unit: "events/ms", better: Better::More };
static MEAN: Metric = Metric { name: "mean latency", unit: "µs", better: Better::Less };
static P50: Metric = Metric { name: "p50 latency", unit: "µs", better: Better::Less };
static P99: Metric = Metric { name: "p99 latency", unit: "µs", better: Better::Less };
static LATENCY: Metric = Metric { name: "latency", unit: "µs", better: Better::Less };

/// Quantiles of the percentile curves.
const QUANTILES: [f64; 13] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0];

/// Capacity of the executor's larger queues, in readings.
const LARGE_QUEUES: usize = 1024;

/// The experiment.
pub struct Ordered;

/// A way to build readings in parallel, or on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    OneThread,
    Executor,
    ExecutorLarge,
    Partitioned,
    Pool,
}

impl Contender {
    const ALL: [Contender; 5] = [
        Contender::OneThread,
        Contender::Executor,
        Contender::ExecutorLarge,
        Contender::Partitioned,
        Contender::Pool,
    ];

    fn name(self) -> &'static str {
        match self {
            Contender::OneThread => "one thread",
            Contender::Executor => "executor",
            Contender::ExecutorLarge => "executor with long queues",
            Contender::Partitioned => "ring with partitioned handlers",
            Contender::Pool => "slipring pool",
        }
    }

    /// Returns the number of threads that work at the same time, including the producer.
    fn threads(self, workers: usize, cores: usize) -> usize {
        match self {
            Contender::OneThread => 1,
            Contender::Executor | Contender::ExecutorLarge | Contender::Partitioned => workers + 2,
            Contender::Pool => rings::pool_threads(workers, cores),
        }
    }

    /// Estimates the time for one reading on few cores, for the progress bar.
    fn expected(self) -> Duration {
        Duration::from_nanos(match self {
            Contender::Executor => 1_000,
            Contender::ExecutorLarge => 500,
            _ => 220,
        })
    }

    fn run(
        self,
        input: &Readings,
        workers: usize,
        cores: usize,
        clock: Clock,
        retriever: &mut Retriever,
    ) -> Result<()> {
        match self {
            Contender::OneThread => one_thread::run(input, clock, retriever),
            Contender::Executor => executor::run(input, workers, CAPACITY, clock, retriever),
            Contender::ExecutorLarge => {
                executor::run(input, workers, LARGE_QUEUES, clock, retriever)
            }
            Contender::Partitioned => rings::partitioned(input, workers, clock, retriever),
            Contender::Pool => rings::pool(input, workers, cores, CAPACITY, clock, retriever),
        }
    }
}

/// The input of the current round, generated once for all contenders.
struct Input {
    count: usize,
    current: RefCell<Option<(u64, Rc<Readings>)>>,
}

impl Input {
    fn of(&self, seed: u64) -> Rc<Readings> {
        let mut current = self.current.borrow_mut();
        match &*current {
            Some((of, readings)) if *of == seed => readings.clone(),
            _ => {
                let readings = Rc::new(Readings::generate(self.count, seed));
                *current = Some((seed, readings.clone()));
                readings
            }
        }
    }
}

impl Experiment for Ordered {
    fn about(&self) -> &'static About {
        &about::ABOUT
    }

    fn cases(&self, size: Size, machine: &MeasuredMachine) -> Result<Vec<Case>> {
        let count = count(size);
        let cores = machine.cores;
        let input = Rc::new(Input { count, current: RefCell::default() });
        let case = |contender: Contender, workers: usize| {
            let input = input.clone();
            Case {
                contender: contender.name().to_owned(),
                point: vec![("threads", workers.into())],
                threads: contender.threads(workers, cores),
                cpus: Vec::new(),
                expected: contender.expected() * count as u32,
                run: Box::new(move |run: Repetition| {
                    measure(contender, &input.of(run.seed), workers, cores)
                }),
            }
        };
        let all = THREADS.flat_map(|workers| Contender::ALL.map(|contender| (contender, workers)));
        Ok(all.map(|(contender, workers)| case(contender, workers)).collect())
    }

    fn rounds(&self, size: Size) -> u32 {
        size.pick(2, 9, 31)
    }

    fn missing(&self, size: Size, machine: &MeasuredMachine) -> Vec<String> {
        about::missing(count(size), machine.cores)
    }

    fn headline(&self, results: &Results, noise: &Noise) -> String {
        headline(results, noise.floor())
    }
}

/// Returns the number of readings in a run.
fn count(size: Size) -> usize {
    size.pick(1_000, 300_000, 1_000_000)
}

/// Runs a contender once, and checks all readings that it released.
fn measure(
    contender: Contender,
    input: &Readings,
    workers: usize,
    cores: usize,
) -> Result<CaseResult> {
    let clock = Clock::start();
    let mut retriever = Retriever::new(clock)?;
    let began = clock.ns();
    contender.run(input, workers, cores, clock, &mut retriever)?;
    let took = clock.ns() - began;
    let latency = retriever.finish(input)?;
    Ok(outcome(input.len(), took, &latency))
}

fn outcome(count: usize, took: u64, latency: &Histogram<u64>) -> CaseResult {
    let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
    CaseResult::default()
        .value(&RATE, count as f64 / (took as f64 / 1e6))
        .value(&MEAN, latency.mean() / 1e3)
        .value(&P50, at(0.5))
        .value(&P99, at(0.99))
        .curve(&LATENCY, QUANTILES.map(|quantile| (quantile, at(quantile))).into())
}

/// The experiment measures several numbers of threads. Says for how many of these the pool has the
/// highest rate, and for how many it has the lowest latency.
fn headline(results: &Results, floor: f64) -> String {
    let ours = Contender::Pool.name();
    let rivals = [Contender::Executor, Contender::ExecutorLarge, Contender::Partitioned]
        .map(Contender::name);
    let of = |metric: &Metric| {
        let Metric { name: metric, better, .. } = *metric;
        let contest = Contest { ours, rivals: &rivals, metric, better, floor };
        standing(contest, results, "threads", &[]).in_words("numbers of threads")
    };
    let (Some(rate), Some(latency)) = (of(&RATE), of(&MEAN)) else {
        return "On this machine, the pool and its rivals were not both measured.".to_owned();
    };
    let alone = Contender::OneThread.name();
    let rates =
        |name: &str| Some(results.find(name, &[("threads", 2_u64.into())])?.values(RATE.name));
    let beside_one = match (rates(ours), rates(alone)) {
        (Some(pool), Some(one)) => match compare(pool, one, floor) {
            Some(Verdict::Differs(ratio)) => {
                format!("; with 2 workers it has {ratio:.2} times the rate of one thread")
            }
            Some(Verdict::WithinNoise) => {
                "; with 2 workers it and one thread are within the noise".to_owned()
            }
            None => String::new(),
        },
        _ => String::new(),
    };
    format!(
        "On this machine, the pool leads the other contenders with several threads in rate {rate}, \
         and in mean latency {latency}{beside_one}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_contenders_release_all_readings_in_order() {
        let input = Readings::generate(3_000, 11);
        for contender in Contender::ALL {
            for workers in [1, 2, 3, 6] {
                for cores in [1, 2, 64] {
                    let measured = measure(contender, &input, workers, cores);
                    measured.unwrap_or_else(|error| panic!("{contender:?}, {workers}: {error:#}"));
                }
            }
        }
    }

    #[test]
    fn a_line_that_is_no_reading_ends_each_contender_with_its_error() {
        let input = Readings::with_a_wrong_line(3_000, 1_500);
        for contender in Contender::ALL {
            for cores in [2, 64] {
                let error = format!("{:#}", measure(contender, &input, 3, cores).unwrap_err());
                assert!(error.contains("no time: `wrong"), "{contender:?}: {error}");
            }
        }
    }

    #[test]
    fn readings_in_the_wrong_order_end_each_contender() {
        let input = Readings::with_swapped_lines(3_000, 1_500);
        for contender in Contender::ALL {
            let error = format!("{:#}", measure(contender, &input, 3, 2).unwrap_err());
            assert!(error.contains("came after one of time"), "{contender:?}: {error}");
        }
    }

    #[test]
    fn names_are_distinct_and_a_pool_counts_the_threads_that_it_starts() {
        let names: std::collections::BTreeSet<_> = Contender::ALL.map(Contender::name).into();
        assert_eq!(names.len(), Contender::ALL.len());
        assert_eq!(Contender::Pool.threads(2, 2), 2);
        assert_eq!(Contender::Pool.threads(6, 2), 2);
        assert_eq!(Contender::Pool.threads(2, 64), 4);
        assert_eq!(Contender::Partitioned.threads(2, 64), 4);
    }
}
