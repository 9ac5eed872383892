//! The usual way to share the parsing and keep the order: an executor with a queue per worker, and
//! a thread that merges.
//!
//! ```text
//!              ┌─ queue ─ worker 0 ─ queue ─┐
//!   producer ──┤                            ├── merging thread: detect, journal, summary ──┐
//!      ↑       └─ queue ─ worker 1 ─ queue ─┘                                              │
//!      └──────────────────────── queue of parcels to be used again ────────────────────────┘
//! ```
//!
//! The producer deals parcels of rows out in turn, the merging thread collects them in the same
//! turn: that is the order restored. Parcels come back to the producer, so that here, too, nothing
//! is allocated once all are under way (a new row for each line was slower). A parcel holds one
//! row, as a task for each row would; larger parcels make queues cheaper per row, for those who can
//! put off sending a row until others have come.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context as _, Result};

use super::columns::Columns;
use super::input::Feed;
use super::row::Row;
use super::work::Work;

/// What goes through a queue at once.
#[derive(Debug)]
struct Parcel {
    rows: Vec<Row>,
    /// How many of the rows are in use: fewer than there are only at the end.
    filled: usize,
}

/// How the executor is built.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Threads that parse.
    pub workers: usize,
    /// Rows under way at most.
    pub capacity: usize,
    /// Rows in a parcel.
    pub parcel: usize,
}

/// Takes all rows through parsing threads and a merging one.
pub fn run(feed: Feed<'_>, columns: &Columns, size: Size, work: &mut Work) -> Result<()> {
    let parcels = (size.capacity / size.parcel).max(1);
    thread::scope(|scope| {
        let (give_back, used) = sync_channel(parcels);
        let (mut queues, mut parsed) = (Vec::new(), Vec::new());
        for worker in 0..size.workers {
            // Any share will do: parcels go around in turn, so none can wait for one that is stuck
            // behind it.
            let share = parcels.div_ceil(size.workers);
            let (queue, jobs) = sync_channel(share);
            let (done, results) = sync_channel(share);
            let parse = move || parse(&jobs, &done, columns);
            thread::Builder::new()
                .name(format!("parse-{worker}"))
                .spawn_scoped(scope, parse)
                .context("cannot start a worker")?;
            queues.push(queue);
            parsed.push(results);
        }
        let merging = thread::Builder::new()
            .name("merge".to_owned())
            .spawn_scoped(scope, move || merge(&parsed, &give_back, work))
            .context("cannot start the merging thread")?;

        deal(feed, &queues, &used, parcels, size.parcel);
        drop(queues);
        // A panic goes on here as a panic.
        merging.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Fills parcels and deals them out in turn, until there are no more lines or nobody takes them any
/// longer.
fn deal(
    mut feed: Feed<'_>,
    queues: &[SyncSender<Parcel>],
    used: &Receiver<Parcel>,
    parcels: usize,
    rows: usize,
) {
    let mut made = 0;
    for queue in queues.iter().cycle() {
        let Some(first) = feed.next() else { return };
        let mut parcel = if made < parcels {
            made += 1;
            Parcel { rows: vec![Row::default(); rows], filled: 0 }
        } else {
            let Ok(parcel) = used.recv() else { return };
            parcel
        };
        parcel.rows[0].fill(&first);
        parcel.filled = 1;
        for (row, line) in parcel.rows[1..].iter_mut().zip(&mut feed) {
            row.fill(&line);
            parcel.filled += 1;
        }
        if queue.send(parcel).is_err() {
            return;
        }
    }
}

/// A worker.
fn parse(jobs: &Receiver<Parcel>, done: &SyncSender<Parcel>, columns: &Columns) {
    for mut parcel in jobs {
        for row in &mut parcel.rows[..parcel.filled] {
            row.parse(columns);
        }
        if done.send(parcel).is_err() {
            return;
        }
    }
}

/// Takes parcels from the workers in turn and does the rest. The turn of a worker that has none
/// left is the end of all.
fn merge(
    parsed: &[Receiver<Parcel>],
    give_back: &SyncSender<Parcel>,
    work: &mut Work,
) -> Result<()> {
    for results in parsed.iter().cycle() {
        let Ok(mut parcel) = results.recv() else { break };
        for row in &mut parcel.rows[..parcel.filled] {
            work.detector.mark(row);
            work.journal.write(row)?;
            work.summary.add(row);
        }
        // All parcels fit into this queue; and if the producer is done, it needs none.
        let _ = give_back.send(parcel);
    }
    Ok(())
}
