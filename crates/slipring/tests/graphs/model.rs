//! The sequential oracle: a vector of cells, a position per stage, and a set of positions per pool.
//! A test applies each operation also to the oracle, which checks the result that the library
//! returned. Positions are counted from the ring's first position.

use slipring::{
    errors::{BatchError, Cause, ClaimError, WaitError},
    stages::PRODUCER,
};

use crate::handles::{Ask, Finish};
use crate::shape::{Ev, Shape, after_write, mix};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A claimed cell that is not yet published, and has not become a tombstone.
    Open,
    Live(u64),
    Tombstone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Halted,
    /// Failure of a stage or of the producer: its name, and the position if it is determined.
    Failed(String, Option<u64>),
}

#[derive(Debug, Default)]
pub struct WorkerModel {
    pub dropped: bool,
    /// Range of positions that the worker holds, or that the model knows to be the rest of its
    /// chunk. The worker's next batch begins at the start of this range.
    held: Option<(usize, usize)>,
    /// Position behind the worker's last release. The rest of its chunk, if any, begins here.
    cursor: Option<usize>,
}

#[derive(Debug)]
pub struct StageModel {
    pub after: Vec<usize>,
    /// Next position of a stage with one handle. All positions before it are released.
    next: usize,
    pub dropped: bool,
    /// Released positions of a pool.
    passed: Vec<bool>,
    /// Lower bound of the pool's frontier: the pool has released all positions below it.
    low: usize,
    pub workers: Vec<WorkerModel>,
    /// The writers before this stage, first to last.
    writers: Vec<usize>,
    /// Number of released events.
    pub handled: u64,
}

pub struct Model {
    pub start: u64,
    pub capacity: usize,
    pub many: bool,
    pub log: Vec<Cell>,
    /// Each producer's state: whether it is alive, and its forgotten claim.
    pub producers: Vec<(bool, Option<(usize, usize)>)>,
    pub stages: Vec<StageModel>,
    gating: Vec<usize>,
    pub last: Option<usize>,
    pub end: Option<End>,
    pub halted: bool,
    next_id: u64,
}

/// The predicted result of a claim.
#[derive(Debug, PartialEq, Eq)]
pub enum Claimed {
    At(usize),
    Gated(String, u64),
    Length,
    Drained,
    Ended,
}

impl Model {
    pub fn new(shape: &Shape, capacity: usize, many: bool, start: u64) -> Model {
        let stage = |i: usize| {
            let spec = &shape.0[i];
            let workers = if spec.kind.is_pool() {
                (0..spec.workers).map(|_| WorkerModel::default()).collect()
            } else {
                Vec::new()
            };
            StageModel {
                after: spec.after.clone(),
                next: 0,
                dropped: false,
                passed: Vec::new(),
                low: 0,
                workers,
                writers: shape.writers_before(i),
                handled: 0,
            }
        };
        Model {
            start,
            capacity,
            many,
            log: Vec::new(),
            producers: vec![(true, None)],
            stages: (0..shape.len()).map(stage).collect(),
            gating: shape.gating(),
            last: None,
            end: None,
            halted: false,
            next_id: 1,
        }
    }

    pub fn seq(&self, at: usize) -> u64 {
        self.start.wrapping_add(at as u64)
    }

    fn at(&self, seq: u64) -> usize {
        seq.wrapping_sub(self.start) as usize
    }

    pub fn tombstones(&self) -> u64 {
        self.log.iter().filter(|&&cell| cell == Cell::Tombstone).count() as u64
    }

    pub fn live_events(&self) -> u64 {
        self.log.iter().filter(|cell| matches!(cell, Cell::Live(_))).count() as u64
    }

    /// Returns the identity of the next event.
    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    // Producers.

    fn published(&self) -> usize {
        // A claim is open for less than a lap, so only the last lap can contain one.
        let from = self.log.len().saturating_sub(self.capacity);
        self.log[from..]
            .iter()
            .position(|&cell| cell == Cell::Open)
            .map_or(self.log.len(), |open| from + open)
    }

