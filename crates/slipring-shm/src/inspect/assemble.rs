//! Assembles a summary from the copies of a segment's words.
//!
//! Invariants
//! - I1: a tap follows no tap, so the positions of the stages before a tap are known before the
//!   tap's own.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use slipring::segment::copied::{CopiedFailure, Counts, bound_at};
use slipring::segment::{OnDeath, Seat};
use slipring::{raw::SeqRange, stages::PRODUCER};

use super::copies::{self, CopiedPositions, POOL, SHARDS, TAP, ahead, later};
use super::summary::{FailureSummary, SeatSummary, StageSummary, Summary};
use crate::contents::stages;
use crate::errors::Problem;
use crate::file::descriptor::{File, Rights};
use crate::file::location::name_of;
use crate::file::open::read_head;
use crate::layout::records::text;
use crate::layout::{Checked, MAX_PARTICIPANTS, StageRecord};
use crate::system::limits::FOLDER;
use crate::system::lock;

/// Names of the contents of slots, indexed by their numbers in the header.
const CONTENTS: [&str; 3] = ["events", "messages", "blocks"];

/// Inspects the segment at `path`.
pub(super) fn summary(path: &Path) -> Result<Summary, Problem> {
    let file = File::open(path, Rights::Read)?;
    let checked = read_head(&file)?;
    let header = &checked.header;
    let held = lock::probe(file.as_fd(), 0..MAX_PARTICIPANTS + 1)
        .map_err(|error| Problem::system("probing the bytes of the file", error))?;
    // The first walk may take milliseconds, during which the producers continue to publish. So a
    // second walk starts where the first one ended. It is short.
    let known = CopiedPositions::copy(&file, &checked)?.published(&file, &checked, None)?;
    let found = CopiedPositions::copy(&file, &checked)?.published(&file, &checked, Some(known))?;
    let positions = CopiedPositions::copy(&file, &checked)?; // I3, I4
    let published = later(found, positions.furthest(&checked));

    let mut counts = copies::counts(&file, &checked)?;
    let mut asleep = copies::asleep(&file, &checked)?;
    let (producer_counts, producers_asleep) = (counts.pop(), asleep.pop());
    let (status, failure) = copies::status(&file, &checked)?;
    let progress = progress_of(&checked, &positions, published);
    let of_stage = |((number, progress), (counts, asleep))| {
        let stage = CopiedStage { number, progress, counts, asleep };
        stage_summary(&checked, &positions, published, stage)
    };
    let numbered = progress.iter().enumerate();
    let stages: Vec<_> = numbered.zip(counts.into_iter().zip(asleep)).map(of_stage).collect();
    let in_folder = path.parent() == Some(Path::new(FOLDER));
    Ok(Summary {
        name: path.file_name().filter(|_| in_folder).and_then(name_of).map(str::to_owned),
        path: path.to_owned(),
        id: header.id,
        type_name: checked.type_name(),
        type_version: header.type_version,
        event_size: header.event_size,
        contents: CONTENTS.get(header.kind as usize).copied().unwrap_or("unknown"),
        capacity: header.capacity,
        length: header.length,
        created: Duration::from_nanos(header.created),
        producers: header.producers,
        notice: Duration::from_millis(header.notice_ms.into()),
        published,
        free: free(&checked, &progress, found),
        producer_seats: producer_seats(&file, &checked, &positions)?,
        producer_on_death: on_death(header.producer_on_death),
        producer_counts: producer_counts.unwrap_or_default(),
        producers_asleep: producers_asleep.unwrap_or_default(),
        stages,
        places: header.participants,
        participants: copies::participants(&file, &checked)?,
        stale: held.is_none(),
        ending: status.ending,
        last: status.last,
        failure: failure.map(|failure| failure_summary(&checked, failure)),
    })
}

/// Progress of a stage.
struct StageProgress {
    /// Position before which the stage has released all events.
    position: u64,
    /// Position before which the stage was lent all events.
    held: u64,
    /// For each worker, shard or member, the first position that it has not released.
    seats: Vec<Option<u64>>,
}

/// Returns the progress of each stage.
fn progress_of(
    checked: &Checked,
    positions: &CopiedPositions,
    published: u64,
) -> Vec<StageProgress> {
    let progress = |stage: &StageRecord| {
        let pool = positions.pool(stage);
        // Each shard has its own line of positions. `stage.line` is the first shard's line, and the
        // others follow. The stage is as far as its slowest shard.
        let shards = if stage.delivery == SHARDS { stage.seats } else { 1 };
        let of_shard =
            |shard: u32| positions.line((stage.line as usize).checked_add(shard as usize)?);
        let line = (0..shards).filter_map(of_shard).reduce(earlier);
        let position = pool.map(|pool| pool.released).or(line).unwrap_or(checked.header.first);
        let own_seats = positions.seats.iter().skip(stage.first_seat as usize);
        let held = own_seats.take(shards as usize).map(Seat::held).reduce(later);
        let held = pool.map(|pool| pool.taken).or(held);
        // `bound_at` needs a position near the pool's bounds. They are at most a lap behind the
        // pool's claim word, which states up to where workers have taken events.
        let near = pool.map_or(published, |pool| pool.taken);
        let bound = |seat: u32| {
            let line = (stage.line as usize).checked_add(1 + seat as usize)?;
            bound_at(positions.line(line)?, near)
        };
        let seats = match stage.delivery {
            POOL | TAP => (0..stage.seats).map(bound).collect(),
            SHARDS => (0..shards).map(of_shard).collect(),
            _ => Vec::new(),
        };
        StageProgress { position, held: held.map_or(position, |held| later(position, held)), seats }
    };
    let mut all: Vec<StageProgress> = checked.stages.iter().map(progress).collect();
    // A tap is as far as the slowest of its members and of the stages before it (I1).
    for (number, stage) in checked.stages.iter().enumerate().filter(|(_, s)| s.delivery == TAP) {
        let before = followed(checked, stage).map(|number| all[number].position);
        let members = all[number].seats.iter().flatten().copied();
        let position = before.chain(members).reduce(earlier).unwrap_or(published);
        (all[number].position, all[number].held) = (position, position);
    }
    all
}

