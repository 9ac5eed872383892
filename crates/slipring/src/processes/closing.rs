//! The end of a ring whose producers are processes of their own.
//!
//! A producer that closes the ring may find no room, or may die. So it marks the ring as *closing*,
//! and then sets a bit of the claim word, after which no producer claims. The end of the stream is
//! the claim word's position. Each first stage that reaches this position stores it as the last
//! position.
//!
//! Invariants
//! - I1: a ring is closing before its claim word is closed. A stage, a producer or a waiter for a
//!   position that finds the claim word open in a closing ring closes it, because the closing
//!   process may have died in between. So all processes find the same end, and a producer that
//!   still finds the claim word open claims at most one more lap.
//! - I2: the last producer that leaves closes the ring. A producer stays from the time when it owns
//!   its seat until it stores that it leaves (`edge::last_out`).
//! - I3: a handle checks for the end only at a position where a run may begin: at the end of a run,
//!   if the handle reads stamps; at the sentinel; or at a pool's claim word, if no events are left
//!   in its run. There the handle has passed every claim before its position. So if the producers'
//!   claim word is closed and has the same position, the stream ends there.

use crate::base::sync::twin;
use crate::ring::control::Control;
use crate::ring::seat::Seat;
use crate::ring::world::World;

/// Returns whether the stream of a closing ring ends at `at`, the position at which a first stage
/// has found no event.
#[cold]
pub(crate) fn is_end(control: &Control, at: u64) -> bool {
    let last = control.positions.last_claim();
    let is_closed = twin!("closing-unhelped": last.is_closed() => true);
    let last = if is_closed { last } else { control.positions.close_claims() }; // I1
    twin!("closing-unhelped": true => last.is_closed()) && last.seq(at) == at
}

/// Records that a producer leaves. The caller is the producer itself, or the process that recovers
/// it. Closes the ring if no other producer stays (I2). A dead producer does not count as staying,
/// even if no process has recovered it yet.
pub(crate) fn leave(control: &Control, world: &impl World, seat: &Seat) {
    seat.leave(); // SYNC[last-out]: of two leavers, one sees the other
    let seats = control.seats_of(control.plan.producer_party());
    if !seats.iter().any(|other| world.is_staying(other)) {
        control.begin_closing();
    }
}
