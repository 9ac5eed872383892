//! A worker's seat: chunks taken off the pool's claim word, handled, released out of order, seen in
//! order behind.
//!
//! Invariants
//! - I1: a position before the claim word's was taken by exactly one worker: only the
//!   compare-and-swap that moved the word past it took it, and only from a value under which it was
//!   published and let go by the stages before.
//! - I2: while a worker holds a chunk, a bound line (its own, or the one it inherited with the
//!   chunk) says a position no later than the first event of the chunk that it is not done with.
//!   The bound is stored before the swap, so whoever sees the swap sees it.
//! - I3: an idle worker's bound is [`IDLE`] and holds nobody up.
//! - I4: a chunk has no tombstone; a tombstone is taken as a whole, and let go at once.
//! - I5: a claim word has 48 bits of its position. A worker widens them from the later of what it
//!   has seen and the landmark, which the word has passed by no more than 2^32 and one lap of the
//!   ring (crew::I3). So it makes no difference how long a worker was idle.

use std::time::{Duration, Instant};

use crate::base::edge;
use crate::base::sync::{Relaxed, twin};
use crate::consumer::position::{ConsumerPosition, ConsumerState};
use crate::errors::{Cause, WaitError};
use crate::ring::membership::Orphan;
use crate::ring::owner::Owner;
use crate::ring::self_wait;
use crate::ring::slots::Layout;
use crate::ring::stamp::Run;
use crate::ring::words::{IDLE, PoolWord, ahead, later};
use crate::wait::Learned;

/// A chunk should take about this long: long enough that taking it costs little, short enough that
/// nobody sits on work while others are idle at the end of a burst.
const CHUNK_TIME: Duration = Duration::from_micros(4);
const MAX_CHUNK: u64 = 256;
/// Whoever takes a chunk across a multiple of 2 to this leaves a landmark for those who join.
const LANDMARK_BITS: u32 = if cfg!(slipring_loom) { 1 } else { 32 };

/// A worker of a pool.
#[repr(align(128))] // as a producer
pub struct WorkerPosition<E, L: Layout> {
    state: ConsumerState<E, L>,
    worker: usize,
    workers: u64,
    word_line: usize,
    own_line: usize,
    /// The line that bounds the present chunk.
    bound_line: usize,
    /// What that line says.
    bound: u64,
    next: u64,
    end: u64,
    /// Where the claim word stood when last seen. A plain field: see PROTOCOL.md on what the model
    /// checker would miss otherwise.
    seen: u64,
    /// What the stages before the pool are known to have let go.
    limit: u64,
    quota: u64,
    /// No chunk is longer than this.
    most: u64,
    /// When the present chunk was taken, and how long it was.
    taken: Option<(Instant, u64)>,
    contended: bool,
}

/// What a worker may take at the claim word's position.
enum Offer {
    Nothing,
    /// So many events, after which so much of their last run is left.
    Chunk(u64, u64),
    Tombstone(u64),
}

impl<E, L: Layout> WorkerPosition<E, L> {
    /// A worker that is there from the beginning.
    pub(crate) fn new(core: Owner<E, L>, stage: usize, worker: usize, learned: Learned) -> Self {
        let start = core.control.start;
        Self::begin(core, stage, worker, start, learned)
    }

    /// A worker that joins; its seat is taken (crew::I1).
    pub(crate) fn join(core: Owner<E, L>, stage: usize, worker: usize, learned: Learned) -> Self {
        let landmark = core.control.landmark(stage);
        Self::begin(core, stage, worker, landmark, learned)
    }

    /// `start`: a position that the claim word has passed.
    fn begin(core: Owner<E, L>, stage: usize, worker: usize, start: u64, learned: Learned) -> Self {
        let plan = &core.control.plan.stages[stage];
        let workers = plan.delivery.len();
        let own_line = plan.line + 1 + worker;
        WorkerPosition {
            worker,
            workers: workers as u64,
            word_line: plan.line,
            own_line,
            bound_line: own_line,
            bound: IDLE,
            next: start,
            end: start,
            seen: start,
            limit: start,
            quota: if cfg!(slipring_loom) { 2 } else { 1 }.min(core.capacity()),
            most: u64::MAX,
            taken: None,
            contended: false,
            state: ConsumerState::new(core, stage, learned),
        }
    }

