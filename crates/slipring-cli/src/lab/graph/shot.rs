//! One shot: a fresh graph with fresh threads computes all slices once.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use slipring_machine::process_cpu;

use super::queues;
use super::rings;
use super::slices::{Job, Journal, Reduction};
use crate::lab::contenders::queue::{Blocking, StdChannel};

/// The shape of the graph between producer and reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every worker sees all slices, and computes each one whose number modulo the workers is its
    /// own.
    Broadcast,
    /// Each slice goes to one worker.
    Pool,
    /// A pool beside a journal, which sees all slices; the reducer comes after both.
    PoolInFanOut,
}

/// A way to build the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A loop without hand-over.
    OneThread,
    /// A ring, with a thread for each stage and worker.
    Ring,
    /// A ring, with as many threads as cores for all stages.
    SharedThreads,
    /// A bounded channel of the standard library for each edge.
    Channels,
    /// A queue with one lock and two conditions for each edge.
    BlockingQueues,
}

/// What a shot is to do.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub shape: Shape,
    pub contender: Contender,
    pub workers: usize,
    pub job: Job,
}

/// What a shot took.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    /// Time from before the first publication until the reducer has the last slice.
    pub time: Duration,
    /// Average number of cores in use, from before the threads start until all have ended.
    pub cores: Option<f64>,
}

/// What a graph has done.
#[derive(Debug)]
pub struct Computed {
    /// When the producer began.
    pub began: Instant,
    pub reduction: Reduction,
    /// Number of slices that the workers have computed.
    pub computed: u64,
    /// The journal's account, if the shape has one.
    pub journal: Option<Journal>,
}

impl Shape {
    pub const ALL: [Shape; 3] = [Shape::Broadcast, Shape::Pool, Shape::PoolInFanOut];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Broadcast => "broadcast",
            Shape::Pool => "pool",
            Shape::PoolInFanOut => "pool in fan-out",
        }
    }

    pub fn has_journal(self) -> bool {
        self == Shape::PoolInFanOut
    }
}

impl Contender {
    pub const ALL: [Contender; 5] = [
        Contender::OneThread,
        Contender::Ring,
        Contender::SharedThreads,
        Contender::Channels,
        Contender::BlockingQueues,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Contender::OneThread => "one thread",
            Contender::Ring => "ring",
            Contender::SharedThreads => "ring on shared threads",
            Contender::Channels => "std channels",
            Contender::BlockingQueues => "blocking queues",
        }
    }
}

impl Setup {
    /// Returns the number of threads that work at the same time, on so many cores.
    pub fn threads(&self, cores: usize) -> usize {
        let all = self.workers + 2 + usize::from(self.shape.has_journal());
        match self.contender {
            Contender::OneThread => 1,
            Contender::SharedThreads => cores.min(all),
            _ => all,
        }
    }

    /// Computes all slices, and checks the result.
    pub fn shoot(&self) -> Result<Shot> {
        let (start, cpu) = (Instant::now(), process_cpu());
        let computed = match self.contender {
            Contender::OneThread => Ok(self.in_one_thread()),
            Contender::Ring => rings::compute(self, None),
            Contender::SharedThreads => rings::compute(self, Some(slipring::Threads::Auto)),
            Contender::Channels => queues::compute::<StdChannel>(self),
            Contender::BlockingQueues => queues::compute::<Blocking>(self),
        };
        let Computed { began, reduction, computed, journal } = computed?;
        let (wall, used) = (start.elapsed(), process_cpu());
        let ended = reduction.check(computed)?;
        if self.shape.has_journal() {
            journal.context("the shape has no journal")?.check(self.job)?;
        }
        let used = used.zip(cpu).map(|(after, before)| after.saturating_sub(before));
        Ok(Shot {
            time: ended.saturating_duration_since(began),
            cores: used.map(|used| used.as_secs_f64() / wall.as_secs_f64()),
        })
    }

    fn in_one_thread(&self) -> Computed {
        let (mut reduction, mut journal) = (Reduction::new(self.job), Journal::default());
        let began = Instant::now();
        for number in 0..self.job.slices {
            if self.shape.has_journal() {
                journal.enter(number);
            }
            reduction.add(number, self.job.slice(number));
        }
        let journal = self.shape.has_journal().then_some(journal);
        Computed { began, reduction, computed: self.job.slices, journal }
    }
}

/// The name of shape and work, without the workers.
impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} terms", self.shape.name(), self.job.terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_computes_every_shape() {
        for shape in Shape::ALL {
            for contender in Contender::ALL {
                for workers in [1, 2, 5] {
                    let job = Job { slices: 3_000, terms: 10 };
                    let setup = Setup { shape, contender, workers, job };
                    let shot = setup.shoot().unwrap_or_else(|error| panic!("{setup:?}: {error:#}"));
                    assert!(shot.time > Duration::ZERO, "{setup:?}");
                }
            }
        }
    }

    #[test]
    fn more_workers_than_slices_are_no_error() {
        for shape in Shape::ALL {
            for contender in Contender::ALL {
                let job = Job { slices: 10, terms: 10 };
                let setup = Setup { shape, contender, workers: 12, job };
                setup.shoot().unwrap_or_else(|error| panic!("{setup:?}: {error:#}"));
            }
        }
    }

    #[test]
    fn no_worker_is_an_error_and_no_hang() {
        let job = Job { slices: 10, terms: 10 };
        for shape in Shape::ALL {
            for contender in Contender::ALL.into_iter().skip(1) {
                assert!(Setup { shape, contender, workers: 0, job }.shoot().is_err(), "{shape:?}");
            }
        }
    }
}
