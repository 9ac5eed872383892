//! The plan: a declared graph, which was checked once and no longer changes. The plan says which
//! stage follows which, which stages gate the producers, which party notifies which queue, and
//! which line holds which word.
//!
//! Invariants
//! - I1 (the soundness rule): any two stages of a [`Plan`] either both only read, or one comes
//!   after the other.
//! - I2: a stage may follow stages with smaller or larger indices than its own, but the stages
//!   never form a cycle.
//! - I3: a stage's frontier never passes the frontier of an earlier stage. Each stage gates the
//!   producers, or a gating stage follows it directly or indirectly. So the smallest frontier of
//!   the `gating` stages is the smallest frontier of all stages.

use std::fmt;
use std::ops::Range;

use crate::base::name::{Name, PRODUCER};
use crate::base::panics::Contained;
use crate::base::sync::twin;
use crate::errors::BuildError;
use crate::ring::check;
use crate::ring::early_claims::EarlyClaiming;
use crate::ring::policy::Policy;
use crate::ring::queues::{assign_queues, wakes_one};
use crate::ring::spec::{Access, Delivery, StageSpec, ThreadChoice, count_threads};
use crate::wait::{FullRing, Wait, WaitStrategy, cores};

/// A stage of a plan, with its lines and its queues.
pub(crate) struct Stage {
    pub(crate) name: Name,
    pub(crate) access: Access,
    pub(crate) delivery: Delivery,
    /// Indices of the stages that this stage follows directly.
    pub(crate) after: Vec<usize>,
    /// Indices of the stages on other threads that follow this stage directly, or through stages on
    /// this stage's thread.
    pub(crate) followers: Vec<usize>,
    pub(crate) thread: ThreadChoice,
    pub(crate) policy: Policy,
    /// Index of the stage's first line. The table below shows the words on the stage's lines, in
    /// order.
    ///
    /// | delivery | lines |
    /// |---|---|
    /// | each | the released position |
    /// | shards | what each shard has passed |
    /// | pool | the claim word, a bound per seat, the landmark |
    /// | tap | the members (see [`Delivery::has_member_bits`]), a bound and a badge per member |
    pub(crate) line: usize,
    /// Index of the stage's first seat.
    pub(crate) first_seat: usize,
    /// Number of the stage's seats: one for each handle that it has room for, and [`TICKETS_LEFT`]
    /// more if its workers leave tickets.
    pub(crate) seats: usize,
    /// Indices of the sharded stages whose shard ids this stage computes.
    pub(crate) partitions: Vec<usize>,
    /// The cache line on which the stage announces positions, and the taps that it follows; `None`
    /// if it follows no tap.
    pub(crate) guard: Option<Guard>,
    /// For a tap: indices of the lines on which its followers announce positions. Empty for other
    /// stages.
    pub(crate) announced: Vec<usize>,
    /// Index of the queue at which the stage waits for the stages before itself.
    pub(crate) queue: usize,
    /// Indices of the queues that the stage notifies at each release.
    pub(crate) notifies: Vec<usize>,
    pub(crate) wait: Contained<Wait>,
    /// Whether the stage sleeps at its queue. If not, publications and releases need not notify the
    /// queue for this stage. The build calls the strategy's method once and stores the result,
    /// because a second call of user code might return another result.
    pub(crate) parks: bool,
    /// Whether the stage is a pool with a queue of its own, which wakes one (queue::I6).
    pub(crate) wakes_one: bool,
}

