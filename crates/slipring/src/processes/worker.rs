//! Workers of a pool between processes. A worker takes a chunk by a compare-and-swap of the *cell*
//! of the chunk's first slot. So whenever the worker dies, the cell shows whether the chunk was
//! taken, and by which worker.
//!
//! A compare-and-swap of the claim word alone would not show afterwards which worker won. So the
//! cell names the worker's seat. The seat holds the chunk's begin and end, and the seat's bound
//! shows how far the chunk is released. The claim word follows the cells: a worker that finds a
//! taken cell moves the claim word behind that chunk, on behalf of the worker that took it.
//!
//! Invariants, besides those of [`worker`](crate::consumer::worker)
//! - I1: a worker stores the chunk's begin, its end, and its bound, in this order, and then swaps
//!   the cell. So a chunk whose cell names a seat has a bound and an end.
//! - I2: a seat's begin and end change only while its bound is [`IDLE`], and after the worker saw
//!   the claim word at a position whose cell was not taken. So no seat's chunk changes between the
//!   swap of its cell and the move of the claim word.
//! - I3: a bound inside of a chunk proves that the seat won the chunk. A bound at the chunk's begin
//!   proves it only together with the chunk's cell. No later lap uses the cell's slot before the
//!   bound has passed it.
//! - I4: a worker that adopts a chunk becomes the owner of the chunk's seat. So each chunk belongs
//!   to one seat, and each seat to one participant or to none.

use std::cell::Cell;
use std::time::Duration;

use crate::base::edge;
use crate::base::sync::{AtomicU64, Instant, Relaxed, twin};
use crate::consumer::position::Availability as _;
use crate::consumer::waiting::Counting as _;
use crate::consumer::waiting::Waiting as _;
use crate::consumer::worker::{Offer, WorkerPosition, WorkerRole};
use crate::errors::WaitError;
use crate::processes::claims;
use crate::processes::closing;
use crate::processes::watch::forget_deaths;
use crate::ring::owner::Owner;
use crate::ring::seat::Seat;
use crate::ring::self_wait;
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::{Layout, Storage as _};
use crate::ring::stamp::Stamp;
use crate::ring::waits::Place;
use crate::ring::words::{ChunkCell, IDLE, PoolWord, ahead, bound_ahead};
use crate::wait::{BackOff, HandleLearner};

/// Number of rounds of a search for a chunk, in addition to one round per slot of the ring.
const SPARE_ROUNDS: u64 = 64;

/// The role of a worker of a segment. After the drop of its handle, another process may take its
/// seat, or its chunk.
pub struct SeatedRole {
    /// Positions of the current chunk that another worker may have been lent before.
    again: SeqRange,
    /// Time at which the worker last looked for chunks that other workers left, or `None` if it has
    /// not looked yet.
    looked: Option<Instant>,
    /// Whether the worker must first look for chunks left by other workers, and only then take the
    /// next chunk from the claim word.
    look_due: bool,
    /// Whether the words of the segment were found to contradict each other.
    damaged: Cell<bool>,
}

type SeatedPosition<E, L> = WorkerPosition<E, L, SeatedRole>;

impl<E, L: Layout> SeatedPosition<E, L> {
    /// Creates a worker on a seat that this process owns. If the seat has a chunk, which another
    /// worker left there, the worker continues with the chunk.
    pub(crate) fn seat(
        core: Owner<E, L>,
        stage: usize,
        seat: usize,
        learned: HandleLearner,
    ) -> Self {
        let landmark = core.control.positions.landmark(&core.control.plan.stages[stage]);
        let role = SeatedRole {
            again: SeqRange::new(landmark, 0),
            looked: None,
            look_due: false,
            damaged: Cell::new(false),
        };
        let place = Place { party: stage, at: landmark };
        let mut worker = Self::begin(core, place, seat, role, learned);
        if worker.state.control().positions.line(worker.own_line).load(Relaxed) & IDLE == 0 {
            worker.go_on(seat);
        }
        worker
    }

    /// Returns a seat of the pool.
    fn seat_of(&self, number: usize) -> Option<&Seat> {
        let control = self.state.control();
        let seat = control.membership.seats_of(self.state.plan()).get(number)?;
        Some(seat)
    }

    /// Returns the pool's claim word.
    #[inline(always)]
    fn claim(&self) -> &AtomicU64 {
        self.state.control().positions.line(self.claim_line)
    }

