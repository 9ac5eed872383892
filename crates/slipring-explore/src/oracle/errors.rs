//! The oracle's checks of what calls return.
//!
//! - I1: An error is right if something has happened that explains it (`oracle::I2`).

use std::time::Duration;

use slipring::errors::{SubscribeError, WaitError};
use slipring::{
    errors::{AwaitError, BatchError, Cause, ClaimError, Failure},
    handles::StartAt,
    stages::PRODUCER,
};
use slipring_coherence::sync;

use super::{Disruption, Fate, Log, goes_on};
use crate::plan::{Kind, Waits};

impl Log {
    /// Checks an error of a stage's call.
    pub fn wait_error(&self, who: &str, error: &WaitError) {
        let closing = who != PRODUCER;
        if closing && matches!(error, WaitError::Closed) {
            self.ends(who);
        }
        let disruptions = self.notes().disruptions.clone();
        let fits = match error {
            // Between processes, a producer may come when the others have left already.
            WaitError::Closed if closing => {
                let notes = self.notes();
                !notes.must_fail || notes.ends_early()
            }
            WaitError::Closed => {
                let notes = self.notes();
                let comes_late = notes.processes || notes.comes_late;
                comes_late || disruptions.contains(&Disruption::CloseAll)
            }
            // A process that died while it wrote down the failure that another death caused leaves
            // no reason.
            WaitError::Halted if slipring_coherence::deaths() > 1 => {
                self.disrupt(Disruption::Halt);
                true
            }
            WaitError::Halted => disruptions.contains(&Disruption::Halt),
            WaitError::Failed(failure) => self.failure_fits(failure),
            WaitError::Left => self.notes().evicts,
            WaitError::WaitsForItself(stage) => self.notes().nests && self.holds_up(stage, who),
            // It tells of a death that has happened.
            WaitError::PeerDead(dead) => self.has_lost(&dead.stage.to_string()),
            WaitError::TimedOut(_) => {
                let waits = self.plan.stages.iter().filter_map(|stage| stage.wait);
                waits.chain([self.plan.wait]).any(|wait| wait == Waits::Timeout)
            }
            _ => false,
        };
        if !fits {
            self.violation(format!("an error of `{who}`, after {disruptions:?}: {error}"));
        }
    }

    /// Returns whether a stage can hold up another one, so that a thread may wait for itself: an
    /// earlier stage does, and a worker of the same pool.
    fn holds_up(&self, holder: &str, who: &str) -> bool {
        let number = |name: &str| (0..self.plan.stages.len()).find(|it| Log::name(*it) == name);
        match (number(holder), number(who)) {
            (Some(holder), Some(own)) if holder == own => self.plan.stages[own].kind.is_pool(),
            (Some(holder), Some(own)) => self.plan.before(own).contains(&holder),
            (holder, _) => holder.is_some() && who == PRODUCER,
        }
    }

    /// Checks the refusal of a tap's reader.
    pub fn refused(&self, tap: usize, start: StartAt, error: &SubscribeError) {
        let fits = match *error {
            SubscribeError::Overwritten { asked, oldest } => {
                start == StartAt::At(asked) && self.place(asked) < self.place(oldest)
            }
            SubscribeError::NotYet { asked, newest } => {
                start == StartAt::At(asked) && self.place(asked) > self.place(newest)
            }
            SubscribeError::Full { room } => room == self.plan.stages[tap].room,
            SubscribeError::Ended(ref error) => {
                self.wait_error(&Log::name(tap), error);
                true
            }
            _ => true,
        };
        if !fits {
            self.violation(format!("a reader that begins at {start:?} was refused: {error}"));
        }
    }

    /// Checks the answer to a request whose promise is kept. Returns whether an answer may still
    /// come.
    pub fn answer_in_vain(&self, answer: &Result<u64, AwaitError>) -> bool {
        match answer {
            Err(AwaitError::TimedOut | AwaitError::Wait(WaitError::TimedOut(_))) => return true,
            Err(AwaitError::Wait(WaitError::Closed)) => {}
            Err(AwaitError::Wait(error @ WaitError::Failed(_))) => self.wait_error(PRODUCER, error),
            Err(AwaitError::Skipped | AwaitError::Broken) if self.skipped_some() => {}
            other if !self.is_disrupted() => {
                self.violation(format!("a request that nothing answers ended with {other:?}"));
            }
            _ => {}
        }
        false
    }