impl Stage {
    /// Returns `notifies` without the pool's own queue, which is the last one, if it wakes one.
    pub(crate) fn notifies_behind(&self) -> &[usize] {
        match self.notifies.split_last() {
            Some((&last, behind)) if self.wakes_one && last == self.queue => behind,
            _ => &self.notifies,
        }
    }
    /// Returns the index of the line that holds the bound of the worker or member at `seat`.
    #[inline(always)]
    pub(crate) fn bound_line(&self, seat: usize) -> usize {
        self.line + 1 + seat
    }
    /// Returns the index of the line that holds the badge of the member at `seat`.
    pub(crate) fn badge_line(&self, seat: usize) -> usize {
        self.line + 1 + self.seats + seat
    }
    /// Returns whether the stage's workers leave their tickets before they sleep (`worker::I6`).
    pub(crate) fn leaves_tickets(&self) -> bool {
        self.seats > self.delivery.room()
    }
    /// Returns the index of the line that holds the pool's landmark, a recent position of the
    /// pool's claim word.
    #[inline(always)]
    pub(crate) fn landmark_line(&self) -> usize {
        self.line + 1 + self.seats
    }
    /// Returns the number of the stage's lines.
    fn lines(&self) -> usize {
        self.delivery.lines() + self.seats - self.delivery.room()
    }
    /// Returns a position that is no later than a pool's frontier, if `claimed` is a position of
    /// the pool's claim word. The claim word is at most a lap ahead of the frontier, and a ticket
    /// for each seat (`worker::I6`).
    pub(crate) fn a_lap_before(&self, claimed: u64, capacity: usize) -> u64 {
        claimed.wrapping_sub((capacity + self.seats) as u64)
    }
}

/// The cache line on which a party announces its positions, and the taps that it passes. The party
/// first stores on `line` the position up to which it will go, and then loads the bounds of the
/// taps' members. See PROTOCOL.md ("Joining").
pub(crate) struct Guard {
    pub(crate) line: usize,
    pub(crate) taps: Vec<usize>,
}

/// Largest number of positions that a pool's tickets may be ahead of its events, if its workers can
/// sleep. Further workers that find no event draw no ticket, and fall asleep, so that they use no
/// cores. With 3 to 8, an event costs about the same (simulated); with 2, the third of three workers
/// sleeps and wakes up too often.
pub(crate) const TICKETS_AHEAD: u64 = 4;
/// Number of seats that a pool has for the tickets that sleeping workers have left.
pub(crate) const TICKETS_LEFT: usize = TICKETS_AHEAD as usize;

/// Line of the claim word, which only rings with many producers use.
pub(crate) const CLAIM_LINE: usize = 0;
/// Line of the sentinel, which gates the producers if no stage does. A tap that directly follows
/// many producers follows the sentinel, too.
pub(crate) const SENTINEL_LINE: usize = 1;
/// Line of the cursor of a single producer.
pub(crate) const CURSOR_LINE: usize = 2;
/// Line of the first stage.
const FIRST_LINE: usize = 3;
/// Index of the queue at which producers wait for room.
pub(crate) const PRODUCER_QUEUE: usize = 0;

/// A graph that was checked and no longer changes.
pub(crate) struct Plan {
    pub(crate) stages: Vec<Stage>,
    /// For each stage, the earlier stages that the stage follows directly or indirectly.
    pub(crate) before: Vec<Vec<bool>>,
    /// Indices of the stages that no other stage follows. These stages gate the producers.
    pub(crate) gating: Vec<usize>,
    /// Indices of the stages that handles may join while the graph runs: taps, and pools with room.
    pub(crate) open: Vec<usize>,
    /// The cache line on which the producers announce positions, and the taps that gate the
    /// producers; `None` if no tap gates them.
    pub(crate) guard: Option<Guard>,
    /// Whether a single producer stores its cursor. If publications are stamped, the producer
    /// stores the cursor in addition to the stamps.
    pub(crate) cursor: bool,
    /// Whether the ring has many producers and a tap follows them directly. The tap then follows
    /// the sentinel, which a thread moves to the end of the published events before it computes how
    /// far a stage may go.
    pub(crate) sentinel: bool,
    /// Waiting strategy of each stage that has no strategy of its own.
    pub(crate) wait: Contained<Wait>,
    /// Waiting strategy with which producers wait for room.
    pub(crate) producer_wait: Contained<Wait>,
    /// Whether producers sleep at their queue.
    pub(crate) producer_parks: bool,
    /// Indices of the queues that a publication notifies.
    pub(crate) producer_notifies: Vec<usize>,
    /// Indices of the sharded stages whose shard ids the producers compute.
    pub(crate) producer_partitions: Vec<usize>,
    /// Number of lines.
    pub(crate) lines: usize,
    /// Number of wait queues.
    pub(crate) queues: usize,
    /// For each queue, the pool whose workers it wakes one at a time (queue::I6); `None` for a
    /// queue that wakes all of its sleepers.
    pub(crate) pools: Vec<Option<usize>>,
    /// Index of the producers' first seat. The producers' seats come after the seats of all stages.
    pub(crate) first_producer_seat: usize,
    /// Number of the producers' seats. In a ring of one process, producers need no seats, so their
    /// number has no limit.
    pub(crate) producer_seats: usize,
    pub(crate) capacity: usize,
    /// Likely number of threads: one for a single producer or two for many producers, plus the
    /// stages' threads (see [`count_threads`]).
    pub(crate) threads: usize,
    /// Number of cores that the graph's threads share: the cores of the graph's placement or,
    /// without a placement, all cores on which the building thread may run.
    pub(crate) cores: usize,
    /// Whether several producers may claim and publish at the same time.
    pub(crate) many_producers: bool,
    /// When producers may claim slots that are not free yet.
    pub(crate) early_claims: EarlyClaiming,
    /// Whether the claim word is a [`SeatedClaim`](crate::ring::words::SeatedClaim), which is so if
    /// several processes produce.
    pub(crate) seated_claims: bool,
    /// Whether a publication stamps each of its slots, so that a worker that waits for one position
    /// sees its publication (`worker::I6`). Otherwise it stamps the first slot of each run.
    pub(crate) stamps_each: bool,
    /// Whether publications are stamped. Without stamps the cursor publishes events, and the first
    /// stages follow the cursor as they would follow a stage's frontier.
    pub(crate) stamped: bool,
}

