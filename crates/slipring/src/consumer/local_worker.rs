//! Workers of a pool whose ring belongs to one process. They take a chunk by one compare-and-swap
//! of the pool's claim word, and a ticket by an addition.
//!
//! The module [`worker`](crate::consumer::worker) states the invariants.

use std::cell::Cell;

use crate::base::edge::{self, announced};
use crate::base::prefetch;
use crate::base::sync::{panicking, twin};
use crate::consumer::position::{Availability as _, ConsumerPosition as _};
use crate::consumer::waiting::{Counting as _, Waiting as _};
use crate::consumer::worker::{Offer, WorkerPosition, WorkerRole};
use crate::errors::{Cause, WaitError};
use crate::ring::helper;
use crate::ring::membership::Orphan;
use crate::ring::owner::Owner;
use crate::ring::self_wait;
use crate::ring::slots::Layout;
use crate::ring::spec::TICKETS_AHEAD;
use crate::ring::stamp::Stamp;
use crate::ring::waits::Place;
use crate::ring::words::{IDLE, PoolWord};
use crate::wait::{BackOff, HandleLearner};

/// The role of a worker of a ring of one process. Dropping the last worker before the stream's end
/// fails the graph.
#[derive(Default)]
pub struct LocalWorker {
    /// Whether the current chunk is a ticket, whose event was not published when this worker looked
    /// last (`worker::I6`).
    ticket: bool,
    /// Whether the last chunk was a ticket, so that the next chunk probably is one, too.
    drew: bool,
    /// The worker's new seat, if it has left its ticket in the current wait (`worker::I6`).
    new_seat: Cell<Option<usize>>,
    /// Whether the worker slept before its last chunk, so that it probably sleeps in the next wait,
    /// too.
    slept: bool,
}

/// The position of a worker of a ring of one process.
pub(crate) type LocalWorkerPosition<E, L> = WorkerPosition<E, L, LocalWorker>;

impl<E, L: Layout> LocalWorkerPosition<E, L> {
    /// Creates a worker that is declared with the graph, at the ring's first position.
    pub(crate) fn new(
        core: Owner<E, L>,
        stage: usize,
        worker: usize,
        learned: HandleLearner,
    ) -> Self {
        let place = Place { party: stage, at: core.control.start };
        Self::begin(core, place, worker, LocalWorker::default(), learned)
    }

    /// Creates a worker that joins a running pool. The caller has taken its seat (membership::I1).
    pub(crate) fn join(
        core: Owner<E, L>,
        stage: usize,
        worker: usize,
        learned: HandleLearner,
    ) -> Self {
        let landmark = core.control.positions.landmark(&core.control.plan.stages[stage]);
        let place = Place { party: stage, at: landmark };
        Self::begin(core, place, worker, LocalWorker::default(), learned)
    }

    /// Takes a chunk, as [`WorkerRole::take`] does. If no event is available and `draws` is `true`,
    /// the worker draws a ticket instead, and the call returns `false`.
    fn take_chunk(&mut self, draws: bool) -> bool {
        debug_assert!(self.role.ticket || self.next == self.chunk_end && self.bound == IDLE);
        self.contended = false;
        if let Some(orphan) = self.adopt(draws) {
            self.take_over(orphan);
        }
        if self.next != self.chunk_end {
            match self.look_at_chunk() {
                Stamp::Live(_) => return true,
                Stamp::Unpublished => return false,
                Stamp::Tombstone(_) => {}
            }
        }
        if std::mem::take(&mut self.role.drew) {
            // The swap would have to fetch the claim word's line a second time after the load.
            prefetch::for_store(self.state.control().positions.line(self.claim_line));
        }
        let mut races = BackOff::default();
        loop {
            let claim = self.state.control().positions.line(self.claim_line);
            let word = PoolWord(edge::chunk_taken::see(claim));
            self.last_seen = word.seq(self.known());
            let (len, left, taking) = match self.offer(self.last_seen, word.left()) {
                Offer::Nothing if draws && self.may_go_ahead() => (1, 0, Taking::Ticket),
                Offer::Nothing => {
                    self.bind(IDLE);
                    self.pace.pause();
                    return false;
                }
                Offer::Chunk(len, left) => (len, left, Taking::Chunk),
                Offer::Tombstone(len) => (len, 0, Taking::Tombstone),
            };
            let end = self.last_seen.wrapping_add(len);
            // If this worker has lost a race for a chunk, its old bound has held up the later
            // stages until now.
            let held_up = self.bound != IDLE;
            self.bound = self.last_seen << 1;
            let control = self.state.control();
            let own = control.positions.line(self.own_line);
            // I2: the worker stores its bound before the compare-and-swap of the claim word.
            twin!("bound-after-swap": edge::released::bind(own, self.bound) => ());
            if held_up && twin!("lagging-bound-unnotified": true => false) {
                match taking {
                    Taking::Ticket => self.notify_of_bound(),
                    // The worker's next release notifies its own pool.
                    _ => control.waits.notify(self.state.plan().notifies_behind()),
                }
            }
            if matches!(taking, Taking::Ticket) && !self.state.plan().leaves_tickets() {
                self.draw_ticket();
                return false;
            }
            // A ticket moves the word by an addition, which would leave the length of a run as it
            // is (I6).
            let left = if twin!("run-left": control.plan.stamps_each => false) { 0 } else { left };
            let taken = PoolWord::new(end, left).0;
            let claim = control.positions.line(self.claim_line);
            if edge::chunk_taken::take(claim, word.0, taken).is_err() {
                self.lost_race(&mut races);
                continue;
            }
            let first = self.last_seen;
            self.pass_landmark(&(first..end));
            self.last_seen = end;
            match taking {
                Taking::Chunk => {
                    twin!("bound-after-swap": () => edge::released::bind(own, self.bound));
                    (self.next, self.chunk_end) = (first, end);
                    self.pace.begin(len);
                    return true;
                }
                Taking::Ticket => {
                    self.hold_ticket(first);
                    return false;
                }
                Taking::Tombstone => self.pass_tombstone(end, len),
            }
        }
    }