    /// Takes a chunk. `false`: there is none, and the worker is idle now.
    fn take(&mut self) -> bool {
        debug_assert!(self.next == self.end && self.bound == IDLE);
        self.contended = false;
        if let Some(Orphan { bound_line, next, end }) =
            self.state.control().membership.adopt(self.state.stage)
        {
            self_wait::moved(self.state.control(), self.bound_line, bound_line);
            (self.bound_line, self.bound) = (bound_line, next << 1);
            (self.next, self.end) = (next, end);
            return true;
        }
        let core = self.state.core.clone();
        let claim = core.control.line(self.word_line);
        loop {
            let word = PoolWord(edge::chunk_taken::see(claim));
            self.seen = word.seq(self.known());
            let (len, left, live) = match self.offer(self.seen, word.left()) {
                Offer::Nothing => {
                    self.bind(IDLE);
                    return false;
                }
                Offer::Chunk(len, left) => (len, left, true),
                Offer::Tombstone(len) => (len, 0, false),
            };
            let end = self.seen.wrapping_add(len);
            // After a lost race the old bound held the followers up; now it moves on.
            let held_up = self.bound != IDLE;
            self.bound = self.seen << 1;
            let own = core.control.line(self.own_line);
            // I2: before the swap.
            twin!("bound-after-swap": edge::released::bind(own, self.bound) => ());
            if held_up && twin!("lagging-bound-unnotified": true => false) {
                core.control.notify(&core.control.plan.stages[self.state.stage].notifies);
            }
            let taken = PoolWord::new(end, left).0;
            let passes_landmark = (self.seen ^ end) >> LANDMARK_BITS != 0;
            let swapped = edge::chunk_taken::take(claim, word.0, taken);
            if passes_landmark && swapped.is_ok() {
                core.control.line(self.state.plan().landmark_line()).store(end, Relaxed);
            }
            match swapped {
                Ok(_) if live => {
                    twin!("bound-after-swap": () => edge::released::bind(own, self.bound));
                    (self.next, self.end) = (self.seen, end);
                    self.seen = end;
                    self.taken = core.control.timed.then(|| (Instant::now(), len));
                    return true;
                }
                Ok(_) => {
                    (self.next, self.end) = (end, end);
                    self.seen = end;
                    self.state.counts.tombstones += len;
                    twin!("passed-unreleased": self.bind(IDLE) => self.bound = IDLE);
                }
                Err(_) => self.contended = true,
            }
        }
    }

    /// A position that the claim word has passed, by less than 2^47 when this handle last loaded
    /// the word. An idle handle holds no party up, so the pool may have gone any distance since the
    /// handle last looked (I5).
    #[inline(always)]
    fn known(&self) -> u64 {
        // A model's pool goes a few positions. The landmark changes nothing there, and looking at
        // it multiplies the orders.
        if cfg!(slipring_loom) {
            self.seen
        } else {
            later(self.seen, self.state.control().landmark(self.state.stage))
        }
    }