impl Plan {
    /// Checks a declared graph and makes its plan.
    ///
    /// `wait` is the waiting strategy of each stage that has none of its own. `producer_wait` is
    /// the waiting strategy of the producers. `one_process`: no other process shares the ring.
    pub(crate) fn new(
        specs: Vec<StageSpec>,
        capacity: usize,
        many_producers: bool,
        wait: &Wait,
        producer_wait: &Wait,
        one_process: bool,
    ) -> Result<Plan, BuildError> {
        let before = check::all(&specs, capacity)?;
        let waits = check::waits(&specs, wait)?;
        let mut draft = Draft::new(&specs, waits, producer_wait, one_process);
        let mut stages = draft.stages();
        let gating: Vec<usize> = (0..specs.len()).filter(|&stage| draft.is_gating(stage)).collect();
        let guard = draft.guard(&gating);
        list_announcements(&mut stages, &guard);
        let producer_partitions = assign_partitions(&mut stages, &before);
        let is_first_tap =
            |stage: &Stage| stage.after.is_empty() && matches!(stage.delivery, Delivery::Tap(_));
        let first_tap = stages.iter().any(is_first_tap);
        let is_open = |&stage: &usize| match specs[stage].delivery {
            Delivery::Tap(_) => true,
            Delivery::Pool { workers, room } => room > workers,
            _ => false,
        };
        Ok(Plan {
            before,
            open: (0..specs.len()).filter(is_open).collect(),
            gating,
            guard,
            cursor: first_tap && !many_producers,
            sentinel: first_tap && many_producers,
            wait: Contained::new(wait.clone()),
            producer_wait: Contained::new(producer_wait.clone()),
            producer_parks: draft.producer_parks,
            producer_notifies: draft.producer_notifies(),
            producer_partitions,
            lines: draft.lines,
            queues: draft.queues,
            pools: (0..draft.queues).map(|queue| draft.pool_of(queue)).collect(),
            first_producer_seat: draft.seats,
            producer_seats: 1,
            capacity,
            threads: if many_producers { 2 } else { 1 } + count_threads(&specs),
            cores: cores(),
            many_producers,
            early_claims: EarlyClaiming::with(producer_wait),
            seated_claims: false,
            stamps_each: false,
            stamped: true,
            stages,
        })
    }

    /// Sets the strategies by which the parties of this process wait. The call does not change
    /// which parties sleep, or which queues a party notifies. In a segment, the other processes
    /// choose strategies of their own.
    pub(crate) fn choose_wait(&mut self, wait: &Wait, producer_wait: &Wait) {
        self.stages.iter_mut().for_each(|stage| stage.wait = Contained::new(wait.clone()));
        self.wait = Contained::new(wait.clone());
        self.producer_wait = Contained::new(producer_wait.clone());
    }

