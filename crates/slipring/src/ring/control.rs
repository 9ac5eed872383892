//! What a ring shares besides its slots: positions, status, bells. It knows nothing of the event
//! type, and no slot.
//!
//! Invariants
//! - I1: a released position only grows, and everything before it has been handled by its stage;
//!   whoever loads it (acquire) may do with those slots what the stage's followers may
//!   (`SYNC[released]`).
//! - I2: a pool's frontier is the smallest of its claim word's position and the bounds of workers
//!   that are not idle. A worker publishes its bound before it takes a chunk off the claim word,
//!   and whoever computes the frontier loads the claim word *first*: it sees the bound of every
//!   chunk that the word it loaded has given away (`SYNC[chunk-taken]`).
//! - I3: the last position is stored before the closed bit is (`SYNC[closed]`), and once closed
//!   nothing is claimed any more.
//! - I4: of several failures the first is kept, and it is stored before the failed bit is
//!   (`SYNC[failed]`).

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::base::name::{Name, PRODUCER};
use crate::base::panics::panic_message;
use crate::base::sync::{
    AcqRel, Acquire, AtomicU32, AtomicU64, AtomicUsize, Line, Mutex, Relaxed, Release, array, lock,
    twin,
};
use crate::errors::{BatchError, Cause, Failure, WaitError};
use crate::ring::counters::{Counters, LocalCounts, Samples};
use crate::ring::plan::{
    CLAIM_LINE, CURSOR_LINE, Delivery, PRODUCER_QUEUE, Plan, SENTINEL_LINE, Stage,
};
use crate::ring::spinning::Cores;
use crate::wait::queue::{self, QuietCheck, WaitQueue};
use crate::wait::{self, Learned, Site, Wait, WaitStats, WaitStrategy};

const CLOSED: u32 = 1;
const HALTED: u32 = 2;
const FAILED: u32 = 4;

/// One maker in [`Control::makers`]. Each maker owns the ring (owner::I1), and the process aborts
/// before 2^62 owners are counted, forgotten handles included. So the count of makers never leaves
/// its 63 bits.
const MAKER: u64 = 2;
/// A maker was created since the sole maker last read the claim word.
const COMPANY: u64 = 1;
/// One maker, which has not read the claim word since another one was created.
const ALONE_AGAIN: u64 = MAKER | COMPANY;

/// A worker's bound with this bit says that it holds nothing.
pub(crate) const IDLE: u64 = 1;

/// What of a run is left stands in the low bits of a pool's claim word, the position above.
const LEFT_BITS: u32 = 16;

struct Status {
    bits: AtomicU32,
    final_seq: AtomicU64,
}

/// A chunk whose worker left: still bounded by that worker's line until another has finished it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orphan {
    pub(crate) bound_line: usize,
    pub(crate) next: u64,
    pub(crate) end: u64,
}

/// The makers beside the one that asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// None since the asking maker last read the claim word: the word is what that maker stored.
    Never,
    /// None now; former ones may have moved the claim word.
    Earlier,
    /// Others may move the claim word at any time.
    Now,
}

/// Who waits, and for whom.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    /// A stage by number, or the producer.
    pub(crate) party: usize,
    /// Whom the wait is for.
    pub(crate) waits_for: usize,
    /// The position the waiter stands at.
    pub(crate) at: u64,
}

pub struct Control {
    pub(crate) plan: Plan,
    /// Whether there are more threads than cores.
    oversubscribed: bool,
    pub(crate) start: u64,
    /// Whether loops and pools learn from the clock.
    pub(crate) timed: bool,
    /// Pauses of a consumer after a short batch.
    pub(crate) spacing: u32,
    lines: Box<[Line<AtomicU64>]>,
    status: Line<Status>,
    queues: Box<[WaitQueue]>,
    /// Who spins where.
    cores: Cores,
    failure: Mutex<Option<Failure>>,
    deadline: Option<(Instant, Duration)>,
    pub(crate) counters: Counters,
    /// Producer handles that are alive.
    pub(crate) producers: AtomicUsize,
    /// Live makers times [`MAKER`], and [`COMPANY`]. A maker is a handle that can claim, or can
    /// create a handle that claims: the producers' handles and the ring's own.
    makers: AtomicU64,
    /// How many handles had tasks that waited.
    tasks: AtomicU64,
    /// Handles that are alive, per stage.
    alive: Box<[AtomicUsize]>,
    /// Which seats are taken, per stage where readers or workers join.
    pub(crate) seats: Box<[Mutex<Vec<bool>>]>,
    orphans: Mutex<Vec<(usize, Orphan)>>,
    /// How many orphans there are, per stage; a glance before the lock.
    orphaned: Box<[Line<AtomicUsize>]>,
}