    /// Returns the cell of the slot at `seq`.
    #[inline(always)]
    fn cell(&self, seq: u64) -> &AtomicU64 {
        let cells = &self.state.control().membership.cells[self.state.stage];
        &cells[(seq & self.state.slots.mask()) as usize]
    }

    /// Moves the claim word from `word`, whose position is `seq`, behind the chunk that begins at
    /// `seq`. According to the chunk's cell, the seat `number` took this chunk. Returns `false` if
    /// the claim word still is `word` although the cell is wrong: 2^54 laps old, or damaged.
    #[cold]
    fn help(&self, word: PoolWord, seq: u64, number: usize) -> bool {
        let control = self.state.control();
        let claim = control.positions.line(self.claim_line);
        let Some(seat) = self.seat_of(number) else { return false };
        let (chunk, left) = seat.chunk();
        let is_chunk = (1..=self.state.core.capacity()).contains(&chunk.end.wrapping_sub(seq));
        if chunk.start == seq && is_chunk && PoolWord::holds(left) {
            let _moved_by =
                edge::chunk_taken::take(claim, word.0, PoolWord::new(chunk.end, left).0);
            return true;
        }
        edge::chunk_taken::see(claim) != word.0
    }

    /// Takes the next chunk from the claim word. A round of the search takes no chunk if it passes
    /// over a tombstone, or if another worker has moved the claim word. Another process could cause
    /// such rounds for ever, so their number is bounded.
    fn take_next(&mut self) -> bool {
        let shift = self.state.slots.shift();
        let mut races = BackOff::default();
        for round in 0..=self.state.core.capacity() + SPARE_ROUNDS {
            let word = PoolWord(edge::chunk_taken::see(self.claim()));
            let seq = word.seq(self.known());
            self.last_seen = seq;
            let seen = edge::cell_taken::see(self.cell(seq));
            if let Some(number) = ChunkCell(seen).seat(seq, shift)
                && self.help(word, seq, number)
            {
                continue;
            }
            // If the claim word has moved since it was loaded, the cell may belong to a later lap,
            // so the round begins again.
            if twin!("cell-of-any-lap": edge::chunk_taken::see(self.claim()) != word.0 => false) {
                continue;
            }
            let offer = self.offer(seq, word.left());
            if self.is_false_limit(seq, matches!(offer, Offer::Nothing)) {
                if edge::chunk_taken::see(self.claim()) != word.0 {
                    continue;
                }
                self.role.damaged.set(true);
                return false;
            }
            let (len, left, live) = match offer {
                Offer::Nothing => {
                    self.pace.pause();
                    return false;
                }
                Offer::Chunk(len, left) => (len, left, true),
                Offer::Tombstone(len) => (len, 0, false),
            };
            let end = seq.wrapping_add(len);
            let control = self.state.control();
            let own = control.positions.line(self.own_line);
            // I1, I2.
            let seat = &control.membership.seats_of(self.state.plan())[self.worker];
            let bind = || edge::released::bind(own, seq << 1);
            twin!("bound-before-intent": () => bind());
            seat.intend_chunk(&(seq..end), left);
            twin!("cell-before-bound": bind() => ());
            self.bound = seq << 1;
            let taken = ChunkCell::taken(seq, shift, self.worker);
            if !edge::cell_taken::take(self.cell(seq), seen, taken.0) {
                self.bind(IDLE);
                self.contended = true;
                // A process that does not keep to the protocol cannot prolong the search by pauses.
                if round < SPARE_ROUNDS {
                    self.lost_race(&mut races);
                }
                continue;
            }
            twin!("cell-before-bound": () => bind());
            let _moved_by =
                edge::chunk_taken::take(self.claim(), word.0, PoolWord::new(end, left).0);
            self.pass_landmark(&(seq..end));
            self.last_seen = end;
            self.role.again = SeqRange::new(end, 0);
            if live {
                (self.next, self.chunk_end) = (seq, end);
                self.pace.begin(len);
                return true;
            }
            (self.next, self.chunk_end) = (end, end);
            self.state.count_tombstones(len);
            self.bind(IDLE);
        }
        self.contended = true;
        self.pace.pause();
        false
    }

