//! The threads of stages: each repeats one call, and does one unusual thing.
//!
//! - I1: A disruption is noted before it happens (`oracle::I2`).
//! - I2: An event is noted as handled by the call that released it, or was about to: an event of a
//!   batch that is dropped, or of a handler that panics, comes again.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipring::{
    Mirror,
    errors::{BatchError, WaitError},
    tasks::{Selector, Waitable},
};
use slipring_coherence::sync::{self, Panics};

use super::env::Env;
use super::handles::{Ask, Finish, Handle};
use super::holding::hold;
use crate::event::Seen;
use crate::oracle::deaths::{Told, pause_after};
use crate::oracle::{Disruption, Log, goes_on};
use crate::plan::{By, Drive, Fault, Quirk};
use crate::watch::Watch;

/// The payload of a panic that the program has planned.
pub struct Planned(#[allow(dead_code, reason = "its drop ends the mark")] Panics);

/// Panics, without the hook's message.
pub fn panic_as_planned() -> ! {
    resume_unwind(Box::new(Planned(Panics::begin())))
}

/// Notes an event as handled, and puts it into the mirror.
fn note(watch: &mut Watch, mirror: &mut Option<Mirror<[u64; 3]>>, seq: u64, id: u64) {
    let first = watch.handled(seq, id);
    if let Some(mirror) = mirror.as_mut().filter(|_| first) {
        mirror.put(seq, &[id; 3]);
    }
}

/// Runs a chain from its build to its end, within a handler.
fn run_chain(log: &Log) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let done = slipring::ring(2, || 0u64)
        .wait(slipring::Wait::Blocking)
        .read("inner", move |value, _| sees.lock().expect("no thread panics with it").push(*value))
        .feed(1..=3, |slot, value| *slot = value);
    let seen = seen.lock().expect("no thread panics with it").clone();
    match done {
        Ok(done) if done.value == 3 && seen == [1, 2, 3] => {}
        other => log.violation(format!("a handler's own chain ended with {other:?}: {seen:?}")),
    }
}

/// A handle in use.
pub struct Progress<'a> {
    env: &'a Env,
    ring: usize,
    drive: Drive,
    watch: Watch,
    /// Number of events that were handed to the handler.
    events: u64,
    leaves: bool,
    /// Whether it has dropped a batch unreleased.
    repeats: bool,
    /// Whether its last call has found nothing.
    is_idle: bool,
    /// Whether a panic drops the handle when it leaves.
    panics: bool,
    /// Whether the graph fails if it leaves.
    leaving_fails: bool,
    mirror: Option<Mirror<[u64; 3]>>,
    /// Another handle of the ring, which the handler calls.
    inner: Option<Box<(Box<dyn Handle>, Progress<'a>)>>,
    told: Told,
}

