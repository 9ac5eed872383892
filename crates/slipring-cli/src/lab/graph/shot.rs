//! One shot: a fresh graph with fresh threads computes all slices once, and the result is checked.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use slipring_machine::process_cpu;

use super::queues;
use super::rings;
use super::setup::{Computed, Contender, Setup};
use super::slices::{Journal, Reduction};
use crate::lab::contenders::queue::{Blocking, StdChannel};

/// The times of a shot.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    /// Time from before the first publication until the reducer has the last slice.
    pub time: Duration,
    /// Average number of cores in use, from before the threads start until all have ended.
    pub cores: Option<f64>,
}

/// Computes all slices, and checks the result.
pub fn shoot(setup: &Setup) -> Result<Shot> {
    let (start, cpu) = (Instant::now(), process_cpu());
    let computed = match setup.contender {
        Contender::OneThread => Ok(in_one_thread(setup)),
        Contender::Ring => rings::compute(setup, None),
        Contender::SharedThreads => rings::compute(setup, Some(slipring::placement::Threads::Auto)),
        Contender::Channels => queues::compute::<StdChannel>(setup),
        Contender::BlockingQueues => queues::compute::<Blocking>(setup),
    };
    let Computed { began, reduction, computed, journal } = computed?;
    let (wall, used) = (start.elapsed(), process_cpu());
    let ended = reduction.check(computed)?;
    if setup.shape.has_journal() {
        journal.context("the shape has no journal")?.check(setup.job)?;
    }
    let used = used.zip(cpu).map(|(after, before)| after.saturating_sub(before));
    Ok(Shot {
        time: ended.saturating_duration_since(began),
        cores: used.map(|used| used.as_secs_f64() / wall.as_secs_f64()),
    })
}

fn in_one_thread(setup: &Setup) -> Computed {
    let (mut reduction, mut journal) = (Reduction::new(setup.job), Journal::default());
    let began = Instant::now();
    for number in 0..setup.job.slices {
        if setup.shape.has_journal() {
            journal.enter(number);
        }
        reduction.add(number, setup.job.slice(number));
    }
    let journal = setup.shape.has_journal().then_some(journal);
    Computed { began, reduction, computed: setup.job.slices, journal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::graph::setup::Shape;
    use crate::lab::graph::slices::Job;

    #[test]
    fn every_contender_computes_every_shape() {
        for shape in Shape::ALL {
            for contender in Contender::ALL {
                for workers in [1, 2, 5] {
                    let job = Job { slices: 3_000, terms: 10 };
                    let setup = Setup { shape, contender, workers, job };
                    let shot = shoot(&setup).unwrap_or_else(|error| panic!("{setup:?}: {error:#}"));
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
                shoot(&setup).unwrap_or_else(|error| panic!("{setup:?}: {error:#}"));
            }
        }
    }

    #[test]
    fn no_worker_is_an_error_and_no_hang() {
        let job = Job { slices: 10, terms: 10 };
        for shape in Shape::ALL {
            for contender in Contender::ALL.into_iter().skip(1) {
                assert!(shoot(&Setup { shape, contender, workers: 0, job }).is_err(), "{shape:?}");
            }
        }
    }
}
