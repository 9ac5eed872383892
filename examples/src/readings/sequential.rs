//! One thread that does it all: the baseline, and a hard one to beat while rows are small.

use anyhow::Result;

use super::columns::Columns;
use super::input::Feed;
use super::row::Row;
use super::work::Work;

/// Takes each row through all stages, one row after the other, in one event that never leaves the
/// cache.
pub fn run(feed: Feed<'_>, columns: &Columns, work: &mut Work) -> Result<()> {
    let mut row = Row::default();
    for line in feed {
        row.fill(&line);
        row.parse(columns);
        work.detector.mark(&mut row);
        work.journal.write(&row)?;
        work.summary.add(&row);
    }
    Ok(())
}
