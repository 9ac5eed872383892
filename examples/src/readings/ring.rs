//! All stages on a ring. A row is filled, parsed, marked and read in its slot and never moves.
//!
//! ```text
//!   producer ── parse (a pool of workers) ── detect ──┬── journal
//!                                                     └── summary
//! ```
//!
//! This file contains all uses of slipring in this example.

use anyhow::Result;
pub use slipring::Wait;
use slipring::{Graph, placement::Threads};

use super::input::Feed;
use super::row::Row;
use super::schema::{Parser, Schema};
use super::stages::Stages;

/// The ring's parameters.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of parsing threads.
    pub workers: usize,
    /// Number of slots.
    pub capacity: usize,
    /// Wait strategy of all threads.
    pub wait: Wait,
}

/// Passes all rows through a ring. If `shared` is true, the ring runs on as many threads as there
/// are cores. Otherwise, each stage and worker has its own thread. Returns the ring's report.
pub fn run(
    feed: Feed<'_>,
    schema: &Schema,
    settings: &Settings,
    shared: bool,
    stages: &mut Stages,
) -> Result<String> {
    let Stages { detector, journal, summary } = stages;
    let chain = slipring::ring(settings.capacity, Row::default).wait(settings.wait.clone());
    let chain = if shared { chain.threads(Threads::Auto) } else { chain };
    let done = chain
        .update_pool("parse", settings.workers, |_worker| {
            let mut parser = Parser::new(schema);
            move |row, _at| row.parse(&mut parser)
        })
        .update("detect", |row, _at| detector.mark(row))
        .fan_out(|side| {
            side.read("journal", |row, _at| journal.write(row))
                .read("summary", |row, _at| summary.add(row))
        })
        // This calls `run`, because `feed` would claim a slot before it takes a record. So a row's
        // latency contains the wait for room, as in the other modes.
        .run(|producer| {
            for record in feed {
                producer.publish(|row| row.fill(&record))?;
            }
            Ok(())
        })?;
    Ok(done.report.to_string())
}

/// Passes all rows through the same ring, built as a graph, on as many threads as there are cores.
/// Returns the ring's report.
pub fn run_graph(
    feed: Feed<'_>,
    schema: &Schema,
    settings: &Settings,
    stages: &mut Stages,
) -> Result<String> {
    let graph = Graph::new(settings.capacity, Row::default)
        .wait(settings.wait.clone())
        .threads(Threads::Auto);
    let parse = graph.pool_updater("parse", settings.workers);
    let detect = graph.updater("detect").after(&parse);
    let journal = graph.reader("journal").after(&detect);
    let summary = graph.reader("summary").after(&detect);

    let mut handlers = graph.build()?.handlers();
    handlers
        .update_pool(parse, |_worker| {
            let mut parser = Parser::new(schema);
            move |row, _at| row.parse(&mut parser)
        })
        .update(detect, |row, _at| stages.detector.mark(row))
        .read(journal, |row, _at| stages.journal.write(row))
        .read(summary, |row, _at| stages.summary.add(row));
    let done = handlers.run(|producer| {
        for record in feed {
            producer.publish(|row| row.fill(&record))?;
        }
        Ok(())
    })?;
    Ok(done.report.to_string())
}
