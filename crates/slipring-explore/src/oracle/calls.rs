//! The oracle's checks of single calls: what they promise beside their results.
//!
//! - I1: A check says nothing where another thread may have changed the answer while the call
//!   returned.

use slipring::{
    Report,
    errors::{ClaimError, SubscribeError},
    stages::PRODUCER,
};

use super::{Fate, Log};
use crate::plan::{Front, Kind};

/// Number of a call's own accesses within which it polls again, and then returns. A call that
/// spins polls each few accesses; its return flushes counts.
const POLLS_WITHIN: u64 = 80;

/// Largest number of own accesses of a call whose deadline has passed before it begins. It tries
/// to claim twice, pauses between, and flushes counts.
const TOO_LATE: u64 = 2_000;

/// Number of results in a row, of futures of one handle, behind which one has to be pending.
const RESULTS_IN_A_ROW: u64 = 1024;

/// Number of results in a row behind which a future may be pending although the ring has room: a
/// slow row ends after 15 of them, of all calls.
const SHORT_ROW: u64 = 8;

/// A call with a deadline.
pub struct Timed {
    core: usize,
    /// Number of own accesses when it began.
    began: u64,
}

/// Joining a pool.
impl Log {
    /// Notes that a worker tries to join a pool. Returns the try's number.
    pub fn joins(&self, stage: usize) -> usize {
        let calls = &mut self.notes().calls;
        calls.workers[stage] += 1;
        let workers = calls.workers[stage];
        let others = calls.joins.iter_mut().filter(|(of, _)| *of == stage);
        others.for_each(|(_, most)| *most = workers.max(*most));
        calls.joins.push((stage, workers));
        calls.joins.len() - 1
    }

    /// Whether a call has told that the stream of a stage has ended.
    pub fn has_ended(&self, stage: usize) -> bool {
        self.notes().calls.ended.contains(&Log::name(stage))
    }

    /// Notes that a call has told that the stream of a stage has ended.
    pub fn ends(&self, stage: &str) {
        self.notes().calls.ended.insert(stage.to_owned());
    }

    /// Notes that the ring's handle is dropped.
    pub fn drops_ring(&self) {
        self.notes().calls.ring_dropped = true;
    }

    /// Checks why a worker could not join a pool. A worker that has left in the middle of a chunk
    /// keeps its place for a while, so each that has left counts as one that is there. `had_ended`:
    /// whether the pool had ended long before the call. Returns whether the pool seems to be full.
    pub fn join_refused(&self, number: usize, had_ended: bool, error: &SubscribeError) -> bool {
        let (stage, most) = {
            let calls = &mut self.notes().calls;
            let (stage, most) = calls.joins[number];
            calls.workers[stage] -= 1;
            (stage, most)
        };
        let of = &self.plan.stages[stage];
        let room = of.room.max(of.drives.len());
        let fits = match error {
            // The one that is refused does not count.
            SubscribeError::Full { .. } => most > room && !had_ended,
            SubscribeError::NotRunning => {
                self.plan.front != Front::Handles || self.notes().calls.ring_dropped
            }
            SubscribeError::Ended(error) => {
                self.wait_error(&Log::name(stage), error);
                true
            }
            _ => false,
        };
        if !fits {
            let when = if had_ended { ", which had ended" } else { "" };
            self.violation(format!(
                "a worker beside {} at most could not join s{stage}{when}: {error}",
                most - 1
            ));
        }
        fits && matches!(error, SubscribeError::Full { .. })
    }
}

/// Calls with a deadline.
impl Log {
    /// Notes that a producer begins a call with a deadline.
    pub fn begin_timed(&self) -> Timed {
        let core = slipring_coherence::core();
        let began = slipring_coherence::accesses_of(core);
        let calls = &mut self.notes().calls;
        calls.calling = Some(core);
        calls.released.iter_mut().for_each(|(_, at)| *at = began);
        Timed { core, began }
    }

