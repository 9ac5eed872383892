//! The ring contenders: the library's chain, written as its guide advises.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result};
use slipring::{Chain, placement::Threads};

use super::setup::{Computed, Setup, Shape};
use super::slices::{Job, Journal, Reduction, Tally};

/// Number of slots. The published program's Disruptor has as many.
const CAPACITY: usize = 1 << 14;

/// The ring's event: a slice, and the place for its result.
///
/// Workers that run beside another stage may only read events. They can still store the result,
/// because its place is an atomic word. The ring orders that store before the reducer's load.
#[derive(Debug, Default)]
struct Event {
    number: u64,
    /// Bits of the result, as `f64`.
    result: AtomicU64,
}

impl Event {
    /// Fills a slot. If no worker replaces the result, the sum of all results is NaN.
    fn fill(&mut self, number: u64) {
        self.number = number;
        *self.result.get_mut() = f64::NAN.to_bits();
    }

    fn compute(&self, job: Job, tally: &Tally) {
        self.result.store(job.slice(self.number).to_bits(), Ordering::Relaxed);
        tally.count();
    }

    fn result(&self) -> f64 {
        f64::from_bits(self.result.load(Ordering::Relaxed))
    }
}

/// Computes all slices with a chain. If `threads` is given, the stages share these threads.
pub fn compute(setup: &Setup, threads: Option<Threads>) -> Result<Computed> {
    let Setup { shape, workers, job, .. } = *setup;
    let tallies = Tally::of_workers(workers);
    let (mut reduction, mut journal) = (Reduction::new(job), Journal::default());
    let mut chain = slipring::ring(CAPACITY, Event::default);
    if let Some(threads) = threads {
        chain = chain.threads(threads);
    }
    let chain = match shape {
        Shape::Broadcast => broadcast(chain, job, &tallies),
        Shape::Pool => chain.update_pool("worker", workers, |own| {
            let tally = &tallies[own];
            move |event: &mut Event, _| {
                *event.result.get_mut() = job.slice(event.number).to_bits();
                tally.count();
            }
        }),
        Shape::PoolInFanOut => chain.fan_out(|side| {
            let pool = side.read_pool("worker", workers, |own| {
                let tally = &tallies[own];
                move |event: &Event, _| event.compute(job, tally)
            });
            pool.read("journal", |event, _| journal.enter(event.number))
        }),
    };
    let done = chain
        .read("reduce", |event, _| reduction.add(event.number, event.result()))
        .run(|producer| {
            let began = Instant::now();
            producer.publish_all(0..job.slices, Event::fill)?;
            Ok(began)
        })
        .context("the ring")?;
    let journal = shape.has_journal().then_some(journal);
    Ok(Computed { began: done.value, reduction, computed: Tally::total(&tallies), journal })
}

/// Adds a reading stage for each worker, which handles its share of the events.
fn broadcast<'a>(chain: Chain<'a, Event>, job: Job, tallies: &'a [Tally]) -> Chain<'a, Event> {
    let workers = tallies.len() as u64;
    chain.fan_out(|mut side| {
        for (own, tally) in (0..).zip(tallies) {
            side = side.read(&format!("worker-{own}"), move |event: &Event, _| {
                if event.number % workers == own {
                    event.compute(job, tally);
                }
            });
        }
        side
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_no_worker_computes_is_detected() {
        let job = Job { slices: 1_000, terms: 10 };
        let mut reduction = Reduction::new(job);
        slipring::ring(64, Event::default)
            .update("worker", |event, _| {
                if event.number != 500 {
                    *event.result.get_mut() = job.slice(event.number).to_bits();
                }
            })
            .read("reduce", |event, _| reduction.add(event.number, event.result()))
            .feed(0..job.slices, Event::fill)
            .unwrap();
        assert!(reduction.check(job.slices).unwrap_err().to_string().contains("NaN"));
    }
}
