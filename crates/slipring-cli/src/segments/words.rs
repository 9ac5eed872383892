//! The shared part of the commands that show segments: finding a segment, and the words for its
//! states.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Result, anyhow};
use slipring_shm::{
    SegmentError,
    errors::Problem,
    summaries::{Ending, Liveness, ParticipantSummary, SeatSummary, StageSummary, Summary},
};

/// Inspects a segment, which is given by its name, or by a path with a slash.
pub fn inspect(name: &OsStr) -> Result<Summary, SegmentError> {
    match name.as_bytes().contains(&b'/') {
        true => slipring_shm::inspect_at(name),
        false => slipring_shm::inspect(name),
    }
}

/// Creates the error that a command ends with. If no segment has the name, the error lists the
/// other segments.
pub fn explain(error: SegmentError) -> anyhow::Error {
    let known = match error.problem() {
        Problem::Missing => names(),
        _ => Vec::new(),
    };
    match known.is_empty() {
        true => error.into(),
        false => anyhow!("{error}; there are: {}", known.join(", ")),
    }
}

/// Returns the names of the segments that can be read.
fn names() -> Vec<String> {
    let segments = slipring_shm::list().unwrap_or_default();
    segments.into_iter().flatten().filter_map(|segment| segment.name).collect()
}

/// Returns the name of a segment, or its path if it has none.
pub fn name(summary: &Summary) -> String {
    summary.name.clone().unwrap_or_else(|| summary.path.display().to_string())
}

/// Returns the number by which users know a place: shards are counted from 0, as in calls, and all
/// other places from 1. `place` counts from 1; `stage` is `None` for the producers.
pub fn place_number(stage: Option<&StageSummary>, place: usize) -> usize {
    let shard = stage.is_some_and(|stage| stage.delivery == "shards");
    if shard { place.saturating_sub(1) } else { place }
}

/// Returns the word for how a ring ended, or `None` if it has not ended.
pub fn ending(summary: &Summary) -> Option<&'static str> {
    match summary.ending {
        Ending::Closing => Some("closing"),
        Ending::Closed => Some("closed"),
        Ending::Halted => Some("halted"),
        Ending::Failed => Some("failed"),
        Ending::Damaged => Some("damaged"),
        _ => None,
    }
}

/// Returns the participant that has a place; `None` if the place is free or an orphan, or if its
/// participant left during the inspection.
pub fn occupant<'s>(summary: &'s Summary, seat: &SeatSummary) -> Option<&'s ParticipantSummary> {
    summary.participant(seat.participant?)
}

/// Returns the word for the state of a participant.
pub fn state(participant: &ParticipantSummary) -> &'static str {
    match participant.liveness {
        Liveness::Alive if participant.stopped => "stopped",
        Liveness::Alive => "alive",
        Liveness::Dead => "dead",
        Liveness::Free => "free",
        _ => "held",
    }
}

/// Returns the word for the state of a place.
pub fn seat_state(summary: &Summary, seat: &SeatSummary) -> &'static str {
    if seat.orphan { "orphan" } else { occupant(summary, seat).map_or("free", state) }
}

/// Returns a participant's name and process number.
pub fn process(participant: &ParticipantSummary) -> String {
    format!("{} (pid {})", participant.name, participant.pid)
}

/// Returns the number of published events from `position` on, at most the capacity.
pub fn lag(summary: &Summary, position: u64) -> u64 {
    (summary.published.wrapping_sub(position) as i64).clamp(0, summary.capacity as i64) as u64
}