    /// What there is at the claim word's position. Where `seq` is old news the swap will fail,
    /// whatever is answered here.
    fn offer(&mut self, seq: u64, left: u64) -> Offer {
        let core = &*self.state.core;
        let plan = &core.control.plan;
        let mut most = core.capacity();
        let quota = self.quota.min(self.most).max(1);
        if !core.control.plan.reads_stamps(self.state.stage) {
            if ahead(self.limit, seq) < quota as i64 {
                // Whatever the claim word has passed, the stages before have let go (I1).
                self.limit = core.pass(self.state.stage, later(self.limit, seq));
            }
            most = ahead(self.limit, seq).max(0) as u64;
            if most == 0 {
                return Offer::Nothing;
            }
            if !plan.many_producers {
                // A single producer takes back what it gives up: no tombstones, so runs do not
                // matter here.
                return Offer::Chunk(self.share(most, quota), 0);
            }
        }
        match self.walk(seq, left, quota.min(most)) {
            // What may be passed may end inside of it, see `SequentialPosition::skip_tombstones`.
            Offer::Tombstone(run) => {
                Offer::Tombstone(twin!("worker-past-the-limit": run.min(most) => run))
            }
            Offer::Chunk(len, _) if len < quota => self.walk(seq, left, len.div_ceil(self.workers)),
            offer => offer,
        }
    }

    /// Much is shared out in whole quotas, little in even parts.
    fn share(&self, available: u64, quota: u64) -> u64 {
        if available < quota { available.div_ceil(self.workers) } else { quota }
    }

    /// Walks runs from `seq` on until there are `most` events, or no more in a row.
    fn walk(&self, seq: u64, mut left: u64, most: u64) -> Offer {
        let mut len = 0;
        while len < most {
            if left == 0 {
                match self.state.slots.run_at(seq.wrapping_add(len)) {
                    Run::Live(run) => left = run,
                    Run::Tombstone(run) if len == 0 => return Offer::Tombstone(run),
                    Run::Tombstone(_) | Run::Unpublished => break,
                }
            }
            let step = left.min(most - len);
            len += step;
            left -= step;
        }
        if len == 0 { Offer::Nothing } else { Offer::Chunk(len, left) }
    }

    /// Lets go what is before `bound`: a position, doubled, or [`IDLE`]. Where nothing was taken, a
    /// race that was lost may have left a bound behind, later than `next` (I2).
    #[inline(always)]
    fn bind(&mut self, bound: u64) {
        if bound != self.bound {
            self.bound = bound;
            self.state.control().release(self.bound_line, bound, self.state.notifies());
        }
    }

    /// How much of the present chunk was handled and not let go yet; `None`: an idle worker holds
    /// nothing.
    fn unreleased(&self) -> Option<u64> {
        (self.bound != IDLE).then_some((self.next << 1).wrapping_sub(self.bound) >> 1)
    }

    /// Learns from a finished chunk how long the next should be.
    fn adapt(&mut self) {
        if let Some((began, len)) = self.taken.take() {
            let nanos = (began.elapsed().as_nanos() as u64 / len).max(1);
            let ideal = CHUNK_TIME.as_nanos() as u64 / nanos;
            let most = MAX_CHUNK.min(self.state.core.capacity() / (2 * self.workers)).max(1);
            // By halves and doubles: one interrupted chunk does not tell much.
            self.quota = ideal.clamp(self.quota.div_ceil(2), self.quota * 2).clamp(1, most);
        }
    }
}