    /// Notes that the only handle of a stage has released all that the stage has handled.
    pub fn has_released(&self, stage: usize) {
        let mut notes = self.notes();
        let handled = notes.seen[stage].len() as u64;
        let core = notes.calls.calling;
        let at = core.map_or(0, slipring_coherence::accesses_of);
        let released = &mut notes.calls.released[stage];
        if released.0 != handled {
            *released = (handled, at);
        }
    }

    /// Checks the end of a call whose deadline was so many microseconds after its begin. It ends at
    /// its deadline, however often other producers take the free slot, and names the stage that is
    /// furthest behind then.
    pub fn check_timed<T>(&self, call: &Timed, micros: u64, result: &Result<T, ClaimError>) {
        let own = slipring_coherence::accesses_of(call.core);
        // On shared threads, the call may run a stage.
        let by_handles = self.plan.front == Front::Handles && !self.notes().processes;
        if by_handles && micros == 0 && own - call.began > TOO_LATE {
            self.violation(format!("a call made {} accesses after its deadline", own - call.began));
        }
        let Err(ClaimError::TimedOut(name)) = result else { return };
        let notes = self.notes();
        let is_alone = notes.calls.producers == 1 && !notes.calls.publish_inside;
        if !by_handles || !is_alone || notes.comes_late {
            return;
        }
        let has_taps = self.plan.stages.iter().any(|stage| stage.kind == Kind::Tap);
        if name.as_str() == PRODUCER && !has_taps {
            drop(notes);
            self.violation("the only producer timed out because of another one".to_owned());
            return;
        }
        let is_named = |stage: &usize| Log::name(*stage) == name.as_str();
        let Some(stage) = (0..self.plan.stages.len()).find(is_named) else { return };
        // The position behind a claim that was given up is no event.
        let all_published = notes.events.values().all(|fate| matches!(fate, Fate::Published(_)));
        let (released, at) = notes.calls.released[stage];
        let is_behind = released < notes.events.len() as u64;
        drop(notes);
        let alone = matches!(self.plan.stages[stage].kind, Kind::Reader | Kind::Writer);
        let is_seen = alone && !self.notes().calls.stores_late;
        if is_seen && all_published && !is_behind && own - at > POLLS_WITHIN {
            self.violation(format!(
                "a call that timed out named s{stage}, which had released all {released} events \
                 {} accesses before",
                own - at
            ));
        }
    }
}

/// Counts.
impl Log {
    /// Notes that a producer has made a publication of one event.
    pub fn batch(&self) {
        self.notes().calls.batches.entry(slipring_coherence::core()).or_default().0 += 1;
    }

    /// Notes that a call that does not wait has found no room: reports count the calling producer's
    /// publications from now on.
    pub fn found_full(&self) {
        let calls = &mut self.notes().calls;
        let (made, counted) = calls.batches.entry(slipring_coherence::core()).or_default();
        *counted = *made;
    }

    /// Returns the number of publications that each later report has to count.
    pub fn least_batches(&self) -> u64 {
        self.notes().calls.batches.values().map(|(_, counted)| counted).sum()
    }

    /// Returns how a report differs from a number of publications that it has to count.
    pub fn lacks(&self, least: u64, report: &Report) -> Option<String> {
        let counted = report.producer().batches;
        (counted < least).then(|| {
            format!("a report counts {counted} of {least} publications before the ring was full")
        })
    }

    /// Notes that a future of a producer was pending, because the ring was full.
    pub fn task_waits(&self) {
        self.notes().calls.waits += 1;
    }

    /// Notes a future of the calling producer, and whether it was pending. Checks how many were
    /// ready in a row. Returns whether it waited for room, for certain.
    pub fn polled(&self, pended: bool) -> bool {
        let row = {
            let calls = &mut self.notes().calls;
            let row = calls.rows.entry(slipring_coherence::core()).or_default();
            let before = *row;
            *row = if pended { 0 } else { before + 1 };
            before
        };
        if row == RESULTS_IN_A_ROW {
            self.violation(format!("a task got {row} results in a row, and never yielded"));
        }
        pended && row < SHORT_ROW
    }
}