impl Progress<'_> {
    /// Calls the inner handle some times, until its stream ends.
    fn call_inner(&mut self, calls: u64) {
        for _ in 0..calls {
            let Some(inner) = &mut self.inner else { return };
            let (handle, progress) = &mut **inner;
            if progress.step(&mut **handle) != After::GoOn {
                self.inner = None;
            }
        }
    }

    /// Returns the quirk, if its time has come. It has one time.
    fn quirk(&mut self) -> Option<Quirk> {
        let (at, quirk) = self.drive.quirk?;
        let is_between = matches!(quirk, Quirk::DropInPanic | Quirk::DropIdle);
        (self.events >= at && !is_between).then(|| {
            self.drive.quirk = None;
            quirk
        })
    }

    /// Does what a handler does besides looking at its event.
    fn act(&mut self, quirk: Quirk, seq: u64) {
        match quirk {
            Quirk::Panic => {
                self.leaves |= self.drive.by == By::Raw;
                panic_as_planned()
            }
            Quirk::Leave => self.leaves = true,
            Quirk::LeaveInside => {
                self.leaves = true;
                panic_as_planned()
            }
            Quirk::Sleep(micros) => sync::sleep(Duration::from_micros(micros)),
            Quirk::Halt => {
                self.watch.log().disrupt(Disruption::Halt);
                self.env.rings[self.ring].halt();
            }
            Quirk::Publish(ring) => self.env.rings[ring].publish_one(),
            Quirk::Await(stage) => self.watch.await_stage(stage, seq),
            Quirk::AwaitProducers => self.watch.await_producers(0),
            Quirk::AwaitProducer => self.watch.await_producers(self.watch.log().but_one()),
            Quirk::Nested(calls) => self.call_inner(calls),
            Quirk::Chain => run_chain(self.watch.log()),
            Quirk::Fail
            | Quirk::DropBatch
            | Quirk::ForgetBatch
            | Quirk::ReleaseFront
            | Quirk::Hold(_) => {}
            Quirk::PassOver | Quirk::DropInPanic | Quirk::DropIdle => {}
        }
    }

    /// Handles an event of a call that releases it.
    fn handle(&mut self, seq: u64, event: &dyn Seen) -> u64 {
        self.events += 1;
        if let Some(quirk) = self.quirk() {
            self.act(quirk, seq);
        }
        let trail = self.watch.look(seq, event);
        self.handled(seq, Watch::id(event));
        trail
    }

    fn handled(&mut self, seq: u64, id: u64) {
        note(&mut self.watch, &mut self.mirror, seq, id);
    }

    /// Takes a batch, and finishes it as its quirk says.
    fn batch(&mut self, handle: &mut dyn Handle, ask: Ask) -> Result<usize, BatchError> {
        self.events += 1;
        let quirk = self.quirk();
        if let Some(Quirk::Hold(calls)) = quirk
            && handle.holds()
        {
            let mirror = &mut self.mirror;
            let mut handled = |watch: &mut Watch, seq, id| note(watch, mirror, seq, id);
            return hold(handle, &mut self.watch, (self.drive.max, calls), ask, &mut handled);
        }
        let finish = match quirk {
            Some(Quirk::DropBatch) => Finish::Drop,
            Some(Quirk::ForgetBatch) => Finish::Forget,
            Some(Quirk::ReleaseFront) => Finish::FrontFirst,
            _ => Finish::All,
        };
        if matches!(finish, Finish::Drop | Finish::Forget) {
            self.watch.may_repeat();
            self.repeats = true;
        }
        // A batch tells what may come again after a death. A batch that this handle itself has
        // dropped comes again untold.
        let tells = handle.tells_again() && !self.repeats;
        let again = Cell::new((0, 0));
        let released = matches!(finish, Finish::All | Finish::FrontFirst);
        let (max, mut quirk) = (self.drive.max, quirk);
        let mut first = None;
        let found = handle.batch(ask, max, finish, &again, &mut |seq, event| {
            first.get_or_insert(seq);
            if tells {
                self.watch.repeats_only(again.get());
            }
            let trail = self.watch.look(seq, event);
            if let Some(quirk) = quirk.take() {
                self.act(quirk, seq);
            }
            // Before the release, behind which the process may die.
            if released {
                self.handled(seq, Watch::id(event));
            }
            trail
        });
        if tells {
            self.watch.repeats_any(true);
        }
        if let (Some(first), Ok(len)) = (first, &found) {
            self.watch.called(first, *len as u64, max);
        }
        if let Some(quirk) = quirk {
            // No event came, so its time has not come either.
            self.drive.quirk = Some((self.events, quirk));
        }
        found
    }

    /// Makes one call. Returns whether the stream goes on.
    fn call(&mut self, handle: &mut dyn Handle) -> bool {
        self.is_idle = false;
        let name = self.watch.name();
        let max = self.drive.max;
        let found = match self.drive.by {
            By::ForEach => {
                let ended = handle.for_each(&mut |seq, event| self.handle(seq, event));
                return self.go_on(&name, ended.map(|_| 0).and(Err(WaitError::Closed)));
            }
            By::Poll | By::Select => {
                let found = handle.poll(max, &mut |seq, event| self.handle(seq, event));
                return self.go_on(&name, found);
            }
            By::Batch => self.batch(handle, Ask::Wait),
            By::Try => self.batch(handle, Ask::Try),
            By::Deadline(micros) => self.batch(handle, Ask::For(Duration::from_micros(micros))),
            By::Task(polls) => self.batch(handle, Ask::Task(polls)),
            By::Raw => handle.raw(max, &mut |seq, event| self.handle(seq, event)),
        };
        let refused = matches!(found, Err(BatchError::Unavailable | BatchError::Gated { .. }));
        match found {
            Ok(_) => {
                self.told.found();
                self.watch.has_released();
                true
            }
            Err(_) if refused => {
                self.is_idle = true;
                self.told.refused(self.watch.log(), self.watch.stage());
                true
            }
            Err(error) => {
                self.told.found();
                self.is_idle = !matches!(error, BatchError::Wait(_) | BatchError::Contended);
                match error {
                    BatchError::Wait(ref error) => pause_after(error),
                    _ => sync::spin_loop(),
                }
                self.watch.log().batch_error(&name, &error)
            }
        }
    }

    fn go_on(&mut self, name: &str, found: Result<usize, WaitError>) -> bool {
        match found {
            Ok(0) => {
                self.is_idle = true;
                self.told.refused(self.watch.log(), self.watch.stage());
                true
            }
            Ok(_) => {
                self.told.found();
                self.watch.has_released();
                true
            }
            Err(error) => {
                self.told.found();
                pause_after(&error);
                self.watch.log().wait_error(name, &error);
                goes_on(&error)
            }
        }
    }
}

