//! Positions, and the shared words that hold a position and other bits.
//!
//! Positions are `u64`s that wrap. If a word has fewer than 64 bits for a position, a thread that
//! reads the word restores the other bits from a nearby position.
//!
//! Invariants
//! - I1: two positions that are compared differ by less than 2^62.

use crate::base::sync::twin;

/// Lowest bit of a worker's or member's bound: 1 if the worker or member holds no events. A bound
/// holds a position times two, so that the lowest bit is free for `IDLE`.
pub(crate) const IDLE: u64 = 1;

/// Width, in bits, of the low part of a pool's claim word. The low part is the number of events
/// left in a run, and the high part is a position.
const LEFT_BITS: u32 = 16;

/// Restores a position from its low `bits` bits: of all positions with these bits, returns the
/// nearest to `lower_bound`.
///
/// The result may be below `lower_bound`, because the loaded word may be older than the caller's
/// `lower_bound`.
#[inline(always)]
fn widen(low: u64, bits: u32, lower_bound: u64) -> u64 {
    let spare = 64 - bits;
    let away = low.wrapping_sub(lower_bound) << spare;
    lower_bound
        .wrapping_add(twin!("widened-forwards": (away as i64 >> spare) as u64 => away >> spare))
}

/// Returns the number of events by which `to` is ahead of `from`. The number is negative if `to` is
/// behind.
#[inline(always)]
pub(crate) fn ahead(to: u64, from: u64) -> i64 {
    to.wrapping_sub(from) as i64
}

/// Returns the earlier of two positions.
#[inline(always)]
pub(crate) fn earlier(one: u64, other: u64) -> u64 {
    if ahead(other, one) < 0 { other } else { one }
}

/// Returns the later of two positions.
#[inline(always)]
pub(crate) fn later(one: u64, other: u64) -> u64 {
    if ahead(other, one) > 0 { other } else { one }
}

/// Returns the number of events by which a bound is ahead of `lower_bound`. The number is negative
/// if the bound is behind. A bound holds only the low 63 bits of a position.
#[inline(always)]
pub(crate) fn bound_ahead(bound: u64, lower_bound: u64) -> i64 {
    ((bound >> 1).wrapping_sub(lower_bound) << 1) as i64 >> 1
}

/// A pool's claim word: the position up to which workers have taken chunks, and the number of
/// events from there to the end of the run.
#[derive(Clone, Copy)]
pub(crate) struct PoolWord(pub(crate) u64);

impl PoolWord {
    pub(crate) fn new(seq: u64, left: u64) -> PoolWord {
        debug_assert!(left < 1 << LEFT_BITS);
        PoolWord(seq << LEFT_BITS | left)
    }

    /// Returns all 64 bits of the position, which differs from `lower_bound` by less than 2^47.
    #[inline(always)]
    pub(crate) fn seq(self, lower_bound: u64) -> u64 {
        widen(self.0 >> LEFT_BITS, 64 - LEFT_BITS, lower_bound)
    }

    /// Returns whether a claim word can hold the number `left`.
    pub(crate) fn holds(left: u64) -> bool {
        left >> LEFT_BITS == 0
    }

    /// Returns the number of events that are left in the run, from the claim word's position on.
    #[inline(always)]
    pub(crate) fn left(self) -> u64 {
        self.0 & ((1 << LEFT_BITS) - 1)
    }
}

/// Number of low bits of a cell that hold a seat's number plus one.
const CELL_SEAT_BITS: u32 = 10;
/// Largest number of seats that a pool of a segment can have.
pub(crate) const MAX_CELL_SEATS: usize = (1 << CELL_SEAT_BITS) - 1;

/// A cell of a segment's pool, which has one cell per slot. The cell holds the lap of the last
/// chunk that began at the slot, and the seat of the worker that took it. A new cell is zero, which
/// names no seat.
///
/// The lap has 54 bits. So a cell repeats after 2^54 laps, but never in a ring of 2^10 slots or
/// more.
#[derive(Clone, Copy)]
pub(crate) struct ChunkCell(pub(crate) u64);

impl ChunkCell {
    /// Returns the cell which records that the pool's seat number `seat` took the chunk that begins
    /// at `seq`, in a ring of `1 << shift` slots.
    #[inline(always)]
    pub(crate) fn taken(seq: u64, shift: u32, seat: usize) -> ChunkCell {
        ChunkCell((seq >> shift) << CELL_SEAT_BITS | (seat as u64 + 1))
    }

    /// Returns the number of the seat that took the chunk that begins at `seq`. Returns `None` if
    /// the cell is of another lap.
    #[inline(always)]
    pub(crate) fn seat(self, seq: u64, shift: u32) -> Option<usize> {
        let seat = self.0 ^ (seq >> shift) << CELL_SEAT_BITS;
        (seat != 0 && seat >> CELL_SEAT_BITS == 0).then(|| seat as usize - 1)
    }
}

/// The claim word of many producers: the next position to claim, and whether the ring is closed to
/// claims.
#[derive(Clone, Copy)]
pub(crate) struct ClaimWord(pub(crate) u64);

impl ClaimWord {
    pub(crate) const CLOSED: u64 = 1;

    pub(crate) fn open(seq: u64) -> ClaimWord {
        ClaimWord(seq << 1)
    }

    /// Returns all 64 bits of the position, which differs from `lower_bound` by less than 2^62.
    #[inline(always)]
    pub(crate) fn seq(self, lower_bound: u64) -> u64 {
        widen(self.0 >> 1, 63, lower_bound)
    }

    #[inline(always)]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & Self::CLOSED != 0
    }
}

/// Number of bits of a [`SeatedClaim`] that do not belong to the position: one bit says that the
/// ring is closed to claims, and six bits hold the number of a seat.
const SEATED_BITS: u32 = 7;
/// Largest number of seats of the producers of a segment.
pub(crate) const MAX_CLAIM_SEATS: usize = 1 << (SEATED_BITS - 1);

/// The claim word of several producers between processes: the next position to claim, the number of
/// the producers' seat whose claim ends there, and whether the ring is closed to claims.
///
/// The position has 57 bits. A handle that claims nothing while other handles claim 2^56 positions
/// would mistake an old word for the current one. At one position per nanosecond, that takes two
/// years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatedClaim(pub(crate) u64);

impl SeatedClaim {
    pub(crate) const CLAIMS_CLOSED: u64 = 1;

    /// Returns the word by which the owner of the seat with this number claims up to `end`.
    #[inline(always)]
    pub(crate) fn new(end: u64, seat: u64) -> SeatedClaim {
        SeatedClaim(end << SEATED_BITS | seat << 1)
    }

    /// Returns all 64 bits of the position, which differs from `near` by less than 2^56.
    #[inline(always)]
    pub(crate) fn seq(self, near: u64) -> u64 {
        widen(self.0 >> SEATED_BITS, u64::BITS - SEATED_BITS, near)
    }

    /// Returns the number of the seat whose claim ends at the position.
    #[inline(always)]
    pub(crate) fn seat(self) -> u64 {
        self.0 >> 1 & (MAX_CLAIM_SEATS as u64 - 1)
    }

    #[inline(always)]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & Self::CLAIMS_CLOSED != 0
    }

    /// Returns whether this is the word by which the owner of `seat` claimed up to `end`, or that
    /// word after a close.
    #[inline(always)]
    pub(crate) fn names(self, end: u64, seat: u64) -> bool {
        self.0 & !Self::CLAIMS_CLOSED == SeatedClaim::new(end, seat).0
    }
}
