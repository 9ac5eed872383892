//! Workers of a pool. They take chunks by moving the pool's claim word, and release them out of
//! order. The stages behind the pool see the events in order.
//!
//! Invariants
//! - I1: exactly one worker took each position before the claim word's position: the worker whose
//!   compare-and-swap or addition moved the claim word past it. The word moves only past published
//!   events, tombstones and tickets (I6), and only past positions that the pool's dependencies have
//!   released.
//! - I2: while a worker holds a chunk, a shared line holds the chunk's bound: a position no later
//!   than the chunk's first unreleased event. A worker stores bounds on its own line; the bound of
//!   an adopted chunk stays on the line where the chunk's first worker stored it. A worker first
//!   stores a chunk's bound, and then takes the chunk by a compare-and-swap of the claim word, or a
//!   ticket by an addition, for which the stored bound may be too early. A thread that sees the
//!   word after that also sees the bound.
//! - I3: an idle worker's bound is [`IDLE`], so an idle worker holds up no other party.
//! - I4: a chunk contains no tombstone, unless it is a ticket. A worker takes a tombstone's
//!   positions by a separate step, and releases them immediately.
//! - I5: a claim word has only the low 48 bits of its position. A worker computes the full position
//!   from these bits and a base, which is an earlier full position of the word: the later of two
//!   positions, the pool's landmark and the claim word's position at the worker's last load. The
//!   landmark is a full 64-bit position, which the claim word has passed by at most 2^32 positions
//!   and one lap of the ring (positions::I4). Active workers keep the landmark recent, so a worker
//!   finds a recent base even after a long idle time.
//! - I6: a *ticket* is a chunk of one position, taken before its event is published. Its worker
//!   polls for this event alone, so idle workers do not race for each event. Only a wait draws a
//!   ticket, and only if it has no deadline, its thread runs no other stage of the ring, and the
//!   graph has no more threads than cores: the event waits for this worker. The wait goes on until
//!   the ticket's event is published or given up, the worker has left its ticket or taken over an
//!   orphan, or the pool has ended. So a handle that does not wait holds a ticket only after the
//!   end, and keeps it: the bounds of tickets keep the pool's frontier at the stream's last
//!   position.
//!   - A worker that is about to sleep first takes another seat, and leaves its ticket on its old
//!     seat as an orphan. It sleeps without a ticket, and waits for any event. If the pool has four
//!     orphans, as it can while claims are open and later events are published, the worker keeps
//!     its ticket and sleeps by a timer. So a worker that holds a ticket polls soon, and a
//!     publication need wake no worker for a position that the claim word has passed, unless the
//!     pool has orphans.
//!   - The holder finds its event although it does not look at the slots before: a publication
//!     stamps each of its slots ([`Plan::stamps_each`](crate::ring::plan::Plan::stamps_each)). So
//!     the claim word of such a ring need not say how much of a run is left, and an addition of one
//!     position leaves it right.
//!   - A worker that takes over an orphan moves to the orphan's seat, and leaves its ticket on its
//!     old seat as an orphan. An orphan whose event is not published is adopted only in place of a
//!     new ticket, so that no worker holds two.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::base::sync::{Relaxed, twin};
use crate::consumer::chunk_pace::ChunkPace;
use crate::consumer::position::{Availability, ConsumerPosition, ConsumerState, Runs};
use crate::errors::WaitError;
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;
use crate::ring::stamp::Stamp;
use crate::ring::waits::Place;
use crate::ring::words::{IDLE, PoolWord, ahead, later};
use crate::ring::world::World;
use crate::wait::{BackOff, HandleLearner};

/// Binary logarithm of the distance between two landmarks of a pool, in positions. The worker whose
/// chunk crosses a multiple of `2^LANDMARK_BITS` stores the chunk's end as the pool's landmark. A
/// landmark is a full position, from which workers derive the claim word's high bits.
const LANDMARK_BITS: u32 = if cfg!(slipring_loom) { 1 } else { 32 };

/// The role of a worker: the way in which it takes chunks and leaves its pool.
pub trait WorkerRole: Sized {
    /// Takes a chunk: a chunk that another worker left, or the next chunk from the claim word.
    /// Returns `false`, with the worker idle, if no chunk is available.
    fn take<E, L: Layout>(worker: &mut WorkerPosition<E, L, Self>) -> bool;

    /// Returns whether the current chunk is a ticket, so that its event may not be published (I6).
    #[inline(always)]
    fn holds_ticket(&self) -> bool {
        false
    }