/// The position nearest to `lower_bound` whose low `bits` bits are `low`. Nearest either way: what a
/// handle knows may be newer than the word it just loaded, where it learned of it from somebody
/// else.
#[inline(always)]
fn widen(low: u64, bits: u32, lower_bound: u64) -> u64 {
    let spare = 64 - bits;
    let away = low.wrapping_sub(lower_bound) << spare;
    lower_bound
        .wrapping_add(twin!("widened-forwards": (away as i64 >> spare) as u64 => away >> spare))
}

/// How far `to` is ahead of `from`; negative: behind. Positions never differ by 2^62 or more.
#[inline(always)]
pub(crate) fn ahead(to: u64, from: u64) -> i64 {
    to.wrapping_sub(from) as i64
}

/// The later of two positions.
#[inline(always)]
pub(crate) fn later(one: u64, other: u64) -> u64 {
    if ahead(other, one) > 0 { other } else { one }
}

/// How far a bound (63 bits of a position) is ahead of `lower_bound`, or behind.
#[inline(always)]
pub(crate) fn bound_ahead(bound: u64, lower_bound: u64) -> i64 {
    ((bound >> 1).wrapping_sub(lower_bound) << 1) as i64 >> 1
}

/// A pool's claim word: the position up to which chunks were taken, and what is left of the run it
/// lies in.
#[derive(Clone, Copy)]
pub(crate) struct PoolWord(pub(crate) u64);

impl PoolWord {
    pub(crate) fn new(seq: u64, left: u64) -> PoolWord {
        debug_assert!(left < 1 << LEFT_BITS);
        PoolWord(seq << LEFT_BITS | left)
    }
    #[inline(always)]
    pub(crate) fn seq(self, lower_bound: u64) -> u64 {
        widen(self.0 >> LEFT_BITS, 64 - LEFT_BITS, lower_bound)
    }
    #[inline(always)]
    pub(crate) fn left(self) -> u64 {
        self.0 & ((1 << LEFT_BITS) - 1)
    }
}

/// The word that many producers claim by: the next position, and whether all of them are closed.
#[derive(Clone, Copy)]
pub(crate) struct ClaimWord(pub(crate) u64);

impl ClaimWord {
    pub(crate) const CLOSED: u64 = 1;
    pub(crate) fn open(seq: u64) -> ClaimWord {
        ClaimWord(seq << 1)
    }
    #[inline(always)]
    pub(crate) fn seq(self, lower_bound: u64) -> u64 {
        widen(self.0 >> 1, 63, lower_bound)
    }
    #[inline(always)]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & Self::CLOSED != 0
    }
}

impl Control {
    /// Bytes that each of [`Plan::lines`] takes.
    pub(crate) const BYTES_PER_LINE: usize = size_of::<Line<AtomicU64>>();

