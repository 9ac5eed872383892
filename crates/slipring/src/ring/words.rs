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

/// Width, in bits, of the low part of a pool's claim word. The low part holds the number of events
/// left in a run. The high part of the claim word is a position.
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

/// Returns the number of events by which `to` is ahead of `from`; negative: `to` is behind.
#[inline(always)]
pub(crate) fn ahead(to: u64, from: u64) -> i64 {
    to.wrapping_sub(from) as i64
}

/// Returns the later of two positions.
#[inline(always)]
pub(crate) fn later(one: u64, other: u64) -> u64 {
    if ahead(other, one) > 0 { other } else { one }
}

/// Returns the number of events by which a bound is ahead of `lower_bound`; negative: the bound is
/// behind. A bound holds only the low 63 bits of a position.
#[inline(always)]
pub(crate) fn bound_ahead(bound: u64, lower_bound: u64) -> i64 {
    ((bound >> 1).wrapping_sub(lower_bound) << 1) as i64 >> 1
}

/// A pool's claim word. The word holds the position up to which workers have taken chunks, and the
/// number of events from there to the end of the run.
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

    /// Returns the number of events that are left in the run, from the claim word's position on.
    #[inline(always)]
    pub(crate) fn left(self) -> u64 {
        self.0 & ((1 << LEFT_BITS) - 1)
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
