//! How a [`SequentialPosition`] finds available events: by stamps or by a frontier.
//!
//! In a ring with stamps, a consumer finds available events by stamps if its stage has no
//! dependencies and is no tap. Other consumers load a frontier: their dependencies' frontier, a
//! single producer's cursor, or the sentinel. With many producers, they also load stamps, to
//! recognise tombstones. The module [`position`](crate::consumer::position) states the invariants.

use super::SequentialPosition;
use crate::base::sync::twin;
use crate::consumer::position::ConsumerPosition;
use crate::consumer::role::Role;
use crate::ring::slots::Layout;
use crate::ring::stamp::Stamp;
use crate::ring::words::ahead;
use crate::ring::world::World;

/// Largest number of times that one search of a seated handle passes over tombstones. Each time,
/// the search passes over at most a lap of tombstones.
const TOMBSTONE_ROUNDS: u32 = 64;

impl<E, L: Layout, R: Role> SequentialPosition<E, L, R> {
    /// Moves the end of the known events to `end`, for a stage that continues where another handle
    /// stopped. Every position before `end` is published.
    pub(crate) fn know_until(&mut self, end: u64) {
        if ahead(end, self.live_end) > 0 && self.reads_stamps {
            // With several producers, given-up positions have stamps, too, but hold no events.
            let all_live = !self.state.control().plan.many_producers;
            if twin!("tombstones-assumed-live": all_live => true) {
                (self.live_end, self.run_end) = (end, end);
                self.keep_within_ring();
            } else if end.wrapping_sub(self.released) > self.state.core.capacity() {
                self.role.find_damage();
            } else {
                self.limit = end;
            }
        }
    }

    /// Searches until `least` events are known or no further event is available, and lends none.
    /// Returns the number of known events.
    #[inline(always)]
    pub(crate) fn find(&mut self, least: u64) -> u64 {
        if self.known() >= least {
            return self.known();
        }
        if !self.reads_stamps {
            self.find_to_limit(least);
            return if self.keep_within_ring() { self.known() } else { 0 };
        }
        if !self.find_any() {
            return 0;
        }
        if self.known() < least { self.find_more(least) } else { self.known() }
    }

    /// Like [`SequentialPosition::find`], for a position that reads stamps and knows of an event.
    #[inline(never)]
    fn find_more(&mut self, least: u64) -> u64 {
        let (slots, mut end) = (self.state.slots, self.live_end);
        // At most a ring of events is available. The stamps of a segment may claim more, because
        // other processes write them, so the walk is bounded by the ring.
        let until = self.next.wrapping_add(least.min(self.state.core.capacity()));
        while ahead(until, end) > 0
            && let Stamp::Live(run) = slots.run_at(end)
        {
            // The walk guesses that the next runs are as long as this one. While runs stay equally
            // long, branch prediction lets the processor load the next stamp before the previous
            // one has arrived.
            end = slots.end_of_runs(end.wrapping_add(run), until, run);
        }
        self.live_end = end;
        if self.keep_within_ring() { self.known() } else { 0 }
    }

    /// Looks behind `end`, the end of the events that were found, and moves `end` over the events
    /// that it finds. Returns `true` if `len` events from `next` on are available, if the events
    /// fill the ring, or if a tombstone may follow them. Moves no position.
    pub(super) fn reaches(&self, len: u64, end: &mut u64) -> bool {
        let core = &*self.state.core;
        let most = core.capacity();
        let is_enough = |end: u64| {
            end.wrapping_sub(self.next) >= len || end.wrapping_sub(self.released) >= most
        };
        if is_enough(*end) {
            return true;
        }
        if !self.reads_stamps {
            let frontier = match self.follows_cursor {
                true => core.control.positions.cursor(),
                false => core.upstream(self.state.stage, self.limit).0,
            };
            if ahead(frontier, *end) > 0 {
                *end = frontier;
                // A search finds out how many of the positions are events.
                return core.control.plan.many_producers || is_enough(frontier);
            }
            return false;
        }
        loop {
            match self.state.slots.run_at(*end) {
                Stamp::Live(run) => *end = end.wrapping_add(run),
                Stamp::Tombstone(_) => return twin!("gathers-past-a-tombstone": true => false),
                Stamp::Unpublished => return R::STARTS_MID_RUN && ahead(self.limit, *end) > 0,
            }
            if is_enough(*end) {
                return true;
            }
        }
    }

