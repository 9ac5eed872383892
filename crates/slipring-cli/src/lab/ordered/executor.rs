//! An executor with one queue for each thread, and a merging thread.
//!
//! The producer sends the readings to the workers in turn. The merging thread receives from them in
//! the same order. That restores the order of the readings without comparing times.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context as _, Result};
use slipring_machine::Clock;

use super::readings::{Reading, Readings, Retriever};

/// A line on its way to a worker.
#[derive(Debug)]
struct Task<'a> {
    line: &'a str,
    /// Time of the claim.
    claimed: u64,
}

/// A reading on its way to the merging thread.
#[derive(Debug)]
struct Built {
    reading: Reading,
    /// Time of the claim.
    claimed: u64,
}

/// Passes all readings through the workers and the merging thread. `capacity` is the number of
/// readings that fit in all queues together.
///
/// Each wait ends when another thread fails: that thread drops its ends of the queues.
pub fn run(
    input: &Readings,
    threads: usize,
    capacity: usize,
    clock: Clock,
    retriever: &mut Retriever,
) -> Result<()> {
    // Half of a worker's share fits into the queue before it, and half into the queue behind it.
    let share = (capacity / threads / 2).max(1);
    thread::scope(|scope| {
        let (mut queues, mut results, mut workers) = (Vec::new(), Vec::new(), Vec::new());
        for worker in 0..threads {
            let (queue, tasks) = sync_channel(share);
            let (done, built) = sync_channel(share);
            let worker = thread::Builder::new()
                .name(format!("build-{worker}"))
                .spawn_scoped(scope, move || build(&tasks, &done))
                .context("cannot start a worker")?;
            queues.push(queue);
            results.push(built);
            workers.push(worker);
        }
        let merging = thread::Builder::new()
            .name("merge".to_owned())
            .spawn_scoped(scope, move || merge(&results, retriever))
            .context("cannot start the merging thread")?;
        distribute(input, &queues, clock);
        drop(queues);
        let join = |thread: thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let built: Vec<Result<()>> = workers.into_iter().map(join).collect();
        join(merging)?;
        built.into_iter().collect()
    })
}

/// Sends the lines to the workers in turn, until no line is left or a worker ends.
fn distribute<'a>(input: &'a Readings, queues: &[SyncSender<Task<'a>>], clock: Clock) {
    for (line, queue) in input.lines().zip(queues.iter().cycle()) {
        if queue.send(Task { line, claimed: clock.ns() }).is_err() {
            return;
        }
    }
}

/// Runs a worker until its queue or the merging thread ends.
fn build(tasks: &Receiver<Task<'_>>, done: &SyncSender<Built>) -> Result<()> {
    for Task { line, claimed } in tasks {
        let reading = Reading::parse(line)?;
        if done.send(Built { reading, claimed }).is_err() {
            break;
        }
    }
    Ok(())
}

/// Receives from the workers in turn. It ends at the turn of the first worker that has ended,
/// because no later reading exists then.
fn merge(results: &[Receiver<Built>], retriever: &mut Retriever) -> Result<()> {
    for built in results.iter().cycle() {
        let Ok(Built { reading, claimed }) = built.recv() else { break };
        retriever.retrieve(&reading, claimed)?;
    }
    Ok(())
}
