//! Recovery: how a process settles what a dead process left, and how a new process finds the
//! position at which it continues.
//!
//! To *settle* is to bring the words that the dead process left half-changed into a state from
//! which the living processes can continue, and to free the dead process's seats.
//!
//! Invariants
//! - I1: the boundary of a first stage lies at the end of a run, its slot is not used for a later
//!   lap, and everything before it is published (`seat::I3`).
//! - I2: no stage sees an event of a claim before the stamp of the claim's first slot. So a claim
//!   that a dead producer has not stamped has no events for the stages.

use std::ops::Range;
use std::time::Duration;

use crate::base::edge;
use crate::base::sync::{Relaxed, twin};
use crate::processes::claims::{self, ProducerSeat};
use crate::processes::closing;
use crate::processes::deaths::Processes;
use crate::processes::reactors::SleptFor;
use crate::ring::control::Control;
use crate::ring::core::Core;
use crate::ring::membership::{bar, unseat};
use crate::ring::seat::Seat;
use crate::ring::slots::{Layout, Storage as _};
use crate::ring::spec::Delivery;
use crate::ring::stage::Stage;
use crate::ring::stamp::Stamp;
use crate::ring::waits::Place;
use crate::ring::words::{ChunkCell, IDLE, PoolWord, ahead, bound_ahead};
use crate::ring::world::{Recover, World};
use crate::wait::queue::WaitQueue;

/// The caller of `settle` holds the proof of the death ([`Proof::recover`]). Each step may be
/// repeated, because the caller may die, too.
///
/// [`Proof::recover`]: crate::processes::deaths::Proof::recover
impl<E, L: Layout> Recover for Core<E, L> {
    fn settle(&self, dead: u32) {
        (0..self.control.plan.seats()).for_each(|seat| settle_seat(self, seat, dead));
    }

    fn is_passed_over(&self, at: u64) -> bool {
        claims::is_passed_over(self, at)
    }
}

impl<E: Send + Sync, L: Layout<World = Processes>> SleptFor for Core<E, L> {
    fn queue(&self, index: usize) -> &WaitQueue {
        self.control.waits.queue(index)
    }

    fn notice(&self) -> Duration {
        self.world.notice
    }

    fn watch(&self, task: u64, place: Place) -> bool {
        self.world.watch_for_task(self.watched(&|| false), task, place)
    }

    fn may_proceed(&self, Place { party, at }: Place) -> bool {
        let Control { plan, positions, status, .. } = &self.control;
        if status.is_over() {
            return true;
        }
        let Some(stage) = plan.stages.get(party) else {
            return !self.is_full_at(at);
        };
        let pool = matches!(stage.delivery, Delivery::Pool { .. });
        // A worker may proceed to an event that no worker has taken, or to a chunk that was left.
        let at = if pool { PoolWord(positions.line(stage.line).load(Relaxed)).seq(at) } else { at };
        let orphan =
            || self.control.seats_of(party).iter().any(|seat| seat.orphan_start().is_some());
        let published = || match plan.stamped {
            // The head of a run, unless other workers have taken a part of it.
            true if !pool => self.slots.run_at(at) != Stamp::Unpublished,
            _ => self.is_claimed(at),
        };
        match stage.after.is_empty() {
            true => published() || (pool && orphan()),
            false => ahead(self.upstream(party, at).0, at) > 0 || (pool && orphan()),
        }
    }
}

/// Settles what the dead participant `dead` left on one seat, as `Recover::settle` does for all
/// seats.
pub(crate) fn settle_seat<E, L: Layout>(core: &Core<E, L>, seat: usize, dead: u32) {
    let control = &core.control;
    let (plan, words) = (&control.plan, &control.membership.seats[seat]);
    let (party, number) = plan.place_of(seat);
    // A seat that another participant owns holds nothing that the dead participant left.
    let is_own = words.owner() == Some(dead);
    match plan.stages.get(party).map(|stage| stage.delivery) {
        Some(Delivery::Tap(_)) => {
            if twin!("member-assumed": is_own => true) {
                settle_member(core, party, number, dead);
            }
        }
        Some(Delivery::Pool { .. }) => {
            let is_own = twin!("worker-assumed": is_own => true);
            if is_own && settle_worker(core, party, number, words) {
                // SYNC[orphaned]: before the notification.
                words.orphan(dead);
                control.waits.notify(&[plan.stages[party].queue]);
            } else {
                bury(control, party, words, dead);
            }
        }
        None if plan.many_producers => {
            twin!("freed-before-buried": () => words.bury(dead));
            if twin!("owner-assumed": is_own => true) {
                settle_producer(core, number as u64, words);
            }
            bury(control, party, words, dead);
        }
        None => {
            let closes = is_own && core.world.closes_at_death(control);
            twin!("freed-before-closed": () => words.bury(dead));
            if closes {
                close_behind(core);
            }
            words.bury(dead);
        }
        Some(_) => words.bury(dead),
    }
}

