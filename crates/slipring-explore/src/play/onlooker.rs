//! An onlooker of a segment, as another language writes it: it loads words, and attaches to
//! nothing.
//!
//! The steps are those of `crates/slipring-shm/clients/segment.py`, under the same names. It knows
//! the single producer's claims no better than that client does by default.
//!
//! - I1: The words lie in the areas of the heap's segment, which live until the run is over.

use std::ptr::NonNull;

use crate::event::{Parts, point};
use crate::oracle::Log;
use crate::plan::{Kind, StagePlan};
use crate::play::memory::Heap;
use slipring::segment::{Needs, StagePlace};

const MAX_RUN: u64 = 1 << 15;
const TOMBSTONE: u64 = 1 << 16;
const LAP_SHIFT: u32 = 18;
/// A bound's mark of an idle worker or member.
const IDLE: u64 = 1;
const SENTINEL_LINE: usize = 1;
/// Number of walks that producers overtake before an onlooker goes on without the published end.
const WALKS: usize = 8;

/// Words of a seat, by their places.
const HI: usize = 4;
const BOUNDARY: usize = 7;

fn ahead(one: u64, other: u64) -> i64 {
    one.wrapping_sub(other) as i64
}

fn later(one: u64, other: u64) -> u64 {
    if ahead(other, one) > 0 { other } else { one }
}

fn earlier(one: u64, other: u64) -> u64 {
    if ahead(one, other) > 0 { other } else { one }
}

/// Returns the position nearest to `near` whose low `bits` bits are `low`.
fn widen(low: u64, bits: u32, near: u64) -> u64 {
    let distance = low.wrapping_sub(near) << (64 - bits);
    near.wrapping_add(((distance as i64) >> (64 - bits)) as u64)
}

/// An onlooker of a segment.
pub struct Onlooker<'a> {
    heap: &'a Heap,
    log: &'a Log,
    needs: Needs,
    producers: usize,
    /// The published end, as far as it has found it.
    end: u64,
    /// The frontier of each stage when it looked last.
    frontiers: Vec<Option<u64>>,
}