    /// `None`: there is no memory for the lines of so many workers, readers and stages.
    pub(crate) fn new(
        plan: Plan,
        start: u64,
        deadline: Option<Duration>,
        timed: bool,
        samples: Option<Samples>,
    ) -> Option<Control> {
        let mut lines = array(plan.lines, |_| Line(AtomicU64::new(start)))?;
        lines[CLAIM_LINE] = Line(AtomicU64::new(ClaimWord::open(start).0));
        let mut pools = 0;
        for stage in &plan.stages {
            let first = match stage.delivery {
                Delivery::Each | Delivery::Shards(_) => continue,
                Delivery::Pool { room, .. } => {
                    pools += room;
                    PoolWord::new(start, 0).0
                }
                Delivery::Tap(room) => {
                    lines[stage.line + 1 + room..][..room]
                        .iter_mut()
                        .for_each(|ticket| *ticket = Line(AtomicU64::new(0)));
                    0
                }
            };
            lines[stage.line] = Line(AtomicU64::new(first));
            lines[stage.line + 1..][..stage.delivery.room()]
                .iter_mut()
                .for_each(|bound| *bound = Line(AtomicU64::new(IDLE)));
        }
        let mut orphans = Vec::new();
        orphans.try_reserve_exact(pools).ok()?;
        let seats = |stage: usize| {
            let delivery = plan.stages[stage].delivery;
            Some(array(delivery.room(), |seat| seat < delivery.len())?.into_vec())
        };
        let seats: Option<Vec<_>> =
            (0..plan.stages.len()).map(|stage| seats(stage).map(Mutex::new)).collect();
        Some(Control {
            oversubscribed: plan.threads > wait::cores(),
            start,
            timed,
            spacing: wait::spacing(),
            lines,
            status: Line(Status { bits: AtomicU32::new(0), final_seq: AtomicU64::new(0) }),
            cores: Cores::new(&plan),
            queues: (0..plan.queues).map(|_| WaitQueue::new()).collect(),
            failure: Mutex::new(None),
            // A deadline beyond what the clock can count is none.
            deadline: deadline.and_then(|after| Some((Instant::now().checked_add(after)?, after))),
            counters: Counters::new(&plan, samples)?,
            producers: AtomicUsize::new(0),
            makers: AtomicU64::new(0),
            tasks: AtomicU64::new(0),
            alive: plan.stages.iter().map(|stage| AtomicUsize::new(stage.delivery.len())).collect(),
            seats: seats?.into(),
            orphans: Mutex::new(orphans),
            orphaned: plan.stages.iter().map(|_| Line(AtomicUsize::new(0))).collect(),
            plan,
        })
    }

    pub(crate) fn line(&self, line: usize) -> &AtomicU64 {
        &self.lines[line].0
    }

    /// The name of a stage, or the producer's beyond the last.
    pub(crate) fn name(&self, party: usize) -> Name {
        self.plan.stages.get(party).map_or_else(|| Name::new(PRODUCER), |stage| stage.name.clone())
    }

    /// The number under which the producer is counted.
    pub(crate) fn producer_party(&self) -> usize {
        self.plan.stages.len()
    }

    // Who may claim.

    /// Counts a new maker in. Called only through a borrow of an existing maker, or while the ring
    /// is built; so no maker appears beside the sole one while that one claims.
    pub(crate) fn add_maker(&self) {
        let add = |makers| Some(twin!("company-unmarked": makers | COMPANY => makers) + MAKER);
        let added = self.makers.fetch_update(Relaxed, Relaxed, add);
        debug_assert!(added.is_ok(), "the closure always has a value");
    }

    /// Counts a maker out, which never claims again.
    pub(crate) fn remove_maker(&self) {
        self.makers.fetch_sub(MAKER, twin!("left-relaxed": Release => Relaxed)); // SYNC[left-alone]: who goes, after its last claim
    }

    /// Whether the asking maker is the only one, and whether another one existed since it last
    /// called [`Control::settle_alone`].
    #[inline(always)]
    pub(crate) fn company(&self) -> Company {
        let makers = self.makers.load(twin!("alone-relaxed": Acquire => Relaxed)); // SYNC[left-alone]: who remains
        let makers = twin!("alone-in-company": makers => MAKER | COMPANY);
        match makers {
            MAKER => Company::Never,
            ALONE_AGAIN => Company::Earlier,
            _ => Company::Now,
        }
    }

    /// Forgets former makers. Called by the sole maker after it has read the claim word: only that
    /// maker can change the count now, so a store does not lose another one's change.
    pub(crate) fn settle_alone(&self) {
        self.makers.store(MAKER, Relaxed);
    }

    /// The position in a claim word, whatever others claimed since a caller learned of `lower_bound`. The
    /// word has 63 bits of it; the last one comes from a stage, which is within a lap. Not for a
    /// claim's usual way: it loads a stage's line.
    pub(crate) fn claim_at(&self, word: ClaimWord, lower_bound: u64) -> u64 {
        // A model's producers go a few positions. The line changes nothing there, and looking at it
        // multiplies the orders.
        if cfg!(slipring_loom) {
            return word.seq(lower_bound);
        }
        let required = |stage: &Stage| !matches!(stage.delivery, Delivery::Tap(_));
        match self.plan.stages.iter().position(required) {
            Some(stage) => word.seq(self.position(stage)),
            // The sentinel stands for the producers.
            None => word.seq(self.lines[SENTINEL_LINE].0.load(Relaxed)),
        }
    }

    /// How far many producers have claimed, and whether all of them are closed.
    pub(crate) fn claimed(&self, lower_bound: u64) -> (u64, bool) {
        let word = ClaimWord(self.lines[CLAIM_LINE].0.load(Relaxed));
        (self.claim_at(word, lower_bound), word.is_closed())
    }

