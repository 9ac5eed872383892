//! Stamps. A stamp is a slot's word, and the stamp of a run's first slot publishes the run.
//!
//! | bits | meaning |
//! |---|---|
//! | 18..64 | lap + 1, where lap = position / capacity |
//! | 17 | recorded head: the first slot of a claim of a process, not yet published or given up |
//! | 16 | tombstone: the run will never be published |
//! | 0..16 | length of the run in slots, 1..=[`MAX_RUN`]; of a head: number of the claim's seat |
//!
//! Invariants
//! - I1: suppose that a producer stored the stamp in a position's slot, and that the stamp's lap
//!   field is the position's lap + 1 (modulo 2^46). Then the stamp was stored for that position.
//!   The reason is that a slot is stamped for at most one position per lap, and that no stamp grows
//!   old enough for its lap field to repeat. The field repeats after 2^46 laps, but in the last two
//!   laps of each period of 2^44 laps, producers stamp every slot of a run ([`refreshes`]). In a
//!   ring of 2^18 slots or more, the field holds the whole lap number and repeats after 2^64
//!   events. There, the period is 2^62 events.
//! - I2: a new slot on the heap has a blank stamp ([`blank`]), which holds the number of the lap
//!   before the slot's first lap. A new slot of a segment has a stamp of zero. Neither stamp counts
//!   as a publication at any position, because neither has the length of a run.
//! - I3: a run has a length of 1 to [`MAX_RUN`] slots. A publication of more than [`MAX_RUN`] slots
//!   is several runs.
//! - I4: each word that a producer stores has at least one of its low 18 bits set, except for blank
//!   and cleared stamps.

use crate::base::sync::twin;

/// Length of the longest run, in slots. A publication of more than `MAX_RUN` slots has several
/// runs, stamped from back to front, so that the first run becomes visible last. Runs are shorter
/// in models, so that a publication in a small ring can have several runs.
pub(crate) const MAX_RUN: u64 = if cfg!(slipring_loom) { 3 } else { 1 << 15 };

const LAP_SHIFT: u32 = 18;
/// Interval between two refreshes of all stamps, as log2 of a number of laps: far shorter than the
/// 2^46 laps after which a lap field repeats.
const REFRESH_BITS: u32 = 44;
/// Upper limit of the interval between two refreshes of all stamps, as log2 of a number of events.
/// In a ring of at most 2^18 slots, 2^44 laps are at most 2^62 events, so a limit of 2^62 events
/// changes nothing.
const REFRESH_EVENT_BITS: u32 = 62;
const TOMBSTONE: u64 = 1 << 16;
const CLAIMED: u64 = 1 << 17;
/// Bits of a recorded head's word that hold the number of the claim's seat.
const SEAT: u64 = TOMBSTONE - 1;

/// A slot's stamp, as read for one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// No event is published at this position yet.
    Unpublished,
    /// A run of published events starts at this position. The field is the number of the run's
    /// events.
    Live(u64),
    /// The slots from this position on were claimed and given up. The field is the number of slots
    /// of the tombstone.
    Tombstone(u64),
}

#[inline(always)]
fn field(seq: u64, shift: u32) -> u64 {
    (seq >> shift).wrapping_add(1) << LAP_SHIFT
}

/// The word that publishes one event of a lap. A handle keeps the lap of its next positions, and so
/// need not compute the lap field at each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lap(u64);

impl Lap {
    /// Returns the lap of a position, in a ring of `1 << shift` slots.
    #[inline(always)]
    pub(crate) fn of(seq: u64, shift: u32) -> Lap {
        Lap(field(seq, shift) | 1)
    }

    /// Returns the word that publishes `len` events from a position of this lap on.
    #[inline(always)]
    pub(crate) fn live(self, len: u64) -> u64 {
        debug_assert!((1..=MAX_RUN).contains(&len));
        self.0 + (len - 1)
    }

    /// Interprets a stamp that was loaded for a position of this lap. If no run can have the length
    /// in the stamp, the stamp publishes no event. The length has to be checked because the stamps
    /// of a new segment are zero, and zero is the right lap field in one lap of each period.
    #[inline(always)]
    pub(crate) fn read(self, word: u64) -> Stamp {
        let further = word.wrapping_sub(self.0);
        if further < MAX_RUN {
            Stamp::Live(further + 1)
        } else if further.wrapping_sub(TOMBSTONE) < MAX_RUN {
            Stamp::Tombstone(further - TOMBSTONE + 1)
        } else {
            Stamp::Unpublished
        }
    }
}

/// Returns the word that publishes `len` events from `seq` on, in a ring of `1 << shift` slots.
#[inline(always)]
pub(crate) fn live(seq: u64, shift: u32, len: u64) -> u64 {
    Lap::of(seq, shift).live(len)
}

/// Returns the word that gives up `len` slots from `seq` on.
pub(crate) fn tombstone(seq: u64, shift: u32, len: u64) -> u64 {
    live(seq, shift, len) | TOMBSTONE
}

/// Returns the word that marks `seq` as the head of a claim. `seat` is the number of the claiming
/// producer's seat.
#[inline(always)]
pub(crate) fn claimed(seq: u64, shift: u32, seat: u64) -> u64 {
    debug_assert!(seat <= SEAT);
    field(seq, shift) | CLAIMED | seat
}

