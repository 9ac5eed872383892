//! Copies a segment's words from its file.
//!
//! Invariants
//! - I1: if the file was shortened, fewer words are copied. That is not an error.
//! - I2: whatever the stamps say, a walk over them ends after a lap at most, and after [`WALK`]
//!   bytes at most.

use std::os::fd::AsFd;
use std::time::Duration;

use slipring::raw::SeqRange;
use slipring::segment::Seat;
use slipring::segment::copied::{
    self, CLAIM_WORD_LINE, CopiedFailure, CopiedStatus, Counts, PRODUCER_LINES, PRODUCERS_QUEUE,
    PoolPositions, RecordedClaim,
};

use super::summary::ParticipantSummary;
use crate::attach::participant::Liveness;
use crate::errors::Problem;
use crate::file::descriptor::File;
use crate::layout::records::{ParticipantRecord, Record, text};
use crate::layout::{Area, Checked, LINE, StageRecord};
use crate::system::lock;
use crate::system::machine::Process;

/// Number that stands for delivery to a pool in the stage table.
pub(super) const POOL: u8 = 1;
/// Number by which the stage table states delivery to shards.
pub(super) const SHARDS: u8 = 2;
/// Number by which the stage table states delivery to a tap.
pub(super) const TAP: u8 = 3;

/// Largest number of bytes that one read of stamps copies. If stamps lie further apart than that,
/// each one is read separately.
const CHUNK: u64 = 1 << 16;
/// Largest number of bytes that one walk copies to find the last published event. A read of less
/// than a kilobyte counts as a kilobyte.
const WALK: u64 = 1 << 26;

/// Copies of the lines that hold positions, and of the seats.
pub(super) struct CopiedPositions {
    lines: Vec<Vec<u64>>,
    pub(super) seats: Vec<Seat>,
}

impl CopiedPositions {
    /// Copies the positions of all stages, and then the seats.
    pub(super) fn copy(file: &File, checked: &Checked) -> Result<CopiedPositions, Problem> {
        let lines = words(file, &checked.areas.lines)?;
        let seat = |line: Vec<u64>| {
            Some(Seat::copied(<[u64; Seat::WORDS]>::try_from(line.get(..Seat::WORDS)?).ok()?))
        };
        let seats = words(file, &checked.areas.seats)?.into_iter().filter_map(seat).collect();
        Ok(CopiedPositions { lines, seats })
    }

    /// Returns the first word of a line.
    pub(super) fn line(&self, line: usize) -> Option<u64> {
        self.lines.get(line)?.first().copied()
    }

    /// Returns the positions of a pool. Returns `None` if the stage is not a pool, or if the file
    /// is too short to contain the pool's lines.
    pub(super) fn pool(&self, stage: &StageRecord) -> Option<PoolPositions> {
        let first = stage.line as usize;
        let of_pool = self.lines.get(first..)?.get(..stage.room as usize + 2)?;
        let words: Option<Vec<u64>> = of_pool.iter().map(|line| line.first().copied()).collect();
        if stage.delivery == POOL { copied::pool_positions(&words?) } else { None }
    }

    /// Returns the furthest position at which, according to the copies, a run ends.
    pub(super) fn furthest(&self, checked: &Checked) -> u64 {
        // A tap's lines hold no position of the tap itself. The producer's cursor and the sentinel
        // are always at the end of a run.
        let ends = checked.stages.iter().filter_map(|stage| match self.pool(stage) {
            Some(pool) => Some(pool.boundary),
            None if stage.delivery == TAP => None,
            None => self.line(stage.line as usize),
        });
        let ends = ends.chain(PRODUCER_LINES.into_iter().filter_map(|line| self.line(line)));
        let ends = ends.chain(self.seats.iter().map(Seat::boundary));
        ends.fold(checked.header.first, later)
    }

    /// Returns the position before which all events are published, according to positions and
    /// stamps. `known` is an earlier result.
    pub(super) fn published(
        &self,
        file: &File,
        checked: &Checked,
        known: Option<u64>,
    ) -> Result<u64, Problem> {
        let furthest = self.furthest(checked);
        walk(file, checked, known.map_or(furthest, |known| later(furthest, known)))
    }
}

/// Returns the later of two positions, which must be less than 2^63 apart.
pub(super) fn later(one: u64, other: u64) -> u64 {
    if ahead(other, one) > 0 { other } else { one }
}

/// Returns how far `seq` is ahead of `of`.
pub(super) fn ahead(seq: u64, of: u64) -> i64 {
    seq.wrapping_sub(of) as i64
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_ne_bytes(word)
}

/// Copies the lines of an area as words.
fn words(file: &File, area: &Area) -> Result<Vec<Vec<u64>>, Problem> {
    let bytes = file.read(area.at, area.length().unwrap_or(0) as usize)?;
    let line = |line: &[u8]| line.chunks_exact(8).map(word).collect();
    Ok(bytes.chunks_exact(LINE as usize).map(line).collect())
}