    // Frontiers.

    /// What a stage has let go, if that is known to be no less than `lower_bound`.
    #[inline]
    pub(crate) fn frontier(&self, number: usize, lower_bound: u64) -> u64 {
        let stage = &self.plan.stages[number];
        match stage.delivery {
            Delivery::Each => {
                self.lines[stage.line].0.load(twin!("frontier-relaxed": Acquire => Relaxed))
            } // SYNC[released]: followers and producers
            Delivery::Pool { room, .. } => {
                // I2: the claim word first.
                let claim = &self.lines[stage.line].0;
                let word = PoolWord(claim.load(twin!("frontier-word-relaxed": Acquire => Relaxed))); // SYNC[chunk-taken]: frontier's side
                let mut least = i64::MAX;
                for bound in &self.lines[stage.line + 1..=stage.line + room] {
                    let bound = bound.0.load(twin!("bound-relaxed": Acquire => Relaxed)); // SYNC[released]: behind a pool
                    if bound & IDLE == 0 {
                        least = least.min(bound_ahead(bound, lower_bound));
                    }
                }
                let word = twin!("frontier-word-last": word => PoolWord(claim.load(Acquire)));
                least = least.min(ahead(word.seq(lower_bound), lower_bound));
                // A worker that lost a race for a chunk may show an old bound for a moment; what
                // was let go stays let go.
                lower_bound.wrapping_add(least.max(0) as u64)
            }
            Delivery::Shards(shards) => self.least_passed(stage.line, shards, lower_bound),
            Delivery::Tap(_) => {
                let (up, _) = self.upstream(number, lower_bound);
                lower_bound.wrapping_add(
                    ahead(up, lower_bound).min(self.held(number, lower_bound)).max(0) as u64,
                )
            }
        }
    }

    /// The least that any of these stages has let go, and which one holds it. `lower_bound`: what they are
    /// known to have let go.
    #[inline]
    pub(crate) fn least_frontier(&self, stages: &[usize], lower_bound: u64) -> (u64, usize) {
        let (mut least, mut slowest) = (i64::MAX, 0);
        for &stage in stages {
            let distance = ahead(self.frontier(stage, lower_bound), lower_bound);
            if distance < least {
                (least, slowest) = (distance, stage);
            }
        }
        // A tap where nobody stands in the way is no reason to wait.
        if let Some(Delivery::Tap(_)) = self.plan.stages.get(slowest).map(|stage| stage.delivery)
            && self.held(slowest, lower_bound) > least
        {
            slowest = self.upstream(slowest, lower_bound).1;
        }
        (lower_bound.wrapping_add(least.max(0) as u64), slowest)
    }

    /// How far the single producer has published where nothing is stamped.
    #[inline]
    pub(crate) fn cursor(&self) -> u64 {
        self.lines[CURSOR_LINE].0.load(twin!("cursor-seen-relaxed": Acquire => Relaxed)) // SYNC[cursor-moved]: stages
    }

    /// How far somebody has moved the sentinel.
    #[inline]
    fn sentinel(&self) -> u64 {
        self.lines[SENTINEL_LINE].0.load(twin!("sentinel-seen-relaxed": Acquire => Relaxed)) // SYNC[sentinel]: a tap, and those behind it
    }

    /// How far `stage` may go, where it does not look at stamps: what those before it have let go,
    /// and which of them holds it. Where the sentinel stands for the producers, somebody has to
    /// move it: see `Core::upstream`.
    #[inline]
    pub(crate) fn upstream(&self, stage: usize, lower_bound: u64) -> (u64, usize) {
        match &self.plan.stages[stage].after[..] {
            [] if self.plan.sentinel => (self.sentinel(), self.producer_party()),
            [] => (self.cursor(), self.producer_party()),
            after => self.least_frontier(after, lower_bound),
        }
    }

    /// Whether `stage` learns from stamps what is published.
    pub(crate) fn reads_stamps(&self, stage: usize) -> bool {
        let stage = &self.plan.stages[stage];
        self.plan.stamped && stage.after.is_empty() && !matches!(stage.delivery, Delivery::Tap(_))
    }

