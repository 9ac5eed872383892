//! Positions, and the shared words that hold one beside something else.
//!
//! Positions are `u64`s that wrap. A word with fewer bits for a position is widened from a position
//! that its reader knows.
//!
//! Invariants
//! - I1: two positions that are compared differ by less than 2^62.

use crate::base::sync::twin;

/// Bit of a bound: its worker or member holds nothing.
pub(crate) const IDLE: u64 = 1;

/// Bits of a pool's claim word that hold what is left of a run. The position stands above.
const LEFT_BITS: u32 = 16;

/// Returns the position nearest to `lower_bound` whose low `bits` bits are `low`.
///
/// Nearest in both directions: a handle may know more than the word that it loaded says.
#[inline(always)]
fn widen(low: u64, bits: u32, lower_bound: u64) -> u64 {
    let spare = 64 - bits;
    let away = low.wrapping_sub(lower_bound) << spare;
    lower_bound
        .wrapping_add(twin!("widened-forwards": (away as i64 >> spare) as u64 => away >> spare))
}

/// Returns how far `to` is ahead of `from`, in events; negative: behind.
#[inline(always)]
pub(crate) fn ahead(to: u64, from: u64) -> i64 {
    to.wrapping_sub(from) as i64
}

/// Returns the later of two positions.
#[inline(always)]
pub(crate) fn later(one: u64, other: u64) -> u64 {
    if ahead(other, one) > 0 { other } else { one }
}

/// Returns how far a bound, which has 63 bits of a position, is ahead of `lower_bound`; negative:
/// behind.
#[inline(always)]
pub(crate) fn bound_ahead(bound: u64, lower_bound: u64) -> i64 {
    ((bound >> 1).wrapping_sub(lower_bound) << 1) as i64 >> 1
}

/// A pool's claim word: the end of the last chunk that a worker took, and how many events of the
/// run there are left.
#[derive(Clone, Copy)]
pub(crate) struct PoolWord(pub(crate) u64);

impl PoolWord {
    pub(crate) fn new(seq: u64, left: u64) -> PoolWord {
        debug_assert!(left < 1 << LEFT_BITS);
        PoolWord(seq << LEFT_BITS | left)
    }

    /// Returns the position, widened from one that differs by less than 2^47.
    #[inline(always)]
    pub(crate) fn seq(self, lower_bound: u64) -> u64 {
        widen(self.0 >> LEFT_BITS, 64 - LEFT_BITS, lower_bound)
    }

    /// Returns how many events of the run are left behind the position.
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

    /// Returns the position, widened from one that differs by less than 2^62.
    #[inline(always)]
    pub(crate) fn seq(self, lower_bound: u64) -> u64 {
        widen(self.0 >> 1, 63, lower_bound)
    }

    #[inline(always)]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & Self::CLOSED != 0
    }
}
