//! The ways to divide the work among consumers.

use std::thread;

use anyhow::{Context as _, Result};
use slipring::{Wait, placement::Threads};

use super::super::contenders::blocking_queue::BlockingQueue;
use super::placement::Places;
use super::work::{Job, Tally};

/// Names of the contenders that the simulation has, too.
pub const QUEUE: &str = "blocking queue";
pub const PARTITIONED: &str = "ring with partitioned handlers";
pub const POOL: &str = "slipring pool";

/// Capacity of the ring and of the queue, in events.
pub const CAPACITY: usize = 1024;

/// Handles all events on the calling thread.
pub fn sequential(job: Job, places: &Places<'_>, tallies: &[Tally]) -> Result<()> {
    places.bind_producer();
    let tally = tallies.first().context("no tally")?;
    job.numbers().for_each(|event| tally.work(event, job.sorts));
    Ok(())
}

/// Closes a queue when its thread ends, so that a panic of one thread ends the waits of all others.
struct ClosesAtEnd<'a>(&'a BlockingQueue<u64>);

impl Drop for ClosesAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Passes all events through one queue, from which all consumers take. There is a consumer for each
/// tally.
pub fn queue(job: Job, places: &Places<'_>, tallies: &[Tally]) -> Result<()> {
    let queue = BlockingQueue::new(CAPACITY);
    thread::scope(|scope| {
        let producing = ClosesAtEnd(&queue);
        for (consumer, tally) in tallies.iter().enumerate() {
            let queue = &queue;
            let consume = move || {
                places.bind_consumer();
                let _closes = ClosesAtEnd(queue);
                while let Some(event) = queue.take() {
                    tally.work(event, job.sorts);
                }
            };
            thread::Builder::new()
                .name(format!("sort-{consumer}"))
                .spawn_scoped(scope, consume)
                .context("cannot start a consumer")?;
        }
        places.bind_producer();
        for event in job.numbers() {
            // The queue closes early only if a consumer has panicked. That panic is raised again at
            // the end of the scope.
            if queue.put(event).is_err() {
                break;
            }
        }
        drop(producing);
        Ok(())
    })
}

/// Passes all events through a ring with a handler for each tally: every handler sees every event,
/// and handles the events whose position modulo the number of handlers is its own.
pub fn partitioned(job: Job, places: &Places<'_>, tallies: &[Tally]) -> Result<()> {
    let handlers = tallies.len() as u64;
    slipring::ring(CAPACITY, || 0_u64)
        .on_thread_start(|_| places.bind_consumer())
        .fan_out(|side| {
            (0_u64..).zip(tallies).fold(side, |side, (own, tally)| {
                side.read(&format!("sort-{own}"), move |event, at| {
                    if at.seq % handlers == own {
                        tally.work(*event, job.sorts);
                    }
                })
            })
        })
        .run(|producer| {
            places.bind_producer();
            producer.publish_all(job.numbers(), |slot, event| *slot = event)?;
            Ok(())
        })?;
    Ok(())
}

/// Passes all events through a ring with a pool that has a worker for each tally.
pub fn pool(job: Job, places: &Places<'_>, tallies: &[Tally]) -> Result<()> {
    slipring::ring(CAPACITY, || 0_u64)
        .on_thread_start(|_| places.bind_consumer())
        .read_pool("sort", tallies.len(), |worker| {
            let tally = &tallies[worker];
            move |event, _| tally.work(*event, job.sorts)
        })
        .run(|producer| {
            places.bind_producer();
            producer.publish_all(job.numbers(), |slot, event| *slot = event)?;
            Ok(())
        })?;
    Ok(())
}

/// Like `pool`, but the workers and the producer share as many threads as there are cores. The
/// threads yield, as the guide advises for busy threads that share cores. The system places them.
pub fn shared_pool(job: Job, _: &Places<'_>, tallies: &[Tally]) -> Result<()> {
    slipring::ring(CAPACITY, || 0_u64)
        .threads(Threads::Auto)
        .wait(Wait::YIELDING)
        .read_pool("sort", tallies.len(), |worker| {
            let tally = &tallies[worker];
            move |event, _| tally.work(*event, job.sorts)
        })
        .feed(job.numbers(), |slot, event| *slot = event)?;
    Ok(())
}