fn earlier(one: u64, other: u64) -> u64 {
    if ahead(one, other) > 0 { other } else { one }
}

/// Returns the indices of the stages that a stage follows.
fn followed<'c>(checked: &'c Checked, stage: &StageRecord) -> impl Iterator<Item = usize> + 'c {
    let after = stage.after;
    (0..checked.stages.len()).filter(move |bit| after >> bit & 1 != 0)
}

/// Returns the number of published events from `position` on, at most `capacity`.
fn lag(published: u64, position: u64, capacity: u64) -> u64 {
    (ahead(published, position).max(0) as u64).min(capacity)
}

/// Returns the number of free slots. `progress` was copied after `published` was found (I4).
fn free(checked: &Checked, progress: &[StageProgress], published: u64) -> u64 {
    let capacity = checked.header.capacity;
    let all = checked.stages.iter().fold(0, |all, stage| all | stage.after);
    let gating = progress.iter().enumerate().filter(|(number, _)| all >> number & 1 == 0);
    let used = gating.map(|(_, progress)| lag(published, progress.position, capacity)).max();
    capacity - used.unwrap_or(0)
}

/// Returns the range of events from `begin` to `end`, or `None` if there are none, or more than the
/// ring can hold.
fn events(begin: u64, end: u64, capacity: u64) -> Option<SeqRange> {
    (1..=capacity).contains(&end.wrapping_sub(begin)).then(|| (begin..end).into())
}

fn seat_summary(seat: &Seat) -> SeatSummary {
    SeatSummary {
        participant: seat.owner(),
        orphan: seat.is_orphan(),
        deaths: seat.deaths(),
        position: None,
        events: None,
        unread: seat.unread(),
    }
}

/// Returns the summaries of the producers' places.
fn producer_seats(
    file: &File,
    checked: &Checked,
    positions: &CopiedPositions,
) -> Result<Vec<SeatSummary>, Problem> {
    let first: usize = checked.stages.iter().map(|stage| stage.seats as usize).sum();
    let seats = positions.seats.iter().skip(first).take(checked.shape.producers as usize);
    let several = checked.shape.producers > 1;
    let summary = |(number, seat): (u64, &Seat)| {
        let (begin, end) = seat.intent();
        let events = events(begin, end, checked.header.capacity).filter(|_| several);
        // A producer stores the intent in its seat before it claims, and does not clear it after
        // the publication. So an intent alone does not prove that the positions are claimed.
        let claims = match &events {
            Some(events) => copies::is_claimed(file, checked, events, number)?,
            None => false,
        };
        Ok(SeatSummary { events: events.filter(|_| claims), ..seat_summary(seat) })
    };
    (0..).zip(seats).map(summary).collect()
}

/// A stage's progress, and the copies of its other words.
struct CopiedStage<'a> {
    /// Index of the stage.
    number: usize,
    progress: &'a StageProgress,
    counts: Counts,
    /// Number of threads that sleep at the stage's wait queue.
    asleep: u32,
}

/// Returns the summary of a stage of a ring whose published position is `published`.
fn stage_summary(
    checked: &Checked,
    positions: &CopiedPositions,
    published: u64,
    CopiedStage { number, progress, counts, asleep }: CopiedStage<'_>,
) -> StageSummary {
    let stage = &checked.stages[number];
    let capacity = checked.header.capacity;
    let seats = positions.seats.iter().skip(stage.first_seat as usize);
    let seat = |(number, seat): (usize, &Seat)| {
        let at = progress.seats.get(number).copied().flatten();
        let summary = seat_summary(seat);
        match stage.delivery {
            TAP | SHARDS => SeatSummary { position: at, ..summary },
            POOL => {
                let events = at.and_then(|at| events(at, seat.chunk().0.end, capacity));
                SeatSummary { events, ..summary }
            }
            _ => summary,
        }
    };
    StageSummary {
        name: stage.name(),
        writes: stage.access != 0,
        delivery: stages::DELIVERIES[usize::from(stage.delivery & 3)],
        room: stage.room,
        after: followed(checked, stage).map(|number| checked.stages[number].name()).collect(),
        on_death: on_death(stage.on_death),
        position: progress.position,
        held: progress.held,
        lag: lag(published, progress.position, capacity),
        seats: seats.take(stage.seats as usize).enumerate().map(seat).collect(),
        counts,
        asleep,
    }
}

fn on_death(number: impl Into<u32>) -> OnDeath {
    u8::try_from(number.into()).ok().and_then(stages::on_death).unwrap_or_default()
}

fn failure_summary(checked: &Checked, failure: CopiedFailure) -> FailureSummary {
    let stage = checked.stages.get(failure.party).map(StageRecord::name);
    FailureSummary {
        stage: stage.unwrap_or_else(|| PRODUCER.into()),
        seq: failure.seq,
        text: text(failure.text.as_bytes()),
    }
}
