//! The end of a ring whose producers are processes of their own.
//!
//! A producer that closes the ring may find no room, or may die. So it only says that the ring is
//! *closing*. Producers then claim no more, and each first stage finds the same last position: the
//! first one that no producer has claimed, and that none is about to claim.
//!
//! Invariants
//! - I1: a producer checks between its intent and its claim whether the ring is closing. So a stage
//!   that has seen *closing*, and has issued a barrier since, sees the intent of each producer that
//!   may still claim (`edge::closing`).
//! - I2: the last producer that leaves closes. A producer is staying from when it owns its seat
//!   until it stores that it leaves (`edge::last_out`).
//! - I3: a handle looks for the end only at a position at which a run may begin. Inside of a run, a
//!   slot has no stamp, as a free one. A handle that goes by stamps is at the end of a run, and so
//!   are the sentinel, and a pool's claim word without events left in a run.

use std::cell::Cell;

use crate::base::sync::twin;
use crate::ring::control::Control;
use crate::ring::core::Core;
use crate::ring::seat::Seat;
use crate::ring::slots::{Layout, Storage as _};
use crate::ring::stamp::{self, Head};
use crate::ring::words::ahead;

/// Returns whether the stream of a closing ring ends at `at`, the position at which a first stage
/// has found no event. `fenced` says whether the stage has issued a barrier since it saw *closing*.
#[cold]
pub(crate) fn is_end<E, L: Layout>(core: &Core<E, L>, at: u64, fenced: &Cell<bool>) -> bool {
    let control = &core.control;
    let word = core.slots.word_at(at);
    if !matches!(stamp::head(word, at, core.slots.shift()), Head::Free) {
        return false;
    }
    if !fenced.get() {
        control.fence_processes(); // SYNC[closing]: of the two, one sees
        fenced.set(true);
    }
    let may_claim = |seat: &Seat| {
        let (lo, hi) = seat.intent();
        ahead(hi, lo) > 0 && ahead(hi, at) > 0
    };
    let seats = control.seats_of(control.producer_party());
    let may_claim = twin!("intents-ignored": seats.iter().any(|seat| may_claim(seat)) => false);
    // A producer takes its intent back only after its claim, or another's, has a stamp.
    !may_claim && twin!("stamp-not-reread": core.slots.word_at(at) == word => true)
}

/// Stores that a producer leaves, for the producer itself or for the process that recovers it.
/// Closes the ring, if no other producer is staying (I2). The dead do not stay, also if they are not
/// recovered yet.
pub(crate) fn leave(control: &Control, seat: &Seat) {
    seat.leave(); // SYNC[last-out]: of two leavers, one sees the other
    let seats = control.seats_of(control.producer_party());
    if !seats.iter().any(|other| control.is_staying(other)) {
        control.begin_closing();
    }
}