/// Counts the death of a participant whose party has several handles, and frees the participant's
/// seat (`seat::I4`). A producer that has begun to leave may have looked at this seat before the
/// death, and another dead owner may be recovered at the same time. So neither counts as another
/// handle.
fn bury(control: &Control, party: usize, seat: &Seat, dead: u32) {
    let others = || {
        let seats = control.seats_of(party).iter();
        seats.filter(|other| other.owner().is_some_and(|owner| owner != dead))
    };
    let mut stays = others().next().is_some();
    if stays {
        edge::last_out::fence_recoverer(); // SYNC[last-out]: the death was noted before.
        stays = others().any(|other| twin!("leaver-stays": other.is_staying() => true));
    }
    if stays {
        seat.bury_beside_others(dead);
    } else {
        seat.bury(dead);
    }
}

/// Closes the ring behind the last event that a dead single producer has published. The producer's
/// seat is not free yet, so no other producer publishes meanwhile.
fn close_behind<E, L: Layout>(core: &Core<E, L>) {
    let control = &core.control;
    if !control.status.is_closed() {
        let end = first_unpublished(core, boundary(core));
        if control.plan.cursor {
            // The producer may have died after it stored its stamps and before it stored its
            // cursor.
            twin!("cursor-behind-stamps": control.positions.move_cursor(end) => ());
        }
        control.close(end);
    }
}

/// Returns the end of a run before which a single producer has published all positions (I1).
pub(crate) fn boundary<E, L: Layout>(core: &Core<E, L>) -> u64 {
    let control = &core.control;
    if control.plan.cursor {
        return control.positions.cursor();
    }
    // At least one first stage exists, because the stages form no circle. None of the first stages
    // is a tap, because the producer of a ring with such a tap stores a cursor.
    let stages = &control.plan.stages;
    let first_stage = stages.iter().position(|stage| stage.after.is_empty()).unwrap_or(0);
    if matches!(stages[first_stage].delivery, Delivery::Pool { .. }) {
        return claims::boundary(core);
    }
    let walked = twin!("walk-from-later": first_stage => stages.len() - 1);
    let boundary = control.seats_of(walked)[0].boundary();
    twin!("walk-from-released": boundary => control.positions.position(&control.plan, first_stage))
}

/// Settles what a dead member of a tap left, so that the parties that waited for the member can
/// continue.
fn settle_member<E, L: Layout>(core: &Core<E, L>, tap: usize, number: usize, dead: u32) {
    let Control { plan, positions, .. } = &core.control;
    let stage = &plan.stages[tap];
    let bound = positions.line(stage.bound_line(number)).load(Relaxed);
    let unread = (bound & IDLE == 0).then(|| {
        let announced = positions.announced(stage);
        let next = announced.wrapping_add(bound_ahead(bound, announced) as u64);
        let newest = core.upstream(tap, next).0;
        ahead(newest, next).clamp(0, core.capacity() as i64) as u64
    });
    unseat_member(&core.control, stage, &DeadMember { number, participant: dead, unread });
    // The notification must come from this process: the next party that checks for deaths finds no
    // dead member, and so notifies no party.
    let notifies = twin!("dead-member-unnotified": &stage.notifies[..] => &[]);
    core.control.waits.notify(notifies); // SYNC[left]: before
}

/// A member of a tap whose process has died.
struct DeadMember {
    /// Number of the member's seat among the tap's seats.
    number: usize,
    participant: u32,
    /// Number of events that the member has not read, or `None` if it holds no event.
    unread: Option<u64>,
}