    /// Checks the answer to a request whose promise is dropped by the stage that gets it. Returns
    /// whether it may still come.
    pub fn answer_broken(&self, id: u64, answer: &Result<u64, AwaitError>) -> bool {
        match answer {
            Ok(_) => self.violation(format!("request {id:x} was answered, not broken")),
            Err(AwaitError::Broken) => return false,
            _ => {}
        }
        self.answer(id, answer)
    }

    /// Checks the answer to a request. Returns whether it may still come.
    pub fn answer(&self, id: u64, answer: &Result<u64, AwaitError>) -> bool {
        match answer {
            Ok(value) if *value == id => {}
            Ok(value) => self.violation(format!("request {id:x} was answered by {value:x}")),
            Err(AwaitError::TimedOut) => return true,
            Err(AwaitError::Wait(WaitError::TimedOut(_))) => return true,
            Err(AwaitError::Skipped | AwaitError::Broken) if self.skipped_some() => {}
            Err(AwaitError::Wait(error)) => self.wait_error(PRODUCER, error),
            Err(error) if !self.is_disrupted() => {
                self.violation(format!("request {id:x} was not answered: {error}"));
            }
            Err(_) => {}
        }
        false
    }

    fn failure_fits(&self, failure: &Failure) -> bool {
        if matches!(failure.cause(), Cause::Died { .. } | Cause::Elsewhere(_)) {
            self.disrupt(Disruption::Failure(failure.stage().to_string()));
            return slipring_coherence::deaths() != 0;
        }
        let stage = failure.stage().to_string();
        self.check_position(failure);
        let now = sync::now();
        let mut notes = self.notes();
        let is_due = match failure.cause() {
            Cause::Deadline(after) => {
                let is_own = self.plan.deadline.map(Duration::from_micros) == Some(*after);
                is_own && notes.due.is_some_and(|due| now >= due)
            }
            _ => false,
        };
        let told = (stage.clone(), failure.seq());
        let first = notes.failure.get_or_insert(told.clone()).clone();
        if first != told {
            drop(notes);
            self.violation(format!("a call told of {told:?}, another one of {first:?}"));
            return true;
        }
        is_due || notes.disruptions.contains(&Disruption::Failure(stage))
    }

    /// Checks the position of a failure: its stage has handled all events before.
    fn check_position(&self, failure: &Failure) {
        let is_named = |stage: &usize| Log::name(*stage) == failure.stage().as_str();
        let stage = (0..self.plan.stages.len()).find(is_named);
        let (Some(stage), Some(at)) = (stage, failure.seq()) else { return };
        let of = &self.plan.stages[stage];
        // Of several handles, another one may have been about to handle an earlier event.
        let is_last = match of.kind {
            Kind::Reader | Kind::Writer => true,
            Kind::PoolReader | Kind::PoolWriter => matches!(failure.cause(), Cause::Dropped),
            _ => false,
        };
        let notes = self.notes();
        let mut published = notes.events.values().filter_map(|fate| match fate {
            Fate::Published(seq) => *seq,
            _ => None,
        });
        let is_passed =
            |seq: &u64| self.place(*seq) < self.place(at) && !notes.seen[stage].contains_key(seq);
        let passed = published.find(is_passed).filter(|_| is_last);
        drop(published);
        drop(notes);
        if let Some(seq) = passed {
            self.violation(format!("s{stage} failed at {at}, and had not handled {seq} before"));
        }
    }

    /// Checks the failure that a run or a join returned.
    pub fn run_failure(&self, failure: Option<&Failure>, text: &str) {
        if !failure.is_some_and(|failure| self.failure_fits(failure)) {
            let disruptions = self.notes().disruptions.clone();
            self.violation(format!("the run failed, after {disruptions:?}: {text}"));
        }
    }

    /// Checks an error of a call for a batch. Returns whether the stream goes on.
    pub fn batch_error(&self, who: &str, error: &BatchError) -> bool {
        match error {
            BatchError::Wait(error) => {
                self.wait_error(who, error);
                goes_on(error)
            }
            _ => true,
        }
    }

    /// Checks an error of a claim. Returns whether the stream goes on.
    pub fn claim_error(&self, error: &ClaimError) -> bool {
        match error {
            ClaimError::Wait(error) => {
                self.wait_error(PRODUCER, error);
                goes_on(error)
            }
            ClaimError::Length { .. } | ClaimError::Held { .. } => {
                self.violation(format!("a claim: {error}"));
                false
            }
            _ => true,
        }
    }

    /// Whether a stage has skipped an event.
    fn skipped_some(&self) -> bool {
        !self.notes().skipped.is_empty()
    }
}
