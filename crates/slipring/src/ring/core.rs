//! The ring itself: the slots and the control, shared by all handles.
//!
//! Invariants
//! - I1: the slots are allocated and filled before the first handle exists, and freed after the
//!   last one is gone (the handles hold an `Owner`).
//! - I2: after the build, publishing, polling and releasing allocate nothing, except for the
//!   promises of requests, and for the records of skipped events in a ring with requests.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::edge;
#[cfg(slipring_loom)]
use crate::base::guarded::Guarded;
use crate::base::maybe_mapped::Mapping;
use crate::base::panics::{drop_contained, panic_message};
use crate::base::sync::{Relaxed, Statistic, longest_run, twin};
use crate::errors::{Cause, Report};
use crate::ring::control::Control;
use crate::ring::memory::Pages;
use crate::ring::owner_count::OwnerCount;
use crate::ring::partition::ShardIds;
#[cfg(doc)]
use crate::ring::positions::Positions;
use crate::ring::slots::{Layout, Storage, View};
use crate::ring::snapshot;
use crate::ring::stamp::{self, Lap, MAX_RUN, Stamp};
use crate::ring::words::{PoolWord, ahead};
use crate::ring::world::Watched;

/// The slots of a ring, and all other data that the ring's handles share.
pub(crate) struct Core<E, L: Layout> {
    pub(crate) control: Control,
    pub(crate) slots: View<E, L>,
    pub(crate) world: L::World,
    /// Shard ids of the slots, by index of the stage; `None` for a stage without shards.
    pub(crate) shard_ids: Box<[Option<ShardIds<E>>]>,
    /// Number of references that own the events.
    pub(crate) owners: OwnerCount,
    /// 1 while the slots hold events that the last owner must drop, else 0.
    filled: Statistic,
    /// Pages of the slots, if they lie on the heap.
    pages: Pages,
    /// The mapping in which the slots lie; `None` if they lie on the heap, where the core frees
    /// them.
    mapping: Option<Mapping>,
    #[cfg(slipring_loom)]
    cells: WatchedEvents,
}

/// Stand-in for an event in a model. The model checker fails if two accesses to one event race.
#[cfg(slipring_loom)]
pub(crate) struct WatchedEvent(Guarded<()>);

// SAFETY: the stand-in holds no value, so threads cannot race on one. The model checker sees all
// accesses to it and reports their races.
#[cfg(slipring_loom)]
unsafe impl Sync for WatchedEvent {}

/// The stand-ins for the events of a ring. In a model of several processes, all processes share
/// them.
#[cfg(slipring_loom)]
pub(crate) type WatchedEvents = crate::base::sync::Arc<[WatchedEvent]>;

/// Makes the stand-ins for the events of a ring.
#[cfg(slipring_loom)]
pub(crate) fn watched_events(capacity: usize) -> WatchedEvents {
    (0..capacity).map(|_| WatchedEvent(Guarded::new(()))).collect()
}

impl<E, L: Layout> Core<E, L> {
    /// Makes a [`Core`] from slots that are allocated and not filled yet. Its drop frees them.
    ///
    /// # Safety
    /// The slots belong to no other [`Core`], were allocated on these `pages`, and the caller does
    /// not free them.
    pub(crate) unsafe fn new(
        control: Control,
        (slots, pages): (View<E, L>, Pages),
        shard_ids: Box<[Option<ShardIds<E>>]>,
        world: L::World,
    ) -> Self {
        Core {
            #[cfg(slipring_loom)]
            cells: watched_events(control.plan.capacity),
            shard_ids,
            control,
            slots,
            world,
            owners: OwnerCount::one(),
            filled: Statistic::new(0),
            pages,
            mapping: None,
        }
    }

    /// Makes a [`Core`] from slots of a segment, which `mapping` keeps mapped.
    ///
    /// # Safety
    /// The slots are valid while `mapping` lives. Their events are plain data.
    pub(crate) unsafe fn over(
        control: Control,
        slots: View<E, L>,
        shard_ids: Box<[Option<ShardIds<E>>]>,
        world: L::World,
        mapping: Mapping,
    ) -> Self {
        // SAFETY: the core of a mapping frees no slots.
        let mut core = unsafe { Core::new(control, (slots, Pages::default()), shard_ids, world) };
        core.mapping = Some(mapping);
        core
    }

    /// Makes the model checker watch `cells` in place of the events. In a model of several
    /// processes, all processes share the cells.
    #[cfg(slipring_loom)]
    pub(crate) fn watch(&mut self, cells: WatchedEvents) {
        self.cells = cells;
    }