    /// Returns whether the worker has left its ticket in the current wait, so that it waits for any
    /// event (I6).
    #[inline(always)]
    fn has_left_ticket(&self) -> bool {
        false
    }

    /// See [`Availability::may_sleep`].
    fn may_sleep<E, L: Layout>(_worker: &WorkerPosition<E, L, Self>) -> bool {
        true
    }

    /// See [`Availability::wait_ended`].
    #[inline(always)]
    fn wait_ended<E, L: Layout>(_worker: &mut WorkerPosition<E, L, Self>) {}

    /// Called before a wait without a deadline. An idle worker may draw a ticket (I6).
    #[inline(always)]
    fn draw<E, L: Layout>(_worker: &mut WorkerPosition<E, L, Self>) {}

    /// Returns whether the pool has a chunk that another worker left, and that can be handled.
    fn has_orphans<E, L: Layout>(worker: &WorkerPosition<E, L, Self>) -> bool;

    /// Called when a timed chunk ends.
    #[inline(always)]
    fn chunk_ended(&mut self, _now: Instant, _notice: impl FnOnce() -> Option<Duration>) {}

    /// Called after the last release of each chunk.
    #[inline(always)]
    fn chunk_released<E, L: Layout>(_worker: &mut WorkerPosition<E, L, Self>) {}

    /// Returns the reason why this worker must stop while the graph continues.
    #[inline(always)]
    fn refusal(&self) -> Option<WaitError> {
        None
    }

    /// Returns why the pool will get no event any more. Changes nothing that other threads read.
    fn known_end<E, L: Layout>(worker: &WorkerPosition<E, L, Self>) -> Option<WaitError>;

    /// If this worker finds the end of a closing ring, returns the position of that end.
    #[inline(always)]
    fn end_of_closing<E, L: Layout>(_worker: &WorkerPosition<E, L, Self>) -> Option<u64> {
        None
    }

    /// See [`Availability::finds_damage`].
    fn finds_damage<E, L: Layout>(_worker: &WorkerPosition<E, L, Self>) -> bool {
        false
    }

    /// Called when the worker is dropped.
    fn leave<E, L: Layout>(worker: &mut WorkerPosition<E, L, Self>);
}

/// The position of one worker of a pool.
#[repr(align(128))] // on cache lines of its own, as `Producer`
pub struct WorkerPosition<E, L: Layout, R: WorkerRole> {
    pub(crate) state: ConsumerState<E, L>,
    pub(crate) role: R,
    /// The worker's seat in its pool.
    pub(crate) worker: usize,
    /// Number of declared workers of the pool.
    workers: u64,
    /// The line of the pool's claim word.
    pub(crate) claim_line: usize,
    /// The line of this worker's own bound.
    pub(crate) own_line: usize,
    /// The line that holds the current chunk's bound.
    pub(crate) bound_line: usize,
    /// The word that this worker stored last in `bound_line`.
    pub(crate) bound: u64,
    /// The position of the next event.
    pub(crate) next: u64,
    /// End of the current chunk.
    pub(crate) chunk_end: u64,
    /// Position of the claim word at this worker's last load. The worker keeps it in a plain field,
    /// because a model in which each store followed a load of the claim word would miss errors (see
    /// PROTOCOL.md).
    pub(crate) last_seen: u64,
    /// The dependencies' frontier when this worker last loaded it.
    pub(crate) limit: u64,
    pub(crate) pace: ChunkPace,
    /// Whether another worker won the last race for a chunk.
    pub(crate) contended: bool,
    /// The position at which the pool has ended; `None` if this worker has not found the pool's end
    /// yet.
    ended_at: Cell<Option<u64>>,
}

/// The events, or the part of a tombstone, that a worker may take next from its pool's stream.
pub(crate) enum Offer {
    Nothing,
    /// A chunk of events: its length, and the number of events that remain of its last run after
    /// the chunk.
    Chunk(u64, u64),
    /// A tombstone, of which the worker can take this number of positions.
    Tombstone(u64),
}

impl<E, L: Layout, R: WorkerRole> WorkerPosition<E, L, R> {
    /// Creates the idle worker of the seat `worker`. The claim word has reached or passed the
    /// position `place.at`.
    pub(crate) fn begin(
        core: Owner<E, L>,
        place: Place,
        worker: usize,
        role: R,
        learned: HandleLearner,
    ) -> Self {
        let Place { party: stage, at: start } = place;
        let plan = &core.control.plan.stages[stage];
        let workers = plan.delivery.len();
        let own_line = plan.bound_line(worker);
        WorkerPosition {
            role,
            worker,
            workers: workers as u64,
            claim_line: plan.line,
            own_line,
            bound_line: own_line,
            bound: IDLE,
            next: start,
            chunk_end: start,
            last_seen: start,
            limit: start,
            pace: ChunkPace::new(core.capacity(), workers as u64, core.control.timed),
            contended: false,
            ended_at: Cell::new(None),
            state: ConsumerState::new(core, stage, learned),
        }
    }

