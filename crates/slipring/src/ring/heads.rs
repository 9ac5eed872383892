//! Claims of several producers that are processes of their own.
//!
//! A compare-and-swap of one claim word would not say afterwards which producer won. So a producer
//! claims by a compare-and-swap of the stamp at the claim's own first slot, its *head*. The head
//! names the producer's seat, and the seat's *intent* says how far the claim goes. Whatever step a
//! producer dies at, another process finds its claim by the seat, and gives the claim up.
//!
//! A *boundary* is a position at which a claim ends, and so the next claim begins. A producer that
//! looks for the first free position walks from boundary to boundary.
//!
//! Invariants
//! - I1: a producer stores its intent before it claims the head, and changes the intent only after
//!   the head has changed. So the intent of a seat whose head is claimed is the claim's.
//! - I2: the head of a claim changes last, when all else of the claim is stamped. To publish a
//!   claim's front, its producer first claims the head of the rest, and stores where that is. So a
//!   process that repeats a recovery finds the claim, or finds nothing left to do.
//! - I3: a walk takes a bounded number of steps, whatever the words of the segment say.
//! - I4: a producer stores the end of its claim as the *hint* after it has claimed. All positions
//!   before the hint were claimed before, and a party that loads the hint sees that
//!   (`edge::hinted`).

use crate::base::sync::twin;
use crate::base::{edge, prefetch};
use crate::ring::control::Control;
use crate::ring::core::Core;
use crate::ring::seat::Seat;
use crate::ring::slots::{Layout, Storage as _};
use crate::ring::spec::Delivery;
use crate::ring::stamp::{self, Head};
use crate::ring::words::{ClaimWord, PoolWord, ahead};

/// The first position that no producer has claimed, and the word of its slot.
pub(crate) struct Free {
    pub(crate) seq: u64,
    word: u64,
}

/// Why a walk did not come to a free position.
pub(crate) enum Lost {
    /// Other producers claim as fast as this one walks. The walk can go on at the position.
    Overtaken(u64),
    /// A word contradicts the protocol.
    Damaged,
}

/// What became of an attempt to claim.
#[derive(PartialEq, Eq)]
pub(crate) enum Claim {
    Won,
    /// Another producer has claimed the position.
    Lost,
    /// The ring is closing, or closed.
    Closing,
}

/// Returns a seat of the producers by its number among them.
#[inline]
pub(crate) fn producers_seat(control: &Control, number: u64) -> Option<&Seat> {
    let seat = control.seats_of(control.producer_party()).get(number as usize)?;
    Some(seat)
}

/// Returns a boundary before which all positions are published. If another party has released
/// beyond a position, the boundary is beyond that position, too.
pub(crate) fn boundary<E, L: Layout>(core: &Core<E, L>) -> u64 {
    let control = &core.control;
    let plan = &control.plan;
    let is_first = |stage: &usize| {
        let stage = &plan.stages[*stage];
        stage.after.is_empty() && !matches!(stage.delivery, Delivery::Tap(_))
    };
    let Some(first) = (0..plan.stages.len()).find(is_first) else {
        return core.advance_sentinel();
    };
    let stage = &plan.stages[first];
    if matches!(stage.delivery, Delivery::Pool { .. }) {
        let lower_bound = control.landmark(first);
        let word = PoolWord(edge::chunk_taken::see(control.line(stage.line)));
        return word.seq(lower_bound).wrapping_add(word.left());
    }
    control.seats_of(first)[0].boundary()
}

/// Returns the hint: the end of a claim, from which a walk may begin (I4). The hint may be old. `near`
/// is a position that differs from the hint by less than 2^62.
#[inline(always)]
pub(crate) fn hint(control: &Control, near: u64) -> u64 {
    ClaimWord(edge::hinted::see(control.positions.claim())).seq(near)
}

/// Stores the end of a claim as the hint.
#[inline(always)]
pub(crate) fn set_hint(control: &Control, end: u64) {
    edge::hinted::hint(control.positions.claim(), ClaimWord::open(end).0);
}

/// Walks from the boundary `from` to the first position that no producer has claimed.
///
/// Of the position's own lap, runs and tombstones are passed by their lengths, and claims by their
/// seats' intents. A slot of an earlier lap, or without any stamp, is free. A slot of a later lap
/// says that `from` was lapped, and the walk begins again at a boundary of a first stage.
#[inline]
pub(crate) fn first_free<E, L: Layout>(core: &Core<E, L>, from: u64) -> Result<Free, Lost> {
    let slots = &core.slots;
    let mut seq = from;
    // A walk passes each slot once from where it began, and once from a boundary.
    for _ in 0..=core.capacity() * 2 {
        let word = slots.word_at(seq);
        match stamp::head(word, seq, slots.shift()) {
            Head::Free => return Ok(Free { seq, word }),
            Head::Run(len) => seq = seq.wrapping_add(len),
            Head::Claimed(number) => {
                // If the head has changed, the walk looks again.
                seq = end_of_claim(core, seq, word, number)?.unwrap_or(seq);
            }
            Head::Later => {
                match twin!("walk-from-hint": boundary(core) => hint(&core.control, seq)) {
                    boundary if ahead(boundary, seq) > 0 => seq = boundary,
                    // The word is 2^45 laps old.
                    _ => return Ok(Free { seq, word }),
                }
            }
            Head::Damaged => return Err(Lost::Damaged),
        }
    }
    Err(Lost::Overtaken(seq))
}