    /// Fills the slots with events. If the factory panics, the error has the index of the event and
    /// the panic's message.
    ///
    /// # Safety
    /// Called once, before any handle exists.
    pub(crate) unsafe fn fill(
        &self,
        factory: &mut dyn FnMut() -> E,
    ) -> Result<(), (usize, String)> {
        // SAFETY: the caller's promise.
        unsafe { self.slots.fill(self.control.start, factory) }
            .map_err(|(index, panic)| (index, panic_message(panic)))?;
        self.filled.store(1, Relaxed);
        Ok(())
    }

    /// Drops the events, and the user's error if such an error ended the graph. Returns the first
    /// panic of an event's drop.
    ///
    /// # Safety
    /// No handle of the ring is left, and no handle can be made any more.
    pub(crate) unsafe fn drop_events(&self) -> Option<Box<dyn std::any::Any + Send>> {
        drop_contained(self.control.status.take_failure());
        if self.filled.swap(0, Relaxed) == 0 {
            return None;
        }
        // SAFETY: `filled` was 1, so the events exist. The caller promises that no reference to
        // them is left.
        unsafe { self.slots.drop_events(self.slots.mask() + 1) }
    }

    /// Returns the view of the ring through which its world checks for dead processes. `is_damaged`
    /// returns whether the words at which the caller waits contradict each other.
    pub(crate) fn watched<'a>(&'a self, is_damaged: &'a dyn Fn() -> bool) -> Watched<'a> {
        Watched { control: &self.control, ring: self, is_damaged }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.slots.mask() + 1
    }

    // Publishing.

    /// Publishes the events at `[seq, seq + len)`, which the caller has claimed and written. After
    /// the call, the caller must notify the queues in `Plan::producer_notifies`. To refresh stamps
    /// (stamp::I1), producers call [`Core::stamp_runs`] instead.
    #[inline(always)]
    pub(crate) fn publish(&self, seq: u64, len: u64) {
        self.publish_in(&self.slots, self.slots.lap(seq), seq, len);
    }

    /// Like [`Core::publish`], for a caller that has a view of the slots, and the lap of `seq`.
    #[inline(always)]
    pub(crate) fn publish_in(&self, slots: &View<E, L>, lap: Lap, seq: u64, len: u64) {
        if len == 1 || len.wrapping_sub(1) < longest_run(MAX_RUN) && !self.control.plan.stamps_each
        {
            self.stamp(slots, seq, lap.live(len));
        } else {
            self.stamp_runs(seq, len);
        }
    }

    /// Gives the slots `[seq, seq + len)` up: all stages pass over them.
    ///
    /// Every given-up slot is stamped with the tombstone's remaining length, because a tap's member
    /// may join at any given-up position.
    #[cold]
    pub(crate) fn bury(&self, seq: u64, len: u64) {
        let most = longest_run(MAX_RUN);
        // The slots are stamped from back to front, as in every publication.
        for offset in (0..len).rev() {
            let offset = twin!("buried-head-first": offset => len - 1 - offset);
            let at = seq.wrapping_add(offset);
            self.stamp(
                &self.slots,
                at,
                stamp::tombstone(at, self.slots.shift(), (len - offset).min(most)),
            );
        }
        self.control.waits.notify(&self.control.plan.producer_notifies);
    }

    /// Returns whether the publication of a claim in `[from, to)`, or of an open (not yet
    /// published) claim in the lap before `from`, may have to refresh stamps (stamp::I1). The range
    /// is at most a lap long.
    pub(crate) fn may_refresh(&self, from: u64, to: u64) -> bool {
        // Positions before the ring's start are never claimed, so none of them is checked. If a
        // ring starts at position 0, `stamp::refreshes` is true for the lap before that position.
        let open = self.capacity().min(from.wrapping_sub(self.control.start));
        self.control.plan.stamped
            && [from.wrapping_sub(open), from, to]
                .iter()
                .any(|&seq| stamp::refreshes(seq, self.slots.shift()))
    }