    /// Lets everything before `seq` go, and wakes those who wait for it.
    #[inline]
    pub(crate) fn release(&self, line: usize, word: u64, notifies: &[usize]) {
        self.lines[line].0.store(word, twin!("released-relaxed": Release => Relaxed)); // SYNC[released]: the stage's side
        self.notify(notifies);
    }

    /// Rings after progress was stored.
    #[inline]
    pub(crate) fn notify(&self, notifies: &[usize]) {
        if !notifies.is_empty() {
            queue::notify(&self.queues, notifies);
        }
    }

    /// Where producers look whether anybody has to be rung.
    pub(crate) fn quiet_check(&self) -> QuietCheck {
        QuietCheck::at(&self.queues, &self.plan.producer_notifies)
    }

    /// Rings for a publication, where a glance says that it must be.
    #[cold]
    #[inline(never)]
    pub(crate) fn notify_publication(&self) {
        if !self.plan.producer_notifies.is_empty() {
            queue::notify_fenced(&self.queues, &self.plan.producer_notifies);
        }
    }

    fn notify_all(&self) {
        queue::notify_all(&self.queues);
    }

    // Endings.

    /// States the last position; the stages end when they have reached it.
    pub(crate) fn close(&self, final_seq: u64) {
        twin!("closed-before-final": () => { self.status.0.bits.fetch_or(CLOSED, Release); });
        self.status.0.final_seq.store(final_seq, Relaxed);
        self.status.0.bits.fetch_or(CLOSED, twin!("closed-relaxed": Release => Relaxed)); // SYNC[closed]: the closing producer
        twin!("closed-unnotified": self.notify_all() => ());
    }

    /// Ends the graph without draining it.
    pub(crate) fn halt(&self) {
        self.status.0.bits.fetch_or(HALTED, Relaxed); // no data goes with it
        twin!("halted-unnotified": self.notify_all() => ());
    }

    /// Ends the graph with a failure, unless it has failed already.
    pub(crate) fn fail(&self, party: usize, seq: Option<u64>, cause: Cause) {
        twin!("failed-before-why": () => { self.status.0.bits.fetch_or(FAILED, Relaxed); });
        let mut failure = lock(&self.failure);
        // Somebody who goes after the end harms nobody.
        let already_over =
            matches!(cause, Cause::Dropped) && self.status.0.bits.load(Relaxed) & HALTED != 0;
        if twin!("last-failure-stays": failure.is_none() => true) && !already_over {
            *failure = Some(Failure::new(self.name(party), seq, cause));
            self.status.0.bits.fetch_or(FAILED, Relaxed); // SYNC[failed]: the failing party, under the lock
        } else {
            drop(failure);
            // The graph has a first failure; this one goes no further.
            crate::base::panics::discard(Box::new(cause));
            return;
        }
        drop(failure);
        twin!("failed-unnotified": self.notify_all() => ());
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        lock(&self.failure).clone()
    }

    pub(crate) fn take_failure(&self) -> Option<Failure> {
        lock(&self.failure).take()
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.status.0.bits.load(Relaxed) & HALTED != 0
    }

    /// Whether the graph was closed or halted, or has failed.
    pub(crate) fn is_over(&self) -> bool {
        self.status.0.bits.load(Relaxed) != 0
    }

