//! The data that a ring's handles share besides the slots. The data in this module depends neither
//! on the type of events nor on the slots.
//!
//! [`Control`] joins six parts: the plan, which never changes; the [`Positions`]; the [`Status`];
//! the [`Waits`]; the [`Membership`]; the [`Counters`]. Each part of [`Control`] has words and
//! invariants of its own. Each operation that uses two parts of [`Control`] is a method of
//! [`Control`]. A release stores a position in [`Positions`] and notifies queues in [`Waits`]. The
//! methods that end a graph store a status in [`Status`] and notify all queues in [`Waits`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::base::edge;
use crate::base::name::Name;
use crate::base::panics::{drop_payload, panic_message};
use crate::base::sync::{AtomicU64, Line, Weak, twin};
use crate::errors::{BatchError, Cause, Failure, PeerDead, WaitError};
use crate::ring::board::Board;
use crate::ring::counters::{Counters, LocalCounts, Samples};
use crate::ring::membership::{Membership, Orphan, PoolIsOver};
use crate::ring::peers::{Death, OnDeath, Peers};
use crate::ring::plan::Plan;
use crate::ring::positions::Positions;
use crate::ring::reactors::Watched;
use crate::ring::seat::Seat;
use crate::ring::spec::Delivery;
use crate::ring::status::Status;
use crate::ring::task_number::TaskNumber;
use crate::ring::waits::Waits;
use crate::ring::words::{ClaimWord, ahead};
use crate::wait::queue::{QuietCheck, WaitQueue};
use crate::wait::{self, HandleLearner, WaitStats, WaitStrategy};

/// A party that waits. A party is a stage or the producers.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    /// Index of the waiting party.
    pub(crate) party: usize,
    /// Index of the party whose progress is awaited.
    pub(crate) waits_for: usize,
    /// The waiter's position.
    pub(crate) at: u64,
    /// Number of polls that the waiter has made since the wait began.
    pub(crate) polls: u32,
}

/// What a handle does at each check for deaths.
#[derive(Clone, Copy)]
pub(crate) struct Checkup<'a> {
    /// Settles what a dead participant left, for the holder of the proof of its death.
    pub(crate) settle: &'a dyn Fn(u32),
    /// Returns whether the words at which the handle waits contradict each other.
    pub(crate) is_damaged: &'a dyn Fn() -> bool,
}

impl Checkup<'_> {
    /// The checkup of a ring of one process.
    pub(crate) const NONE: Checkup<'static> = Checkup { settle: &|_| (), is_damaged: &|| false };
}

/// The data that a ring's handles share besides the slots.
pub struct Control {
    pub(crate) plan: Plan,
    /// Position of the first event.
    pub(crate) start: u64,
    /// Whether the stages' loops and the pools read the clock, to adapt the lengths of batches and
    /// chunks.
    pub(crate) timed: bool,
    /// Length of a consumer's pause after a short batch, in spin hints.
    pub(crate) spacing: u32,
    pub(crate) positions: Positions,
    pub(crate) status: Status,
    pub(crate) membership: Membership,
    pub(crate) counters: Counters,
    waits: Waits,
    /// The other processes of the ring's segment; `None`: the ring has one process.
    pub(crate) peers: Option<Peers>,
}

impl Control {
    /// `None`: there is no memory for the seats of so many workers, readers and stages.
    pub(crate) fn new(
        plan: Plan,
        board: Board,
        start: u64,
        deadline: Option<Duration>,
        timed: bool,
        samples: Option<Samples>,
    ) -> Option<Control> {
        let membership = Membership::new(&plan, board.seats, board.cells, board.participant);
        let waits = Waits::new(&plan, board.queues, board.always_fences, board.peers.is_some());
        let names = (0..=plan.stages.len()).map(|party| plan.name_of(party));
        let record = board.failure.map(|record| (record, names.collect()));
        Some(Control {
            start,
            timed,
            spacing: wait::spacing(),
            positions: Positions::over(board.lines),
            // The deadline begins after `Waits::new`, which calls methods of the strategies and may
            // take long.
            status: Status::new(board.status, record, plan.many_producers, deadline),
            membership,
            counters: Counters::new(&plan, board.counters, samples),
            waits,
            peers: board.peers,
            plan,
        })
    }