    /// Like [`Core::publish`], but divides the positions into runs. Stamps each slot where
    /// stamp::I1 requires a refresh, and if the plan says so ([`Plan::stamps_each`]). The runs are
    /// stamped from back to front, so a reader that sees the first run sees all runs of the
    /// publication.
    #[inline(never)]
    pub(crate) fn stamp_runs(&self, seq: u64, len: u64) {
        let (shift, most) = (self.slots.shift(), longest_run(MAX_RUN));
        let each = twin!("run-unstamped": self.control.plan.stamps_each => false);
        let step = if each || stamp::refreshes(seq, shift) { 1 } else { most };
        let heads = len.div_ceil(step);
        for head in (0..heads).rev() {
            let offset = twin!("first-run-first": head => heads - 1 - head) * step;
            let at = seq.wrapping_add(offset);
            self.stamp(&self.slots, at, stamp::live(at, shift, (len - offset).min(most)));
        }
    }

    #[inline(always)]
    fn stamp(&self, slots: &View<E, L>, seq: u64, word: u64) {
        // SAFETY: slots::I1; the core is alive.
        let slot = unsafe { &*slots.stamp(seq) };
        #[cfg(slipring_loom)]
        if self.control.plan.seated_claims {
            return edge::slot_published::stamp_recorded(slot, word);
        }
        edge::slot_published::stamp(slot, word);
    }

    /// Notifies the queues of the stages that wait for the publication of the `len` positions from
    /// `seq` on. Called by producers after the publication, if `QuietCheck::is_quiet` returned
    /// `false`. `taken` holds what the producer has last read of a pool's claim word.
    #[inline(never)]
    pub(crate) fn notify_publication(&self, seq: u64, len: u64, taken: &mut Taken) {
        let (plan, taken) = (&self.control.plan, Cell::from_mut(taken));
        self.control.waits.notify_publication(&plan.producer_notifies, |queue| {
            let untaken = plan.pools[queue].map_or(len, |pool| self.untaken(pool, seq, len, taken));
            usize::try_from(untaken).unwrap_or(usize::MAX)
        });
    }

    /// Returns how many sleeping workers of a pool the publication of the `len` positions from
    /// `seq` on needs (queue::I6). The positions before the claim word are taken, and a worker that
    /// waits with a ticket polls soon.
    fn untaken(&self, pool: usize, seq: u64, len: u64, taken: &Cell<Taken>) -> u64 {
        let Control { plan, membership, positions, .. } = &self.control;
        let left = membership.has_orphans(pool);
        if !plan.draws_tickets(pool) || twin!("left-tickets-unasked": left => false) {
            return len;
        }
        let end = seq.wrapping_add(len);
        let known = taken.get();
        if plan.many_producers || known.pool != pool || ahead(end, known.before) > 0 {
            // The claim word is only a position here, and publishes nothing.
            let word = PoolWord(positions.line(plan.stages[pool].line).load(Relaxed));
            taken.set(Taken { pool, before: word.seq(seq) });
        }
        let before = taken.get().before;
        match u64::try_from(ahead(end, before)) {
            Ok(untaken @ 1..) => untaken.min(len),
            // Other producers may have published the next positions before this one. Their
            // notifications woke workers that could not take them yet.
            _ if plan.many_producers => {
                let follows = self.slots.run_at(before) != Stamp::Unpublished;
                u64::from(twin!("following-event-unasked": follows => false))
            }
            _ => 0,
        }
    }

    // Gating.

    /// Returns the gate, and the index of the party that holds it back. The gate is the position
    /// before which all gating stages have released every event; it is at least `lower_bound`.
    #[inline]
    pub(crate) fn gate(&self, lower_bound: u64) -> (u64, usize) {
        let control = &self.control;
        if control.plan.sentinel {
            self.advance_sentinel();
        }
        match &control.plan.gating[..] {
            [] if !control.plan.stamped => {
                (control.positions.cursor(), control.plan.producer_party())
            }
            [] => {
                let sentinel = twin!("no-sentinel": self.advance_sentinel() => lower_bound.wrapping_add(self.capacity()));
                (sentinel, control.plan.producer_party())
            }
            [one] => {
                (control.positions.least_frontier(&control.plan, &[*one], lower_bound).0, *one)
            }
            gating => control.positions.least_frontier(
                &control.plan,
                twin!("gated-by-one": gating => &gating[..1]),
                lower_bound,
            ),
        }
    }

    /// Returns whether the last stages have not released the event a lap before `end`, so that no
    /// event can come at `end` yet. All events before `end` are published, and the caller has seen
    /// them, so it also sees the releases that made room for them.
    #[cold]
    pub(crate) fn is_full_at(&self, end: u64) -> bool {
        let lap_before = end.wrapping_sub(self.capacity());
        ahead(self.gate(lap_before).0, lap_before) <= 0
    }