    /// Takes the claim word's position as a ticket (I6), by an addition: it never fails, however
    /// many workers draw at once. They may have moved the word since this worker loaded it, so the
    /// bound that the worker has stored may be earlier than its ticket (I2). Workers that can sleep
    /// draw by a compare-and-swap, because only a few of their tickets may be outstanding.
    fn draw_ticket(&mut self) {
        let control = self.state.control();
        let claim = control.positions.line(self.claim_line);
        let word = PoolWord(edge::chunk_taken::draw(claim, PoolWord::new(1, 0).0));
        let own = control.positions.line(self.own_line);
        twin!("bound-after-swap": () => edge::released::bind(own, self.bound));
        let seq = word.seq(self.last_seen);
        if seq != self.last_seen {
            self.bound = seq << 1;
            edge::released::bind(own, self.bound);
            // The earlier bound has held up the later stages.
            twin!("early-bound-unnotified": self.notify_of_bound() => ());
        }
        self.last_seen = seq.wrapping_add(1);
        self.pass_landmark(&(seq..self.last_seen));
        self.hold_ticket(seq);
    }

    /// Begins to wait with the ticket `seq`, which this worker has taken.
    fn hold_ticket(&mut self, seq: u64) {
        (self.next, self.chunk_end) = (seq, seq.wrapping_add(1));
        self.pace.pause();
        self.role.ticket = true;
    }

    /// Notifies the stages that this worker's last bound has held up, and the pool's idle workers:
    /// they wait for the whole pool's end, and no release of a ticket follows at the end.
    #[cold]
    fn notify_of_bound(&self) {
        let (control, pool) = (self.state.control(), self.state.plan());
        let notify = || match pool.wakes_one {
            true => control.waits.notify_released(pool, &control.status),
            false => control.waits.notify(&pool.notifies),
        };
        twin!("own-pool-unnotified": notify() => control.waits.notify(pool.notifies_behind()));
    }

    /// Passes over `len` positions before `end` that were given up, and becomes idle.
    fn pass_tombstone(&mut self, end: u64, len: u64) {
        (self.next, self.chunk_end) = (end, end);
        self.state.count_tombstones(len);
        twin!("passed-unreleased": self.bind(IDLE) => self.bound = IDLE);
    }

    // Tickets and orphans.

    /// Returns whether the pool's idle workers draw tickets (I6).
    fn draws_tickets(&self) -> bool {
        self.state.control().plan.draws_tickets(self.state.stage)
    }

    /// Returns whether a chunk that begins at `seq` can be handled or passed over. If the pool
    /// draws no tickets, each chunk can.
    fn is_published(&self, seq: u64) -> bool {
        !self.draws_tickets() || self.state.slots.run_at(seq) != Stamp::Unpublished
    }

