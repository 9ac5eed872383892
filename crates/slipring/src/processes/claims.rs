//! Claims of several producers, each of which is a process of its own.
//!
//! A compare-and-swap of a plain claim word would not say afterwards which producer won, and the
//! winner may die before its next instruction. So the claim word names the seat of its last winner,
//! and that seat holds the winner's *intent*: begin and end of its claim. The producer that claims
//! next first *records* that claim: it stamps the claim's first slot, the *head*, with the winner's
//! seat. Then the producer swaps the claim word, which names its own seat afterwards. So the claim
//! word shows the last claim, and the heads show all earlier claims that are not yet published or
//! given up.
//!
//! A producer that claims again, and has seen no other claim since its own, has nothing to record,
//! because its own claim has ended. It stores its intent and swaps the claim word, which costs two
//! stores more than a claim within one process.
//!
//! Invariants
//! - I1: a producer stores its intent before the claim word names it, and stores its next intent
//!   only after the claim has ended, that is, after all slots of the claim are stamped. So while
//!   the claim word names a seat and its position is the end of that seat's intent, the intent
//!   belongs to the last claim, or to a claim that has ended.
//! - I2: a swap of the claim word replaces the name of a seat only after that seat's claim is
//!   recorded, or has ended. So the claim word or the claim's head shows each claim that has not
//!   ended (`edge::intended`).
//! - I3: the head of a claim changes last, after all other slots of the claim are stamped. Before a
//!   producer publishes a claim's front, it records the head of the rest, and stores the position
//!   of that head. So a process that repeats a recovery finds the claim, or finds that nothing is
//!   left to do.
//! - I4: a head is recorded by a compare-and-swap that expects a stamp of an earlier lap. A claim
//!   that has ended has stamped its head, and no slot gets the stamp of an earlier lap again.

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

/// Returns a boundary: a position before which all positions are published, and from which on no
/// party has released an event.
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

/// Returns whether the producer with the seat `number` has made `claim`, and has neither published
/// it nor given it up. The answer follows from the claim word `last`, and from `stamp`, the stamp
/// of the claim's head, which the caller loaded after `last`. The ring has `1 << shift` slots.
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

/// Records the last claim, which another producer made, unless that claim has ended (I2). `last` is
/// the claim word, which names the seat of that other producer. `end` is the claim's end.
#[inline]
pub(crate) fn record<E, L: Layout>(core: &Core<E, L>, last: SeatedClaim, end: u64) {
    let (control, slots, number) = (&core.control, &core.slots, last.seat());
    let seats = control.seats_of(control.plan.producer_party());
    let Some(seat) = seats.get(number as usize) else { return }; // a damaged word
    // `intent` loads the begin before the end. If the producer stores its next intent meanwhile,
    // the claim that ends at `end` has ended. The loaded words show this, because the next intent
    // begins at `end` or later: either the loaded end is not `end`, or the loaded begin is not
    // before `end` (I1).
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
/// word has such a position.
#[cold]
pub(crate) fn is_out_of_reach<E, L: Layout>(core: &Core<E, L>, seq: u64) -> bool {
    // A first stage's boundary is never behind the positions that the gating stages have released.
    ahead(seq, boundary(core)) > core.capacity() as i64
}

/// Returns whether producers have passed over `at`, a position at which a party waits and at which
/// a run may begin. That happens only in a damaged segment. In a sound segment, each position
/// before the claim word's position was claimed. So the position's slot has a stamp of the
/// position's lap, or a producer's intent contains the position.
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
    // The stamp is loaded last, because a producer whose intent no longer contains the position has
    // stamped it.
    !is_held && stamp::is_free(slots.word_at(at), at, slots.shift())
}

/// Approximate distance from a claim to the later cache line that a producer fetches in advance, in
/// bytes of slots.
const FETCH_AHEAD: u64 = 128;

/// Fetches the cache line of a slot that the caller will claim soon, unless another producer claims
/// it first. The line is in the cache of the last stage's core, which has just read the slots.
/// Without the fetch, the publication would wait for the line, and the next swap of the claim word
/// would wait for the publication's stores.
#[inline(always)]
pub(crate) fn prefetch<E, L: Layout>(core: &Core<E, L>, claimed: u64) {
    let slots = (FETCH_AHEAD >> core.slots.stride().max(1).ilog2()).max(1);
    prefetch::for_store(core.slots.stamp(claimed.wrapping_add(slots)));
}

/// Claims the positions `claim` for the owner of `seat`. The caller makes sure that the gating
/// stages have released these positions, and that the claim that `last` shows is recorded or has
/// ended. Returns `false` if the claim word is no longer `last`.
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

/// Records `at` as the head of a claim's rest, before the claim's front is published (I3).
pub(crate) fn split<E, L: Layout>(core: &Core<E, L>, seat: ProducerSeat<'_>, at: u64) {
    // SAFETY: slots::I1; the core is alive.
    let head = unsafe { &*core.slots.stamp(at) };
    edge::slot_published::stamp(head, stamp::claimed(at, core.slots.shift(), seat.number));
    twin!("mid-unstored": seat.words.split(at) => ());
}

/// Gives up the claim that a dead producer left. The caller holds the proof of the producer's
/// death. Each step may be repeated, because the caller may die, too.
pub(crate) fn give_up<E, L: Layout>(core: &Core<E, L>, seat: ProducerSeat<'_>) {
    let (slots, ProducerSeat { number, words: seat }) = (&core.slots, seat);
    // The claim word is loaded before the heads, because a producer records a head before it swaps
    // the claim word.
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
