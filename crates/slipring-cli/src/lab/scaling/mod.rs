//! `slipring lab scaling`: one producer and one to eleven consumers that sort integers.
//!
//! - [`work`]: the sorts, and the check that all of them were done
//! - [`contenders`]: the ways to divide the work
//! - [`placement`]: the CPUs of the threads
//! - [`simulated`]: the experiment on virtual cores
//! - [`about`]: the texts
//! - [`command`]: the arguments, which choose between real and virtual cores

mod about;
pub mod command;
mod contenders;
mod placement;
pub mod simulated;
mod work;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};
use slipring_machine::process_cpu;

use super::experiment::{About, Case, CaseResult, Experiment, Repetition};
use super::metric::{Better, Metric};
use super::record::Results;
use super::size::Size;
use super::standing::{Contest, standing};
use super::statistics::Noise;
use crate::lab::machine::MeasuredMachine;
use about::{CONSUMERS, SORTS};
use placement::Places;
use work::{Job, Tally};

static WALL: Metric = Metric { name: "wall time", unit: "s", better: Better::Less };
static TIME: Metric = Metric { name: "time", unit: "ns/event", better: Better::Less };
static CPU: Metric = Metric { name: "CPU", unit: "cores", better: Better::Neither };

/// The experiment.
pub struct Scaling;

/// A way to divide the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Sequential,
    Queue,
    Partitioned,
    Pool,
    SharedPool,
}

impl Contender {
    const ALL: [Contender; 5] = [
        Contender::Sequential,
        Contender::Queue,
        Contender::Partitioned,
        Contender::Pool,
        Contender::SharedPool,
    ];

    fn name(self) -> &'static str {
        match self {
            Contender::Sequential => "sequential",
            Contender::Queue => contenders::QUEUE,
            Contender::Partitioned => contenders::PARTITIONED,
            Contender::Pool => contenders::POOL,
            Contender::SharedPool => "slipring pool on shared threads",
        }
    }

    /// Returns the number of threads, including the producer's.
    fn threads(self, consumers: usize, cores: usize) -> usize {
        match self {
            Contender::Sequential => 1,
            // On one core, the library starts one thread in addition to the producer's.
            Contender::SharedPool => cores.clamp(2, consumers.max(2)),
            _ => consumers + 1,
        }
    }

    /// Returns whether the contender is measured. Shared threads are measured only if there are
    /// fewer cores than threads, because they are meant for that case.
    fn is_measured(self, consumers: usize, cores: usize) -> bool {
        self != Contender::SharedPool || consumers + 1 > cores
    }

    fn run(self, job: Job, places: &Places<'_>, tallies: &[Tally]) -> Result<()> {
        match self {
            Contender::Sequential => contenders::sequential(job, places, tallies),
            Contender::Queue => contenders::queue(job, places, tallies),
            Contender::Partitioned => contenders::partitioned(job, places, tallies),
            Contender::Pool => contenders::pool(job, places, tallies),
            Contender::SharedPool => contenders::shared_pool(job, places, tallies),
        }
    }
}

/// Returns the number of events in a run, for each of [`SORTS`].
fn events(size: Size) -> [u64; SORTS.len()] {
    size.pick([200, 40, 11], [500_000, 80_000, 4_000], [2_000_000, 300_000, 15_000])
}