/// A handle of a stage, and what is done with it.
pub struct Driven {
    pub handle: Box<dyn Handle>,
    pub watch: Watch,
    pub drive: Drive,
    pub leaving_fails: bool,
    pub mirror: Option<Mirror<[u64; 3]>>,
    /// Another handle of the ring, which its handler calls.
    pub inner: Option<Box<Driven>>,
}

/// How a call ended, besides its events.
#[derive(PartialEq, Eq)]
enum After {
    GoOn,
    Leave,
    Ended,
}

impl Driven {
    fn begin(self, env: &Env, ring: usize) -> (Box<dyn Handle>, Progress<'_>) {
        let Driven { handle, watch, mut drive, leaving_fails, mirror, inner } = self;
        let inner = inner.map(|inner| Box::new(inner.begin(env, ring)));
        // `for_each` cannot be left, except by a panic.
        if drive.by == By::ForEach && matches!(drive.quirk, Some((_, Quirk::Leave))) {
            drive.by = By::Poll;
        }
        let progress = Progress {
            env,
            ring,
            drive,
            watch,
            events: 0,
            leaves: false,
            repeats: false,
            is_idle: false,
            panics: false,
            leaving_fails,
            mirror,
            inner,
            told: Told::default(),
        };
        (handle, progress)
    }

    /// Drives the handle until its stream ends, or it leaves. Returns whether the stream has ended.
    pub fn run(self, env: &Env, ring: usize) -> bool {
        self.run_until(env, ring, || ())
    }

    /// The same. Calls `leaves` before the handle is dropped.
    pub fn run_until(self, env: &Env, ring: usize, leaves: impl FnOnce()) -> bool {
        let (mut handle, mut progress) = self.begin(env, ring);
        let after = loop {
            match progress.step(&mut *handle) {
                After::GoOn => {}
                after => break after,
            }
        };
        while progress.inner.is_some() {
            progress.call_inner(1);
        }
        leaves();
        if progress.panics {
            let drops = move || {
                let _handle = handle;
                panic_as_planned()
            };
            let Err(payload) = catch_unwind(AssertUnwindSafe(drops));
            if !payload.is::<Planned>() {
                resume_unwind(payload);
            }
            return false;
        }
        if after == After::Leave {
            handle.leave();
            return false;
        }
        if let (After::Ended, Some(kept), false) =
            (&after, &env.kept, progress.watch.is_subscriber())
        {
            kept.lock().expect("no thread panics with it").push(handle);
        }
        after == After::Ended
    }
}

impl Progress<'_> {
    fn step(&mut self, handle: &mut dyn Handle) -> After {
        // A panic drops the handle that a raw call has taken apart, before this function knows.
        let panics = matches!(self.drive.quirk, Some((_, Quirk::Panic | Quirk::LeaveInside)));
        if self.drive.by == By::Raw && panics {
            self.watch.log().disrupt(Disruption::Failure(self.watch.name()));
        }
        let ring_was_over = self.watch.log().producing().is_none();
        let goes_on = match catch_unwind(AssertUnwindSafe(|| self.call(handle))) {
            Ok(goes_on) => goes_on,
            Err(payload) if payload.is::<Planned>() => true,
            Err(payload) => resume_unwind(payload),
        };
        if !goes_on {
            return After::Ended;
        }
        match self.drive.quirk {
            Some((at, Quirk::DropInPanic)) if self.events >= at => {
                self.watch.log().disrupt(Disruption::Failure(self.watch.name()));
                self.panics = true;
                return After::Leave;
            }
            Some((_, Quirk::DropIdle)) if self.is_idle && ring_was_over => {
                self.panics = true;
                return After::Leave;
            }
            Some((0, Quirk::Leave)) => self.leaves |= self.is_idle,
            _ => {}
        }
        if !self.leaves {
            return After::GoOn;
        }
        if self.leaving_fails {
            self.watch.log().disrupt(Disruption::Failure(self.watch.name()));
        }
        After::Leave
    }
}

