//! All stages on one thread: the baseline, which is hard to beat while rows are small.

use anyhow::Result;

use super::columns::Columns;
use super::input::Feed;
use super::row::Row;
use super::stages::Stages;

/// Passes one row after another through all stages, in one event that stays in the cache.
pub fn run(feed: Feed<'_>, columns: &Columns, stages: &mut Stages) -> Result<()> {
    let mut row = Row::default();
    for line in feed {
        row.fill(&line);
        row.parse(columns);
        stages.detector.mark(&mut row);
        stages.journal.write(&row)?;
        stages.summary.add(&row);
    }
    Ok(())
}
