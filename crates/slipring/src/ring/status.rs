//! The status of a graph says whether it runs, and how it ended.
//!
//! Invariants
//! - I1: the last position is stored before the closed bit (`edge::closed`), and no slot is claimed
//!   after the bit is set. After it, the last position only moves back, over positions that are
//!   never published (`early_claims`).
//! - I2: the first of several failures is kept, and is stored before the failed bit
//!   (`edge::failed`).

use std::time::{Duration, Instant};

use crate::base::edge;
use crate::base::maybe_mapped::MaybeMapped;
use crate::base::name::Name;
use crate::base::sync::{AtomicU32, AtomicU64, Line, Mutex, Relaxed, lock, may_die, now, twin};
use crate::errors::{Cause, Failure, WaitError};
use crate::ring::words::ahead;

const CLOSED: u32 = 1;
const HALTED: u32 = 2;
const FAILED: u32 = 4;
/// Bit that is set before [`CLOSED`] in a ring whose producers are separate processes. Once it is
/// set, no producer claims any more, and the first stages search for the stream's end.
const CLOSING: u32 = 8;

/// Whether and how a graph has ended, for reports about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The graph runs.
    Running,
    /// Producers no longer publish, but no stage has found the last position yet. A first stage
    /// finds it once the stage has handled all published events. Only rings with several producers
    /// have this state.
    Closing,
    /// The producers have closed the ring; the stages drain the published events.
    Closed,
    /// A handle has halted the graph.
    Halted,
    /// A stage or the producer has failed.
    Failed,
    /// The status has bits that no ring sets: a process has damaged it. Handles that wait end with
    /// [`WaitError::Damaged`].
    Damaged,
}

impl Ending {
    /// Returns the ending that the first word of a copied status shows.
    pub fn copied(word: u32) -> Ending {
        match word {
            0 => Ending::Running,
            bits if bits & FAILED != 0 => Ending::Failed,
            bits if bits & HALTED != 0 => Ending::Halted,
            bits if bits & !(CLOSED | CLOSING) != 0 => Ending::Damaged,
            bits if bits & CLOSED != 0 => Ending::Closed,
            _ => Ending::Closing,
        }
    }

    /// Returns whether a graph whose status has these bits has stored its last position.
    pub(crate) fn has_last(word: u32) -> bool {
        word & CLOSED != 0
    }
}

/// The words of a status, on a line that seldom changes.
#[repr(C)]
#[derive(Default)]
pub(crate) struct StatusWords {
    /// [`CLOSED`], [`HALTED`], [`FAILED`], [`CLOSING`].
    bits: AtomicU32,
    /// An unused word. Without it, a `&StatusWords` would also cover bytes that belong to no word,
    /// and other processes may store to these bytes (`line::I1`).
    _unused: AtomicU32,
    /// The position after the last event.
    final_seq: AtomicU64,
}

impl StatusWords {
    /// Returns `true` until the graph is halted or fails. The check costs one load of a line that
    /// seldom changes.
    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.bits.load(Relaxed) & (HALTED | FAILED) == 0
    }
}

/// Number of words of a failure's text.
const TEXT_WORDS: usize = 32;
/// States of a failure record. A record that is begun has its party in the state's upper half, so
/// that others can name it, whatever becomes of the process that writes.
const EMPTY: u64 = 0;
const BEGUN: u64 = 1;
const WRITTEN: u64 = 2;

/// The first failure of a graph, as the processes of its segment read it. All words are zero if the
/// graph has not failed.
#[repr(C)]
#[derive(Default)]
pub(crate) struct FailureRecord {
    /// [`EMPTY`], [`WRITTEN`], or [`BEGUN`] with the index of the party that failed, plus one, in
    /// the upper 32 bits. A process that dies while it writes leaves `BEGUN`.
    state: AtomicU64,
    /// Index of the party that failed, plus one.
    party: AtomicU64,
    /// The position of the failure plus one, or 0 if no event was at fault.
    seq: AtomicU64,
    /// Number of bytes of the text.
    len: AtomicU64,
    /// The text, in UTF-8; a text that is too long is cut.
    text: [AtomicU64; TEXT_WORDS],
}

impl FailureRecord {
    /// Number of 128-byte lines of a record.
    pub(crate) const LINES: usize = size_of::<FailureRecord>().div_ceil(128);