    /// Whether publishing and handling may go on; one load of a line that seldom changes.
    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.status.0.bits.load(Relaxed) & (HALTED | FAILED) == 0
    }

    /// [`Control::is_running`], and why not.
    #[inline(always)]
    pub(crate) fn check_running(&self) -> Result<(), WaitError> {
        if self.is_running() { Ok(()) } else { self.stopped().map_or(Ok(()), Err) }
    }

    /// Why nobody may go on, if the graph has ended before its time.
    #[cold]
    pub(crate) fn stopped(&self) -> Option<WaitError> {
        let bits = self.status.0.bits.load(Relaxed); // SYNC[failed]: everybody else, who then takes the lock
        if bits & FAILED != 0 {
            return self.failure().map(WaitError::Failed);
        }
        (bits & HALTED != 0).then_some(WaitError::Halted)
    }

    /// Why a stage that stands at `next` and found nothing there will never find anything, if so.
    ///
    /// `None` after a close means: look again, for what was published before the close is visible
    /// from now on.
    #[inline(always)]
    pub(crate) fn ended(&self, next: u64) -> Option<WaitError> {
        let bits = self.status.0.bits.load(twin!("closed-seen-relaxed": Acquire => Relaxed)); // SYNC[closed]: stages
        if bits == 0 { None } else { self.ended_by(bits, next) }
    }

    #[cold]
    fn ended_by(&self, bits: u32, next: u64) -> Option<WaitError> {
        if bits & (FAILED | HALTED) != 0 {
            return self.stopped();
        }
        (bits & CLOSED != 0 && self.status.0.final_seq.load(Relaxed) == next)
            .then_some(WaitError::Closed)
    }

    // Waiting.

    /// The bell of a stage, or of the producers.
    pub(crate) fn queue_of(&self, party: usize) -> &WaitQueue {
        let queue = self.plan.stages.get(party).map_or(PRODUCER_QUEUE, |stage| stage.queue);
        &self.queues[queue]
    }

    /// How a stage waits, or how producers do.
    fn wait_of(&self, party: usize) -> &Wait {
        self.plan.stages.get(party).map_or(&self.plan.producer_wait, |stage| &stage.wait)
    }

    /// Whether a stage sleeps until woken, or producers do.
    pub(crate) fn parks(&self, party: usize) -> bool {
        self.plan.stages.get(party).map_or(self.plan.producer_parks, |stage| stage.parks)
    }

    /// What one who waits for a stage, or one of the producers, begins to learn from. Runs the
    /// strategy's code, which may be the user's: call it before anything is counted or pinned, and
    /// under no lock. So constructors of handles take a learner and make none.
    pub(crate) fn learner(&self, party: usize) -> Learned {
        self.wait_of(party).learner().into()
    }

    /// As [`Control::learner`], where a panic must not go through: it fails the graph, for this
    /// party.
    pub(crate) fn learner_contained(&self, party: usize) -> Learned {
        catch_unwind(AssertUnwindSafe(|| self.learner(party))).unwrap_or_else(|panic| {
            self.fail(party, None, Cause::Panic(panic_message(panic)));
            Learned::default()
        })
    }

    /// A number for the tasks of one handle. Numbers only tell handles apart.
    pub(crate) fn next_task(&self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(self.tasks.fetch_add(1, Relaxed))
    }

    /// Has a task woken when `ready`, unless it is: then `true`. Where nobody rings, the task is
    /// woken at once, to look again.
    pub(crate) fn arm(
        &self,
        party: usize,
        number: u64,
        waker: &Waker,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        if self.parks(party) {
            return self.queue_of(party).arm(number, waker, ready);
        }
        let ready = ready();
        if !ready {
            waker.wake_by_ref();
        }
        ready
    }

    /// Waits until `ready`, the graph's own deadline, or `deadline`. Calls `lasts` once if it lasts
    /// (as [`wait::wait_until`] does); if that returns a stage, the waiter waits for what its own
    /// thread holds there, and the wait ends. This is not asked first: in a dense stream the next
    /// event comes during the first looks, and would wait for the answer.
    pub(crate) fn wait_at(
        &self,
        waiter: Waiter,
        learned: &mut Learned,
        deadline: Option<Instant>,
        lasts: &mut dyn FnMut() -> Option<usize>,
        ready: &mut dyn FnMut() -> bool,
    ) -> (Result<(), BatchError>, WaitStats) {
        let own = self.deadline;
        let earliest = match (own, deadline) {
            (Some((own, _)), Some(theirs)) => Some(own.min(theirs)),
            (own, theirs) => own.map(|(own, _)| own).or(theirs),
        };
        let party = waiter.party;
        let (wait, queue) = (self.wait_of(party), self.queue_of(party));
        // Whoever names a moment does not mean an earlier one.
        let timeout = if deadline.is_none() { wait.timeout() } else { None };
        let site = Site {
            wait,
            oversubscribed: self.oversubscribed,
            parks: self.parks(party),
            queue,
            deadline: earliest,
            timeout,
        };
        #[cfg(all(test, slipring_loom))]
        let _asleep = crate::loom_models::asleep(&self.name(party));
        let mut holder = None;
        let (in_time, stats) = wait::wait_until(
            site,
            learned,
            &mut || {
                holder = lasts();
                if holder.is_none() {
                    self.cores.waits(self, party);
                }
                holder.is_none()
            },
            ready,
        );
        let waited = match holder {
            _ if in_time => Ok(()),
            Some(stage) => Err(WaitError::WaitsForItself(Box::new(self.name(stage))).into()),
            None => Err(self.out_of_time(waiter)),
        };
        (waited, stats)
    }

    fn out_of_time(&self, waiter: Waiter) -> BatchError {
        if self.expire(waiter.party, waiter.at) {
            BatchError::Wait(self.stopped().unwrap_or(WaitError::Halted))
        } else {
            BatchError::TimedOut
        }
    }

    /// When all waits of the graph end.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.map(|(deadline, _)| deadline)
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|(deadline, _)| Instant::now() >= deadline)
    }

    /// Fails the graph if its deadline has passed; says whether it has. `party` still waits, at
    /// this position. Every loop that may go round without progress asks this.
    pub(crate) fn expire(&self, party: usize, at: u64) -> bool {
        let overdue = self.deadline.filter(|_| self.is_overdue());
        if let Some((_, after)) = overdue {
            self.fail(party, Some(at), Cause::Deadline(after));
        }
        overdue.is_some()
    }

    /// Stays away for a time, or until the graph ends, which its deadline does, too.
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

    // Chunks of workers that left.

    pub(crate) fn orphan(&self, stage: usize, orphan: Orphan) {
        lock(&self.orphans).push((stage, orphan));
        self.orphaned[stage].0.fetch_add(1, Relaxed); // SYNC[orphaned]: the worker that leaves, after the lock
        twin!("orphan-unnotified": self.notify(&[self.plan.stages[stage].queue]) => ());
    }

    /// Whether a worker may find a chunk that another left.
    pub(crate) fn has_orphans(&self, stage: usize) -> bool {
        self.orphaned[stage].0.load(Relaxed) != 0
    }

    /// Counts a worker in, while there are others.
    pub(crate) fn add_worker(&self, stage: usize) -> Result<(), WaitError> {
        let alive = &self.alive[stage];
        let mut count = alive.load(Relaxed);
        while count != 0 {
            match alive.compare_exchange(count, count + 1, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => count = other,
            }
        }
        Err(self.stopped().unwrap_or(WaitError::Closed))
    }

    /// Counts a worker out; says how many of its pool are left.
    pub(crate) fn remove_worker(&self, stage: usize) -> usize {
        self.alive[stage].fetch_sub(1, twin!("signed-off-relaxed": AcqRel => Relaxed)) - 1 // SYNC[signed-off]: workers among themselves
    }

    #[inline]
    pub(crate) fn adopt(&self, stage: usize) -> Option<Orphan> {
        if self.orphaned[stage].0.load(Relaxed) == 0 {
            return None; // SYNC[orphaned]: the glance of every other worker
        }
        let mut orphans = lock(&self.orphans);
        let at =
            orphans.iter().position(|(pool, _)| twin!("any-orphan": *pool == stage => true))?;
        self.orphaned[stage].0.fetch_sub(1, Relaxed);
        Some(orphans.swap_remove(at).1)
    }

    // Counting.

    /// Adds what a handle has counted since it told last.
    #[inline]
    pub(crate) fn count(&self, party: usize, now: &LocalCounts, flushed: &LocalCounts) {
        self.counters.flush(party, now, flushed);
    }

    pub(crate) const SENTINEL: usize = SENTINEL_LINE;
    pub(crate) const CLAIM: usize = CLAIM_LINE;
    pub(crate) const CURSOR: usize = CURSOR_LINE;
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;
    use crate::ring::core::{Core, Settings};
    use crate::ring::slots::Interleaved;

    /// However many makers there are or were, a count of them is not taken for another one.
    #[test]
    fn makers_are_counted_beyond_32_bits() {
        let ring =
            Core::<u64, Interleaved>::build(Settings::new(1), Vec::new(), Vec::new(), &mut || 0)
                .unwrap();
        let control = &ring.control;
        assert!(control.company() == Company::Now, "no maker is the only one of none");
        control.add_maker();
        assert!(control.company() == Company::Earlier);
        control.settle_alone();
        assert!(control.company() == Company::Never);
        for forgotten in
            [1, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, (1 << 62) - 1]
        {
            control.makers.fetch_add(MAKER * forgotten, Relaxed);
            assert!(
                control.company() == Company::Now,
                "one of {} makers believes that it is alone",
                forgotten + 1
            );
            control.add_maker();
            assert!(control.company() == Company::Now);
            control.makers.fetch_sub(MAKER * (forgotten + 1), Relaxed);
            assert!(control.company() == Company::Earlier, "former makers are forgotten");
            control.settle_alone();
        }
    }
}