impl<'a> Onlooker<'a> {
    pub fn new(heap: &'a Heap, log: &'a Log, producers: usize) -> Onlooker<'a> {
        let end = log.plan().first;
        let frontiers = log.plan().stages.iter().map(|_| None).collect();
        Onlooker { heap, log, needs: heap.needs(), producers, end, frontiers }
    }

    /// Copies the events that are in the ring, and looks at all positions.
    pub fn look(&mut self) {
        self.check_positions();
        self.copy_events();
    }

    fn stages(&self) -> impl Iterator<Item = (&'a StagePlan, StagePlace)> {
        self.log.plan().stages.iter().zip(self.needs.stages.clone())
    }

    fn capacity(&self) -> u64 {
        self.log.plan().capacity as u64
    }

    /// Loads a word of an area of lines.
    fn word(&self, area: NonNull<u8>, line: usize, word: usize) -> u64 {
        point();
        // SAFETY: I1, for the lines that the declaration needs. All virtual threads share one
        // system thread, so no other access happens at once.
        unsafe { area.add(line * 128).cast::<u64>().add(word).read_volatile() }
    }

    fn line(&self, line: usize) -> u64 {
        self.word(self.heap.areas().lines, line, 0)
    }

    fn seat(&self, seat: usize, word: usize) -> u64 {
        self.word(self.heap.areas().seats, seat, word)
    }

    /// Reads the stamp of a position: the length of the run that begins there, and whether it is
    /// live.
    fn read_stamp(&self, stamp: u64, seq: u64) -> Option<(u64, bool)> {
        let rest = stamp ^ self.lap(seq);
        match rest {
            1..=MAX_RUN => Some((rest, true)),
            _ if (1..=MAX_RUN).contains(&rest.wrapping_sub(TOMBSTONE)) => {
                Some((rest - TOMBSTONE, false))
            }
            _ => None,
        }
    }

    fn lap(&self, seq: u64) -> u64 {
        let shift = self.capacity().trailing_zeros();
        // As Python's integers: the lap of the last positions is one more than a word has.
        let lap = (u128::from(seq >> shift) + 1) << LAP_SHIFT;
        lap as u64
    }

    fn run(&self, seq: u64) -> Option<(u64, bool)> {
        self.read_stamp(self.heap.stamp(seq), seq)
    }

    /// Returns whether a stamp is of a later lap than a position.
    fn is_later(&self, stamp: u64, seq: u64) -> bool {
        if stamp & ((1 << LAP_SHIFT) - 1) == 0 {
            return false;
        }
        let bits = (64 - LAP_SHIFT).min(64 - self.capacity().trailing_zeros());
        let laps = (stamp.wrapping_sub(self.lap(seq)) >> LAP_SHIFT) & ((1 << bits) - 1);
        0 < laps && laps < 1 << (bits - 1)
    }

    /// Returns the end of the runs that follow each other from a position on. `None`: producers
    /// have overtaken the walk.
    fn walk(&self, begin: u64) -> Option<u64> {
        let mut seq = begin;
        for _ in 0..2 * self.capacity() + 1 {
            let stamp = self.heap.stamp(seq);
            match self.read_stamp(stamp, seq) {
                None => return (!self.is_later(stamp, seq)).then_some(seq),
                Some((len, _)) => seq = seq.wrapping_add(len),
            }
        }
        None
    }

    /// Returns the position of a pool's claim word, and the events left in the run there.
    fn pool(&self, place: &StagePlace) -> (u64, u64) {
        let landmark = self.line(place.line + 1 + place.seats);
        let claim = self.line(place.line);
        (widen(claim >> 16, 48, landmark), claim & 0xFFFF)
    }

    fn bounds(&self, place: &StagePlace, near: u64) -> impl Iterator<Item = u64> {
        (0..place.seats).filter_map(move |seat| {
            let bound = self.line(place.line + 1 + seat);
            (bound & IDLE == 0).then(|| widen(bound >> 1, 63, near))
        })
    }

    /// Returns the furthest position that is known to be the end of a run.
    fn boundary(&self) -> u64 {
        let mut furthest = later(self.log.plan().first, self.line(SENTINEL_LINE));
        for (stage, place) in self.stages().filter(|(stage, _)| stage.after.is_empty()) {
            if stage.kind.is_pool() {
                let (claimed, left) = self.pool(&place);
                furthest = later(furthest, claimed.wrapping_add(left));
            } else {
                for seat in place.first_seat..place.first_seat + place.seats {
                    furthest = later(furthest, self.seat(seat, BOUNDARY));
                }
            }
        }
        furthest
    }

    /// Walks on to the published end. Returns whether it has found it.
    fn move_end(&mut self) -> bool {
        for _ in 0..WALKS {
            self.end = later(self.end, self.boundary());
            if let Some(end) = self.walk(self.end) {
                self.end = end;
                return true;
            }
        }
        false
    }

    /// Returns the frontier of a stage that is no tap, or of a pool a lower position.
    fn frontier(&self, stage: &StagePlan, place: &StagePlace) -> u64 {
        match stage.kind {
            Kind::PoolReader | Kind::PoolWriter => {
                let (claimed, _) = self.pool(place);
                self.bounds(place, claimed).fold(claimed, earlier)
            }
            Kind::ShardReader | Kind::ShardWriter => {
                let mut shards = (0..place.seats).map(|shard| self.line(place.line + shard));
                let first = shards.next().unwrap_or(0);
                shards.fold(first, earlier)
            }
            _ => self.line(place.line),
        }
    }

    /// Returns a position from which on no producer writes to the slots of the positions.
    fn reuse_limit(&self) -> Option<u64> {
        let stages = &self.log.plan().stages;
        let followed = |number: usize| stages.iter().any(|stage| stage.after.contains(&number));
        let mut limit: Option<u64> = None;
        let mut least = |seq: u64| limit = Some(limit.map_or(seq, |limit| earlier(limit, seq)));
        let mut gating_tap = false;
        for (number, (stage, place)) in self.stages().enumerate() {
            match stage.kind {
                _ if followed(number) => {}
                Kind::Tap => gating_tap = true,
                Kind::PoolReader | Kind::PoolWriter => least(self.pool(&place).0),
                _ => least(self.frontier(stage, &place)),
            }
        }
        if gating_tap {
            least(self.line(self.needs.lines - 1));
        }
        limit
    }

    /// Returns the position before which all writing stages have released. `None`: none writes.
    fn released(&self) -> Option<u64> {
        let writers = self.stages().filter(|(stage, _)| stage.kind.writes());
        writers.map(|(stage, place)| self.frontier(stage, &place)).reduce(earlier)
    }

    /// Returns whether it is proven that no producer has begun to write to the slot of a position
    /// again.
    fn is_reused_later(&mut self, seq: u64) -> bool {
        if self.reuse_limit().is_some_and(|limit| ahead(seq, limit) >= 0) {
            return true;
        }
        self.producers > 1 && self.is_before_intents(seq)
    }

    /// Returns whether no producer has intended to claim the slot of a position again.
    fn is_before_intents(&mut self, seq: u64) -> bool {
        let first: usize = self.needs.stages.iter().map(|place| place.seats).sum();
        let claimed: Vec<u64> =
            (0..self.producers).map(|seat| self.seat(first + seat, HI)).collect();
        self.move_end();
        let capacity = self.capacity() as i64;
        let recent = claimed.into_iter().filter(|hi| ahead(*hi, self.end) <= capacity);
        recent.into_iter().all(|hi| ahead(hi, seq) <= capacity)
    }

    /// Copies the events that are in the ring, from the oldest one on.
    fn copy_events(&mut self) {
        self.move_end();
        let age = ahead(self.end, self.log.plan().first).clamp(0, self.capacity() as i64);
        let mut seq = self.end.wrapping_sub(age as u64);
        while ahead(self.end, seq) > 0 {
            match self.run(seq) {
                None => seq = seq.wrapping_add(1),
                Some((len, live)) => {
                    for at in (0..len).map(|offset| seq.wrapping_add(offset)).filter(|_| live) {
                        self.copy(at);
                    }
                    seq = seq.wrapping_add(len);
                }
            }
        }
    }

    /// Copies an event, and checks it if the copy is proven to be whole.
    fn copy(&mut self, seq: u64) {
        let released = self.released();
        let is_final = released.is_none_or(|released| ahead(released, seq) > 0);
        let copied = self.heap.event(seq);
        // All that the proof rests on is loaded behind the copy.
        if self.is_reused_later(seq) {
            self.log.copied(seq, Parts::of_words(copied), is_final);
        }
    }

    /// Checks that no frontier falls, and that none is ahead of the published end, which is looked
    /// for later.
    fn check_positions(&mut self) {
        let mut wrong = Vec::new();
        let mut found = Vec::new();
        for (number, (stage, place)) in self.stages().enumerate() {
            if stage.kind == Kind::Tap {
                found.push(None);
                continue;
            }
            let frontier = self.frontier(stage, &place);
            let before = self.frontiers[number].unwrap_or(frontier);
            // A pool's frontier may be too low.
            if !stage.kind.is_pool() && ahead(frontier, before) < 0 {
                wrong.push(format!("s{number} fell from {before} to {frontier}"));
            }
            found.push(Some(frontier));
        }
        if self.move_end() {
            for frontier in found.iter().flatten().filter(|it| ahead(**it, self.end) > 0) {
                wrong.push(format!("a stage has released {frontier}, behind {}", self.end));
            }
        }
        self.frontiers = found;
        wrong.into_iter().for_each(|what| self.log.violation(format!("an onlooker: {what}")));
    }
}