    fn frontier(&self, stage: usize) -> usize {
        let stage = &self.stages[stage];
        if stage.workers.is_empty() {
            stage.next
        } else {
            (0..).find(|&at| stage.passed.get(at) != Some(&true)).unwrap_or(0)
        }
    }

    /// Returns the stage that gates the producers, and its frontier.
    fn gate(&self) -> (String, usize) {
        let mut least = None;
        for &stage in &self.gating {
            let frontier = self.frontier(stage);
            if least.as_ref().is_none_or(|&(_, least)| frontier < least) {
                least = Some((Shape::name(stage), frontier));
            }
        }
        least.unwrap_or_else(|| (PRODUCER.to_owned(), self.published()))
    }

    pub fn room(&self) -> usize {
        self.gate().1 + self.capacity - self.log.len()
    }

    /// Turns a producer's forgotten claim into a tombstone. The library does so when the handle is
    /// used next.
    pub fn bury_forgotten(&mut self, producer: usize) {
        if let Some((at, len)) = self.producers[producer].1.take() {
            self.log[at..at + len].fill(Cell::Tombstone);
        }
    }

    /// Predicts the result of a claim, and opens its slots if it succeeds.
    pub fn claim(&mut self, producer: usize, len: usize) -> Claimed {
        if !(1..=self.capacity).contains(&len) {
            return Claimed::Length;
        }
        if self.end.is_some() {
            return Claimed::Ended;
        }
        self.bury_forgotten(producer);
        if self.last.is_some() {
            return Claimed::Drained;
        }
        if self.room() < len {
            let (stage, frontier) = self.gate();
            return Claimed::Gated(stage, (self.log.len() - frontier) as u64);
        }
        let at = self.log.len();
        self.log.resize(at + len, Cell::Open);
        Claimed::At(at)
    }

    pub fn check_claim_error(&self, expected: &Claimed, error: &ClaimError, late: bool) {
        match (expected, error) {
            (Claimed::Gated(stage, lag), ClaimError::Gated { stage: named, lag: reported })
                if !late =>
            {
                assert_eq!(
                    (&**stage, *lag),
                    (named.as_str(), *reported),
                    "the gating stage and its lag"
                );
            }
            (Claimed::Gated(stage, _), ClaimError::TimedOut(named)) if late => {
                assert_eq!(**stage, **named)
            }
            (Claimed::Length, ClaimError::Length { capacity, .. }) => {
                assert_eq!(*capacity, self.capacity)
            }
            (Claimed::Drained, ClaimError::Wait(WaitError::Closed)) => {}
            (Claimed::Ended, ClaimError::Wait(closed)) => self.check_ended(closed),
            (expected, error) => panic!("a claim returned {error:?} instead of {expected:?}"),
        }
    }

    pub fn publish(&mut self, at: usize, ids: &[u64]) {
        for (offset, &id) in ids.iter().enumerate() {
            self.log[at + offset] = Cell::Live(id);
        }
    }

    /// Drops the last claim, which begins at `at`: with many producers it becomes a tombstone.
    pub fn bury(&mut self, at: usize) {
        if self.many {
            self.log[at..].fill(Cell::Tombstone);
        } else {
            self.log.truncate(at);
        }
    }

    pub fn forget_claim(&mut self, producer: usize, at: usize) {
        if self.many {
            self.producers[producer].1 = Some((at, self.log.len() - at));
        } else {
            self.log.truncate(at);
        }
    }

    pub fn drop_producer(&mut self, producer: usize) {
        self.bury_forgotten(producer);
        self.producers[producer].0 = false;
        if self.producers.iter().all(|(alive, _)| !alive) {
            self.close();
        }
    }

    pub fn close(&mut self) {
        self.last.get_or_insert(self.log.len());
    }