/// Settles what a dead member left. The caller holds the proof of the member's death. After the
/// call, the caller must notify the queues of the parties that waited for the member. Each step may
/// be repeated, because the caller may die, too.
fn unseat_member(control: &Control, stage: &Stage, member: &DeadMember) {
    let Control { positions, membership, .. } = control;
    let words = &membership.seats_of(stage)[member.number];
    twin!("dead-member-freed-first": () => words.bury(member.participant));
    let store = || {
        if let Some(unread) = member.unread {
            words.leave_unread(unread); // before the bound no longer tells the position
        }
    };
    twin!("unread-late": store() => ());
    unseat(positions, stage, member.number);
    twin!("unread-late": () => store());
    bar(positions, stage, member.number);
    words.bury(member.participant); // SYNC[seated]: last
}

/// Settles what a dead worker left on a seat of a pool. Returns whether the worker left a chunk
/// (`processes::worker::I3`). If the worker left no chunk, the seat's bound is idle afterwards.
fn settle_worker<E, L: Layout>(core: &Core<E, L>, pool: usize, number: usize, seat: &Seat) -> bool {
    let control = &core.control;
    let stage = &control.plan.stages[pool];
    let (Range { start: lo, end: hi }, _) = seat.chunk();
    let bound = control.positions.line(stage.bound_line(number)).load(Relaxed);
    let (len, done) = (hi.wrapping_sub(lo), bound_ahead(bound, lo) as u64);
    let cell = &control.membership.cells[pool][(lo & core.slots.mask()) as usize];
    let is_named =
        || ChunkCell(edge::cell_taken::see(cell)).seat(lo, core.slots.shift()) == Some(number);
    let is_named = twin!("cell-ignored": is_named() => true);
    let is_inside = bound & IDLE == 0 && len <= core.capacity() && done < len;
    let is_begun = twin!("cell-alone": done != 0 => false);
    let has_chunk = twin!("chunk-forgotten": is_inside && (is_begun || is_named) => false);
    let is_loser = bound & IDLE == 0 && !has_chunk;
    if twin!("orphan-made-idle": is_loser => bound & IDLE == 0) {
        control.release(stage.bound_line(number), IDLE, &stage.notifies);
    }
    has_chunk
}

/// Settles what one of several producers left at its death: its claim and, if it died while it left
/// as the last producer, the end of the stream.
fn settle_producer<E, L: Layout>(core: &Core<E, L>, number: u64, seat: &Seat) {
    claims::give_up(core, ProducerSeat { number, words: seat });
    // If the ring closes at the death of its last producer, a death counts as leaving.
    let closes = twin!("death-keeps-open": core.world.closes_at_death(&core.control) => false);
    if seat.is_leaving() || closes {
        closing::leave(&core.control, &core.world, seat);
    }
}

/// For a ring with a single producer, returns the first position that the producer has not
/// published. Walks from `boundary` (I1), in at most one step per slot, whatever the stamps say.
pub(crate) fn first_unpublished<E, L: Layout>(core: &Core<E, L>, boundary: u64) -> u64 {
    let mut seq = boundary;
    let limit = boundary.wrapping_add(core.capacity());
    while ahead(limit, seq) > 0 {
        match core.slots.run_at(seq) {
            Stamp::Live(len) | Stamp::Tombstone(len) if len != 0 => seq = seq.wrapping_add(len),
            _ => break,
        }
    }
    if ahead(seq, limit) > 0 { limit } else { seq }
}

/// Clears the stamps of a dead producer's unfinished publication. `first` is the first unpublished
/// position. A publication of several runs is stamped from back to front, so stamps of later runs
/// may stand where the first run has none. Stages would see these runs as published once another
/// producer publishes the positions before them.
pub(crate) fn clear_stray_stamps<E, L: Layout>(core: &Core<E, L>, first: u64) {
    for offset in 1..core.capacity() {
        let seq = first.wrapping_add(offset);
        if core.slots.run_at(seq) != Stamp::Unpublished {
            // SAFETY: slots::I1; the core is alive.
            edge::slot_published::stamp(unsafe { &*core.slots.stamp(seq) }, 0);
        }
    }
}