    pub(crate) fn line(&self, line: usize) -> &AtomicU64 {
        self.positions.line(line)
    }

    /// Returns the name of a party.
    pub(crate) fn name(&self, party: usize) -> Name {
        self.plan.name_of(party)
    }

    /// Returns the index of the producers as a party: the index after the last stage's index.
    pub(crate) fn producer_party(&self) -> usize {
        self.plan.producer_party()
    }

    // Positions. See `Positions`.

    #[inline]
    pub(crate) fn frontier(&self, stage: usize, lower_bound: u64) -> u64 {
        self.positions.frontier(&self.plan, stage, lower_bound)
    }

    #[inline]
    pub(crate) fn least_frontier(&self, stages: &[usize], lower_bound: u64) -> (u64, usize) {
        self.positions.least_frontier(&self.plan, stages, lower_bound)
    }

    #[inline]
    pub(crate) fn upstream(&self, stage: usize, lower_bound: u64) -> (u64, usize) {
        self.positions.upstream(&self.plan, stage, lower_bound)
    }

    pub(crate) fn position(&self, stage: usize) -> u64 {
        self.positions.position(&self.plan, stage)
    }

    #[inline]
    pub(crate) fn cursor(&self) -> u64 {
        self.positions.cursor()
    }

    pub(crate) fn claim_at(&self, word: ClaimWord, lower_bound: u64) -> u64 {
        self.positions.claim_at(&self.plan, word, lower_bound)
    }

    pub(crate) fn claimed(&self, lower_bound: u64) -> (u64, bool) {
        self.positions.claimed(&self.plan, lower_bound)
    }

    pub(crate) fn landmark(&self, pool: usize) -> u64 {
        self.positions.landmark(&self.plan.stages[pool])
    }

    /// Stores `word`, which holds a position, on a line. The store releases all events before the
    /// position. After the store, the method notifies the queues in `notifies`.
    #[inline]
    pub(crate) fn release(&self, line: usize, word: u64, notifies: &[usize]) {
        edge::released::release(self.positions.line(line), word);
        self.notify(notifies);
    }

    // Waiting and notifying. See `Waits`.