    pub fn fail(&mut self, stage: String, seq: Option<u64>) {
        if !matches!(self.end, Some(End::Failed(..))) {
            self.end = Some(End::Failed(stage, seq));
        }
    }

    pub fn check_ended(&self, closed: &WaitError) {
        match (&self.end, closed) {
            (Some(End::Halted), WaitError::Halted) => {}
            (Some(End::Failed(stage, seq)), WaitError::Failed(failure)) => {
                assert_eq!(failure.stage().as_str(), stage);
                assert!(matches!(failure.cause(), Cause::Panic(_) | Cause::Dropped), "{failure:?}");
                if seq.is_some() {
                    assert_eq!(failure.seq(), *seq);
                }
            }
            (end, closed) => panic!("the graph returned {closed:?} after {end:?}"),
        }
    }

    // Stages.

    /// Returns the position up to which the stage's dependencies have released.
    fn limit(&self, stage: usize) -> usize {
        self.stages[stage]
            .after
            .iter()
            .map(|&earlier| self.frontier(earlier))
            .min()
            .unwrap_or_else(|| self.published())
    }

    fn is_done(&self, stage: usize) -> bool {
        self.last == Some(self.frontier(stage))
    }

    /// Asserts that an event has the published identity, and the trail of exactly the writers
    /// before this stage.
    fn check_event(&self, stage: usize, at: usize, event: &Ev) {
        let Some(&Cell::Live(id)) = self.log.get(at) else {
            panic!("position {at} holds {:?} and was lent", self.log.get(at))
        };
        assert_eq!(event.id, id, "the event at position {at}");
        let trail = self.stages[stage]
            .writers
            .iter()
            .fold(mix(id), |trail, &writer| after_write(trail, writer));
        assert_eq!(event.trail, trail, "the trail of the event at position {at}");
    }

    fn skip_tombstones(&mut self, stage: usize, limit: usize) {
        while self.stages[stage].next < limit
            && self.log[self.stages[stage].next] == Cell::Tombstone
        {
            self.stages[stage].next += 1;
        }
    }

    /// Returns the number of consecutive events from `from` on, before `limit`, and at most `max`.
    fn row(&self, from: usize, limit: usize, max: usize) -> usize {
        self.log[from..limit]
            .iter()
            .take(max)
            .take_while(|cell| matches!(cell, Cell::Live(_)))
            .count()
    }

    /// Returns the predicted position of a stage with one handle.
    pub fn next(&self, stage: usize) -> usize {
        self.stages[stage].next
    }

    /// Checks the result `lent` of a request for a batch, and its events `seen`.
    pub fn batch(
        &mut self,
        (stage, worker): (usize, usize),
        (ask, max, finish): (Ask, usize, Finish),
        lent: Result<(u64, usize), BatchError>,
        seen: &[(u64, Ev)],
    ) {
        if self.end.is_some() {
            match lent {
                Err(BatchError::Wait(closed)) => return self.check_ended(&closed),
                other => panic!("a batch of an ended graph: {other:?}"),
            }
        }
        if max == 0 {
            let (_, len) = lent.expect("an empty batch");
            assert_eq!(len, 0);
            return;
        }
        let is_pool = !self.stages[stage].workers.is_empty();
        if !is_pool {
            let limit = self.limit(stage);
            self.skip_tombstones(stage, limit);
            let row = self.row(self.stages[stage].next, limit, max);
            if row > 0 {
                let (first, len) = lent.expect("a batch of available events");
                assert_eq!(
                    (self.at(first), len),
                    (self.stages[stage].next, row),
                    "the lent positions"
                );
            } else {
                self.check_nothing(stage, ask, lent);
                return;
            }
        } else {
            match lent {
                Ok((first, len)) => {
                    assert!((1..=max).contains(&len));
                    let at = self.at(first);
                    self.check_offered(stage, worker, at);
                    self.stages[stage].workers[worker].held = Some((at, at + len));
                    for at in at + 1..at + len {
                        self.check_free(stage, worker, at);
                    }
                }
                nothing => {
                    self.check_starved(stage, worker);
                    self.check_nothing(stage, ask, nothing);
                    return;
                }
            }
        }
        let (first, len) = (self.at(seen[0].0), seen.len());
        for (offset, (seq, event)) in seen.iter().enumerate() {
            assert_eq!(self.at(*seq), first + offset);
            self.check_event(stage, first + offset, event);
        }
        if finish == Finish::Release {
            (first..first + len).for_each(|at| self.release(stage, worker, at));
            if is_pool {
                let worker = &mut self.stages[stage].workers[worker];
                (worker.held, worker.cursor) = (None, Some(first + len));
            }
        }
    }

