//! Seats, which record the owner of each place in the graph.
//!
//! Each handle that a graph has room for has a seat: a stage, a worker, a shard, a member of a tap,
//! a producer of a segment. A *participant* is an attached process, identified by a number that is
//! at least 1. In a ring of one process, only workers and members use their seats, and all handles
//! belong to participant 1. Between processes, a seat also records what its owner leaves behind if
//! it dies: see [`processes::seat`](crate::processes::seat).
//!
//! A worker that leaves its chunk unfinished leaves its seat as an *orphan*. Another worker of the
//! pool adopts the orphan, and becomes the owner of its seat. In a ring of one process it gives its
//! own seat up for that; between processes it owns two until it has finished the chunk.
//!
//! Invariants
//! - I1: only the owner of a seat changes the seat's words. Once the owner is proven dead, only the
//!   process that recovers the seat changes them. The word `found_dead` is an exception. A seat
//!   without an owner is free, or an orphan: its other words no longer change, and `owner` changes
//!   only by a compare-and-swap.
//! - I2: `held` never goes back. A stage stores `held` before it touches the events before `held`.
//! - I3: `boundary` never goes back, and lies at the end of a run. A first stage stores `boundary`
//!   before it releases, so a thread that sees a release beyond a position also sees a boundary
//!   beyond it.
//! - I4: a free seat shows the death of its last owner if `deaths` and `owner` have the same
//!   generation. A waiting party relies on each death that a seat shows, once the party has no
//!   living owner. The workers of a pool do the same work, and so do several producers. So a death
//!   among them matters only if the dead owner was its party's last handle and no handle has joined
//!   since. If another handle of the party has a seat, or when one joins, the dead owners' seats
//!   are freed with a new generation, and so show no death. A worker that joins while a dead one is
//!   recovered may miss that death, and the recoverer may miss the joiner. So a worker forgets the
//!   deaths again when it leaves. An orphan shows its owner's death until a worker adopts it.

use std::ops::Range;

use crate::base::edge;
use crate::base::sync::{AtomicU64, Relaxed, may_die};

/// Bits of an owner's word that hold the number of the participant.
pub(crate) const PARTICIPANT: u64 = 0xFFFF_FFFF;
/// Value of the bits [`PARTICIPANT`] in the owner's word of an orphan.
pub(crate) const ORPHAN: u64 = PARTICIPANT;
/// Increment of the generation in an owner's word. The generation grows each time the seat is
/// taken.
pub(crate) const GENERATION: u64 = 1 << 32;

/// A seat, in a segment or on the heap. In a new segment its words are zero, except `boundary` and
/// `held`, which begin at the first position.
#[repr(C)]
#[derive(Default)]
pub struct Seat {
    /// Low half: number of the participant that owns the seat. It is 0 if the seat is free, and has
    /// all bits set if the seat is an orphan. High half: the generation, which counts how often the
    /// seat was taken.
    pub(crate) owner: AtomicU64,
    /// For a producer: the same value as `owner`, once that owner has begun to leave.
    pub(crate) state: AtomicU64,
    /// The meaning depends on the seat's owner:
    /// - a worker of a segment: the beginning of the chunk that the worker takes or has taken;
    /// - an orphan on the heap: the position from which the seat's chunk is unfinished;
    /// - a producer: the head of its intent.
    pub(crate) lo: AtomicU64,
    /// For a producer that is publishing only the front of its claim: the head of the claim's rest.
    pub(crate) mid: AtomicU64,
    /// For a worker: the end of the seat's chunk. For a producer: the end of its intent.
    pub(crate) hi: AtomicU64,
    /// For a worker of a segment: the number of events that are left in the run after the chunk's
    /// end.
    pub(crate) left: AtomicU64,
    /// Position before which all events were lent to the stage.
    pub(crate) held: AtomicU64,
    /// The end of the last run that the stage has found.
    pub(crate) boundary: AtomicU64,
    /// Number of events that the last member of a tap had not read when it was found dead. The next
    /// member that takes the seat resets it to 0.
    pub(crate) unread: AtomicU64,
    /// Low half: number of owners that died. High half: the generation of the last owner that died.
    pub(crate) deaths: AtomicU64,
    /// Low half: process id of the last owner that was found dead, or 0 if the id is not known.
    /// High half: the generation of that owner.
    pub(crate) found_dead: AtomicU64,
}