    /// Returns a position that the claim word has passed by less than 2^47 positions (I5).
    /// `last_seen` may be 2^47 positions or more before the claim word, because the pool may pass
    /// any number of positions while a worker is idle.
    #[inline(always)]
    pub(crate) fn known(&self) -> u64 {
        // In a model, the claim word moves only a few positions, so `last_seen` is always recent
        // enough. A load of the landmark would multiply the interleavings that a model explores.
        if cfg!(slipring_loom) {
            self.last_seen
        } else {
            later(
                self.last_seen,
                self.state
                    .control()
                    .positions
                    .landmark(&self.state.control().plan.stages[self.state.stage]),
            )
        }
    }

    /// Returns the part of the stream that a worker may take at `seq`, the claim word's position.
    /// `left` is the number of events that remain in the run at `seq`. An outdated `seq` does no
    /// harm, because a compare-and-swap of an outdated claim word fails.
    pub(crate) fn offer(&mut self, seq: u64, left: u64) -> Offer {
        let core = &*self.state.core;
        let plan = &core.control.plan;
        let mut available = core.capacity();
        let len = self.pace.len();
        if !core.control.plan.reads_stamps(self.state.stage) {
            if ahead(self.limit, seq) < len as i64 {
                // The dependencies have released every position before the claim word's position
                // (I1).
                self.limit = core.pass(self.state.stage, later(self.limit, seq));
            }
            available = ahead(self.limit, seq).max(0) as u64;
            if available == 0 {
                return Offer::Nothing;
            }
            if !plan.many_producers {
                // A single producer claims given-up positions again, so its stream has no
                // tombstones, and a worker need not find out where runs end.
                return Offer::Chunk(self.share(available, len), 0);
            }
        }
        match self.walk(seq, left, len.min(available)) {
            // The worker takes only the part of a tombstone that the dependencies have released, as
            // in `SequentialPosition::skip_tombstones`.
            Offer::Tombstone(run) => {
                Offer::Tombstone(twin!("worker-past-the-limit": run.min(available) => run))
            }
            Offer::Chunk(found, _) if found < len => {
                self.walk(seq, left, found.div_ceil(self.workers))
            }
            offer => offer,
        }
    }

    /// Returns the length of a chunk: `len` if `len` events are available, else the available
    /// events divided by the number of workers, rounded up.
    fn share(&self, available: u64, len: u64) -> u64 {
        if available < len { available.div_ceil(self.workers) } else { len }
    }

    /// Goes from run to run, from `seq` on, until `max` events are found or no live run follows.
    /// `left` is the number of events that remain in the run at `seq`.
    fn walk(&self, seq: u64, mut left: u64, max: u64) -> Offer {
        let mut len = 0;
        while len < max {
            if left == 0 {
                match self.state.slots.run_at(seq.wrapping_add(len)) {
                    Stamp::Live(run) => left = run,
                    Stamp::Tombstone(run) if len == 0 => return Offer::Tombstone(run),
                    Stamp::Tombstone(_) | Stamp::Unpublished => break,
                }
            }
            let step = left.min(max - len);
            len += step;
            left -= step;
        }
        if len == 0 { Offer::Nothing } else { Offer::Chunk(len, left) }
    }

    /// Stores `bound`, which is [`IDLE`] or a position shifted left by one bit. The store releases
    /// this worker's events that lie before the bound. A worker that has lost a race for a chunk
    /// holds none, so storing [`IDLE`] releases none.
    #[inline(always)]
    pub(crate) fn bind(&mut self, bound: u64) {
        if bound != self.bound {
            self.bound = bound;
            let (control, stage) = (self.state.control(), self.state.stage);
            control.release_chunk(self.bound_line, bound, stage, self.state.notifies());
        }
    }

    /// Returns `seq`, or the stream's last position if that is earlier. Tickets move the claim word
    /// past the last position (I6).
    pub(crate) fn no_later_than_end(&self, seq: u64) -> u64 {
        match self.state.control().status.last_position() {
            Some(end) if ahead(seq, end) > 0 => end,
            _ => seq,
        }
    }