    /// Like [`Positions::upstream`], but first moves the sentinel, if the graph has one.
    #[inline]
    pub(crate) fn upstream(&self, stage: usize, lower_bound: u64) -> (u64, usize) {
        if self.control.plan.sentinel {
            self.advance_sentinel();
        }
        self.control.positions.upstream(&self.control.plan, stage, lower_bound)
    }

    /// Returns the position up to which `stage` may go from now on, even if members join the taps
    /// that it follows. The position is at least `lower_bound`.
    #[inline]
    pub(crate) fn pass(&self, stage: usize, lower_bound: u64) -> u64 {
        let plan = &self.control.plan;
        let (to, _) = self.upstream(stage, lower_bound);
        self.control.positions.secure(plan, &plan.stages[stage].guard, to, lower_bound)
    }

    /// Like [`Core::gate`], but returns a gate that stays valid even if members join taps later.
    /// Producers may exceed the returned gate by at most the capacity.
    #[inline]
    pub(crate) fn pass_gate(&self, lower_bound: u64) -> (u64, usize) {
        let plan = &self.control.plan;
        let (to, slowest) = self.gate(lower_bound);
        (self.control.positions.secure(plan, &plan.guard, to, lower_bound), slowest)
    }

    /// Moves the sentinel over all published events, and returns its new position.
    ///
    /// If no stage gates the producers, the sentinel gates them: a producer claims a slot again
    /// only after the sentinel has passed the slot's last publication. Without a sentinel, two
    /// producers that are a lap apart could write the same slot at once.
    ///
    /// One call takes at most two steps per slot, so that no other process of a segment can make
    /// the call last for ever. If the call stops for that reason, published events may follow the
    /// sentinel, and a later call passes them.
    pub(crate) fn advance_sentinel(&self) -> u64 {
        let sentinel = self.control.positions.sentinel();
        let mut seq = edge::sentinel::see(sentinel);
        for _ in 0..=self.capacity() * 2 {
            let len = match self.slots.run_at(seq) {
                Stamp::Live(len) | Stamp::Tombstone(len) => len,
                Stamp::Unpublished => return seq,
            };
            match edge::sentinel::advance(sentinel, seq, seq.wrapping_add(len)) {
                Ok(_) => seq = seq.wrapping_add(len),
                Err(moved) => seq = moved,
            }
        }
        seq
    }

    /// Returns whether the shared words show that the position `seq` is claimed, so that the stream
    /// does not end before it. A call costs a few loads, and in the worst case two loads per slot
    /// of the ring. No fast path calls this method.
    #[cold]
    pub(crate) fn is_claimed(&self, seq: u64) -> bool {
        let control = &self.control;
        if control.plan.many_producers {
            return ahead(control.claimed(seq).0, seq) > 0;
        }
        // A producer that stamps stores its cursor after its stamps, so the cursor decides only in
        // a ring without stamps.
        if !control.plan.stamped {
            return ahead(control.positions.cursor(), seq) > 0;
        }
        // The loop goes back from `seq` to the head of a run. If the run contains `seq`, then `seq`
        // is claimed. If a slot on the way already holds an event of the next lap, `seq` is
        // claimed, too: that event comes after `seq`, and a single producer claims positions in
        // order.
        for back in 0..=seq.wrapping_sub(control.start).min(self.slots.mask()) {
            let at = seq.wrapping_sub(back);
            match self.slots.run_at(at) {
                Stamp::Live(len) | Stamp::Tombstone(len) => return len > back,
                Stamp::Unpublished
                    if self.slots.run_at(at.wrapping_add(self.capacity()))
                        != Stamp::Unpublished =>
                {
                    return true;
                }
                Stamp::Unpublished => {}
            }
        }
        false
    }

    // Shards.

    /// Computes the shard ids of the events at `[first, first + len)` for the sharded stages in
    /// `stages`. The caller is `party`, which has made its last change to these events, and no
    /// other party accesses them during the call. A panic of a key function ends the graph
    /// (shard::I3).
    #[cold]
    #[inline(never)]
    pub(crate) fn partition(&self, stages: &[usize], party: usize, first: u64, len: u64) {
        for ids in stages.iter().filter_map(|&stage| self.shard_ids[stage].as_ref()) {
            let done = Cell::new(0);
            let partitioned = catch_unwind(AssertUnwindSafe(|| {
                while done.get() < len {
                    let seq = first.wrapping_add(done.get());
                    // SAFETY: the caller has these events to itself. If the ring lies in a segment,
                    // its maker has promised that each stage's key lies inside the event or block.
                    unsafe { ids.assign(seq, self.slots.event(seq)) };
                    done.set(done.get() + 1);
                }
            }));
            if let Err(panic) = partitioned {
                let at = first.wrapping_add(done.get());
                self.control.fail(party, Some(at), Cause::Panic(panic_message(panic)));
                (done.get()..len).for_each(|offset| ids.assign_none(first.wrapping_add(offset)));
            }
        }
    }

