//! Claims of several producers that are processes of their own.
//!
//! A compare-and-swap of a plain claim word would not say afterwards which producer won, and the
//! winner may die before its next instruction. So the claim word names the seat of its last winner,
//! and that seat holds the winner's *intent*: begin and end of its claim. A producer that claims
//! next first *records* that claim: it stamps the claim's first slot, the *head*, with the winner's
//! seat. Then it swaps the claim word, which names its own seat afterwards. So the claim word tells
//! the last claim, and the heads tell all claims before that are not published or given up yet.
//!
//! A producer that claims again, and has seen no other claim since its own, has nothing to record,
//! because its own claim has ended. It stores its intent and swaps the claim word, which costs what
//! a claim costs within one process, and two stores.
//!
//! Invariants
//! - I1: a producer stores its intent before the claim word names it, and its next intent only
//!   after the claim has ended: after its slots are stamped. So while the claim word names a seat
//!   and tells the end of its intent, the intent is that of the last claim, or of one that has
//!   ended.
//! - I2: a swap of the claim word replaces the name of a seat only after that seat's claim is
//!   recorded, or has ended. So a claim that has not ended is told by the claim word or by its head
//!   (`edge::intended`).
//! - I3: the head of a claim changes last, when all else of the claim is stamped. To publish a
//!   claim's front, its producer first records the head of the rest, and stores where that is. So a
//!   process that repeats a recovery finds the claim, or finds nothing left to do.
//! - I4: a head is recorded by a swap from a stamp of an earlier lap. A claim that has ended has
//!   stamped its head, and no slot has the stamp of an earlier lap again.

use std::ops::Range;

use crate::base::sync::twin;
use crate::base::{edge, prefetch};
use crate::ring::control::Control;
use crate::ring::core::Core;
use crate::ring::seat::Seat;
use crate::ring::slots::{Layout, Storage as _};
use crate::ring::spec::Delivery;
use crate::ring::stamp;
use crate::ring::words::{PoolWord, SeatedClaim, ahead};

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
        let lower_bound = control.positions.landmark(&control.plan.stages[first]);
        let word = PoolWord(edge::chunk_taken::see(control.positions.line(stage.line)));
        return word.seq(lower_bound).wrapping_add(word.left());
    }
    control.seats_of(first)[0].boundary()
}

/// A seat of the producers.
#[derive(Clone, Copy)]
pub(crate) struct ProducerSeat<'a> {
    /// Number of the seat among the producers' seats.
    pub(crate) number: u64,
    pub(crate) words: &'a Seat,
}

/// Returns whether the claim `claim` of the producers' seat `number` has neither been published nor
/// given up, as far as the claim word and then the stamp of the claim's head say, in a ring of `1
/// << shift` slots. `false`, also: the producer has not won the claim.
pub(crate) fn is_open(
    last: SeatedClaim,
    stamp: u64,
    claim: &Range<u64>,
    number: u64,
    shift: u32,
) -> bool {
    let is_last = || last.names(claim.end, number) && stamp::is_free(stamp, claim.start, shift);
    stamp == stamp::claimed(claim.start, shift, number)
        || twin!("last-claim-ignored": is_last() => false)
}

/// Records the claim of another producer that ends at `end`, as the claim word `last` says, unless
/// the claim has ended (I2).
#[inline]
pub(crate) fn record<E, L: Layout>(core: &Core<E, L>, last: SeatedClaim, end: u64) {
    let (control, slots, number) = (&core.control, &core.slots, last.seat());
    let seats = control.seats_of(control.plan.producer_party());
    let Some(seat) = seats.get(number as usize) else { return }; // a damaged word
    // The begin is loaded first. If the producer has stored its next intent since, its claim has
    // ended, and the end, or both, tell that (I1).
    let (lo, hi) = seat.intent();
    let is_claim = hi == end && (1..=core.capacity()).contains(&hi.wrapping_sub(lo));
    if !twin!("unrecorded": is_claim => false) {
        return;
    }
    let stamp = slots.word_at(lo);
    if stamp::is_free(stamp, lo, slots.shift()) {
        // SAFETY: slots::I1; the core is alive.
        let head = unsafe { &*slots.stamp(lo) };
        edge::intended::record(head, stamp, stamp::claimed(lo, slots.shift(), number)); // I4
    }
}