    /// Returns whether the frontier of the pool's dependencies contradicts a claim word at `seq`.
    /// The answer means nothing if the claim word has moved on from `seq`. `nothing` says that no
    /// run begins or continues at `seq`.
    #[inline]
    fn is_false_limit(&self, seq: u64, nothing: bool) -> bool {
        let free = if nothing { 0 } else { self.state.core.capacity() as i64 };
        let reads_stamps = self.state.control().plan.reads_stamps(self.state.stage);
        !reads_stamps && ahead(self.limit, seq) > free
    }

    /// Adopts a chunk that another worker left.
    #[cold]
    fn adopt(&mut self) -> bool {
        let membership = &self.state.control().membership;
        let seats = membership.seats_of(self.state.plan()).len();
        (0..seats).any(|number| self.adopt_from(number))
    }

    /// Adopts the chunk of the seat `number`, if another worker left it there.
    fn adopt_from(&mut self, number: usize) -> bool {
        let participant = self.state.control().membership.participant;
        let adopts = |seat: &Seat| seat.is_orphan() && seat.adopt_chunk(participant);
        self.seat_of(number).is_some_and(adopts) && self.go_on(number)
    }

    /// Continues with the chunk of a seat that this process owns. If no event of the chunk is left
    /// to handle, or if the chunk's words are damaged, makes the worker idle and returns `false`.
    fn go_on(&mut self, number: usize) -> bool {
        let control = self.state.control();
        let bound_line = self.state.plan().bound_line(number);
        let Some(seat) = self.seat_of(number) else { return false };
        let ((chunk, left), bound) =
            (seat.chunk(), control.positions.line(bound_line).load(Relaxed));
        let (lo, hi) = (chunk.start, chunk.end);
        let (len, done) = (hi.wrapping_sub(lo), bound_ahead(bound, lo) as u64);
        self_wait::moved(control, self.bound_line, bound_line);
        (self.bound_line, self.bound) = (bound_line, bound);
        let (fits, left_fits) = (len <= self.state.core.capacity(), PoolWord::holds(left));
        if !(fits && left_fits && done < len && bound & IDLE == 0) {
            self.role.damaged.set(true);
        }
        if !self.role.damaged.get() {
            // The worker that took the chunk may have died before it moved the claim word. This
            // worker must not release events of the chunk before the claim word has moved
            // (positions::I2).
            let word = PoolWord(edge::chunk_taken::see(self.claim()));
            if word.seq(self.known()) == lo {
                let after = PoolWord::new(hi, left);
                let _moved_by = edge::chunk_taken::take(self.claim(), word.0, after.0);
            }
            self.pass_landmark(&chunk);
        }
        let first = lo.wrapping_add(done);
        let tombstone = matches!(self.state.slots.run_at(first), Stamp::Tombstone(_));
        let tombstone = twin!("adopted-tombstone-unseen": tombstone => false);
        let is_live = !self.role.damaged.get() && !tombstone;
        (self.next, self.chunk_end) = if is_live { (first, hi) } else { (hi, hi) };
        self.role.again = (self.next..hi).into();
        self.pace.give_up();
        if !is_live {
            self.bind(IDLE);
            self.give_adopted_seat_back();
        }
        is_live
    }

    /// Returns the seat that holds the current chunk's bound: this worker's own seat, or the seat
    /// of an adopted orphan.
    fn chunk_seat(&self) -> usize {
        self.bound_line - self.state.plan().bound_line(0)
    }

    /// Gives the seat of an adopted chunk back, after the chunk's bound became idle.
    #[inline(always)]
    fn give_adopted_seat_back(&mut self) {
        if self.bound_line != self.own_line {
            let control = self.state.control();
            self_wait::moved(control, self.bound_line, self.own_line);
            control.membership.free_seat(self.state.plan(), self.chunk_seat());
            self.bound_line = self.own_line;
        }
    }

    /// Returns the position of the claim word, if the next run begins there. Returns `None` in
    /// these cases:
    /// - The ring has a single producer.
    /// - The pool follows the frontiers of other stages.
    /// - The claim word is inside of a run, where slots have no stamp of their own.
    fn next_run(&self) -> Option<u64> {
        let control = self.state.control();
        let plan = &control.plan;
        let behind_taps = twin!("pool-unended": plan.sentinel => false);
        if !plan.many_producers || !(plan.reads_stamps(self.state.stage) || behind_taps) {
            return None;
        }
        let word = PoolWord(edge::chunk_taken::see(control.positions.line(self.claim_line)));
        (word.left() == 0).then(|| word.seq(self.known()))
    }