    /// Tells the model checker, or the simulator of cache coherence, that the events of
    /// `[seq, seq + len)` are read or written.
    #[inline(always)]
    #[cfg_attr(not(any(slipring_loom, slipring_coherence)), allow(unused_variables))]
    pub(crate) fn touch(&self, seq: u64, len: u64, write: bool) {
        #[cfg(slipring_coherence)]
        for offset in 0..len {
            let event = self.slots.event(seq.wrapping_add(offset)).cast_const().cast();
            if write {
                slipring_coherence::write(event, size_of::<E>());
            } else {
                slipring_coherence::read(event, size_of::<E>());
            }
        }
        #[cfg(slipring_loom)]
        for offset in 0..len {
            let WatchedEvent(event) =
                &self.cells[(seq.wrapping_add(offset) & self.slots.mask()) as usize];
            if write {
                event.exclusive();
            } else {
                event.touch();
            }
        }
    }

    /// Writes to the line of the first stage's frontier, as a store to a neighbouring word would.
    #[cfg(slipring_coherence)]
    pub(crate) fn touch_frontier(&self) {
        let frontier = self.control.positions.line(self.control.plan.stages[0].line);
        slipring_coherence::write(std::ptr::from_ref(frontier).cast(), size_of::<u64>());
    }

    // Reports.

    /// Returns the positions and counts of all parties, loaded one after the other.
    pub(crate) fn report(&self) -> Report {
        if self.control.plan.sentinel {
            self.advance_sentinel();
        }
        snapshot::report(&self.control)
    }

    /// Returns the number of claimed positions from `seq` on, including given-up positions. All
    /// events before `seq` are published. A call costs as much as several calls of
    /// [`Core::is_claimed`].
    #[cold]
    pub(crate) fn claimed_after(&self, seq: u64) -> u64 {
        let (mut claimed, mut free) = (0, self.capacity() + 1);
        while claimed + 1 < free {
            let middle = claimed.midpoint(free);
            let is_claimed = self.is_claimed(seq.wrapping_add(middle - 1));
            *(if is_claimed { &mut claimed } else { &mut free }) = middle;
        }
        claimed
    }

    /// Returns how many events `stage` is behind `seq`.
    pub(crate) fn lag(&self, stage: usize, seq: u64) -> u64 {
        let lower_bound = seq.wrapping_sub(self.capacity());
        let frontier = match self.control.plan.stages.get(stage) {
            Some(_) => self.control.positions.frontier(&self.control.plan, stage, lower_bound),
            None if self.control.plan.cursor => self.control.positions.cursor(),
            None => self.control.positions.sentinel().load(Relaxed),
        };
        ahead(seq, frontier).max(0) as u64
    }
}

impl<E, L: Layout> fmt::Display for Core<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.control.plan;
        let producers = if plan.many_producers { "many producers" } else { "one producer" };
        writeln!(
            f,
            "ring of {} slots, {} bytes each ({} of them the event; {}), {producers}, {}",
            plan.capacity,
            L::Storage::<E>::bytes_per_slot(plan.stamped),
            size_of::<E>(),
            L::ALIAS,
            *plan.wait
        )?;
        plan.fmt(f)
    }
}

impl<E, L: Layout> Drop for Core<E, L> {
    fn drop(&mut self) {
        // The last owner has dropped the events, or the build of the ring failed before all events
        // were made (I1).
        debug_assert_eq!(self.filled.load(Relaxed), 0);
        if self.mapping.is_none() {
            // SAFETY: I1: no handle, so no view, is left.
            unsafe { self.slots.0.free(self.pages) };
        }
        // An observer may have failed the graph after the graph's handles were dropped, so a
        // failure may still be stored.
        drop_contained(self.control.status.take_failure());
    }
}

/// A position that a pool's claim word has reached. A producer keeps it, because it need not load
/// the word again before it publishes a position behind it.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pool: usize,
    /// The workers have taken all positions before this one.
    before: u64,
}

impl Taken {
    /// Returns what a new producer knows, whose publications all end after `start`.
    pub(crate) fn at(start: u64) -> Taken {
        Taken { pool: 0, before: start }
    }
}