    /// Describes the full ring in which a producer waits for `len` positions, starting at `at`.
    /// Returns `None` if a stage of the graph follows another stage: a stage then has only a part
    /// of the ring's events before it, and may run out of events while later stages still have
    /// some.
    pub(crate) fn full_ring(&self, at: u64, len: u64) -> Option<FullRing> {
        let is_flat = self.gating.len() == self.stages.len();
        is_flat.then_some(FullRing { at, len, capacity: self.capacity as u64 })
    }

    /// Returns the index of the stage to which the line with the index `line` belongs.
    pub(crate) fn stage_of(&self, line: usize) -> Option<usize> {
        self.stages
            .iter()
            .position(|stage| (stage.line..stage.line + stage.lines()).contains(&line))
    }

    /// Returns the indices of a party's seats.
    pub(crate) fn seats_of(&self, party: usize) -> Range<usize> {
        let (first, count) = match self.stages.get(party) {
            Some(stage) => (stage.first_seat, stage.seats),
            None => (self.first_producer_seat, self.producer_seats),
        };
        first..first + count
    }

    /// Returns the party to which the seat with the index `seat` belongs, and the seat's number
    /// among the party's seats.
    pub(crate) fn place_of(&self, seat: usize) -> (usize, usize) {
        let owns = |&party: &usize| self.seats_of(party).contains(&seat);
        let party = (0..self.stages.len()).find(owns).unwrap_or(self.producer_party());
        (party, seat - self.seats_of(party).start)
    }

    /// Returns the taps that a party passes.
    pub(crate) fn taps_before(&self, party: usize) -> &[usize] {
        let guard = self.stages.get(party).map_or(&self.guard, |stage| &stage.guard);
        guard.as_ref().map_or(&[], |guard| &guard.taps)
    }

    /// Returns the number of stages that come before a stage.
    pub(crate) fn depth(&self, stage: usize) -> usize {
        depth(&self.before, stage)
    }

    /// Returns the number of seats of all parties.
    pub(crate) fn seats(&self) -> usize {
        self.first_producer_seat + self.producer_seats
    }

    /// Returns whether a stage reads stamps to see which events are published.
    pub(crate) fn reads_stamps(&self, stage: usize) -> bool {
        let stage = &self.stages[stage];
        self.stamped && stage.after.is_empty() && !matches!(stage.delivery, Delivery::Tap(_))
    }

    /// Returns whether the idle workers of a stage draw tickets (`worker::I6`): it is a pool of
    /// several, finds events by their stamps, and its workers never sleep or leave their tickets
    /// before they do.
    #[inline]
    pub(crate) fn draws_tickets(&self, stage: usize) -> bool {
        let pool = &self.stages[stage];
        let is_pool = matches!(pool.delivery, Delivery::Pool { room: 2.., .. });
        is_pool && self.reads_stamps(stage) && (pool.leaves_tickets() || pool.wait.stays_awake())
    }

    // A party is a stage, which has the same index here as in `stages`, or the producers.

    /// Returns the index of the producers as a party: the index after the last stage's index.
    #[inline(always)]
    pub(crate) fn producer_party(&self) -> usize {
        self.stages.len()
    }

    pub(crate) fn name_of(&self, party: usize) -> Name {
        self.stages.get(party).map_or_else(|| Name::new(PRODUCER), |stage| stage.name.clone())
    }

    pub(crate) fn wait_of(&self, party: usize) -> &Wait {
        self.stages.get(party).map_or(&self.producer_wait, |stage| &stage.wait)
    }

    /// Returns whether the queue with this index wakes one worker for each event.
    pub(crate) fn wakes_one(&self, queue: usize) -> bool {
        self.pools[queue].is_some()
    }

    /// Returns whether a waiting party sleeps until a notification.
    pub(crate) fn parks(&self, party: usize) -> bool {
        self.stages.get(party).map_or(self.producer_parks, |stage| stage.parks)
    }
}