/// Returns the end of the claim whose head at `seq` is `word`. `None`: the head has changed since.
#[inline]
fn end_of_claim<E, L: Layout>(
    core: &Core<E, L>,
    seq: u64,
    word: u64,
    number: u64,
) -> Result<Option<u64>, Lost> {
    let end = producers_seat(&core.control, number).ok_or(Lost::Damaged)?.intent_end();
    // While the head stands, the intent is that of this claim (I1).
    if twin!("head-unchecked": core.slots.word_at(seq) != word => false) {
        return Ok(None);
    }
    let is_claim = (1..=core.capacity()).contains(&end.wrapping_sub(seq));
    if is_claim { Ok(Some(end)) } else { Err(Lost::Damaged) }
}

/// Returns whether a position is further ahead than any producer may claim. Only damage brings a
/// walk there.
#[cold]
pub(crate) fn is_out_of_reach<E, L: Layout>(core: &Core<E, L>, seq: u64) -> bool {
    // A boundary of a first stage is at or beyond what the gating stages have released.
    ahead(seq, boundary(core)) > core.capacity() as i64
}

/// Returns whether producers have passed over `at`, a position at which a party waits, and at which
/// a run may begin. Only damage does that: a hint beyond `at` says that `at` was claimed (I4), and
/// then the slot has a word of this lap.
#[cold]
pub(crate) fn is_passed_over<E, L: Layout>(core: &Core<E, L>, at: u64) -> bool {
    let is_free = || {
        let word = core.slots.word_at(at);
        matches!(stamp::head(word, at, core.slots.shift()), Head::Free)
    };
    // The hint is loaded before the stamp.
    ahead(hint(&core.control, at), at) > 0 && is_free()
}

/// About how far behind a claim, in bytes of slots, the line is that a producer fetches beforehand.
const FETCH_AHEAD: u64 = 128;

/// Fetches the line of a head that the caller will claim soon, if no other producer claims in
/// between. The last stage has just read the slots, so a claim would wait for the line to come from
/// that stage's core.
#[inline(always)]
pub(crate) fn prefetch<E, L: Layout>(core: &Core<E, L>, claimed: u64) {
    let slots = (FETCH_AHEAD >> core.slots.stride().max(1).ilog2()).max(1);
    prefetch::for_store(core.slots.stamp(claimed.wrapping_add(slots)));
}

/// Claims the `len` positions from a free one on, for the owner of `seat`, whose number among the
/// producers' seats is `number`. The gating stages have released the positions.
#[inline]
pub(crate) fn claim<E, L: Layout>(
    core: &Core<E, L>,
    (number, seat): (u64, &Seat),
    Free { seq, word }: Free,
    len: u64,
) -> Claim {
    let control = &core.control;
    let end = seq.wrapping_add(len);
    twin!("closing-checked-early": () => if control.status.is_closing() {
        return Claim::Closing;
    });
    twin!("claimed-before-intent": seat.intend(seq, end) => ());
    edge::closing::fence_claimant(control.always_fences()); // SYNC[closing]: of the two, one sees
    if twin!("closing-checked-early": control.status.is_closing() => false) {
        return Claim::Closing;
    }
    // SAFETY: slots::I1; the core is alive.
    let head = unsafe { &*core.slots.stamp(seq) };
    let won = edge::intended::claim(head, word, stamp::claimed(seq, core.slots.shift(), number));
    twin!("claimed-before-intent": () => if won {
        seat.intend(seq, end);
    });
    if won { Claim::Won } else { Claim::Lost }
}

/// Claims the head of what stays of a claim, `at`, before the claim's front is published (I2).
pub(crate) fn split<E, L: Layout>(core: &Core<E, L>, (number, seat): (u64, &Seat), at: u64) {
    // SAFETY: slots::I1; the core is alive.
    let head = unsafe { &*core.slots.stamp(at) };
    edge::slot_published::stamp(head, stamp::claimed(at, core.slots.shift(), number));
    twin!("mid-unstored": seat.split(at) => ());
}

/// Gives up the claim that a dead producer left, for the holder of the proof of its death. Each
/// step may be repeated, because the caller may die, too.
pub(crate) fn give_up<E, L: Layout>(core: &Core<E, L>, (number, seat): (u64, &Seat)) {
    let slots = &core.slots;
    let (lo, hi) = seat.intent();
    let is_inside = |at: u64| (1..=core.capacity()).contains(&hi.wrapping_sub(at));
    let is_head = |at: u64| {
        let claimed = stamp::claimed(at, slots.shift(), number);
        twin!("head-assumed": slots.word_at(at) == claimed => true)
    };
    let mid = seat.middle();
    let heads = [Some(lo), (ahead(mid, lo) > 0).then_some(mid)];
    let head = heads.into_iter().flatten().find(|&at| is_inside(at) && is_head(at));
    if let Some(head) = head {
        core.bury(head, hi.wrapping_sub(head));
    }
    seat.intend_nothing();
}