    /// Looks at a ticket, or at a chunk that was taken over. If its event is live, the worker can
    /// handle the chunk; if it was given up, the worker passes over it.
    fn look_at_chunk(&mut self) -> Stamp {
        let stamp = match self.draws_tickets() {
            true => self.state.slots.run_at(self.next),
            false => Stamp::Live(1),
        };
        let stamp = twin!("given-up-ticket-kept": stamp => match stamp {
            Stamp::Tombstone(_) => Stamp::Unpublished,
            other => other,
        });
        let was_ticket = std::mem::replace(&mut self.role.ticket, stamp == Stamp::Unpublished);
        match stamp {
            Stamp::Live(_) if was_ticket => {
                self.role.drew = true;
                self.pace.begin(self.chunk_end.wrapping_sub(self.next));
            }
            Stamp::Live(_) | Stamp::Unpublished => {}
            // Only a ticket can begin with a tombstone (I4).
            Stamp::Tombstone(_) => self.pass_tombstone(self.chunk_end, 1),
        }
        stamp
    }

    /// Adopts an orphan whose event is published or given up, or, if `any` is `true`, any orphan.
    #[inline(always)]
    fn adopt(&self, any: bool) -> Option<Orphan> {
        let (control, stage) = (self.state.control(), self.state.stage);
        if !control.membership.has_orphans(stage) {
            return None;
        }
        let accepts = |seq| any || twin!("unpublished-adopted": self.is_published(seq) => true);
        let orphan = control.membership.adopt(&control.plan, stage, accepts)?;
        // Since `accepts` looked, another worker may have left another orphan on that seat.
        if accepts(orphan.rest.start) {
            return Some(orphan);
        }
        control.orphan(stage, orphan);
        None
    }

    /// Continues with an orphan, on the orphan's seat. The worker leaves its own seat, and the
    /// ticket that it holds there.
    #[cold]
    fn take_over(&mut self, Orphan { seat, rest }: Orphan) {
        let (control, plan) = (self.state.control(), self.state.plan());
        let line = plan.bound_line(seat);
        self_wait::moved(control, self.own_line, line);
        if self.role.ticket {
            let rest = self.next..self.chunk_end;
            twin!("ticket-unorphaned": control.orphan(self.state.stage, Orphan { seat: self.worker, rest }) => ());
        } else {
            control.membership.free_seat(plan, self.worker);
        }
        (self.worker, self.own_line, self.bound_line) = (seat, line, line);
        self.bound = rest.start << 1;
        (self.next, self.chunk_end) = (rest.start, rest.end);
        self.role.ticket = false;
        self.pace.give_up();
    }

    /// Returns whether the position that this worker has last seen in the claim word may become a
    /// ticket: if the pool's workers can sleep, only a few tickets are outstanding at a time.
    fn may_go_ahead(&self) -> bool {
        let start = self.state.control().start;
        let ahead = TICKETS_AHEAD.min(self.state.core.capacity());
        !self.state.plan().leaves_tickets()
            || self.last_seen.wrapping_sub(start) < ahead
            || self.state.slots.run_at(self.last_seen.wrapping_sub(ahead)) != Stamp::Unpublished
    }

    /// Takes another seat, and leaves the ticket that the worker holds to the other workers (I6).
    /// Returns `false` if the pool has no room for another left ticket. The worker moves to its new
    /// seat when its wait ends ([`LocalWorkerPosition::settle`]).
    #[cold]
    fn leave_ticket(&self) -> bool {
        let (control, pool) = (self.state.control(), self.state.plan());
        let orphan = Orphan { seat: self.worker, rest: self.next..self.chunk_end };
        let new_seat = control.membership.leave_ticket(self.state.stage, pool, orphan);
        self.role.new_seat.set(new_seat);
        if new_seat.is_none() {
            return false;
        }
        announced::fence_sleeper(); // The count of orphans comes before the look at the slot (I6).
        if self.state.slots.run_at(self.next) != Stamp::Unpublished {
            // The event's publication may have found no orphan, and no poll may follow.
            twin!("left-ticket-unnotified": control.waits.wake_all(pool) => ());
        }
        true
    }

    /// Moves to the seat that the worker has taken in place of its ticket's seat.
    fn settle(&mut self) {
        if let Some(seat) = self.role.new_seat.take() {
            let line = self.state.plan().bound_line(seat);
            self_wait::moved(self.state.control(), self.own_line, line);
            (self.worker, self.own_line, self.bound_line) = (seat, line, line);
            (self.bound, self.next, self.role.ticket) = (IDLE, self.chunk_end, false);
        }
    }