/// An unfinished plan. Its methods assign queues and lines to parties, and decide which party
/// notifies which queue.
struct Draft<'s> {
    specs: &'s [StageSpec],
    /// For each stage, the stages that directly follow it; the last entry has the stages that
    /// directly follow the producers. All walks over the graph use these lists and visit no stage
    /// twice. Otherwise, the build of a graph with many arrows would take exponential time.
    followers: Vec<Vec<usize>>,
    strategies: Vec<Contained<Wait>>,
    parks: Vec<bool>,
    wakes_one: Vec<bool>,
    producer_parks: bool,
    queue_of: Vec<usize>,
    queues: usize,
    /// Number of lines assigned so far; also the index of the next free line.
    lines: usize,
    /// Number of seats assigned so far; also the index of the next seat.
    seats: usize,
}

impl<'s> Draft<'s> {
    fn new(
        specs: &'s [StageSpec],
        strategies: Vec<Contained<Wait>>,
        producer_wait: &Wait,
        one_process: bool,
    ) -> Draft<'s> {
        let mut followers = vec![Vec::new(); specs.len() + 1];
        for (stage, spec) in specs.iter().enumerate() {
            spec.after.iter().for_each(|&earlier| followers[earlier].push(stage));
            if spec.after.is_empty() {
                followers[specs.len()].push(stage);
            }
        }
        let parks: Vec<bool> = strategies.iter().map(|wait| wait.parks()).collect();
        let producer_parks = producer_wait.parks();
        let may_wake_one = |stage: usize| one_process && parks[stage];
        let wakes_one = wakes_one(specs, &strategies, may_wake_one);
        let queue_of = assign_queues(PRODUCER_QUEUE, specs, &wakes_one);
        let queues = 1 + queue_of.iter().copied().max().unwrap_or(PRODUCER_QUEUE);
        let (lines, seats) = (FIRST_LINE, 0);
        Draft {
            specs,
            followers,
            strategies,
            parks,
            wakes_one,
            producer_parks,
            queue_of,
            queues,
            lines,
            seats,
        }
    }

    /// Makes all stages, each with its lines and with the queues to notify.
    fn stages(&mut self) -> Vec<Stage> {
        (0..self.specs.len()).map(|stage| self.stage(stage)).collect()
    }

    fn stage(&mut self, number: usize) -> Stage {
        let spec = &self.specs[number];
        let guard = self.guard(&spec.after);
        let line = self.lines;
        let room = spec.delivery.room();
        let seats = room + if self.leaves_tickets(number) { TICKETS_LEFT } else { 0 };
        self.lines += spec.delivery.lines() + seats - room;
        let first_seat = self.seats;
        self.seats += seats;
        Stage {
            guard,
            announced: Vec::new(),
            partitions: Vec::new(),
            name: Name::new(&spec.name),
            access: spec.access,
            delivery: spec.delivery,
            after: spec.after.clone(),
            followers: self.followers_elsewhere(number),
            thread: spec.thread.clone(),
            policy: spec.policy.clone(),
            line,
            first_seat,
            seats,
            queue: self.queue_of[number],
            notifies: self.stage_notifies(number),
            wait: self.strategies[number].clone(),
            parks: self.parks[number],
            wakes_one: self.wakes_one[number],
        }
    }

    /// Returns whether a stage's workers leave their tickets before they sleep (`worker::I6`).
    fn leaves_tickets(&self, stage: usize) -> bool {
        let StageSpec { delivery, after, .. } = &self.specs[stage];
        let may_draw = matches!(delivery, Delivery::Pool { room: 2.., .. }) && after.is_empty();
        may_draw && self.wakes_one[stage] && self.strategies[stage].timeout().is_none()
    }

    /// Returns the pool that has this queue alone.
    fn pool_of(&self, queue: usize) -> Option<usize> {
        (0..self.specs.len()).find(|&stage| self.wakes_one[stage] && self.queue_of[stage] == queue)
    }

    /// Makes the [`Guard`] of a party that follows the stages in `after`, and assigns a line to the
    /// guard. Returns `None` if none of these stages is a tap.
    fn guard(&mut self, after: &[usize]) -> Option<Guard> {
        let taps: Vec<usize> = after.iter().copied().filter(|&stage| self.is_tap(stage)).collect();
        let guard = (!taps.is_empty()).then_some(Guard { line: self.lines, taps });
        self.lines += usize::from(guard.is_some());
        guard
    }

    fn is_gating(&self, stage: usize) -> bool {
        self.followers[stage].is_empty()
    }

    fn is_tap(&self, stage: usize) -> bool {
        matches!(self.specs[stage].delivery, Delivery::Tap(_))
    }

    /// Returns the stages that directly follow `upstream`, which is a stage's index, or `None` for
    /// the producers.
    fn followers(&self, upstream: Option<usize>) -> &[usize] {
        &self.followers[upstream.unwrap_or(self.specs.len())]
    }

    /// Returns the stages on other threads that follow `stage` directly, or through stages on the
    /// thread of `stage`.
    fn followers_elsewhere(&self, stage: usize) -> Vec<usize> {
        let thread = &self.specs[stage].thread;
        let mut pending = self.followers(Some(stage)).to_vec();
        let mut seen = vec![false; self.specs.len()];
        while let Some(follower) = pending.pop() {
            if !std::mem::replace(&mut seen[follower], true)
                && thread.shares(&self.specs[follower].thread)
            {
                pending.extend(self.followers(Some(follower)));
            }
        }
        let is_elsewhere =
            |&stage: &usize| seen[stage] && !thread.shares(&self.specs[stage].thread);
        (0..seen.len()).filter(is_elsewhere).collect()
    }

    /// Returns the queues to notify when `upstream` progresses: the queues of the parties that
    /// follow `upstream` directly or through a tap. Queues at which no party sleeps are left out.
    fn notified_by(&self, upstream: Option<usize>) -> Vec<usize> {
        let mut queues = Vec::new();
        for &follower in self.followers(upstream) {
            // A producer that waits for room runs the executor's stages, too.
            let helped = self.specs[follower].thread.is_shared() && self.producer_parks;
            let parks = self.parks[follower] || helped;
            let sleeps = parks && !self.is_handed_on(upstream, follower);
            let sleeps = twin!("behind-member-unnotified": sleeps => sleeps && !upstream.is_some_and(|stage| self.is_tap(stage)));
            queues.extend(sleeps.then_some(self.queue_of[follower]));
            // A tap without a member holds no event back, so progress before the tap is also
            // progress for the parties after the tap.
            if self.is_tap(follower) {
                let behind = self.followers(Some(follower));
                let behind = twin!("behind-tap-unnotified": behind => &[]);
                let behind = behind.iter().filter(|&&next| self.parks[next]);
                queues.extend(behind.map(|&next| self.queue_of[next]));
                let gates =
                    twin!("producer-behind-tap-unnotified": self.is_gating(follower) => false);
                queues.extend((self.producer_parks && gates).then_some(PRODUCER_QUEUE));
            }
        }
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// Returns whether the releases of `upstream` need not notify the queue of `follower`, because
    /// the executor runs both stages: the executor's threads then find out themselves that
    /// `follower` has events. If one of the two stages is a pool that other workers may join, the
    /// result is `false`, because such a worker belongs to another thread.
    fn is_handed_on(&self, upstream: Option<usize>, follower: usize) -> bool {
        let Some(upstream) = upstream else { return false };
        [upstream, follower]
            .map(|stage| &self.specs[stage])
            .iter()
            .all(|spec| spec.thread.is_shared() && spec.delivery.room() == spec.delivery.len())
    }

    fn stage_notifies(&self, stage: usize) -> Vec<usize> {
        let mut queues = self.notified_by(Some(stage));
        if twin!("leaf-unnotified": self.is_gating(stage) => false) && self.producer_parks {
            queues.push(PRODUCER_QUEUE);
        }
        // The release of the stream's last chunk ends a pool, so it must wake the pool's idle
        // workers.
        let is_pool = matches!(self.specs[stage].delivery, Delivery::Pool { .. });
        let idle_workers = is_pool && !self.is_handed_on(Some(stage), stage);
        let idle_workers = twin!("idle-workers-unnotified": idle_workers => false);
        if idle_workers && self.parks[stage] && !queues.contains(&self.queue_of[stage]) {
            queues.push(self.queue_of[stage]);
        }
        queues
    }

    fn producer_notifies(&self) -> Vec<usize> {
        let mut queues = self.notified_by(None);
        // In a graph without stages, a publication makes room for other producers, so it notifies
        // their queue.
        if twin!("publication-unnotified": self.specs.is_empty() => false) && self.producer_parks {
            queues.push(PRODUCER_QUEUE);
        }
        queues
    }
}

