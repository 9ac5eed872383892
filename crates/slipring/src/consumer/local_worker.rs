//! Workers of a pool whose ring belongs to one process. They take a chunk by one compare-and-swap
//! of the pool's claim word.
//!
//! The module [`worker`](crate::consumer::worker) states the invariants.

use crate::base::edge;
use crate::base::sync::{Relaxed, now, panicking, twin};
use crate::consumer::position::{Availability as _, ConsumerPosition as _};
use crate::consumer::waiting::{Counting as _, Waiting as _};
use crate::consumer::worker::{LANDMARK_BITS, Offer, WorkerPosition, WorkerRole};
use crate::errors::{Cause, WaitError};
use crate::ring::membership::Orphan;
use crate::ring::owner::Owner;
use crate::ring::self_wait;
use crate::ring::slots::Layout;
use crate::ring::waits::Place;
use crate::ring::words::{IDLE, PoolWord};
use crate::wait::HandleLearner;

/// The role of a worker of a ring of one process. Dropping the last worker before the stream's end
/// fails the graph.
pub struct LocalWorker;

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
        Self::begin(core, place, worker, LocalWorker, learned)
    }

    /// Creates a worker that joins a running pool. The caller has taken its seat (membership::I1).
    pub(crate) fn join(
        core: Owner<E, L>,
        stage: usize,
        worker: usize,
        learned: HandleLearner,
    ) -> Self {
        let landmark = core.control.positions.landmark(&core.control.plan.stages[stage]);
        Self::begin(core, Place { party: stage, at: landmark }, worker, LocalWorker, learned)
    }

    /// Takes a chunk, as [`WorkerRole::take`] does.
    fn take_chunk(&mut self) -> bool {
        debug_assert!(self.next == self.chunk_end && self.bound == IDLE);
        self.contended = false;
        let control = self.state.control();
        if let Some(Orphan { seat, rest }) =
            control.membership.adopt(&control.plan, self.state.stage)
        {
            let bound_line = self.state.plan().bound_line(seat);
            self_wait::moved(self.state.control(), self.bound_line, bound_line);
            (self.bound_line, self.bound) = (bound_line, rest.start << 1);
            (self.next, self.chunk_end) = (rest.start, rest.end);
            self.chunk_ended = None;
            return true;
        }
        loop {
            let claim = self.state.control().positions.line(self.claim_line);
            let word = PoolWord(edge::chunk_taken::see(claim));
            self.last_seen = word.seq(self.known());
            let (len, left, live) = match self.offer(self.last_seen, word.left()) {
                Offer::Nothing => {
                    self.bind(IDLE);
                    self.chunk_ended = None;
                    return false;
                }
                Offer::Chunk(len, left) => (len, left, true),
                Offer::Tombstone(len) => (len, 0, false),
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
                control.waits.notify(&self.state.plan().notifies);
            }
            let taken = PoolWord::new(end, left).0;
            let passes_landmark = (self.last_seen ^ end) >> LANDMARK_BITS != 0;
            let claim = control.positions.line(self.claim_line);
            let swapped = edge::chunk_taken::take(claim, word.0, taken);
            if passes_landmark && swapped.is_ok() {
                control.positions.line(self.state.plan().landmark_line()).store(end, Relaxed);
            }
            match swapped {
                Ok(_) if live => {
                    twin!("bound-after-swap": () => edge::released::bind(own, self.bound));
                    (self.next, self.chunk_end) = (self.last_seen, end);
                    self.last_seen = end;
                    self.taken = control.timed.then(|| {
                        // The clock's reading at the end of a chunk is also the start time of the
                        // next chunk.
                        (self.chunk_ended.take().unwrap_or_else(now), len)
                    });
                    return true;
                }
                Ok(_) => {
                    (self.next, self.chunk_end) = (end, end);
                    self.last_seen = end;
                    self.state.count_tombstones(len);
                    twin!("passed-unreleased": self.bind(IDLE) => self.bound = IDLE);
                }
                Err(_) => self.contended = true,
            }
        }
    }
}

impl WorkerRole for LocalWorker {
    #[inline(always)]
    fn take<E, L: Layout>(worker: &mut LocalWorkerPosition<E, L>) -> bool {
        worker.take_chunk()
    }

    #[inline(always)]
    fn has_orphans<E, L: Layout>(worker: &LocalWorkerPosition<E, L>) -> bool {
        worker.state.core.control.membership.has_orphans(worker.state.stage)
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
    /// Gives the worker's seat back, and leaves an unfinished chunk for another worker to adopt.
    fn leave_pool(&mut self) {
        self.disarm();
        let control = self.state.control();
        let remain = control.membership.remove_worker(self.state.stage);
        if self.next != self.chunk_end
            && remain > 0
            && !panicking()
            && control.status.stopped().is_none()
        {
            twin!("orphan-unbound": self.release() => control.release(self.bound_line, IDLE, &[]));
            let orphan = Orphan { seat: self.chunk_seat(), rest: self.next..self.chunk_end };
            self.state.control().orphan(self.state.stage, orphan);
        } else if self.ended().is_some() {
            // A drop after the graph's end is no failure.
        } else if panicking() {
            self.state.fail_dropped(self.next());
        } else if remain == 0 {
            control.fail(self.state.stage, Some(self.next()), Cause::Dropped);
        }
        // If the worker leaves an unfinished chunk that it took itself, the chunk stays on the
        // worker's seat, so the seat is not freed.
        if self.bound == IDLE || self.bound_line != self.own_line {
            self.state.control().membership.free_seat(self.state.plan(), self.worker);
        }
        self.flush();
    }
}