impl Experiment for Scaling {
    fn about(&self) -> &'static About {
        &about::ABOUT
    }

    fn cases(&self, size: Size, machine: &MeasuredMachine) -> Result<Vec<Case>> {
        let nodes = placement::nodes(machine);
        let cores = machine.cores;
        let mut cases = Vec::new();
        for (sorts, events) in SORTS.into_iter().zip(events(size)) {
            for consumers in CONSUMERS {
                let measured = Contender::ALL
                    .into_iter()
                    .filter(|contender| contender.is_measured(consumers, cores));
                for contender in measured {
                    let threads = contender.threads(consumers, cores);
                    let cpus = match contender {
                        Contender::SharedPool => Vec::new(),
                        _ => placement::choose(&nodes, threads),
                    };
                    let bound = cpus.clone();
                    cases.push(Case {
                        contender: contender.name().to_owned(),
                        point: vec![
                            ("sorts", u64::from(sorts).into()),
                            ("consumers", consumers.into()),
                        ],
                        threads,
                        cpus,
                        // A hand-over, and the sorts.
                        expected: Duration::from_nanos(events * (200 + 60 * u64::from(sorts))),
                        run: Box::new(move |run: Repetition| {
                            let job = Job { first: run.seed, events, sorts };
                            measure(contender, job, consumers, &bound)
                        }),
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
        let nodes: Vec<usize> = placement::nodes(machine).iter().map(Vec::len).collect();
        about::missing(events(size), &nodes)
    }

    fn headline(&self, results: &Results, noise: &Noise) -> String {
        headline(results, noise.floor())
    }
}

/// Runs a contender once, on threads of its own, and checks the work.
fn measure(contender: Contender, job: Job, consumers: usize, cpus: &[usize]) -> Result<CaseResult> {
    let tallies: Vec<Tally> = (0..consumers).map(|_| Tally::default()).collect();
    let places = Places::new(cpus);
    // The producer gets a new thread, because it binds its thread to a core, and the calling thread
    // must not stay bound.
    let (took, cpu) = thread::scope(|scope| {
        let run = || {
            let (began, before) = (Instant::now(), process_cpu());
            contender.run(job, &places, &tallies)?;
            let took = began.elapsed();
            let cpu = process_cpu().zip(before).map(|(after, before)| after.saturating_sub(before));
            Ok::<_, Error>((took, cpu))
        };
        let producer = thread::Builder::new()
            .name("producer".to_owned())
            .spawn_scoped(scope, run)
            .context("cannot start the producer")?;
        producer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    job.check(&tallies)?;
    let outcome = CaseResult::default()
        .value(&WALL, took.as_secs_f64())
        .value(&TIME, took.as_nanos() as f64 / job.events as f64);
    // The CPU figure is absent on systems that do not account for processor time.
    Ok(match cpu {
        Some(cpu) => outcome.value(&CPU, cpu.as_secs_f64() / took.as_secs_f64()),
        None => outcome,
    })
}

/// The experiment measures several numbers of consumers. For each amount of work, says for how many
/// of these numbers the pool takes the least time.
fn headline(results: &Results, floor: f64) -> String {
    let rivals =
        [Contender::Sequential, Contender::Queue, Contender::Partitioned].map(Contender::name);
    let (ours, metric, better) = (Contender::Pool.name(), TIME.name, TIME.better);
    let contest = Contest { ours, rivals: &rivals, metric, better, floor };
    let of = |sorts: u32| {
        let at = [("sorts", u64::from(sorts).into())];
        let standing = standing(contest, results, "consumers", &at);
        let plural = if sorts == 1 { "" } else { "s" };
        standing
            .in_words("numbers of consumers")
            .map(|words| format!("with {sorts} sort{plural} {words}"))
    };
    let all: Vec<String> = SORTS.into_iter().filter_map(of).collect();
    if all.is_empty() {
        return "On this machine, the pool and its rivals were not both measured.".to_owned();
    }
    format!(
        "On this machine, the pool leads one thread, the blocking queue and the partitioned \
         handlers in time beyond the noise {}.",
        all.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_contenders_do_all_the_work() {
        for contender in Contender::ALL {
            for consumers in [1, 2, 3, 11] {
                let job = Job { first: 2013, events: 3_000, sorts: 1 };
                let measured = measure(contender, job, consumers, &[]);
                measured.unwrap_or_else(|error| panic!("{contender:?}, {consumers}: {error:#}"));
            }
        }
    }

    #[test]
    fn threads_are_bound_where_there_is_a_core_for_each() {
        let cpus = placement::nodes(&MeasuredMachine::this()).concat();
        let Some(consumers) = cpus.len().checked_sub(1).filter(|count| *count > 0) else { return };
        for contender in [Contender::Queue, Contender::Partitioned, Contender::Pool] {
            let job = Job { first: 0, events: 100, sorts: 1 };
            let tallies: Vec<Tally> = (0..consumers).map(|_| Tally::default()).collect();
            let places = Places::new(&cpus);
            thread::scope(|scope| {
                scope.spawn(|| contender.run(job, &places, &tallies).unwrap());
            });
            assert_eq!(places.consumers(), consumers, "{contender:?}");
        }
    }

    #[test]
    fn shared_threads_are_measured_where_threads_outnumber_cores() {
        let shared = |consumers, cores| Contender::SharedPool.is_measured(consumers, cores);
        assert!(!shared(1, 2) && shared(2, 2) && shared(11, 2) && !shared(11, 12));
        assert!(Contender::ALL[..4].iter().all(|contender| contender.is_measured(1, 64)));
        assert_eq!(Contender::SharedPool.threads(11, 2), 2);
        assert_eq!(Contender::SharedPool.threads(1, 1), 2);
        assert_eq!(Contender::Pool.threads(11, 2), 12);
    }
}