/// Sets each tap's field `announced`: the lines on which the tap's followers announce positions.
fn list_announcements(stages: &mut [Stage], producers: &Option<Guard>) {
    let guards = stages.iter().filter_map(|stage| stage.guard.as_ref()).chain(producers);
    let pairs: Vec<(usize, usize)> =
        guards.flat_map(|guard| guard.taps.iter().map(|&tap| (tap, guard.line))).collect();
    pairs.into_iter().for_each(|(tap, line)| stages[tap].announced.push(line));
}

/// Returns the number of stages that come before a stage.
fn depth(before: &[Vec<bool>], stage: usize) -> usize {
    before[stage].iter().filter(|is_before| **is_before).count()
}

/// Chooses the party that computes each sharded stage's shard ids: the last writing stage before
/// the sharded stage or, if there is none, the producers. Returns the sharded stages whose shard
/// ids the producers compute.
fn assign_partitions(stages: &mut [Stage], before: &[Vec<bool>]) -> Vec<usize> {
    let mut producers = Vec::new();
    let depths: Vec<usize> = (0..stages.len()).map(|stage| depth(before, stage)).collect();
    for sharded in 0..stages.len() {
        if !matches!(stages[sharded].delivery, Delivery::Shards(_)) {
            continue;
        }
        // Writing stages are ordered one after the other (I1), so the last one follows more stages
        // than any other.
        let writers = (0..stages.len())
            .filter(|&earlier| before[sharded][earlier] && stages[earlier].access == Access::Write);
        match writers.max_by_key(|&writer| depths[writer]) {
            Some(last) => stages[last].partitions.push(sharded),
            None => producers.push(sharded),
        }
    }
    producers
}

