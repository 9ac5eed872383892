//! Parallel parsing in order without a ring: an executor with a queue per worker and a merging
//! thread.
//!
//! ```text
//!              ┌─ queue ─ worker 0 ─ queue ─┐
//!   producer ──┤                            ├── merging thread: detect, journal, summary ──┐
//!      ↑       └─ queue ─ worker 1 ─ queue ─┘                                              │
//!      └──────────────────────────── queue of used batches ────────────────────────────────┘
//! ```
//!
//! The producer sends batches of rows to the workers in turn, and the merging thread receives them
//! in the same order, so it gets the rows in the order of the input. Used batches return to the
//! producer, so the executor, like the ring, allocates nothing after its start. When it allocated a
//! new row for each record, it was slower. By default a batch holds one row. Larger batches make
//! the queues cheaper per row, but delay rows.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context as _, Result};

use super::input::Feed;
use super::row::Row;
use super::schema::{Parser, Schema};
use super::stages::Stages;

/// Rows that go through a queue at once.
#[derive(Debug)]
struct Batch {
    rows: Vec<Row>,
    /// Number of rows in use; only the last batch has unused ones.
    filled: usize,
}

/// The size of the executor.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of parsing threads.
    pub workers: usize,
    /// Maximum number of rows in flight.
    pub capacity: usize,
    /// Number of rows in a batch.
    pub batch: usize,
}

/// Passes all rows through the parsing threads and the merging thread.
pub fn run(feed: Feed<'_>, schema: &Schema, size: Size, stages: &mut Stages) -> Result<()> {
    let batches = (size.capacity / size.batch).max(1);
    thread::scope(|scope| {
        let (give_back, used) = sync_channel(batches);
        let (mut queues, mut parsed) = (Vec::new(), Vec::new());
        for worker in 0..size.workers {
            // No capacity causes a deadlock. All threads handle the batches in the same order, so
            // no batch waits for a later one.
            let share = batches.div_ceil(size.workers);
            let (queue, jobs) = sync_channel(share);
            let (done, results) = sync_channel(share);
            let parse = move || parse(&jobs, &done, schema);
            thread::Builder::new()
                .name(format!("parse-{worker}"))
                .spawn_scoped(scope, parse)
                .context("cannot start a worker")?;
            queues.push(queue);
            parsed.push(results);
        }
        let merging = thread::Builder::new()
            .name("merge".to_owned())
            .spawn_scoped(scope, move || merge(&parsed, &give_back, stages))
            .context("cannot start the merging thread")?;

        distribute(feed, &queues, &used, batches, size.batch);
        drop(queues);
        // A panic of the merging thread is raised again on the calling thread.
        merging.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Fills batches and sends them to the workers in turn, until the records or the workers end.
fn distribute(
    mut feed: Feed<'_>,
    queues: &[SyncSender<Batch>],
    used: &Receiver<Batch>,
    batches: usize,
    rows: usize,
) {
    let mut made = 0;
    for queue in queues.iter().cycle() {
        let Some(first) = feed.next() else { return };
        let mut batch = if made < batches {
            made += 1;
            Batch { rows: vec![Row::default(); rows], filled: 0 }
        } else {
            let Ok(batch) = used.recv() else { return };
            batch
        };
        batch.rows[0].fill(&first);
        batch.filled = 1;
        for (row, record) in batch.rows[1..].iter_mut().zip(&mut feed) {
            row.fill(&record);
            batch.filled += 1;
        }
        if queue.send(batch).is_err() {
            return;
        }
    }
}

/// Runs a worker, which parses the rows of its queue.
fn parse(jobs: &Receiver<Batch>, done: &SyncSender<Batch>, schema: &Schema) {
    let mut parser = Parser::new(schema);
    for mut batch in jobs {
        for row in &mut batch.rows[..batch.filled] {
            row.parse(&mut parser);
        }
        if done.send(batch).is_err() {
            return;
        }
    }
}

/// Receives batches from the workers in turn and runs the other stages. It ends at the turn of the
/// first worker without a batch, because no later batch exists then.
fn merge(
    parsed: &[Receiver<Batch>],
    give_back: &SyncSender<Batch>,
    stages: &mut Stages,
) -> Result<()> {
    for results in parsed.iter().cycle() {
        let Ok(mut batch) = results.recv() else { break };
        for row in &mut batch.rows[..batch.filled] {
            stages.detector.mark(row);
            stages.journal.write(row)?;
            stages.summary.add(row);
        }
        // The queue has room for all batches, so the send fails only after the producer has ended.
        let _ = give_back.send(batch);
    }
    Ok(())
}