    /// Checks the last position of a closed ring, before the pool has reached that position. Other
    /// processes can store any position there. Returns an error if the pool can never reach it.
    fn false_end(&self) -> Option<WaitError> {
        let control = self.state.control();
        let last = control.status.last_position()?;
        // The pool has released none of the events from the claim word up to the last position, so
        // these events fit into the ring. All of them are published, so a worker that finds events
        // by stamps finds them all.
        let claimed =
            || PoolWord(control.positions.line(self.claim_line).load(Relaxed)).seq(self.known());
        let seq = claimed();
        let beyond = last.wrapping_sub(seq) > self.state.core.capacity();
        let reads_stamps = control.plan.reads_stamps(self.state.stage);
        let missing = reads_stamps && last != seq && !self.has_available() && claimed() == seq;
        (beyond || missing).then_some(WaitError::Damaged)
    }
}

impl WorkerRole for SeatedRole {
    /// A worker that finds no other chunk adopts one that another worker left. It also looks for
    /// such chunks once in each notice interval. Until a left chunk is adopted, it holds up the
    /// pool's frontier, so after at most a lap the workers find no other chunk.
    fn take<E, L: Layout>(worker: &mut SeatedPosition<E, L>) -> bool {
        worker.contended = false;
        let due = std::mem::take(&mut worker.role.look_due);
        due && worker.adopt() || worker.take_next() || !worker.role.damaged.get() && worker.adopt()
    }

    fn has_orphans<E, L: Layout>(worker: &SeatedPosition<E, L>) -> bool {
        let seats = worker.state.core.control.membership.seats_of(worker.state.plan());
        seats.iter().any(|seat| seat.is_orphan())
    }

    fn chunk_ended(&mut self, now: Instant, notice: impl FnOnce() -> Option<Duration>) {
        let since = now.saturating_duration_since(*self.looked.get_or_insert(now));
        if notice().is_some_and(|notice| since >= notice) {
            (self.looked, self.look_due) = (Some(now), true);
        }
    }

    #[inline(always)]
    fn refusal(&self) -> Option<WaitError> {
        self.damaged.get().then_some(WaitError::Damaged)
    }

    fn known_end<E, L: Layout>(worker: &SeatedPosition<E, L>) -> Option<WaitError> {
        let refusal = worker.role.refusal();
        refusal.or_else(|| worker.pool_ended()).or_else(|| worker.false_end())
    }

    fn end_of_closing<E, L: Layout>(worker: &SeatedPosition<E, L>) -> Option<u64> {
        let status = &worker.state.control().status;
        if !status.is_closing() || status.is_closed() {
            return None;
        }
        let seq = worker.next_run()?;
        closing::is_end(worker.state.control(), seq).then_some(seq)
    }

    fn finds_damage<E, L: Layout>(worker: &SeatedPosition<E, L>) -> bool {
        let is_passed_over = |seq| claims::is_passed_over(&worker.state.core, seq);
        let damaged = worker.next_run().is_some_and(is_passed_over);
        if damaged {
            worker.role.damaged.set(true);
        }
        damaged
    }

    #[inline(always)]
    fn chunk_released<E, L: Layout>(worker: &mut SeatedPosition<E, L>) {
        worker.give_adopted_seat_back();
    }

    /// Leaves the worker's place to another handle, even if it is a panic that drops this handle.
    /// Another worker then gets the unreleased events of the worker's chunk.
    fn leave<E, L: Layout>(worker: &mut SeatedPosition<E, L>) {
        if !worker.state.control().is_own_process() {
            return;
        }
        worker.disarm();
        worker.flush();
        let control = worker.state.control();
        twin!("death-outlives-leaver": forget_deaths(control, worker.state.stage) => ());
        if worker.bound != IDLE {
            // SYNC[orphaned]: before the notification.
            control.membership.seats_of(worker.state.plan())[worker.chunk_seat()].leave_chunk();
            twin!("orphan-unnotified": control.waits.notify(&[worker.state.plan().queue]) => ());
        }
        // If the unfinished chunk is the worker's own, it stays on the worker's seat, which is
        // therefore not freed.
        if worker.bound == IDLE || worker.bound_line != worker.own_line {
            control.membership.free_seat(worker.state.plan(), worker.worker);
        }
    }
}

impl<E, L: Layout> SeatedPosition<E, L> {
    /// Returns the positions of the current chunk that another worker may have been lent before.
    pub(crate) fn again(&self) -> &SeqRange {
        &self.role.again
    }
}