/// Drives several handles on one thread, by a selector.
pub fn select(env: &Env, driven: Vec<(usize, Driven)>) {
    let mut all: Vec<_> =
        driven.into_iter().map(|(ring, driven)| driven.begin(env, ring)).collect();
    let mut selector = Selector::new();
    while !all.is_empty() {
        let ready = ready(&mut selector, &mut all);
        let (handle, progress) = &mut all[ready];
        if progress.step(&mut **handle) != After::GoOn {
            all.swap_remove(ready);
        }
    }
}

/// Waits until one of the handles is ready. Returns its index.
fn ready(selector: &mut Selector, all: &mut [(Box<dyn Handle>, Progress<'_>)]) -> usize {
    let mut handles: Vec<&mut dyn Waitable> =
        all.iter_mut().map(|(handle, _)| handle.waitable()).collect();
    selector.wait(&mut handles, None).expect("it has handles and no deadline")
}

/// Drives the handles of one process, in turn or by a selector, until all streams have ended or one
/// leaves. Calls `leaves` before handles are dropped, with the stage of each. Returns whether all
/// have ended.
pub fn alternate(env: &Env, driven: Vec<Driven>, selects: bool, leaves: &dyn Fn(usize)) -> bool {
    let mut all: Vec<_> = driven.into_iter().map(|driven| driven.begin(env, 0)).collect();
    let mut selector = Selector::new();
    let mut turn = 0;
    while !all.is_empty() {
        turn = if selects { ready(&mut selector, &mut all) } else { (turn + 1) % all.len() };
        let (handle, progress) = &mut all[turn];
        match progress.step(&mut **handle) {
            After::GoOn => {}
            After::Ended => {
                leaves(progress.watch.stage());
                all.remove(turn);
            }
            After::Leave => {
                all.iter().for_each(|(_, progress)| leaves(progress.watch.stage()));
                return false;
            }
        }
    }
    true
}

/// Returns the handler of a stage that the library runs.
pub fn handler(
    mut watch: Watch,
    drive: Drive,
    on_fault: Fault,
    env: Arc<Env>,
    mut mirror: Option<Mirror<[u64; 3]>>,
) -> impl FnMut(u64, &dyn Seen) -> (Option<u64>, Result<(), String>) + Send {
    // A writer's event would go on unwritten.
    let panics_go_on = on_fault != Fault::Stop && !watch.writes();
    let (mut events, mut quirk) = (0, drive.quirk);
    move |seq, event| {
        events += 1;
        let due = match quirk {
            // The last event may be the one that matters.
            Some((at, Quirk::Await(stage))) if events >= at => Some(Quirk::Await(stage)),
            _ => quirk.take_if(|(at, _)| events >= *at).map(|(_, quirk)| quirk),
        };
        let fails = matches!(due, Some(Quirk::Panic | Quirk::Fail));
        let trail = match fails && on_fault == Fault::Skip {
            true => watch.look_in_vain(seq, event),
            false => watch.look(seq, event),
        };
        match due {
            Some(Quirk::Panic) if panics_go_on => {
                match on_fault {
                    Fault::Retry => watch.may_repeat(),
                    _ => {
                        watch.skips(seq);
                        watch.handled(seq, Watch::id(event));
                    }
                }
                panic_as_planned()
            }
            Some(Quirk::Panic) => {
                watch.log().disrupt(Disruption::Failure(watch.name()));
                panic_as_planned()
            }
            Some(Quirk::Fail) => {
                // A skipped event stays as its handler leaves it, and goes on.
                let trail = (on_fault == Fault::Skip).then_some(trail);
                match on_fault {
                    Fault::Stop => watch.log().disrupt(Disruption::Failure(watch.name())),
                    Fault::Skip => {
                        watch.skips(seq);
                        watch.handled(seq, Watch::id(event));
                    }
                    Fault::Retry => watch.may_repeat(),
                }
                return (trail, Err("as planned".to_owned()));
            }
            Some(Quirk::Sleep(micros)) => sync::sleep(Duration::from_micros(micros)),
            Some(Quirk::Publish(ring)) => env.rings[ring].publish_one(),
            Some(Quirk::Await(stage)) => watch.await_stage(stage, seq),
            Some(Quirk::AwaitProducers) => watch.await_producers(0),
            Some(Quirk::Chain) => run_chain(watch.log()),
            _ => {}
        }
        let first = watch.handled(seq, Watch::id(event));
        if let Some(mirror) = mirror.as_mut().filter(|_| first) {
            mirror.put(seq, &[Watch::id(event); 3]);
        }
        (Some(trail), Ok(()))
    }
}