/// Walks over the stamps in the file, beginning at `from`, which is the end of a run. Returns the
/// end of the last run that follows without a gap.
fn walk(file: &File, checked: &Checked, from: u64) -> Result<u64, Problem> {
    let (stamps, capacity) = (checked.areas.stamps, checked.shape.capacity);
    let (mut seq, mut spent, mut most) = (from, 0, 1);
    let (mut bytes, mut first) = (Vec::new(), 0);
    let fits = (CHUNK / stamps.stride.max(1)).max(1);
    loop {
        let index = seq & (capacity - 1);
        let skipped = index.checked_sub(first).and_then(|slots| slots.checked_mul(stamps.stride));
        let stamp = skipped.and_then(|at| {
            let at = usize::try_from(at).ok()?;
            bytes.get(at..at.checked_add(8)?)
        });
        let Some(stamp) = stamp else {
            // If the stages keep up, only a few runs follow `from`. So the first reads are small,
            // and later ones grow.
            let Some(at) = stamps.item(index).filter(|_| spent < WALK) else { break };
            let count = fits.min(most).min(capacity - index);
            let length = (count - 1) * stamps.stride + 8;
            (bytes, first) = (file.read(at, length as usize)?, index);
            (spent, most) = (spent + length.max(1024), most.saturating_mul(8));
            if bytes.len() < 8 {
                break;
            }
            continue;
        };
        match copied::run_of(word(stamp), seq, capacity) {
            Some(length) if seq.wrapping_add(length).wrapping_sub(from) <= capacity => {
                seq = seq.wrapping_add(length);
            }
            _ => break,
        }
    }
    Ok(seq)
}

/// Returns whether the producer at seat `number` has claimed these positions, as the claim word or
/// the stamp of the first position shows.
pub(super) fn is_claimed(
    file: &File,
    checked: &Checked,
    events: &SeqRange,
    number: u64,
) -> Result<bool, Problem> {
    let (areas, capacity) = (&checked.areas, checked.shape.capacity);
    let at = areas.lines.item(CLAIM_WORD_LINE as u64);
    let at = at.zip(areas.stamps.item(events.first_seq() & (capacity - 1)));
    let Some((claim_word, stamp)) = at else { return Ok(false) };
    // To claim, a producer first stamps the preceding claim, and then swaps the claim word. The
    // copies are made in the opposite order: the claim word first, and then the stamp.
    let (claim_word, stamp) = (file.read(claim_word, 8)?, file.read(stamp, 8)?);
    let is_whole = stamp.len() == 8 && claim_word.len() == 8;
    let claim = RecordedClaim { number, seq: events.first_seq(), end: events.end_seq() };
    Ok(is_whole && copied::is_claimed(claim, word(&stamp), word(&claim_word), capacity))
}

/// Copies the status, and the record of the first failure, which lies behind it.
pub(super) fn status(
    file: &File,
    checked: &Checked,
) -> Result<(CopiedStatus, Option<CopiedFailure>), Problem> {
    let area = &checked.areas.status;
    let bytes = file.read(area.at, area.length().unwrap_or(0) as usize)?;
    let bits = bytes.first_chunk().map_or(0, |bits| u32::from_ne_bytes(*bits));
    let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    let status = copied::status(bits, words.get(1).copied().unwrap_or(0));
    let record = words.get((LINE / 8) as usize..).unwrap_or_default();
    Ok((status, copied::failure(record)))
}

/// Copies the counts of each stage, and then those of the producers.
pub(super) fn counts(file: &File, checked: &Checked) -> Result<Vec<Counts>, Problem> {
    let words = words(file, &checked.areas.counters)?.concat();
    let parties = checked.stages.len() + 1;
    Ok((0..parties).map(|party| copied::counts(&words, parties, party)).collect())
}

/// Copies the number of sleepers of each stage, and then that of the producers.
pub(super) fn asleep(file: &File, checked: &Checked) -> Result<Vec<u32>, Problem> {
    let queues = words(file, &checked.areas.wait_queues)?;
    let sleepers = |queue: usize| {
        let word = queues.get(queue).and_then(|line| line.first());
        word.map_or(0, |&word| copied::sleepers(word))
    };
    let stages = checked.stages.iter().map(|stage| stage.wait_queue as usize);
    Ok(stages.chain([PRODUCERS_QUEUE]).map(sleepers).collect())
}

/// Copies the records of the participants, and probes the byte of each.
pub(super) fn participants(
    file: &File,
    checked: &Checked,
) -> Result<Vec<ParticipantSummary>, Problem> {
    let area = checked.areas.participants;
    let bytes = file.read(area.at, area.length().unwrap_or(0) as usize)?;
    let mut found = Vec::new();
    for (number, record) in (1..).zip(bytes.chunks_exact(ParticipantRecord::STRIDE as usize)) {
        let u32_at = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| record[at + i]));
        let u64_at = |at: usize| word(&record[at..at + 8]);
        let process = Process { pid: u32_at(8), start_time: u64_at(16), namespace: u64_at(24) };
        let held = lock::probe(file.as_fd(), lock::byte(number))
            .map_err(|error| Problem::system("probing a byte of the file", error))?;
        let liveness = Liveness::of(held, u64_at(0), &process);
        if liveness != Liveness::Free {
            found.push(ParticipantSummary {
                number,
                pid: process.pid,
                uid: u32_at(12),
                name: text(&record[48..112]),
                joined: Duration::from_nanos(u64_at(32)),
                liveness,
                stopped: liveness == Liveness::Alive && process.is_stopped(),
                process,
            });
        }
    }
    Ok(found)
}
