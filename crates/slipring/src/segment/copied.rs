//! Reads copied words of a segment, for reports. This module makes no ring, and maps no memory.
//!
//! The words of a running segment are copied one after the other while processes change them, so
//! the copies may not fit together. A damaged process may also have stored anything.
//!
//! Invariants
//! - I1: whatever the words are, each function ends and returns a value. It trusts no word as an
//!   index or a length.
//! - I2: no process sees that its words were copied.

use std::time::Duration;

use crate::processes::claims;
use crate::ring::counters::CounterWords;
use crate::ring::stage::{CLAIM_LINE, CURSOR_LINE, PRODUCER_QUEUE, SENTINEL_LINE};
use crate::ring::stamp::{self, Stamp};
use crate::ring::status::{Ending, FailureRecord};
use crate::ring::words::{IDLE, MAX_CLAIM_SEATS, PoolWord, SeatedClaim, bound_ahead};
use crate::wait::queue_state::QueueState;

/// Returns the number of slots that the stamp `word` publishes or gives up at the position `seq`,
/// in a ring of `capacity` slots; `None` if the stamp does neither at this position.
pub fn run_of(word: u64, seq: u64, capacity: u64) -> Option<u64> {
    match stamp::read(word, seq, capacity.trailing_zeros()) {
        Stamp::Live(len) | Stamp::Tombstone(len) => Some(len),
        Stamp::Unpublished => None,
    }
}

/// A claim of one of several producers, as its seat records it.
#[derive(Clone, Copy, Debug)]
pub struct RecordedClaim {
    /// Number of the producers' seat.
    pub number: u64,
    /// First claimed position.
    pub seq: u64,
    /// Position after the last claimed position.
    pub end: u64,
}

/// Returns whether a seat has made this claim and has neither published it nor given it up. The
/// answer follows from the stamp `word` of the claim's first position and from the claim word, in a
/// ring of `capacity` slots.
pub fn is_claimed(claim: RecordedClaim, word: u64, claim_word: u64, capacity: u64) -> bool {
    let RecordedClaim { number, seq, end } = claim;
    let (number, shift) = (number & (MAX_CLAIM_SEATS as u64 - 1), capacity.trailing_zeros());
    claims::is_open(SeatedClaim(claim_word), word, &(seq..end), number, shift)
}

/// Returns the position near `lower_bound` that `word`, the bound of a tap's member, stands for.
/// Returns `None` if the seat holds back no event.
pub fn bound_at(word: u64, lower_bound: u64) -> Option<u64> {
    let seq = lower_bound.wrapping_add(bound_ahead(word, lower_bound) as u64);
    (word & IDLE == 0).then_some(seq)
}

/// The line that holds the claim word of several producers.
pub const CLAIM_WORD_LINE: usize = CLAIM_LINE;

/// The lines that hold the sentinel of several producers, and the cursor of a single producer.
pub const PRODUCER_LINES: [usize; 2] = [SENTINEL_LINE, CURSOR_LINE];

/// The positions of a pool, as the pool's lines state them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPositions {
    /// The position before which the pool has released all events.
    pub released: u64,
    /// The position before which workers have taken all events.
    pub taken: u64,
    /// A position where a run begins: the end of the run that contains `taken`, or `taken` itself.
    pub boundary: u64,
}

/// Returns the positions that the words of a pool's lines state, or `None` if there are too few
/// lines. `words` are in the order of the lines.
pub fn pool_positions(words: &[u64]) -> Option<PoolPositions> {
    let (&claim, rest) = words.split_first()?;
    let (&landmark, bounds) = rest.split_last()?;
    let taken = PoolWord(claim).seq(landmark);
    let behind = bounds.iter().filter(|&bound| bound & IDLE == 0);
    // The bound of a worker that lost a race for a chunk may be ahead of `taken` for a moment.
    let behind = behind.map(|&bound| -bound_ahead(bound, taken)).max().unwrap_or(0).max(0);
    let boundary = taken.wrapping_add(PoolWord(claim).left());
    Some(PoolPositions { released: taken.wrapping_sub(behind as u64), taken, boundary })
}

/// Index of the wait queue at which the producers wait for room.
pub const PRODUCERS_QUEUE: usize = PRODUCER_QUEUE;

/// Returns the number of threads that are announced as sleepers in the first word of a wait queue's
/// state. A sleeper that died is counted until the queue's next wake-up.
pub fn sleepers(word: u64) -> u32 {
    QueueState::sleepers(word)
}

/// The status of a ring, as the ring's words state it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedStatus {
    /// Whether the ring runs, or how it ended.
    pub ending: Ending,
    /// The position after the last event; `None` if the ring is not closed.
    pub last: Option<u64>,
}

/// Returns the status of a ring from the first two words of the status: its bits, and the position
/// after the last event.
pub fn status(bits: u32, last: u64) -> CopiedStatus {
    let ending = Ending::copied(bits);
    CopiedStatus { ending, last: Ending::has_last(bits).then_some(last) }
}

/// A failure that a segment's record holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedFailure {
    /// Index of the party that failed. The index of the producers follows the index of the last
    /// stage.
    pub party: usize,
    /// Position of the event at fault; `None` if no event was at fault.
    pub seq: Option<u64>,
    /// The message, as the failed process stored it. It may hold any characters.
    pub text: String,
}

/// Returns the failure in the words of a segment's failure record, or `None` if no failure is
/// written.
pub fn failure(words: &[u64]) -> Option<CopiedFailure> {
    let (party, seq, text) = FailureRecord::copied(words)?;
    Some(CopiedFailure { party, seq, text })
}

/// Counts of all handles that a party has had, since the segment was made.
///
/// A handle flushes its counts to the segment when a wait takes long, after 1,024 batches, and when
/// the handle is dropped. So the counts are a little old, and a wait's time is counted only after
/// the wait. Counts that a process had not flushed when it was killed are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Number of events handled; for the producers, number of events published.
    pub events: u64,
    /// Number of batches; for a pool, number of chunks; for the producers, number of publications.
    pub batches: u64,
    /// Number of slots that the stage passed over, because their claim was never published; for the
    /// producers, number of slots whose claim was given up.
    pub tombstones: u64,
    /// Number of events that the stage skipped.
    pub skipped: u64,
    /// Number of retries after a failure of the handler.
    pub retries: u64,
    /// Number of events that producers dropped or replaced because the ring was full.
    pub dropped: u64,
    /// Number of waits.
    pub waits: u64,
    /// Number of times that a waiting handle slept.
    pub wakes: u64,
    /// Time that the party waited for each stage, in the order of the stages, and then for the
    /// producers.
    pub waited: Vec<Duration>,
}

/// Returns the counts of the party with the index `party`. `words` are the counters of all parties,
/// whose number is `parties`; missing words count as zero.
pub fn counts(words: &[u64], parties: usize, party: usize) -> Counts {
    let own = CounterWords::party_at(party);
    let word = |at: Option<usize>| at.and_then(|at| words.get(at)).copied().unwrap_or(0);
    let [events, batches, tombstones, skipped, retries, dropped, waits, wakes] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|count| word(own.and_then(|own| own.checked_add(count))));
    let waited = (0..parties).map(|upstream| {
        Duration::from_nanos(word(CounterWords::waited_at(parties, party, upstream)))
    });
    let waited = waited.collect();
    Counts { events, batches, tombstones, skipped, retries, dropped, waits, wakes, waited }
}