    /// Checks a poll of up to `max` events against the model. `seen` are the events that the poll
    /// delivered. If `outcome` is `None`, the poll's closure panicked at the last of these events.
    pub fn poll(
        &mut self,
        (stage, worker): (usize, usize),
        max: usize,
        outcome: Option<Result<usize, WaitError>>,
        seen: &[(u64, Ev)],
    ) {
        let panicked = outcome.is_none();
        if self.end.is_some() {
            match outcome {
                Some(Err(closed)) => return self.check_ended(&closed),
                other => panic!("a poll of an ended graph: {other:?}"),
            }
        }
        if max == 0 {
            assert!(matches!(outcome, Some(Ok(0))) && seen.is_empty());
            return;
        }
        assert!(seen.len() <= max);
        for (i, (seq, event)) in seen.iter().enumerate() {
            let at = self.at(*seq);
            if self.stages[stage].workers.is_empty() {
                let limit = self.limit(stage);
                self.skip_tombstones(stage, limit);
                assert_eq!(at, self.stages[stage].next);
                assert!(at < limit);
            } else {
                self.check_offered(stage, worker, at);
            }
            self.check_event(stage, at, event);
            let is_pool = !self.stages[stage].workers.is_empty();
            if panicked && i + 1 == seen.len() {
                if is_pool {
                    self.stages[stage].workers[worker].held = Some((at, at + 1));
                }
                return;
            }
            self.release(stage, worker, at);
            if is_pool {
                let worker = &mut self.stages[stage].workers[worker];
                worker.held =
                    worker.held.filter(|&(_, end)| end > at + 1).map(|(_, end)| (at + 1, end));
                worker.cursor = Some(at + 1);
            }
        }
        let outcome = outcome.expect("a panic without an event");
        if seen.len() < max {
            // The poll ended because no further event was available.
            if self.stages[stage].workers.is_empty() {
                let limit = self.limit(stage);
                self.skip_tombstones(stage, limit);
                assert_eq!(
                    self.row(self.stages[stage].next, limit, 1),
                    0,
                    "the poll returned too early"
                );
            } else {
                self.check_starved(stage, worker);
            }
        }
        match outcome {
            Ok(count) => {
                assert_eq!(count, seen.len());
                assert!(count > 0 || !self.is_done(stage), "the end was not returned");
            }
            Err(WaitError::Closed) => {
                assert!(seen.is_empty() && self.is_done(stage), "closed too early")
            }
            Err(other) => panic!("a poll returned {other:?}"),
        }
    }

    fn release(&mut self, stage: usize, worker: usize, at: usize) {
        if self.stages[stage].workers.is_empty() {
            assert_eq!(self.stages[stage].next, at);
            self.stages[stage].next += 1;
        } else {
            self.check_free(stage, worker, at);
            self.pass(stage, at);
        }
        self.stages[stage].handled += 1;
    }

    fn pass(&mut self, stage: usize, at: usize) {
        let passed = &mut self.stages[stage].passed;
        if passed.len() <= at {
            passed.resize(at + 1, false);
        }
        assert!(!std::mem::replace(&mut passed[at], true), "position {at} was released twice");
        while self.stages[stage].passed.get(self.stages[stage].low) == Some(&true) {
            self.stages[stage].low += 1;
        }
    }

