//! A plan in the making: which lines and queues each party gets, and which party notifies which
//! queue.
//!
//! The invariants of the module [`plan`](crate::ring::plan) apply.

use crate::base::name::Name;
use crate::base::panics::Contained;
use crate::base::sync::twin;
use crate::ring::spec::{Access, Delivery, StageSpec, TICKETS_LEFT, ThreadChoice};
use crate::ring::stage::{FIRST_LINE, Guard, PRODUCER_QUEUE, Stage};
use crate::wait::{Wait, WaitStrategy};

/// An unfinished plan. Its methods assign queues and lines to parties, and decide which party
/// notifies which queue.
pub(super) struct Draft<'s> {
    specs: &'s [StageSpec],
    /// For each stage, the stages that directly follow it; the last entry has the stages that
    /// directly follow the producers. All walks over the graph use these lists and visit no stage
    /// twice. Otherwise, the build of a graph with many arrows would take exponential time.
    followers: Vec<Vec<usize>>,
    strategies: Vec<Contained<Wait>>,
    parks: Vec<bool>,
    wakes_one: Vec<bool>,
    pub(super) producer_parks: bool,
    queue_of: Vec<usize>,
    pub(super) queues: usize,
    /// Number of lines assigned so far; also the index of the next free line.
    pub(super) lines: usize,
    /// Number of seats assigned so far; also the index of the next seat.
    pub(super) seats: usize,
}

impl<'s> Draft<'s> {
    pub(super) fn new(
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
    pub(super) fn stages(&mut self) -> Vec<Stage> {
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
    pub(super) fn pool_of(&self, queue: usize) -> Option<usize> {
        (0..self.specs.len()).find(|&stage| self.wakes_one[stage] && self.queue_of[stage] == queue)
    }

    /// Makes the [`Guard`] of a party that follows the stages in `after`, and assigns a line to the
    /// guard. Returns `None` if none of these stages is a tap.
    pub(super) fn guard(&mut self, after: &[usize]) -> Option<Guard> {
        let taps: Vec<usize> = after.iter().copied().filter(|&stage| self.is_tap(stage)).collect();
        let guard = (!taps.is_empty()).then_some(Guard { line: self.lines, taps });
        self.lines += usize::from(guard.is_some());
        guard
    }

    pub(super) fn is_gating(&self, stage: usize) -> bool {
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

    pub(super) fn producer_notifies(&self) -> Vec<usize> {
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
pub(super) fn list_announcements(stages: &mut [Stage], producers: &Option<Guard>) {
    let guards = stages.iter().filter_map(|stage| stage.guard.as_ref()).chain(producers);
    let pairs: Vec<(usize, usize)> =
        guards.flat_map(|guard| guard.taps.iter().map(|&tap| (tap, guard.line))).collect();
    pairs.into_iter().for_each(|(tap, line)| stages[tap].announced.push(line));
}

/// Returns the number of stages that come before a stage.
pub(super) fn depth(before: &[Vec<bool>], stage: usize) -> usize {
    before[stage].iter().filter(|is_before| **is_before).count()
}

/// Chooses the party that computes each sharded stage's shard ids: the last updating stage before
/// the sharded stage or, if there is none, the producers. Returns the sharded stages whose shard
/// ids the producers compute.
pub(super) fn assign_partitions(stages: &mut [Stage], before: &[Vec<bool>]) -> Vec<usize> {
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

/// Returns for each stage whether it is a pool with a queue of its own, which wakes one worker for
/// each event (queue::I6). `may_wake_one` returns whether a stage sleeps, in a ring of one process.
///
/// Such a wake-up needs a worker that polls after it. A user's strategy may panic or block instead,
/// so the pool then wakes all of its workers.
fn wakes_one(
    specs: &[StageSpec],
    waits: &[Contained<Wait>],
    may_wake_one: impl Fn(usize) -> bool,
) -> Vec<bool> {
    let wakes_one = |(stage, spec): (usize, &StageSpec)| {
        matches!(spec.delivery, Delivery::Pool { .. })
            && spec.thread == ThreadChoice::Own
            && may_wake_one(stage)
            && waits[stage].is_built_in()
    };
    specs.iter().enumerate().map(wakes_one).collect()
}

/// Assigns a wait queue to each stage. A pool that `wakes_one` has a queue of its own. Other stages
/// of one thread share a queue, and other stages that follow the same stages share a queue. The
/// stages of the executor share the producers' queue, whose index is `producers`.
fn assign_queues(producers: usize, specs: &[StageSpec], wakes_one: &[bool]) -> Vec<usize> {
    let mut keys: Vec<Option<(Option<&str>, Vec<usize>)>> = Vec::new();
    let mut queues = Vec::with_capacity(specs.len());
    for (spec, wakes_one) in specs.iter().zip(wakes_one) {
        if spec.thread.is_shared() {
            queues.push(producers);
            continue;
        }
        let thread = spec.thread.label();
        let mut after = if thread.is_some() { Vec::new() } else { spec.after.clone() };
        after.sort_unstable();
        let key = (!wakes_one).then_some((thread, after));
        let known = keys.iter().position(|known| key.is_some() && *known == key);
        queues.push(producers + 1 + known.unwrap_or(keys.len()));
        if known.is_none() {
            keys.push(key);
        }
    }
    queues
}