    /// Returns whether the graph has more threads than cores, with the members of its taps and the
    /// workers that joined its pools. Members and workers may join or leave at any time.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        // A model has no cores. The loads of the counts would multiply the model's states.
        let joined = if cfg!(slipring_loom) {
            0
        } else {
            self.membership.joined(&self.positions, &self.plan)
        };
        self.waits.is_oversubscribed(joined)
    }

    #[inline]
    pub(crate) fn notify(&self, queues: &[usize]) {
        self.waits.notify(queues);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn notify_publication(&self) {
        self.waits.notify_publication(&self.plan);
    }

    pub(crate) fn quiet_check(&self) -> QuietCheck {
        self.waits.quiet_check(&self.plan)
    }

    /// Returns whether the words of the ring are this process's to use. In a forked child, the
    /// memory of a segment is not mapped.
    pub(crate) fn is_own_process(&self) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.proof.is_own_process())
    }

    // Endings. See `Status`.

    /// Closes the ring at its last position. Each stage ends when the stage has reached the ring's
    /// last position.
    pub(crate) fn close(&self, final_seq: u64) {
        self.status.close(final_seq); // SYNC[closed]: before the queues are notified
        twin!("closed-unnotified": self.waits.notify_all() => ());
    }

    /// Says that the ring is closing, in which several processes produce. The first stages find the
    /// last position (`closing`).
    pub(crate) fn begin_closing(&self) {
        self.status.begin_closing(); // SYNC[announced]: before the queues are notified
        twin!("closing-unnotified": self.waits.notify_all() => ());
    }

    /// Ends the graph without waiting until the stages have handled all events.
    pub(crate) fn halt(&self) {
        self.status.halt(); // SYNC[announced]: before the queues are notified
        twin!("halted-unnotified": self.waits.notify_all() => ());
    }

    /// Ends the graph with a failure, unless the graph has failed already.
    pub(crate) fn fail(&self, party: usize, seq: Option<u64>, cause: Cause) {
        let failure = |cause| Failure::new(self.name(party), seq, cause);
        match self.status.fail(party, failure, cause) {
            Ok(()) => twin!("failed-unnotified": self.waits.notify_all() => ()),
            // The graph keeps its first failure, so the cause of a later failure is dropped.
            Err(cause) => drop_payload(Box::new(cause)),
        }
    }

    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.status.is_running()
    }

    #[inline(always)]
    pub(crate) fn check_running(&self) -> Result<(), WaitError> {
        self.status.check_running()
    }

    /// Returns whether [`Control::ended`] would find nothing, at any position: the graph was not
    /// closed or halted, and has not failed. The check costs one load of a line that seldom changes.
    #[inline(always)]
    pub(crate) fn is_undisturbed(&self) -> bool {
        !self.status.is_over()
    }

    #[inline(always)]
    pub(crate) fn ended(&self, next: u64) -> Option<WaitError> {
        self.status.ended(next)
    }

    pub(crate) fn stopped(&self) -> Option<WaitError> {
        self.status.stopped()
    }

    /// Fails the graph if the graph's deadline has passed. Returns whether the deadline has passed.
    /// `party` is the index of the waiting party, and `at` is the position of the waiting party.
    /// Every loop that may run without progress calls `expire`.
    pub(crate) fn expire(&self, party: usize, at: u64) -> bool {
        let overdue = self.status.overdue();
        if let Some(after) = overdue {
            self.fail(party, Some(at), Cause::Deadline(after));
        }
        overdue.is_some()
    }

    // Waiting. See `Waits`.

    /// Returns whether this process executes a fence wherever other processes would otherwise rely
    /// on a membarrier.
    #[inline(always)]
    pub(crate) fn always_fences(&self) -> bool {
        self.waits.always_fences
    }

    /// Executes a memory barrier in every process of the segment.
    #[cold]
    pub(crate) fn fence_processes(&self) {
        if !edge::closing::fence_processes() && !cfg!(slipring_loom) {
            // During the pause, the stores that the others made without a fence reach memory.
            std::thread::sleep(self.peers.as_ref().map_or(Duration::ZERO, |peers| peers.notice));
        }
    }

    /// Creates the learner of a handle of `party`: the part of a wait strategy that learns from the
    /// handle's waits.
    ///
    /// `learner` runs the strategy's code, which may be user code and may panic. The caller of
    /// `learner` must hold no lock, and must not yet have counted a handle or pinned a position. A
    /// handle's constructor takes a learner as a parameter, so that the learner is made before the
    /// handle is counted.
    pub(crate) fn learner(&self, party: usize) -> HandleLearner {
        self.plan.wait_of(party).learner().into()
    }

    /// Works as [`Control::learner`], but catches a panic of the strategy. If the strategy panics,
    /// the graph fails, and the failure names `party`.
    pub(crate) fn learner_contained(&self, party: usize) -> HandleLearner {
        catch_unwind(AssertUnwindSafe(|| self.learner(party))).unwrap_or_else(|panic| {
            self.fail(party, None, Cause::Panic(panic_message(panic)));
            HandleLearner::default()
        })
    }

    /// Returns the number of polls with which each wait of a new handle of `party` begins. During
    /// these polls the waiter spins without asking the strategy; see [`Wait::first_polls`].
    ///
    /// [`Wait::first_polls`]: crate::wait::Wait::first_polls
    pub(crate) fn first_polls(&self, party: usize) -> u32 {
        let wait = self.plan.wait_of(party);
        if self.is_oversubscribed() { 0 } else { wait.first_polls(wait::first_polls()) }
    }

    /// Registers a task of `party`, at the position `at`, for the next notification, unless `ready`
    /// returns `true`. Returns `true` if the task must poll again.
    pub(crate) fn arm(
        &self,
        (party, at): (usize, u64),
        number: u64,
        waker: &Waker,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        let deaths = self.peers.as_ref().map(|peers| &peers.deaths);
        let ready = &mut || ready() || deaths.is_some_and(|deaths| deaths.has(number));
        self.waits.arm(&self.plan, (party, at), number, waker, ready)
    }

    /// Removes the task with this number, if it is armed.
    pub(crate) fn disarm(&self, party: usize, number: u64) {
        if !self.is_own_process() {
            // In a forked child, another thread of the parent may have held the lock.
            return;
        }
        // A noted death stays: the handle's next call that finds nothing tells of it.
        self.waits.disarm(&self.plan, party, number);
    }

    /// Returns the queue with this index.
    pub(crate) fn queue(&self, index: usize) -> &WaitQueue {
        self.waits.queue(index)
    }

    /// Gives the threads that sleep for this process's tasks the ring.
    pub(crate) fn watch_by(&self, ring: Weak<dyn Watched>) {
        self.waits.watch(ring);
    }

    /// Stops the threads that sleep for this process's tasks. The last owner of the ring calls the
    /// method before it goes.
    pub(crate) fn stop_reactors(&self) {
        // A forked child has neither the threads nor the segment.
        if self.peers.is_some() && self.is_own_process() {
            self.waits.stop_reactors();
        }
    }

    /// Checks for deaths on behalf of a waiting task, and notes the error of its next call, if any.
    /// Returns whether there is one.
    pub(crate) fn watch_for_task(
        &self,
        task: u64,
        (party, at): (usize, u64),
        settle: &dyn Fn(u32),
    ) -> bool {
        let Some(peers) = &self.peers else { return false };
        let waiter = Waiter { party, waits_for: party, at, polls: 0 };
        let checkup = Checkup { settle, is_damaged: &|| false };
        let death = self.watch(peers, &waiter, checkup);
        death.map(|death| peers.deaths.note(task, death)).is_some()
    }

    /// Waits until `ready` returns `true`, or until the earlier of the graph's deadline and
    /// `deadline`.
    ///
    /// Calls the closure `lasts` once if the wait outlasts its first polls. If the waiting thread
    /// would wait for its own handler, `lasts` returns the handler's stage, and the wait ends.
    /// `lasts` is not called before the first polls, because in a dense stream the call would delay
    /// the next event.
    pub(crate) fn wait_at(
        &self,
        waiter: Waiter,
        learned: &mut HandleLearner,
        deadline: Option<Instant>,
        lasts: &mut dyn FnMut() -> Option<usize>,
        checkup: Checkup<'_>,
        ready: &mut dyn FnMut() -> bool,
    ) -> (Result<(), BatchError>, WaitStats) {
        let party = waiter.party;
        #[cfg(all(test, slipring_loom))]
        let _asleep = crate::loom_models::asleep(&self.name(party));
        let (mut holder, mut first, mut death) = (None, true, None);
        let notice = self.peers.as_ref().map(|peers| peers.notice);
        let (in_time, stats) = self.waits.wait(
            &self.plan,
            (party, waiter.polls, self.is_oversubscribed()),
            learned,
            (self.status.deadline(), deadline, notice),
            &mut || {
                if std::mem::take(&mut first) {
                    holder = lasts();
                    if holder.is_none() {
                        self.waits.cores.record(&self.plan, party);
                    }
                }
                death = self.peers.as_ref().and_then(|peers| self.watch(peers, &waiter, checkup));
                holder.is_none() && death.is_none()
            },
            ready,
        );
        let waited = match (holder, death) {
            // The settling of what the dead left may have ended the wait.
            (_, Some(death)) => Err(BatchError::Wait(death)),
            _ if in_time => Ok(()),
            (Some(stage), _) => Err(WaitError::WaitsForItself(Box::new(self.name(stage))).into()),
            (None, None) => Err(self.out_of_time(waiter)),
        };
        (waited, stats)
    }

    /// Returns the party for which a waiter waits now. The party may change during a wait.
    pub(crate) fn slowest(&self, waiter: &Waiter) -> usize {
        if waiter.party == self.producer_party() {
            let lower_bound = waiter.at.wrapping_sub(self.plan.capacity as u64);
            return self.least_frontier(&self.plan.gating, lower_bound).1;
        }
        self.upstream(waiter.party, waiter.at).1
    }

    /// Called where a call of `party`, at the position `at`, found nothing and does not wait. A
    /// loop of such calls hears of deaths as a waiting call does. So does the call of a task that
    /// was woken to hear of a death. `counted`: the handle has made so many such calls that this one
    /// may check for deaths. Returns the error of the call, if any.
    #[cold]
    pub(crate) fn refused(
        &self,
        (party, at): (usize, u64),
        task: &TaskNumber,
        counted: bool,
        checkup: Checkup<'_>,
    ) -> Option<WaitError> {
        let peers = self.peers.as_ref()?;
        let waiter = Waiter { party, waits_for: party, at, polls: 0 };
        let noted = task.taken().and_then(|task| peers.deaths.take(task));
        // Another process may have taken the place of the dead one since.
        if let Some(death) = noted.filter(|_| self.holds_up_dead(peers, &waiter).is_some()) {
            return Some(death);
        }
        if counted && peers.is_check_due() { self.watch(peers, &waiter, checkup) } else { None }
    }

    /// Returns the stage for which a stage waits now; `None`: it has events to handle, or it waits
    /// for a publication. Stages form no circle, so a walk along these stages ends.
    fn holds_up(&self, party: usize) -> Option<usize> {
        let stage = self.plan.stages.get(party).filter(|stage| !stage.after.is_empty())?;
        let position = self.positions.position(&self.plan, party);
        let (frontier, upstream) = self.upstream(party, position);
        (ahead(frontier, position) <= 0 && stage.after.contains(&upstream)).then_some(upstream)
    }

    /// Returns the death of a participant that has a place of `party`, as [`Peers::death_of`] does, and
    /// the number of its shard. `None`: there is none, or no party is to hear of it. Of several
    /// producers, and of a pool's workers, the others hear once none lives.
    fn death_of(&self, peers: &Peers, party: usize) -> Option<(Option<usize>, Death)> {
        if matches!(peers.on_death.get(party)?, OnDeath::Wait | OnDeath::Close) {
            return None;
        }
        if let Some(Delivery::Shards(shards)) = self.plan.stages.get(party).map(|it| it.delivery) {
            let (shard, death) = self.dead_shard(peers, party, shards)?;
            return Some((Some(shard), death));
        }
        let seats = self.seats_of(party);
        let lives = |seat: &Line<Seat>| seat.owner().is_some_and(|it| !peers.proof.is_dead(it));
        if seats.len() > 1 && seats.iter().any(lives) {
            return None;
        }
        // A closing ring needs no producer. The last producer that has said that it leaves closes,
        // also if it dies before it has.
        let leaves = |seat: &Line<Seat>| seat.is_leaving();
        let ends = || self.status.is_closing() || seats.iter().any(leaves);
        if party == self.producer_party() && twin!("leaver-told": ends() => false) {
            return None;
        }
        let death = seats.iter().filter_map(|seat| peers.death_of(seat)).max()?;
        Some((None, death))
    }

    /// Returns the number of a shard that holds a stage up, and the death of its owner. Of several
    /// such shards, one that is not settled yet comes first. The other shards cannot do its work.
    fn dead_shard(&self, peers: &Peers, stage: usize, shards: usize) -> Option<(usize, Death)> {
        let (line, position) = (self.plan.stages[stage].line, self.position(stage));
        let dead = |shard: usize| {
            let holds_up = self.positions.released(line + shard) == position;
            let seat = &self.seats_of(stage)[shard];
            if holds_up { Some((shard, peers.death_of(seat)?)) } else { None }
        };
        (0..shards).filter_map(dead).max_by_key(|&(_, death)| death)
    }

    /// Forgets the deaths of former handles of a party, for a handle that joins it (`seat::I4`).
    pub(crate) fn forget_deaths(&self, party: usize) {
        self.seats_of(party).iter().for_each(|seat| seat.forget_death());
    }

    /// Returns whether the death of the last producer closes the ring.
    pub(crate) fn closes_at_death(&self) -> bool {
        let on_death = |peers: &Peers| peers.on_death[self.producer_party()] == OnDeath::Close;
        self.peers.as_ref().is_some_and(on_death)
    }

    /// Returns whether a living producer owns a seat of the producers, and has not begun to leave.
    pub(crate) fn is_staying(&self, seat: &Seat) -> bool {
        // A process that recovers the owner has noted its death, so the note is loaded last.
        let find_dead = || self.peers.as_ref().is_some_and(|peers| peers.find_dead(seat));
        twin!("note-seen-early":
            !find_dead() && seat.is_staying() => seat.is_staying() && !find_dead()
        )
    }

    /// Returns the death for which a waiter waits, directly or through other stages, and the dead
    /// participant's party and shard.
    fn holds_up_dead(
        &self,
        peers: &Peers,
        waiter: &Waiter,
    ) -> Option<(usize, Option<usize>, Death)> {
        let mut party = self.slowest(waiter);
        loop {
            if let Some((shard, death)) = self.death_of(peers, party) {
                return Some((party, shard, death));
            }
            party = self.holds_up(party)?;
        }
    }

    /// Has `settle` settle what dead producers left, in a ring of several processes that produce, or
    /// one that closes when the producer dies. The stages and the other producers then go on.
    pub(crate) fn settle_dead_producers(&self, settle: &dyn Fn(u32)) {
        let settles = self.plan.many_producers || self.closes_at_death();
        if let Some(peers) = self.peers.as_ref().filter(|_| settles) {
            self.settle_dead(peers, self.producer_party(), settle);
        }
    }

    /// Has `settle` settle what dead workers left. The other workers of a pool then finish the
    /// chunks of the dead.
    fn settle_dead_workers(&self, peers: &Peers, settle: &dyn Fn(u32)) {
        for (pool, stage) in self.plan.stages.iter().enumerate() {
            if matches!(stage.delivery, Delivery::Pool { .. }) {
                self.settle_dead(peers, pool, settle);
            }
        }
    }

    /// Has `settle` settle what the dead among the owners of a party's seats left.
    fn settle_dead(&self, peers: &Peers, party: usize, settle: &dyn Fn(u32)) {
        for seat in self.seats_of(party) {
            if let Some(owner) = seat.owner()
                && owner != self.membership.participant
                && peers.proof.is_dead(owner)
            {
                peers.recover(&self.membership.seats, owner, settle);
            }
        }
    }

    /// Returns the seats of a party.
    pub(crate) fn seats_of(&self, party: usize) -> &[Line<Seat>] {
        &self.membership.seats[self.plan.seats_of(party)]
    }

    /// Checks the party that a waiter waits for, and the stages that this party waits for in turn.
    /// Returns the error of the wait, if that party's process has died and waiters are to be told,
    /// or if the waiter finds damage. Fails the graph, if the graph is to fail.
    #[cold]
    fn watch(
        &self,
        peers: &Peers,
        waiter: &Waiter,
        Checkup { settle, is_damaged }: Checkup<'_>,
    ) -> Option<WaitError> {
        let dead = self.holds_up_dead(peers, waiter);
        self.settle_dead_producers(settle);
        // A dead member no longer holds up the parties behind its tap.
        let taps = twin!("dead-members-left": self.plan.taps_before(waiter.party) => &[]);
        taps.iter().for_each(|&tap| self.settle_dead(peers, tap, settle));
        self.settle_dead_workers(peers, settle);
        if is_damaged() {
            return Some(WaitError::Damaged);
        }
        let (party, shard, Death { pid, .. }) = dead?;
        let on_death = peers.on_death[party];
        let stage = self.name(party);
        let seq = match party == self.producer_party() {
            true => waiter.at,
            false => self.position(party),
        };
        if on_death == OnDeath::Fail {
            self.fail(party, Some(seq), Cause::Died { pid });
            return None;
        }
        Some(WaitError::PeerDead(Box::new(PeerDead { stage, shard, pid, seq })))
    }

    fn out_of_time(&self, waiter: Waiter) -> BatchError {
        if self.expire(waiter.party, waiter.at) {
            BatchError::Wait(self.stopped().unwrap_or(WaitError::Halted))
        } else {
            BatchError::TimedOut
        }
    }

    /// Lets the current thread sleep for `time`. The graph's end or deadline ends the thread's
    /// sleep earlier than `time`.
    pub(crate) fn pause(&self, time: Duration, party: usize, at: u64) {
        let until = Instant::now().checked_add(time);
        while self.is_running() {
            let left = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() || self.expire(party, at) {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(10)));
        }
    }

    // Joining and leaving. See `Membership`.

    /// Takes a free seat of a pool. `None`: no seat is free. `Err`: no worker of the pool is left,
    /// so the pool has ended.
    pub(crate) fn acquire_worker(&self, pool: usize) -> Result<Option<usize>, WaitError> {
        self.membership
            .acquire_worker(pool, &self.plan.stages[pool])
            .map_err(|PoolIsOver| self.stopped().unwrap_or(WaitError::Closed))
    }

    /// Leaves a chunk to another worker of the pool, and notifies the pool's queue.
    pub(crate) fn orphan(&self, pool: usize, orphan: Orphan) {
        let stage = &self.plan.stages[pool];
        self.membership.leave_orphan(pool, stage, orphan); // SYNC[orphaned]: before the notification
        twin!("orphan-unnotified": self.notify(&[stage.queue]) => ());
    }

    /// Leaves the chunk of a seat of a segment's pool to another worker, and notifies the pool's
    /// queue. The caller owns the seat.
    pub(crate) fn leave_chunk(&self, pool: usize, seat: usize) {
        let stage = &self.plan.stages[pool];
        self.membership.seats_of(stage)[seat].leave_chunk(); // SYNC[orphaned]: before
        twin!("orphan-unnotified": self.notify(&[stage.queue]) => ());
    }

    pub(crate) fn acquire_member(&self, tap: usize) -> Option<usize> {
        self.membership.acquire_member(&self.positions, &self.plan.stages[tap])
    }

    /// Gives a member's seat back to the tap, and notifies the parties that waited for the member.
    pub(crate) fn release_member(&self, tap: usize, seat: usize) {
        let stage = &self.plan.stages[tap];
        self.membership.release_member(&self.positions, stage, seat); // SYNC[left]: before
        self.notify(twin!("vacated-unnotified": &stage.notifies[..] => &[]));
    }

    // Counting.

    /// Adds a handle's new counts, `now` minus `flushed`, to the counters of `party`.
    #[inline]
    pub(crate) fn count(&self, party: usize, now: &LocalCounts, flushed: &LocalCounts) {
        self.counters.flush(party, now, flushed);
    }
}