impl<E, L: Layout> ConsumerPosition<E, L> for WorkerPosition<E, L> {
    /// A chunk's end is not the end of what there is.
    const GATHERS_ALL: bool = false;
    fn walks_runs(&self) -> bool {
        false
    }
    #[inline(always)]
    fn poll(&mut self, max: u64) -> u64 {
        if self.next == self.end {
            if self.bound != IDLE {
                self.release();
            }
            if !self.take() {
                return 0;
            }
        }
        self.end.wrapping_sub(self.next).min(max)
    }
    fn gather(&mut self, _least: u64, max: u64) -> u64 {
        self.poll(max)
    }
    #[inline(always)]
    fn want(&mut self, max: u64) {
        self.most = max;
    }
    #[inline(always)]
    fn line(&self) -> usize {
        self.bound_line
    }
    #[inline(always)]
    fn next(&self) -> u64 {
        if self.next == self.end { self.seen } else { self.next }
    }
    fn handled(&self) -> u64 {
        self.state.counts.events
    }
    #[inline(always)]
    fn advance(&mut self, len: u64, _found: u64) {
        debug_assert!(len <= self.end.wrapping_sub(self.next));
        if self.state.notes {
            self.state.partition(self.next, len);
        }
        self.state.counts.events += len;
        self.next = self.next.wrapping_add(len);
    }
    #[inline(always)]
    fn release(&mut self) {
        debug_assert!(
            self.unreleased() <= Some(self.state.core.capacity()),
            "I2: a bound is no later than what is handled"
        );
        let done = self.next == self.end;
        let bound = if done { twin!("never-idle": IDLE => self.next << 1) } else { self.next << 1 };
        if self.state.notes
            && bound != self.bound
            && let Some(len) = self.unreleased()
            && let Some(samples) = &self.state.control().counters.samples
        {
            samples.releasing(self.state.stage, self.next.wrapping_sub(len), len, |_| true);
        }
        self.bind(bound);
        if done {
            if self.bound_line != self.own_line {
                self_wait::moved(self.state.control(), self.bound_line, self.own_line);
                self.bound_line = self.own_line;
            }
            self.adapt();
        }
    }
    fn rewind(&mut self) {
        if let Some(len) = self.unreleased() {
            self.state.counts.events -= len;
            self.next = self.next.wrapping_sub(twin!("worker-rewound-too-far": len => len + 1));
        }
    }
    fn released(&self) -> u64 {
        if self.bound == IDLE { self.seen } else { self.bound }
    }
    fn holds(&self) -> bool {
        self.unreleased().is_some_and(|len| len > 0)
    }
    fn has_available(&self) -> bool {
        let core = &*self.state.core;
        // a look only; taking acquires
        let word = PoolWord(core.control.line(self.word_line).load(Relaxed));
        let seq = word.seq(self.known());
        self.next != self.end
            || core.control.membership.has_orphans(self.state.stage)
            || match core.control.plan.reads_stamps(self.state.stage) {
                true => word.left() != 0 || core.slots.run_at(seq) != Run::Unpublished,
                false => ahead(core.upstream(self.state.stage, later(self.limit, seq)).0, seq) > 0,
            }
    }
    fn waits_for(&self) -> usize {
        self.state.core.upstream(self.state.stage, later(self.limit, self.known())).1
    }
    fn was_contended(&self) -> bool {
        self.contended
    }
    /// A worker stays until its whole pool is done: a colleague may leave it a chunk.
    fn ended(&self) -> Option<WaitError> {
        let frontier = self
            .state
            .control()
            .frontier(self.state.stage, self.known().wrapping_sub(self.state.core.capacity()));
        self.state.control().ended(frontier)
    }
    fn state(&self) -> &ConsumerState<E, L> {
        &self.state
    }
    fn state_mut(&mut self) -> &mut ConsumerState<E, L> {
        &mut self.state
    }
}