/// Returns whether a stamp is of an earlier lap than `seq`, or was never stored. Then no producer
/// has stamped the slot for `seq`, or for a later position.
#[inline(always)]
pub(crate) fn is_free(word: u64, seq: u64, shift: u32) -> bool {
    // Positions wrap, so a ring of more than 2^18 slots has fewer laps than the lap field holds.
    let unused = u64::BITS - (u64::BITS - LAP_SHIFT).min(u64::BITS - shift);
    let laps = (word >> LAP_SHIFT).wrapping_sub(field(seq, shift) >> LAP_SHIFT) << unused;
    let is_unused = word & ((1 << LAP_SHIFT) - 1) == 0;
    is_unused || twin!("laps-unordered": (laps as i64) < 0 => laps != 0)
}

/// Returns whether a run that begins at `seq` must stamp all of its slots, each with the number of
/// slots from there to the run's end.
///
/// The result is `true` in the last two laps of each period from one refresh of all stamps to the
/// next. Two laps are necessary, because a run with slots in the last lap may begin in the lap
/// before.
#[inline(always)]
pub(crate) fn refreshes(seq: u64, shift: u32) -> bool {
    let beyond = u64::BITS - REFRESH_BITS.min(REFRESH_EVENT_BITS - shift);
    !(seq >> shift) << beyond >> beyond < 2
}

/// Returns the blank stamp of a new slot; `seq` is the first position that will use the slot.
pub(crate) fn blank(seq: u64, shift: u32) -> u64 {
    (seq >> shift) << LAP_SHIFT
}

/// Interprets a stamp that was loaded for position `seq`; see [`Lap::read`].
#[inline(always)]
pub(crate) fn read(word: u64, seq: u64, shift: u32) -> Stamp {
    Lap::of(seq, shift).read(word)
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// A stamp repeats after 2^46 laps or after 2^64 events, whichever comes first.
    #[test]
    fn every_stamp_is_refreshed_before_it_repeats() {
        for shift in 0..60 {
            let repeats = if shift < LAP_SHIFT { 1u128 << (46 + shift) } else { 1 << 64 };
            let lap = 1u128 << shift;
            // The length of a refresh period is a quarter of the number of events after which a
            // stamp repeats. Producers refresh stamps in the last two laps of each refresh period.
            let period = repeats / 4;
            assert!(
                [period - 1, period - lap, period - 2 * lap]
                    .iter()
                    .all(|&seq| refreshes(seq as u64, shift)),
                "{shift}"
            );
            assert!(
                period <= 2 * lap || !refreshes((period - 2 * lap - 1) as u64, shift),
                "{shift}: more than two laps"
            );
        }
    }

    /// The words of a segment may hold any values. A value that no producer stores does not count
    /// as a run.
    #[test]
    fn a_stamp_without_a_length_is_no_run() {
        for shift in [0, 3, 18] {
            for seq in [0, 5, u64::MAX] {
                let lap = field(seq, shift);
                for rest in
                    [0, MAX_RUN + 1, TOMBSTONE, TOMBSTONE | (MAX_RUN + 1), 2 << 16, 3 << 16 | 1]
                {
                    assert_eq!(read(lap ^ rest, seq, shift), Stamp::Unpublished, "{rest:x}");
                }
            }
        }
        assert_eq!(read(0, u64::MAX, 2), Stamp::Unpublished);
    }

    /// Checks that stamps of different laps differ, even if positions or the lap field wrap.
    #[test]
    fn a_slot_is_free_for_positions_of_later_laps() {
        for shift in [0, 1, 3, 10, 17, 18, 19, 20, 30] {
            for seq in [0, 1, 7, 1 << 20, (1 << 46) - 1, 1 << 46, 1 << 63, u64::MAX - 1, u64::MAX] {
                let [one, other] = [live(seq, shift, 5), tombstone(seq, shift, 5)];
                assert!(!is_free(one, seq, shift) && !is_free(other, seq, shift));
                for seat in [0, 1, 63, SEAT] {
                    let word = claimed(seq, shift, seat);
                    assert!(!is_free(word, seq, shift));
                    assert_eq!(read(word, seq, shift), Stamp::Unpublished);
                }
                assert!(is_free(blank(seq, shift), seq, shift) && is_free(0, seq, shift));
                for laps in [1u64, 2, 1000] {
                    let away = (1u64 << shift).wrapping_mul(laps);
                    for word in [live(seq, shift, 5), claimed(seq, shift, 3)] {
                        let at = format!("{seq}, {shift}, {laps}");
                        assert!(is_free(word, seq.wrapping_add(away), shift), "{at}");
                        assert!(!is_free(word, seq.wrapping_sub(away), shift), "{at}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_stamp_is_read_only_at_its_own_position() {
        for shift in [0, 1, 3, 10, 18, 20] {
            for seq in [0, 1, 7, 1 << 20, (1 << 46) - 1, 1 << 46, u64::MAX - 1, u64::MAX] {
                let capacity = 1u64 << shift;
                assert_eq!(read(live(seq, shift, 5), seq, shift), Stamp::Live(5));
                assert_eq!(
                    read(tombstone(seq, shift, MAX_RUN), seq, shift),
                    Stamp::Tombstone(MAX_RUN)
                );
                assert_eq!(read(blank(seq, shift), seq, shift), Stamp::Unpublished);
                for laps in [1u64, 2, 1000] {
                    let away = capacity.wrapping_mul(laps);
                    assert_eq!(
                        read(live(seq, shift, 5), seq.wrapping_add(away), shift),
                        Stamp::Unpublished
                    );
                    assert_eq!(
                        read(live(seq, shift, 5), seq.wrapping_sub(away), shift),
                        Stamp::Unpublished
                    );
                    assert_eq!(
                        read(tombstone(seq, shift, 1), seq.wrapping_add(away), shift),
                        Stamp::Unpublished
                    );
                }
            }
        }
    }
}
