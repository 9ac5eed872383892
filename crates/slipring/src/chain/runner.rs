//! A stage at work: its seat and its handler, run on a thread of their own, in turn with others, or by hand.
//!
//! Invariants
//! - I1: no panic of user code leaves this module: it ends the graph, names stage and event, and is dropped here, whatever its payload does.
//! - I2: whoever was started is stopped, also after a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::control::{Control, Waiter};
use crate::drive::{End, Handler, Pace, drive, step};
use crate::error::{Cause, panic_message};
use crate::fault::Fault;
use crate::seat::Seat;
use crate::slots::Layout;

/// One virtual call per thread, or per round where stages share a thread; the loops inside are monomorphic.
pub(super) trait Runner {
    fn stage(&self) -> usize;
    /// The position of the next event.
    fn at(&self) -> u64;
    /// The position of the event that the handler failed at, if it was an event.
    fn failed_at(&self) -> Option<u64>;
    fn start(&mut self) -> Result<(), Fault>;
    fn stop(&mut self) -> Result<(), Fault>;
    /// Until the stream ends.
    fn run(&mut self) -> End;
    /// What is there now; `Ok(0)`: nothing, and more may come.
    fn step(&mut self) -> Result<u64, End>;
    /// Whether a step would do anything.
    fn is_ready(&self) -> bool;
    /// Whom a wait would be for.
    fn waits_for(&self) -> usize;
}

pub(super) struct Seated<E, L: Layout, S: Seat<E, L>, H> {
    seat: S,
    handler: H,
    pace: Pace,
    ring: std::marker::PhantomData<(fn() -> E, L)>,
}

impl<E, L: Layout, S: Seat<E, L>, H: Handler<E, L>> Seated<E, L, S, H> {
    pub(super) fn new(seat: S, handler: H) -> Self {
        let pace = Pace::new(&seat.desk().core);
        Seated { seat, handler, pace, ring: std::marker::PhantomData }
    }
}

impl<E, L: Layout, S: Seat<E, L>, H: Handler<E, L>> Runner for Seated<E, L, S, H> {
    fn stage(&self) -> usize {
        self.seat.desk().stage
    }
    fn at(&self) -> u64 {
        self.seat.next()
    }
    fn failed_at(&self) -> Option<u64> {
        (!self.seat.desk().between).then(|| self.seat.next())
    }
    fn start(&mut self) -> Result<(), Fault> {
        self.handler.start()
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.handler.stop()
    }
    fn run(&mut self) -> End {
        drive(&mut self.seat, &mut self.handler)
    }
    fn step(&mut self) -> Result<u64, End> {
        match step(&mut self.seat, &mut self.handler, &mut self.pace) {
            Ok(0) => self.seat.ended().map_or(Ok(0), |closed| Err(End::Closed(closed))),
            other => other,
        }
    }
    fn is_ready(&self) -> bool {
        self.seat.stirs()
    }
    fn waits_for(&self) -> usize {
        self.seat.waits_for()
    }
}

pub(super) type BoxedRunner<'env> = Box<dyn Runner + Send + 'env>;

/// Calls user code of a stage; a panic or an error ends the graph (I1). `None`: it did.
fn contain<T>(control: &Control, stage: usize, at: impl FnOnce() -> Option<u64>, call: impl FnOnce() -> Result<T, Fault>) -> Option<T> {
    let cause = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(fault)) => Cause::Error(fault),
        Err(panic) => Cause::Panic(panic_message(panic)),
    };
    control.fail(stage, at(), cause);
    None
}

/// Runners that share a thread (often one alone).
pub(super) struct Crew<'env> {
    runners: Vec<BoxedRunner<'env>>,
    running: Vec<bool>,
    started: usize,
}

impl<'env> Crew<'env> {
    pub(super) fn new(runners: Vec<BoxedRunner<'env>>) -> Crew<'env> {
        let running = vec![true; runners.len()];
        Crew { runners, running, started: 0 }
    }

    /// The whole life of the crew's thread.
    pub(super) fn attend(mut self, control: &Control, on_start: impl FnOnce()) {
        let Some(first) = self.runners.first().map(|runner| runner.stage()) else { return };
        let hooked = contain(
            control,
            first,
            || None,
            || {
                on_start();
                Ok(())
            },
        );
        if hooked.is_some() && self.start(control) {
            match &mut self.runners[..] {
                [alone] => {
                    let mut runner = AssertUnwindSafe(&mut **alone);
                    let end = catch_unwind(move || runner.run()).unwrap_or_else(|panic| End::Panic(panic_message(panic)));
                    settle(control, alone, end);
                }
                _ => self.take_turns(control),
            }
        }
        self.stop(control);
    }

    /// Starts everybody; `false` if one could not.
    pub(super) fn start(&mut self, control: &Control) -> bool {
        for runner in &mut self.runners {
            let stage = runner.stage();
            if contain(control, stage, || None, || runner.start()).is_none() {
                return false;
            }
            self.started += 1;
        }
        true
    }

    /// Gives everybody one turn. Comes back with how many events were handled; `None`: all have ended.
    pub(super) fn turn(&mut self, control: &Control) -> Option<u64> {
        let mut handled = 0;
        let mut ended = false;
        for (runner, running) in self.runners.iter_mut().zip(&mut self.running) {
            if *running {
                let mut stepped = AssertUnwindSafe(&mut **runner);
                match catch_unwind(move || stepped.step()).unwrap_or_else(|panic| Err(End::Panic(panic_message(panic)))) {
                    Ok(count) => handled += count,
                    Err(end) => {
                        settle(control, runner, end);
                        *running = false;
                        ended = true;
                    }
                }
            }
        }
        if self.running.iter().any(|&running| running) {
            // That one has ended may be what the others wait for.
            Some(handled.max(u64::from(ended)))
        } else {
            None
        }
    }

    fn take_turns(&mut self, control: &Control) {
        while let Some(handled) = self.turn(control) {
            if handled == 0 {
                let waiting = || self.runners.iter().zip(&self.running).filter(|(_, running)| **running).map(|(runner, _)| runner);
                let Some(first) = waiting().next() else { return };
                let waiter = Waiter { party: first.stage(), waits_for: first.waits_for(), at: first.at() };
                let mut ready = || waiting().any(|runner| runner.is_ready());
                // A strategy of the user's own may panic. Then, as past the deadline, the graph has failed, and every stage's next step
                // says so.
                contain(control, waiter.party, || Some(waiter.at), || Ok(control.wait_at(waiter, None, &mut ready)));
            }
        }
    }

    /// Stops whoever was started, and lets everybody's handler go (I2).
    pub(super) fn stop(self, control: &Control) {
        for (i, mut runner) in self.runners.into_iter().enumerate() {
            let stage = runner.stage();
            if i < self.started {
                contain(control, stage, || None, || runner.stop());
            }
            contain(
                control,
                stage,
                || None,
                || {
                    drop(runner);
                    Ok(())
                },
            );
        }
    }
}

/// Tells the graph how a stage's loop ended.
fn settle(control: &Control, runner: &BoxedRunner<'_>, end: End) {
    let cause = match end {
        End::Closed(_) => return,
        End::Fault(fault) => Cause::Error(fault),
        End::Panic(message) => Cause::Panic(message),
    };
    control.fail(runner.stage(), runner.failed_at(), cause);
}
