//! All stages on one thread: the baseline, which is hard to beat while rows are small.

use anyhow::Result;

use super::input::Feed;
use super::row::Row;
use super::schema::{Parser, Schema};
use super::stages::Stages;

/// Passes one row after another through all stages, in one event that stays in the cache.
pub fn run(feed: Feed<'_>, schema: &Schema, stages: &mut Stages) -> Result<()> {
    let (mut parser, mut row) = (Parser::new(schema), Row::default());
    for record in feed {
        row.fill(&record);
        row.parse(&mut parser);
        stages.detector.mark(&mut row);
        stages.journal.write(&row)?;
        stages.summary.add(&row);
    }
    Ok(())
}