impl<E, L: Layout> Drop for WorkerPosition<E, L> {
    fn drop(&mut self) {
        self.disarm();
        let control = self.state.control();
        let remain = control.membership.remove_worker(self.state.stage);
        if self.next != self.end
            && remain > 0
            && !std::thread::panicking()
            && control.stopped().is_none()
        {
            twin!("orphan-unbound": self.release() => control.release(self.bound_line, IDLE, &[]));
            let orphan = Orphan { bound_line: self.bound_line, next: self.next, end: self.end };
            self.state.control().orphan(self.state.stage, orphan);
        } else if self.ended().is_some() {
            // Whatever becomes of this worker's thread now is no business of the graph's.
        } else if std::thread::panicking() {
            self.state.left(self.next());
        } else if remain == 0 {
            control.fail(self.state.stage, Some(self.next()), Cause::Dropped);
        }
        self.state.control().membership.release_worker(self.state.stage, self.worker);
        self.flush();
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;
    use crate::base::panics::Contained;
    use crate::consumer::lease::{Consumer, PoolWriter};
    use crate::errors::BatchError;
    use crate::ring::build::build;
    use crate::ring::core::Settings;
    use crate::ring::slots::{Contiguous, Interleaved};
    use crate::ring::spec::{Access, Delivery, StageSpec};
    use crate::wait::{Learned, Wait};

    type Ring<L> = Owner<u64, L>;

    /// A ring of `capacity` slots with a pool of two behind its producer, or behind another pool.
    fn ring<L: Layout>(capacity: usize, behind_a_pool: bool) -> Ring<L> {
        let settings = Settings { wait: Contained::new(Wait::BusySpin), ..Settings::new(capacity) };
        let mut stages = vec![StageSpec::new("first", Access::Write, Delivery::pool(2), &[])];
        if behind_a_pool {
            stages.push(StageSpec::new("second", Access::Write, Delivery::pool(2), &[0]));
        }
        build(settings, stages, Vec::new(), &mut || 0).unwrap()
    }

    /// Lets the pool `stage` have gone on to `seq` while none of its workers here looked.
    fn went_on<L: Layout>(ring: &Ring<L>, stage: usize, seq: u64) {
        let line = ring.control.plan.stages[stage].line;
        ring.control.line(line).store(PoolWord::new(seq, 0).0, Relaxed);
        ring.control
            .line(ring.control.plan.stages[stage].landmark_line())
            .store(seq - (seq & u64::from(u32::MAX)), Relaxed);
    }

    /// Further than half of what 48 bits can tell apart, and further than all of it.
    const FAR: [u64; 3] = [(1 << 47) + (1 << 40) + 3, (1 << 48) + 7, (5 << 48) + (1 << 47) + 1];

    fn takes_what_is_there<L: Layout>(ring: &Ring<L>, stage: usize, at: u64) {
        let mut worker: PoolWriter<u64, L> =
            Consumer::worker(ring.clone(), stage, 1, Learned::default());
        assert!(worker.position().has_available(), "a look under the lock finds nothing at {at}");
        let there = worker.try_batch(1).unwrap_or_else(|error| panic!("nothing at {at}: {error}"));
        assert_eq!(there.first_seq(), at);
        there.release();
        ring.control.halt(); // a worker that goes now is no failure
    }

    #[test]
    fn a_worker_may_be_idle_for_any_distance_behind_a_cursor() {
        for at in FAR {
            let ring: Ring<Contiguous> = ring(4, false);
            went_on(&ring, 0, at);
            ring.control.positions.move_cursor(at + 2);
            takes_what_is_there(&ring, 0, at);
        }
    }

    #[test]
    fn a_worker_may_be_idle_for_any_distance_behind_stamps() {
        for at in FAR {
            let ring: Ring<Interleaved> = ring(4, false);
            went_on(&ring, 0, at);
            ring.publish(at, 1);
            takes_what_is_there(&ring, 0, at);
        }
    }

    #[test]
    fn a_worker_may_be_idle_for_any_distance_behind_another_pool() {
        for at in FAR {
            let ring: Ring<Contiguous> = ring(4, true);
            went_on(&ring, 0, at + 2);
            went_on(&ring, 1, at);
            takes_what_is_there(&ring, 1, at);
        }
    }

    #[test]
    fn an_idle_worker_learns_of_the_end_however_far_it_is() {
        for at in FAR {
            let ring: Ring<Interleaved> = ring(4, false);
            let mut worker: PoolWriter<u64> =
                Consumer::worker(ring.clone(), 0, 1, Learned::default());
            went_on(&ring, 0, at);
            ring.control.close(at);
            assert!(
                matches!(worker.try_batch(1), Err(BatchError::Wait(WaitError::Closed))),
                "the end at {at} is not seen"
            );
            // It goes without a further look: that is no failure either.
            drop(Consumer::<u64, crate::Writing, crate::Shared>::worker(
                ring.clone(),
                0,
                0,
                Learned::default(),
            ));
            assert!(ring.control.status.failure().is_none(), "{:?}", ring.control.status.failure());
        }
    }
}