    /// Like [`SequentialPosition::find`], but for a position that follows a frontier. Loads the
    /// frontier at most once, because an immediate second load would only slow down the threads
    /// that store the frontier.
    #[inline]
    fn find_to_limit(&mut self, least: u64) {
        let mut loaded = false;
        while self.known() < least {
            if self.live_end == self.limit && std::mem::replace(&mut loaded, true) {
                break;
            }
            if !self.extend_to_limit() {
                break;
            }
        }
    }

    /// Searches until an event is known, or until no event is available. Returns whether an event
    /// is known.
    #[inline(always)]
    pub(super) fn find_any(&mut self) -> bool {
        if self.next != self.live_end {
            return true;
        }
        if self.reads_stamps {
            let next = self.next;
            match self.state.slots.run_at(next) {
                Stamp::Live(len) => {
                    self.live_end = next.wrapping_add(len);
                    return self.keep_within_ring();
                }
                Stamp::Unpublished if !R::STARTS_MID_RUN || !self.is_midway() => return false,
                Stamp::Unpublished | Stamp::Tombstone(_) => {}
            }
        }
        self.find_any_in_rounds()
    }

    /// Like [`SequentialPosition::find_any`], for a position that knows of no event. Each round
    /// finds events, or passes over tombstones.
    #[inline(never)]
    fn find_any_in_rounds(&mut self) -> bool {
        let mut rounds = 0;
        while self.next == self.live_end {
            // Another process could stamp tombstones as fast as this one passes over them, so the
            // number of rounds is limited.
            if L::World::SHARED {
                if rounds == TOMBSTONE_ROUNDS {
                    return false;
                }
                rounds += 1;
            }
            if !self.extend() || !self.keep_within_ring() {
                return false;
            }
        }
        true
    }

    /// Loads a stamp or a frontier, then moves `live_end` or passes over a tombstone. Returns
    /// `true` if the position made progress; another call may then find more events.
    #[inline]
    fn extend(&mut self) -> bool {
        if !self.reads_stamps {
            return self.extend_to_limit();
        }
        match self.state.slots.run_at(self.live_end) {
            Stamp::Live(len) => {
                self.live_end = self.live_end.wrapping_add(len);
                true
            }
            Stamp::Unpublished => R::STARTS_MID_RUN && self.extend_midway(),
            Stamp::Tombstone(_) => self.skip_tombstones(),
        }
    }

    /// If the position reads stamps, and `live_end` lies in the middle of a run, moves `live_end`
    /// over the run's next slots. The run's first slot is then before this handle's start. Each
    /// slot of a tombstone has a stamp, so a slot without a stamp belongs to a run of events.
    #[cold]
    fn extend_midway(&mut self) -> bool {
        if !self.is_midway() {
            return false;
        }
        self.live_end = self.live_end.wrapping_add(1);
        while self.is_midway() && self.state.slots.run_at(self.live_end) == Stamp::Unpublished {
            self.live_end = self.live_end.wrapping_add(1);
        }
        true
    }

    /// Returns whether the event at `live_end` is known to be published, although its slot may have
    /// no stamp.
    #[inline]
    pub(super) fn is_midway(&self) -> bool {
        ahead(self.limit, self.live_end) > 0
    }