    /// Returns whether this worker may draw a ticket (I6).
    fn may_draw(&mut self) -> bool {
        let slept = std::mem::take(&mut self.role.slept) || self.state.has_slept;
        let control = self.state.control();
        self.draws_tickets()
            && !(slept && self.state.plan().leaves_tickets())
            && self.next == self.chunk_end
            && self.bound == IDLE
            && !control.status.is_over()
            && !control.is_oversubscribed()
            && !self_wait::is_inside_other(control, Some(self.bound_line))
            && !helper::is_there(control)
    }
}

/// The positions that a worker takes by a swap of the claim word.
enum Taking {
    Chunk,
    /// A position whose event is not published yet (`worker::I6`).
    Ticket,
    Tombstone,
}

impl WorkerRole for LocalWorker {
    #[inline(always)]
    fn take<E, L: Layout>(worker: &mut LocalWorkerPosition<E, L>) -> bool {
        let taken = worker.take_chunk(false);
        if taken && worker.state.has_slept {
            worker.pass_on();
        }
        taken
    }

    #[inline(always)]
    fn has_orphans<E, L: Layout>(worker: &LocalWorkerPosition<E, L>) -> bool {
        let (control, stage) = (worker.state.control(), worker.state.stage);
        control.membership.has_orphan(&control.plan, stage, |seq| worker.is_published(seq))
    }

    #[inline(always)]
    fn holds_ticket(&self) -> bool {
        self.ticket && !self.has_left_ticket()
    }

    #[inline(always)]
    fn has_left_ticket(&self) -> bool {
        self.new_seat.get().is_some()
    }

    fn may_sleep<E, L: Layout>(worker: &LocalWorkerPosition<E, L>) -> bool {
        let leaves = worker.role.holds_ticket() && worker.state.plan().leaves_tickets();
        twin!("ticket-kept": !leaves || worker.leave_ticket() => true)
    }

    #[inline(always)]
    fn wait_ended<E, L: Layout>(worker: &mut LocalWorkerPosition<E, L>) {
        worker.settle();
    }

    #[inline(always)]
    fn draw<E, L: Layout>(worker: &mut LocalWorkerPosition<E, L>) {
        if worker.may_draw() {
            worker.take_chunk(true);
        }
    }

    #[inline(always)]
    fn known_end<E, L: Layout>(worker: &LocalWorkerPosition<E, L>) -> Option<WaitError> {
        worker.pool_ended()
    }

    #[inline(always)]
    fn leave<E, L: Layout>(worker: &mut LocalWorkerPosition<E, L>) {
        worker.leave_pool();
    }
}

impl<E, L: Layout> LocalWorkerPosition<E, L> {
    /// Wakes more workers if the pool has another chunk. Called by a worker that has slept since
    /// its last chunk (queue::I6).
    #[cold]
    fn pass_on(&mut self) {
        self.state.has_slept = false;
        self.role.slept = true;
        let pool = self.state.plan();
        if pool.wakes_one && self.is_chunk_left() {
            twin!("not-passed-on": self.state.control().waits.pass_on(pool) => ());
        }
    }

    /// Gives the worker's seat back, and leaves an unfinished chunk for another worker to adopt.
    fn leave_pool(&mut self) {
        self.disarm();
        self.settle();
        if twin!("notification-swallowed": self.state.has_slept => false) {
            self.pass_on();
        }
        let control = self.state.control();
        let remain = control.membership.remove_worker(self.state.stage);
        if self.next != self.chunk_end
            && remain > 0
            && !panicking()
            && control.status.stopped().is_none()
        {
            twin!("orphan-unbound": self.release() => control.release(self.bound_line, IDLE, &[]));
            let orphan = Orphan { seat: self.worker, rest: self.next..self.chunk_end };
            self.state.control().orphan(self.state.stage, orphan);
        } else if self.ended().is_some() {
            // A drop after the graph's end is no failure.
        } else if panicking() {
            self.state.fail_dropped(self.no_later_than_end(self.next()));
        } else if remain == 0 {
            // Tickets may have moved the claim word past the first unhandled event.
            let at = control.positions.position(&control.plan, self.state.stage);
            control.fail(self.state.stage, Some(at), Cause::Dropped);
        }
        // An unfinished chunk stays on the worker's seat, so the seat is not freed.
        if self.bound == IDLE {
            self.state.control().membership.free_seat(self.state.plan(), self.worker);
        }
        self.flush();
    }
}
