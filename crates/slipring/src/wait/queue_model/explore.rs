//! Explores every state that a model's threads can reach.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::machine::{Digest, Sleep, State, Step, Stop, Thread, choose_twin, run};
use super::system::set_refuses;
use crate::base::panics::panic_message;

/// A thread's program: a function that makes the call with the given argument, and returns the
/// argument of the next call, or `None` after the last call.
pub(crate) type Program<'m> = Box<dyn Fn(u8) -> Option<u8> + 'm>;

/// A model of several threads. The first call of each thread's [`Program`] has the argument 0.
#[derive(Default)]
pub(crate) struct Model<'m> {
    pub(crate) threads: Vec<(&'static str, Program<'m>)>,
    /// Whether the simulated system can refuse a barrier.
    pub(crate) refuses: bool,
    /// One entry for each thread that can die: the argument of the first call of the thread's
    /// successor, or `None` if the thread has no successor. The threads that can die are the first
    /// threads of the model.
    pub(crate) mortal: Vec<Option<u8>>,
    /// Largest number of deaths.
    pub(crate) deaths: u8,
    /// Number of each thread's sleeps that may end by their limit while no thread can take a step.
    pub(crate) limits: u8,
    /// The bits that memory drops from each word that is written.
    pub(crate) not_kept: u64,
    /// Assertions on the state after the last call of every thread.
    pub(crate) end: Option<Box<dyn Fn() + 'm>>,
}

impl Model<'_> {
    /// Explores every state, with the step `twin` weakened. Returns the number of states, or the
    /// reason why a state is wrong.
    pub(crate) fn explore(&self, twin: &'static str) -> Result<usize, String> {
        choose_twin(twin);
        set_refuses(self.refuses);
        let threads = self.threads.iter().map(|&(name, _)| Thread::new(name)).collect();
        let first = State::new(threads, self.not_kept);
        // A 64-bit digest identifies a state. A collision would hide a state, but is less likely
        // than a hardware fault.
        let mut known = HashSet::<u64, BuildHasherDefault<Digest>>::default();
        known.insert(first.digest());
        let mut left = vec![first];
        while let Some(state) = left.pop() {
            let mut next = Vec::new();
            for thread in 0..self.threads.len() {
                self.step(&state, thread, &mut next)?;
                if !state.threads[thread].buffer.is_empty() {
                    let mut drained = state.clone();
                    drained.drain(thread);
                    next.push(drained);
                }
                if matches!(state.threads[thread].sleep, Sleep::Asleep { limited: true, .. }) {
                    let mut timed_out = state.clone();
                    timed_out.thread_mut(thread).sleep = Sleep::Woken;
                    next.push(timed_out);
                }
            }
            if next.is_empty() {
                next.extend(self.oversleeps(&state));
            }
            if next.is_empty() {
                self.judge(&state)?;
            }
            next.extend(self.deaths(&state));
            left.extend(next.into_iter().filter(|state| known.insert(state.digest())));
        }
        Ok(known.len())
    }

    /// Appends to `next` every state that one step of a thread can produce.
    fn step(&self, state: &State, thread: usize, next: &mut Vec<State>) -> Result<(), String> {
        let Some(call) = state.threads[thread].call else { return Ok(()) };
        let mut choices = Vec::new();
        loop {
            let (mut step, outcome) = run(Step::new(state.clone(), thread, choices), || {
                catch_unwind(AssertUnwindSafe(|| self.threads[thread].1(call)))
            });
            match outcome {
                Ok(following) if !step.over => {
                    let thread = step.thread_mut();
                    (thread.call, thread.refused, thread.postponed) = (following, false, false);
                    thread.log.clear();
                    next.push(step.state);
                }
                Err(panic) if !panic.is::<Stop>() => {
                    return Err(format!("{}: {}", self.threads[thread].0, panic_message(panic)));
                }
                _ if step.thread().log.len() > state.threads[thread].log.len() => {
                    next.push(step.state)
                }
                _ => {}
            }
            choices = step.choices;
            while choices.last().is_some_and(|(taken, count)| taken + 1 == *count) {
                choices.pop();
            }
            match choices.last_mut() {
                Some((taken, _)) => *taken += 1,
                None => return Ok(()),
            }
        }
    }

    /// Returns the states that follow if a sleep ends by its limit. Called only if no thread can
    /// take a step, because a limit is longer than the time of all other steps.
    fn oversleeps(&self, state: &State) -> impl Iterator<Item = State> {
        let limits = self.limits;
        let can = move |thread: &Thread| {
            matches!(thread.sleep, Sleep::Asleep { .. }) && thread.overslept < limits
        };
        (0..state.threads.len()).filter(move |&at| can(&state.threads[at])).map(|at| {
            let mut next = state.clone();
            next.thread_mut(at).sleep = Sleep::Woken;
            next.thread_mut(at).overslept += 1;
            next
        })
    }

    /// Returns the states that follow if a thread dies.
    fn deaths(&self, state: &State) -> impl Iterator<Item = State> {
        let mortal = self.mortal.iter().enumerate().filter(|(thread, _)| {
            state.deaths < self.deaths && state.threads[*thread].call.is_some()
        });
        mortal.map(|(thread, &successor)| {
            let mut next = state.clone();
            next.kill(thread, successor);
            next
        })
    }

    /// Checks a state in which no thread can take a step.
    fn judge(&self, state: &State) -> Result<(), String> {
        let stuck: Vec<&str> = state
            .threads
            .iter()
            .filter(|thread| thread.call.is_some())
            .map(|thread| thread.name)
            .collect();
        if !stuck.is_empty() {
            return Err(format!("left asleep: {}; {state:?}", stuck.join(", ")));
        }
        let Some(end) = &self.end else { return Ok(()) };
        let mut step = Step::new(state.clone(), 0, Vec::new());
        step.over = true;
        let (_, outcome) = run(step, || catch_unwind(AssertUnwindSafe(end)));
        outcome.map_err(|panic| format!("at the end: {}", panic_message(panic)))
    }
}