/// Returns a function that changes an owner's word: `participant` takes the seat if `from` owns it.
/// For another owner, the function returns `None`.
pub(crate) fn taken_from(from: u64, participant: u32) -> impl FnMut(u64) -> Option<u64> {
    move |owner| {
        let taken = (owner & !PARTICIPANT).wrapping_add(GENERATION) | u64::from(participant);
        (owner & PARTICIPANT == from).then_some(taken)
    }
}

impl Seat {
    /// Size of a seat, in words of eight bytes.
    pub const WORDS: usize = size_of::<Seat>() / 8;

    /// Makes a copy of a seat from copies of its words, for reports about a segment.
    pub fn copied(words: [u64; Seat::WORDS]) -> Seat {
        let [owner, state, lo, mid, hi, left, held, boundary, unread, deaths, found_dead] =
            words.map(AtomicU64::new);
        Seat { owner, state, lo, mid, hi, left, held, boundary, unread, deaths, found_dead }
    }

    /// Puts the seat's positions at the first position of the stream, before any process attaches.
    pub(crate) fn begin(&self, start: u64) {
        self.held.store(start, Relaxed);
        self.boundary.store(start, Relaxed);
    }

    /// Returns the participant that owns the seat, or `None` if the seat is free or an orphan. The
    /// owner may leave or die at any time.
    pub fn owner(&self) -> Option<u32> {
        let owner = edge::seated::see(&self.owner) & PARTICIPANT;
        (owner != 0 && owner != ORPHAN).then_some(owner as u32)
    }

    /// Takes the seat for a participant. If the seat already has an owner, the error names that
    /// owner.
    pub fn take(&self, participant: u32) -> Result<(), u32> {
        let taken = edge::seated::take(&self.owner, taken_from(0, participant));
        taken.map(drop).map_err(|owner| (owner & PARTICIPANT) as u32)
    }

    /// Leaves the seat's chunk for another worker. `[next, end)` is the unfinished part of the
    /// chunk. The caller owns the seat, and has stored `next` as the seat's bound.
    pub(crate) fn leave_orphan(&self, next: u64, end: u64) {
        self.lo.store(next, Relaxed);
        self.hi.store(end, Relaxed);
        edge::orphaned::leave(&self.owner, self.owner.load(Relaxed) | ORPHAN);
    }

    /// Takes the seat over if it is an orphan. Returns the unfinished positions of its chunk.
    pub(crate) fn adopt(&self, participant: u32) -> Option<Range<u64>> {
        edge::orphaned::adopt(&self.owner, taken_from(ORPHAN, participant)).ok()?;
        Some(self.lo.load(Relaxed)..self.hi.load(Relaxed))
    }

    /// Returns the first position of the seat's chunk, if the seat is an orphan. Only a hint: other
    /// workers may adopt the orphan, and leave another one, at any time.
    pub(crate) fn orphan_start(&self) -> Option<u64> {
        let is_orphan = self.owner.load(Relaxed) & PARTICIPANT == ORPHAN;
        is_orphan.then(|| self.lo.load(Relaxed))
    }

    /// Frees the seat if `participant` owns it. The caller is that participant, or holds the proof
    /// of its death (I1).
    pub fn free(&self, participant: u32) {
        let owner = self.owner.load(Relaxed);
        if owner & PARTICIPANT == u64::from(participant) {
            edge::seated::free(&self.owner, owner & !PARTICIPANT);
        }
    }

    /// Forgets the events that the previous member has not read. The caller has just taken the
    /// seat.
    pub(crate) fn begin_member(&self) {
        may_die!();
        self.unread.store(0, Relaxed);
    }
}