    fn pass_tombstones(&mut self, stage: usize, limit: usize) {
        for at in self.stages[stage].low..limit {
            if self.log[at] == Cell::Tombstone && self.stages[stage].passed.get(at) != Some(&true) {
                self.pass(stage, at);
            }
        }
    }

    /// Asserts that a worker may be lent this position: the dependencies have released it, and no
    /// other worker holds or has released it.
    fn check_free(&self, stage: usize, worker: usize, at: usize) {
        assert!(
            at < self.limit(stage),
            "position {at} was lent before the pool's dependencies released it"
        );
        assert_ne!(self.stages[stage].passed.get(at), Some(&true), "position {at} was lent twice");
        for (other, model) in self.stages[stage].workers.iter().enumerate() {
            if other != worker && !model.dropped {
                let taken = model.held.is_some_and(|(from, to)| (from..to).contains(&at));
                assert!(!taken, "position {at} was lent to worker {worker} while {other} held it");
            }
        }
    }

    /// Asserts that a batch may begin at this position: the worker's unreleased events come first,
    /// and [`Model::check_free`] holds.
    fn check_offered(&mut self, stage: usize, worker: usize, at: usize) {
        if let Some((held, _)) = self.stages[stage].workers[worker].held {
            assert_eq!(at, held, "unreleased events come first");
        }
        self.check_free(stage, worker, at);
        // Chunks are taken in order, so the pool has passed all tombstones before this position.
        self.pass_tombstones(stage, at);
    }

    /// Asserts that a worker had no available event: other workers hold all unreleased events.
    fn check_starved(&mut self, stage: usize, worker: usize) {
        assert!(
            self.stages[stage].workers[worker].held.is_none(),
            "unreleased events were not lent again"
        );
        let limit = self.limit(stage);
        self.pass_tombstones(stage, limit);
        // The worker polled for more, so nothing of its chunk is left.
        self.stages[stage].workers[worker].cursor = None;
        let passed = |at: usize| self.stages[stage].passed.get(at) == Some(&true);
        for at in self.stages[stage].low..limit {
            if !passed(at) && (at == 0 || passed(at - 1)) {
                let held = |(other, model): (usize, &WorkerModel)| {
                    other != worker
                        && !model.dropped
                        && (model.cursor == Some(at)
                            || model.held.is_some_and(|(from, _)| from == at))
                };
                assert!(
                    self.stages[stage].workers.iter().enumerate().any(held),
                    "position {at} is available, and is not lent to the worker"
                );
            }
        }
    }

    fn check_nothing(&self, stage: usize, ask: Ask, lent: Result<(u64, usize), BatchError>) {
        match lent {
            Err(BatchError::Wait(WaitError::Closed)) => {
                assert!(self.is_done(stage), "closed too early")
            }
            Err(BatchError::Unavailable) if ask == Ask::Try => {
                assert!(!self.is_done(stage), "the end was not returned")
            }
            Err(BatchError::TimedOut(_)) if ask == Ask::Late => {
                assert!(!self.is_done(stage), "the end was not returned")
            }
            other => panic!("a request without available events returned {other:?}"),
        }
    }

    /// Drops a handle, and fails the graph if it was still needed.
    pub fn drop_handle(&mut self, stage: usize, worker: usize) {
        if self.stages[stage].workers.is_empty() {
            self.stages[stage].dropped = true;
            if self.end.is_none() && !self.is_done(stage) {
                let seq = self.seq(self.stages[stage].next);
                self.fail(Shape::name(stage), Some(seq));
            }
            return;
        }
        let dropped = &mut self.stages[stage].workers[worker];
        (dropped.dropped, dropped.held, dropped.cursor) = (true, None, None);
        if self.stages[stage].workers.iter().all(|worker| worker.dropped) {
            self.stages[stage].dropped = true;
            if self.end.is_none() && !self.is_done(stage) {
                self.fail(Shape::name(stage), None);
            }
        }
    }
}