    /// Writes the first failure. Does nothing if another process was first.
    fn write(&self, party: usize, seq: Option<u64>, text: &str) {
        let begun = BEGUN | (party as u64 + 1) << 32;
        if self.state.compare_exchange(EMPTY, begun, Relaxed, Relaxed).is_err() {
            return;
        }
        let mut bytes = [0; TEXT_WORDS * 8];
        let mut len = text.len().min(bytes.len());
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        for (word, bytes) in self.text.iter().zip(bytes.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Relaxed);
        }
        self.len.store(len as u64, Relaxed);
        self.party.store(party as u64 + 1, Relaxed);
        self.seq.store(seq.map_or(0, |seq| seq.wrapping_add(1)), Relaxed);
        edge::failed::record(&self.state, WRITTEN);
    }

    /// Returns the failure, or `None` if no failure is written. Whatever the words hold, the result
    /// names one of `names`.
    fn read(&self, names: &[Name]) -> Option<Failure> {
        let (party, seq, text) = self.contents()?;
        let name = names.get(party).or(names.last())?.clone();
        Some(Failure::new(name, seq, Cause::Elsewhere(text)))
    }

    /// Returns the index of the party that failed, the position of the failure, and the text, from
    /// a copy of the record's words. Returns `None` if no failure is written, or if words are
    /// missing.
    pub(crate) fn copied(words: &[u64]) -> Option<(usize, Option<u64>, String)> {
        let (&[state, party, seq, len], text) = words.split_first_chunk()?;
        let text: &[u64; TEXT_WORDS] = text.first_chunk()?;
        let [state, party, seq, len] = [state, party, seq, len].map(AtomicU64::new);
        FailureRecord { state, party, seq, len, text: text.map(AtomicU64::new) }.contents()
    }

    fn contents(&self) -> Option<(usize, Option<u64>, String)> {
        let state = edge::failed::see_record(&self.state);
        if state != WRITTEN {
            let party = (state >> 32).wrapping_sub(1) as usize;
            let unsaid = "its process has not written why: it was stopped, or it has died";
            return (state as u32 == BEGUN as u32).then(|| (party, None, unsaid.into()));
        }
        let mut bytes = [0; TEXT_WORDS * 8];
        for (word, bytes) in self.text.iter().zip(bytes.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        let len = (self.len.load(Relaxed) as usize).min(bytes.len());
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        let party = self.party.load(Relaxed).wrapping_sub(1) as usize;
        let seq = self.seq.load(Relaxed);
        Some((party, (seq != 0).then(|| seq.wrapping_sub(1)), text))
    }
}

/// The status of a graph says whether it runs, and how it ended.
pub(crate) struct Status {
    words: MaybeMapped<Line<StatusWords>>,
    failure: Mutex<Option<Failure>>,
    /// The record of the failure that other processes read, and the names of the parties; `None` in
    /// a graph of one process.
    record: Option<(MaybeMapped<FailureRecord>, Box<[Name]>)>,
    /// All bits that the status may have. A status with any other bit is damaged. The ring then
    /// lets no producer claim, so no stage may wait for an event.
    known: u32,
    deadline: Option<(Instant, Duration)>,
}

impl Status {
    /// Makes the status of a graph that runs. `many_producers` says whether the graph has several
    /// producers. The new status has no deadline if the given deadline is beyond the clock's range.
    pub(crate) fn new(
        words: MaybeMapped<Line<StatusWords>>,
        record: Option<(MaybeMapped<FailureRecord>, Box<[Name]>)>,
        many_producers: bool,
        deadline: Option<Duration>,
    ) -> Status {
        Status {
            words,
            record,
            failure: Mutex::new(None),
            known: CLOSED | HALTED | FAILED | if many_producers { CLOSING } else { 0 },
            deadline: deadline.and_then(|after| Some((now().checked_add(after)?, after))),
        }
    }

    /// Stores the last position and then sets the closed bit. After the call, the caller notifies
    /// all queues.
    pub(crate) fn close(&self, final_seq: u64) {
        let words = &self.words;
        twin!("closed-before-final": () => edge::closed::close(&words.bits, CLOSED));
        may_die!();
        words.final_seq.store(final_seq, Relaxed);
        edge::closed::close(&words.bits, CLOSED);
    }

    /// Moves the last position of a closed graph back. After the call, the caller notifies all
    /// queues.
    pub(crate) fn move_end(&self, final_seq: u64) {
        self.words.final_seq.store(final_seq, Relaxed); // no data goes with it (early_claims::I3)
    }

    /// Returns whether a closed graph ends before the position `seq`, or at it.
    pub(crate) fn ends_before(&self, seq: u64) -> bool {
        ahead(seq, self.words.final_seq.load(Relaxed)) >= 0
    }

    /// Sets the closing bit. After the call, the caller notifies all queues.
    pub(crate) fn begin_closing(&self) {
        may_die!();
        self.words.bits.fetch_or(CLOSING, Relaxed); // no data goes with it
    }

    /// Returns whether the ring is closed to claims.
    #[inline(always)]
    pub(crate) fn is_closing(&self) -> bool {
        self.words.bits.load(Relaxed) & (CLOSING | CLOSED) != 0
    }

