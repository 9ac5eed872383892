//! The same on a ring: rows are filled, parsed, marked and read in the slots where they lie, and
//! never move.
//!
//! ```text
//!   producer ── parse (a pool of workers) ── detect ──┬── journal
//!                                                     └── summary
//! ```
//!
//! All that this example needs of slipring is in this file.

use anyhow::Result;
pub use slipring::Wait;

use super::columns::Columns;
use super::input::Feed;
use super::row::Row;
use super::work::Work;

/// Takes all rows through a ring of `capacity` slots; tells what the stages report.
pub fn run(
    feed: Feed<'_>,
    columns: &Columns,
    workers: usize,
    capacity: usize,
    wait: Wait,
    work: &mut Work,
) -> Result<String> {
    let Work { detector, journal, summary } = work;
    let done = slipring::ring(capacity, Row::default)
        .wait(wait)
        .write_pool("parse", workers, |_worker| move |row, _at| row.parse(columns))
        .write("detect", |row, _at| detector.mark(row))
        .fan_out(|side| {
            side.read("journal", |row, _at| journal.write(row))
                .read("summary", |row, _at| summary.add(row))
        })
        // Not `feed`: here the line is taken first and then waits for a slot, so that its latency
        // begins as in the other modes.
        .run(|producer| {
            for line in feed {
                producer.publish(|row| row.fill(&line))?;
            }
            Ok(())
        })?;
    Ok(done.report.to_string())
}