impl fmt::Display for Plan {
    /// Prints each stage with the stages that it follows, one stage per line. A last line names the
    /// stages that gate the producers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = Name::column(self.stages.iter().map(|stage| &stage.name));
        for stage in &self.stages {
            let access = if stage.access == Access::Read { "reads" } else { "writes" };
            let kind = match stage.delivery {
                Delivery::Each => access.to_owned(),
                Delivery::Pool { workers, room } if room == workers => {
                    format!("pool of {workers}, {access}")
                }
                Delivery::Pool { workers, room } => {
                    format!("pool of {workers}, room for {room}, {access}")
                }
                Delivery::Shards(shards) => format!("{shards} shards by key, {access}"),
                Delivery::Tap(room) => format!("tap with room for {room}"),
            };
            write!(f, "  {:width$}  {kind}, after ", stage.name.as_str())?;
            if stage.after.is_empty() {
                f.write_str(PRODUCER)?;
            }
            for (i, &earlier) in stage.after.iter().enumerate() {
                write!(f, "{}{}", if i == 0 { "" } else { " and " }, self.stages[earlier].name)?;
            }
            match &stage.thread {
                ThreadChoice::Own => {}
                ThreadChoice::Named(thread) => write!(f, ", on thread {thread}")?,
                ThreadChoice::Shared(_) => f.write_str(", on shared threads")?,
            }
            let (wait, general) = (stage.wait.alias(), self.wait.alias());
            if wait != general {
                write!(f, ", waits: {wait}")?;
            }
            writeln!(f)?;
        }
        let gates: Vec<&str> =
            self.gating.iter().map(|&leaf| self.stages[leaf].name.as_str()).collect();
        if self.producer_wait.alias() != self.wait.alias() {
            writeln!(f, "  {PRODUCER} waits: {}", *self.producer_wait)?;
        }
        match &gates[..] {
            [] => writeln!(f, "  no stage gates the producer: events are overwritten unseen"),
            gates => writeln!(f, "  gating the producer: {}", gates.join(" and ")),
        }
    }
}