/// Returns whether a position is further ahead than any producer may claim. Only a damaged claim
/// word is there.
#[cold]
pub(crate) fn is_out_of_reach<E, L: Layout>(core: &Core<E, L>, seq: u64) -> bool {
    // A boundary of a first stage is at or beyond what the gating stages have released.
    ahead(seq, boundary(core)) > core.capacity() as i64
}

/// Returns whether producers have passed over `at`, a position at which a party waits, and at which
/// a run may begin. Only damage does that: a position before the claim word's was claimed, so it
/// has a stamp of its lap, or a producer whose intent holds it.
#[cold]
pub(crate) fn is_passed_over<E, L: Layout>(core: &Core<E, L>, at: u64) -> bool {
    let (control, slots) = (&core.control, &core.slots);
    if ahead(control.positions.last_claim().seq(at), at) <= 0 {
        return false;
    }
    let holds = |seat: &Seat| {
        let (lo, hi) = seat.intent();
        ahead(at, lo) >= 0 && ahead(hi, at) > 0
    };
    let is_held = control.seats_of(control.plan.producer_party()).iter().any(|seat| holds(seat));
    // The stamp is loaded last: a producer that no longer holds the position has stamped it.
    !is_held && stamp::is_free(slots.word_at(at), at, slots.shift())
}

/// About how far behind a claim, in bytes of slots, the line is that a producer fetches beforehand.
const FETCH_AHEAD: u64 = 128;

/// Fetches the line of a slot that the caller will claim soon, if no other producer claims in
/// between. The last stage has just read the slots, so a publication waits for the line to come
/// from that stage's core, and the next swap of the claim word waits for the publication's stores.
#[inline(always)]
pub(crate) fn prefetch<E, L: Layout>(core: &Core<E, L>, claimed: u64) {
    let slots = (FETCH_AHEAD >> core.slots.stride().max(1).ilog2()).max(1);
    prefetch::for_store(core.slots.stamp(claimed.wrapping_add(slots)));
}

/// Claims the positions `claim` for the owner of `seat`. The gating stages have released them, and
/// the claim that `last` tells is recorded or has ended. Returns `false` if the claim word is no
/// longer `last`.
#[inline(always)]
pub(crate) fn claim(
    control: &Control,
    seat: ProducerSeat<'_>,
    last: SeatedClaim,
    claim: Range<u64>,
) -> bool {
    twin!("claimed-before-intent": seat.words.intend(claim.start, claim.end) => ());
    let claimed = SeatedClaim::new(claim.end, seat.number);
    let won = edge::intended::claim(control.positions.claim(), last.0, claimed.0);
    twin!("claimed-before-intent": () => if won {
        seat.words.intend(claim.start, claim.end);
    });
    won
}

/// Records the head of what stays of a claim, `at`, before the claim's front is published (I3).
pub(crate) fn split<E, L: Layout>(core: &Core<E, L>, seat: ProducerSeat<'_>, at: u64) {
    // SAFETY: slots::I1; the core is alive.
    let head = unsafe { &*core.slots.stamp(at) };
    edge::slot_published::stamp(head, stamp::claimed(at, core.slots.shift(), seat.number));
    twin!("mid-unstored": seat.words.split(at) => ());
}

/// Gives up the claim that a dead producer left, for the holder of the proof of its death. Each
/// step may be repeated, because the caller may die, too.
pub(crate) fn give_up<E, L: Layout>(core: &Core<E, L>, seat: ProducerSeat<'_>) {
    let (slots, ProducerSeat { number, words: seat }) = (&core.slots, seat);
    // Loaded before the heads, because a producer records a head before it swaps the claim word.
    let last = core.control.positions.last_claim();
    let (lo, hi) = seat.intent();
    let is_inside = |at: u64| (1..=core.capacity()).contains(&hi.wrapping_sub(at));
    let is_head = |at: u64| {
        let is_open = || is_open(last, slots.word_at(at), &(at..hi), number, slots.shift());
        twin!("head-assumed": is_open() => true)
    };
    let mid = seat.middle();
    let heads = [Some(lo), (ahead(mid, lo) > 0).then_some(mid)];
    let head = heads.into_iter().flatten().find(|&at| is_inside(at) && is_head(at));
    if let Some(head) = head {
        core.bury(head, hi.wrapping_sub(head));
    }
    seat.intend_nothing();
}
