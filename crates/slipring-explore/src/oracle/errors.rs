//! The oracle's checks of what calls return.
//!
//! - I1: An error is right if something has happened that explains it (`oracle::I2`).

use slipring::{AwaitError, BatchError, Cause, ClaimError, Failure, PRODUCER, WaitError};

use super::{Disruption, Log, goes_on};
use crate::plan::Waits;

impl Log {
    /// Checks an error of a stage's call.
    pub fn wait_error(&self, who: &str, error: &WaitError) {
        let closing = who != PRODUCER;
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
            WaitError::WaitsForItself(_) => self.notes().nests,
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

    /// Returns whether a process has died that had a seat of the party with this name, or tried to
    /// take one.
    fn has_lost(&self, name: &str) -> bool {
        let named = |party: usize| match self.plan.stages.get(party) {
            Some(_) => Log::name(party) == name,
            None => name == PRODUCER,
        };
        let notes = self.notes();
        let mut seated = notes.seated.iter();
        seated.any(|((party, process), _)| named(*party) && slipring_coherence::has_died(*process))
    }

    /// Checks the answer to a request whose promise is kept. Returns whether an answer may still
    /// come.
    pub fn answer_in_vain(&self, answer: &Result<u64, AwaitError>) -> bool {
        match answer {
            Err(AwaitError::TimedOut | AwaitError::Wait(WaitError::TimedOut(_))) => return true,
            Err(AwaitError::Wait(WaitError::Closed)) => {}
            Err(AwaitError::Skipped | AwaitError::Broken) if self.skipped_some() => {}
            other if !self.is_disrupted() => {
                self.violation(format!("a request that nothing answers ended with {other:?}"));
            }
            _ => {}
        }
        false
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
        let mut notes = self.notes();
        // No retry follows a halt.
        let halted = notes.disruptions.contains(&Disruption::Halt);
        let told = (stage.clone(), failure.seq());
        let first = notes.failure.get_or_insert(told.clone()).clone();
        if first != told {
            drop(notes);
            self.violation(format!("a call told of {told:?}, another one of {first:?}"));
            return true;
        }
        (halted && notes.retried.contains(&stage))
            || notes.disruptions.contains(&Disruption::Failure(stage))
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

    fn skipped_some(&self) -> bool {
        !self.notes().skipped.is_empty()
    }
}