    /// Returns whether the ring is closing, no stage has found the last position yet, and nothing
    /// else has ended the graph.
    pub(crate) fn seeks_end(&self) -> bool {
        self.words.bits.load(Relaxed) == CLOSING
    }

    /// Returns whether the last position is stored.
    pub(crate) fn is_closed(&self) -> bool {
        self.words.bits.load(Relaxed) & CLOSED != 0
    }

    /// Sets the halted bit. After the call, the caller notifies all queues.
    pub(crate) fn halt(&self) {
        self.words.bits.fetch_or(HALTED, Relaxed); // no data goes with it
    }

    /// Records a failure, unless the graph has failed already. After the call, the caller notifies
    /// all queues. If the failure is not recorded, the error hands its cause back.
    pub(crate) fn fail(
        &self,
        party: usize,
        failure: impl FnOnce(Cause) -> Failure,
        cause: Cause,
    ) -> Result<(), Cause> {
        let bits = &self.words.bits;
        twin!("failed-before-why": () => edge::failed::fail(bits, FAILED));
        let mut first = lock(&self.failure);
        // The drop of a handle after a halt is no failure, because no party needs its releases any
        // more.
        let is_late = matches!(cause, Cause::Dropped) && bits.load(Relaxed) & HALTED != 0;
        if is_late || twin!("last-failure-stays": first.is_some() => false) {
            return Err(cause);
        }
        let failure = failure(cause);
        if let Some((record, _)) = &self.record {
            record.write(party, failure.seq(), &failure.cause_text());
        }
        *first = Some(failure);
        edge::failed::fail(bits, FAILED);
        Ok(())
    }

    /// Returns the graph's failure: the one that this process recorded, or else the one that
    /// another process recorded.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let own = lock(&self.failure).clone();
        own.or_else(|| self.record.as_ref().and_then(|(record, names)| record.read(names)))
    }

    pub(crate) fn take_failure(&self) -> Option<Failure> {
        lock(&self.failure).take()
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.words.bits.load(Relaxed) & HALTED != 0
    }

    /// Returns whether the graph was closed or halted, or has failed.
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.words.bits.load(Relaxed) != 0
    }

    /// Returns the words, which do not move (`maybe_mapped::I1`).
    pub(crate) fn words(&self) -> &StatusWords {
        &self.words
    }

    /// See [`StatusWords::is_running`].
    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.words.is_running()
    }

    /// Fails with the error of [`Status::stopped`] if the graph was halted or has failed.
    #[inline(always)]
    pub(crate) fn check_running(&self) -> Result<(), WaitError> {
        if self.is_running() { Ok(()) } else { self.stopped().map_or(Ok(()), Err) }
    }

    /// Returns the failure or the halt that ended the graph, or `None` if the graph was not halted
    /// and has not failed.
    #[cold]
    pub(crate) fn stopped(&self) -> Option<WaitError> {
        let bits = edge::failed::see(&self.words.bits);
        if bits & FAILED != 0 {
            // In a segment, the bit comes after a record that is begun.
            let unknown = || self.record.is_some().then_some(WaitError::Damaged);
            return self.failure().map(WaitError::Failed).or_else(unknown);
        }
        (bits & HALTED != 0).then_some(WaitError::Halted)
    }

    /// Returns why no event will ever come at `next`, the position at which a stage found no event.
    /// Returns `None` if an event may still come.
    ///
    /// If the ring is closed and the result is `None`, the stage polls again. This call has seen
    /// the close, so the next poll sees all publications that came before the close.
    #[inline(always)]
    pub(crate) fn ended(&self, next: u64) -> Option<WaitError> {
        let bits = edge::closed::see(&self.words.bits);
        if bits == 0 { None } else { self.ended_by(bits, next) }
    }

    #[cold]
    fn ended_by(&self, bits: u32, next: u64) -> Option<WaitError> {
        if bits & (FAILED | HALTED) != 0 {
            return self.stopped();
        }
        if bits & !self.known != 0 {
            return Some(WaitError::Damaged);
        }
        (bits & CLOSED != 0 && self.words.final_seq.load(Relaxed) == next)
            .then_some(WaitError::Closed)
    }

    /// Returns the last position of a closed graph that was not halted and has not failed. All
    /// publications before the close are visible to the caller's next poll.
    pub(crate) fn last_position(&self) -> Option<u64> {
        let bits = edge::closed::see(&self.words.bits);
        (bits & !CLOSING == CLOSED).then(|| self.words.final_seq.load(Relaxed))
    }

    /// Returns the time at which all waits of the graph end, if the graph has a deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.map(|(deadline, _)| deadline)
    }

    /// If the deadline has passed, returns the time from the build to the deadline.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        self.deadline.filter(|(deadline, _)| now() >= *deadline).map(|(_, after)| after)
    }
}