    /// Returns the number of handled but unreleased events of the current chunk. Returns `None` if
    /// the worker is idle.
    fn unreleased(&self) -> Option<u64> {
        (self.bound != IDLE).then_some((self.next << 1).wrapping_sub(self.bound) >> 1)
    }

    /// Stores the pool's landmark if a chunk crosses a multiple of `2^LANDMARK_BITS`. The claim
    /// word is behind the chunk. It stays within a lap of the chunk, because this worker's bound
    /// still holds the chunk.
    #[inline(always)]
    pub(crate) fn pass_landmark(&self, chunk: &Range<u64>) {
        if (chunk.start ^ chunk.end) >> LANDMARK_BITS != 0 {
            let control = self.state.control();
            control.positions.line(self.state.plan().landmark_line()).store(chunk.end, Relaxed);
        }
    }

    /// Notes that another worker has taken the next chunk, and pauses. The time of the race is none
    /// of the chunk's time: if it were, a worker that loses races would take shorter chunks, and so
    /// race more often.
    #[cold]
    pub(crate) fn lost_race(&mut self, races: &mut BackOff) {
        self.contended = true;
        self.pace.pause();
        // Each pause of a model would double the schedules in which the race goes on.
        if !cfg!(slipring_loom) {
            races.pause(self.state.control().spacing, self.workers as usize);
        }
    }
}

impl<E, L: Layout, R: WorkerRole> ConsumerPosition<E, L> for WorkerPosition<E, L, R> {
    fn state(&self) -> &ConsumerState<E, L> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ConsumerState<E, L> {
        &mut self.state
    }

    #[inline(always)]
    fn line(&self) -> usize {
        self.bound_line
    }

    #[inline(always)]
    fn next(&self) -> u64 {
        if self.next == self.chunk_end { self.last_seen } else { self.next }
    }

    fn handled(&self) -> u64 {
        self.state.counts.events
    }

    #[inline(always)]
    fn advance(&mut self, len: u64, _found: u64) {
        debug_assert!(len <= self.chunk_end.wrapping_sub(self.next));
        if self.state.bookkeeping {
            self.state.partition(self.next, len);
        }
        self.state.counts.events += len;
        self.next = self.next.wrapping_add(len);
    }

    #[inline(always)]
    fn release(&mut self) {
        debug_assert!(
            self.unreleased() <= Some(self.state.core.capacity()),
            "I2: the bound of a worker is later than an event that the worker holds"
        );
        let done = self.next == self.chunk_end;
        let bound = if done { twin!("never-idle": IDLE => self.next << 1) } else { self.next << 1 };
        if self.state.bookkeeping
            && bound != self.bound
            && let Some(len) = self.unreleased()
            && let Some(samples) = &self.state.control().counters.samples
        {
            samples.releasing(self.state.stage, self.next.wrapping_sub(len), len, |_| true);
        }
        self.bind(bound);
        if done {
            R::chunk_released(self);
            if let Some(now) = self.pace.end() {
                self.role.chunk_ended(now, || self.state.core.world.notice());
            }
        }
    }

    fn rewind(&mut self) {
        if let Some(len) = self.unreleased() {
            self.state.counts.events -= len;
            self.next = self.next.wrapping_sub(twin!("worker-rewound-too-far": len => len + 1));
        }
    }

    fn released(&self) -> u64 {
        if self.bound == IDLE { self.last_seen } else { self.bound }
    }

    fn first_unreleased(&self) -> u64 {
        self.next.wrapping_sub(self.unreleased().unwrap_or(0))
    }

    fn has_unreleased(&self) -> bool {
        self.unreleased().is_some_and(|len| len > 0)
    }
}

impl<E, L: Layout, R: WorkerRole> Availability<E, L> for WorkerPosition<E, L, R> {
    /// A worker never pauses, because it could not help the pool's other workers meanwhile.
    const MAY_PAUSE: bool = false;

    fn runs(&self) -> Runs {
        Runs::Hidden
    }

    #[inline(always)]
    fn poll(&mut self, max: u64) -> u64 {
        if self.next == self.chunk_end {
            if self.bound != IDLE {
                self.release();
            }
            if !R::take(self) {
                return 0;
            }
        } else if twin!("ticket-unlooked": self.role.holds_ticket() => false) && !R::take(self) {
            return 0;
        }
        self.chunk_end.wrapping_sub(self.next).min(max)
    }

    fn gather(&mut self, _least: u64, max: u64) -> u64 {
        self.poll(max)
    }

    /// A poll ends at the chunk's end, although more events may follow the chunk.
    #[inline(always)]
    fn is_exhausted(&mut self, _short: bool) -> bool {
        false
    }