    /// Like [`SequentialPosition::extend`], but for a position that follows a frontier.
    #[inline]
    fn extend_to_limit(&mut self) -> bool {
        let core = &*self.state.core;
        let plan = &core.control.plan;
        if self.live_end == self.limit {
            let frontier = if self.follows_cursor {
                core.control.positions.cursor()
            } else {
                core.pass(self.state.stage, self.limit)
            };
            if ahead(frontier, self.limit) <= 0 {
                return false;
            }
            let beyond = frontier.wrapping_sub(self.released) > self.state.core.capacity();
            if L::World::SHARED && beyond {
                self.role.find_damage();
                return false;
            }
            self.limit = frontier;
        }
        if plan.many_producers {
            return self.extend_by_runs();
        }
        // A single producer's stream has no tombstones, because the producer claims given-up
        // positions again. Each position before `limit` holds an event.
        self.live_end = self.limit;
        true
    }

    /// Moves `live_end` to the end of the next run, or to `limit` if that lies inside of the run.
    fn extend_by_runs(&mut self) -> bool {
        if self.run_end == self.live_end {
            match self.state.slots.run_at(self.live_end) {
                Stamp::Live(len) => self.run_end = self.live_end.wrapping_add(len),
                Stamp::Tombstone(_) => return self.skip_tombstones(),
                // A tap's member can start in the middle of a run, and a producer may already have
                // overwritten the stamp at the run's first slot. Each slot of a tombstone has a
                // stamp, so a slot without one belongs to a run of events.
                Stamp::Unpublished if R::STARTS_MID_RUN => {
                    let mut end = self.live_end.wrapping_add(1);
                    while end != self.limit && self.state.slots.run_at(end) == Stamp::Unpublished {
                        end = end.wrapping_add(1);
                    }
                    self.run_end = end;
                }
                // A handle of a segment never takes this branch, whatever other processes write:
                // every such handle may start in the middle of a run, and so takes the branch
                // above.
                Stamp::Unpublished => {
                    unreachable!("a dependency released a position that is not published")
                }
            }
        }
        let (by_run, by_limit) =
            (ahead(self.run_end, self.live_end), ahead(self.limit, self.live_end));
        self.live_end = self.live_end.wrapping_add(by_run.min(by_limit) as u64);
        true
    }

    /// Passes over the tombstones at `next`. If unhandled events precede them, returns `false` and
    /// passes over nothing.
    #[cold]
    fn skip_tombstones(&mut self) -> bool {
        if self.next != self.live_end {
            return false;
        }
        let holds = self.released != self.next;
        let (tombstones, end) = self.held_tombstones;
        let start = if holds && end == self.next { tombstones } else { self.next };
        // Stages and members of taps can stop inside of a tombstone, so the frontier `limit` can
        // lie inside of one. The loop stops there, and a later call can continue, because each slot
        // of a tombstone has a stamp.
        let begin = self.next;
        while self.reads_stamps || self.next != self.limit {
            // A lap has at most as many tombstones as slots. A longer walk means that another
            // process keeps stamping more.
            if L::World::SHARED && self.next.wrapping_sub(begin) > self.state.core.capacity() {
                break;
            }
            let Stamp::Tombstone(run) = self.state.slots.run_at(self.next) else { break };
            let len = if self.reads_stamps {
                run
            } else {
                twin!("past-the-limit": run.min(self.limit.wrapping_sub(self.next)) => run)
            };
            self.next = self.next.wrapping_add(len);
            self.passed_over += len;
            self.state.count_tombstones(if self.role.counts_tombstones() { len } else { 0 });
        }
        self.live_end = self.next;
        self.run_end = self.next;
        // A release covers all earlier positions, so tombstones after held events stay unreleased
        // until the held events are released.
        if holds {
            self.held_tombstones = (start, self.next);
        } else {
            self.release();
        }
        true
    }

    /// Keeps the known events of a seated stage within the ring, even if another process has
    /// damaged the words by which the stage finds events. Returns `false` if these words claim more
    /// events than the ring has slots.
    #[inline(always)]
    fn keep_within_ring(&mut self) -> bool {
        if L::World::SHARED {
            let known = self.live_end.wrapping_sub(self.released);
            if known > self.state.core.capacity() {
                self.role.find_damage();
                (self.live_end, self.run_end, self.limit) = (self.next, self.next, self.next);
                return false;
            }
        }
        true
    }
}