    #[inline(always)]
    fn limit_chunk(&mut self, max: u64) {
        self.pace.limit(max);
        // Between two calls of a user's own loop, the thread may do other work.
        self.resume();
    }

    #[inline(always)]
    fn resume(&mut self) {
        self.pace.pause();
    }

    #[inline(always)]
    fn is_at_end_of_chunk(&self) -> bool {
        self.next == self.chunk_end
    }

    fn has_available(&self) -> bool {
        if self.role.holds_ticket() {
            let slots = &self.state.slots;
            return slots.run_at(self.next) != Stamp::Unpublished || R::has_orphans(self);
        }
        let holds_chunk = self.next != self.chunk_end && !self.role.has_left_ticket();
        holds_chunk || self.is_chunk_left()
    }

    const DRAWS: bool = true;

    #[inline(always)]
    fn draw(&mut self) {
        R::draw(self);
    }

    #[inline(always)]
    fn may_end_wait(&mut self) -> bool {
        !self.role.holds_ticket() || R::take(self) || !self.role.holds_ticket() || self.has_ended()
    }

    fn may_sleep(&self) -> bool {
        R::may_sleep(self)
    }

    #[inline(always)]
    fn wait_ended(&mut self) {
        R::wait_ended(self);
    }

    fn waits_for(&self) -> usize {
        self.state.core.upstream(self.state.stage, later(self.limit, self.known())).1
    }

    fn awaited(&self) -> u64 {
        match self.next == self.chunk_end || self.role.has_left_ticket() {
            true => {
                let claim = self.state.control().positions.line(self.claim_line);
                self.no_later_than_end(PoolWord(claim.load(Relaxed)).seq(self.known()))
            }
            false => self.next,
        }
    }

    fn was_contended(&self) -> bool {
        self.contended
    }

    #[inline(always)]
    fn check(&self) -> Result<(), WaitError> {
        self.state.control().status.check_running()?;
        self.role.refusal().map_or(Ok(()), Err)
    }

    #[cold]
    fn find_end(&self) -> Option<WaitError> {
        let ended = R::known_end(self);
        if ended.is_none()
            && let Some(end) = R::end_of_closing(self)
        {
            self.state.control().close(end);
            return R::known_end(self);
        }
        ended
    }

    #[inline(always)]
    fn is_undisturbed(&self) -> bool {
        !self.state.control().status.is_over() && self.role.refusal().is_none()
    }

    #[cold]
    fn has_ended(&self) -> bool {
        R::known_end(self).is_some() || R::end_of_closing(self).is_some()
    }

    #[cold]
    fn finds_damage(&self) -> bool {
        R::finds_damage(self)
    }
}

impl<E, L: Layout, R: WorkerRole> WorkerPosition<E, L, R> {
    /// Returns whether the pool has a chunk that a worker can take.
    pub(crate) fn is_chunk_left(&self) -> bool {
        let core = &*self.state.core;
        // The load is relaxed, because the function reads no event. A worker loads the claim word
        // again, with acquire, before it takes a chunk.
        let word = PoolWord(core.control.positions.line(self.claim_line).load(Relaxed));
        let seq = word.seq(self.known());
        R::has_orphans(self)
            || match core.control.plan.reads_stamps(self.state.stage) {
                true => word.left() != 0 || core.slots.run_at(seq) != Stamp::Unpublished,
                false => ahead(core.upstream(self.state.stage, later(self.limit, seq)).0, seq) > 0,
            }
    }

    /// Returns why no event will come any more. A worker ends only when its whole pool has ended,
    /// because another worker may leave a chunk that this worker has to finish.
    pub(crate) fn pool_ended(&self) -> Option<WaitError> {
        let control = self.state.control();
        // Another worker that lost a race for a chunk may show its old bound for a moment, and then
        // the pool's frontier seems to go back. So the worker keeps the end that it has once
        // returned.
        if let Some(end) = self.ended_at.get() {
            return control.status.ended(end);
        }
        let lower_bound = self.state.plan().a_lap_before(self.known(), control.plan.capacity);
        let frontier = control.positions.frontier(&control.plan, self.state.stage, lower_bound);
        let ended = control.status.ended(frontier);
        if let Some(WaitError::Closed) = ended {
            self.ended_at.set(Some(frontier));
        }
        ended
    }
}

impl<E, L: Layout, R: WorkerRole> Drop for WorkerPosition<E, L, R> {
    fn drop(&mut self) {
        R::leave(self);
    }
}
