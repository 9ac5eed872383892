//! The running simulation: its threads, whose turn it is, and switching between them.
//!
//! - I1: `CURRENT` is null, or points to the [`Running`] of the run on this system thread, which
//!   lives until `CURRENT` is null again.
//! - I2: A reference to the [`Running`] lives only within [`Handle::with`], whose closures do not
//!   switch, and call no code of the program. So there is one such reference at a time, although
//!   each thread has a [`Handle`].
//! - I3: A thread's `yielder` is set before its first access, and lives as long as its coroutine,
//!   which is suspended only by that thread, and resumed only by the run's loop.
//! - I4: A core has at most one thread that has not ended.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

use crate::counts::Counts;
use crate::error::{Cause, Deadlock, LimitReached, Position, SimulationError, Wait, Word};
use crate::lines::ByAddress;
use crate::memory::{Memory, cores};
use crate::report::{HotLine, Report};
use crate::shuffle::Shuffle;

/// A virtual thread: its run, and its number in the run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VirtualId {
    pub(crate) run: u64,
    pub(crate) thread: usize,
}

/// The thread-locals of one thread, by the addresses of their statics. They are few, and only
/// looked up.
#[derive(Default)]
pub(crate) struct Locals(Vec<(usize, Rc<dyn Any>)>);

impl Locals {
    pub(crate) const fn new() -> Locals {
        Locals(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get<T: 'static>(&self, key: usize) -> Option<Rc<T>> {
        let (_, value) = self.0.iter().find(|(of, _)| *of == key)?;
        value.clone().downcast().ok()
    }

    pub(crate) fn extend(&mut self, entry: Option<(usize, Rc<dyn Any>)>) {
        self.0.extend(entry);
    }
}

/// A virtual thread's coroutine.
pub(crate) type Body = Coroutine<(), (), (), DefaultStack>;

/// Why a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    Futex,
    Lock,
    Condvar,
    Park,
    Join(usize),
    Scope,
    Time,
}

/// A sleep in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asleep {
    pub(crate) cause: Sleep,
    /// The address of the word, for the causes that have one.
    pub(crate) word: usize,
    pub(crate) since: u64,
    /// When a timer ends the sleep; `u64::MAX`: never.
    pub(crate) until: u64,
}

/// Whether a core's thread can run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    /// The core has no thread.
    Free,
    Runnable,
    Asleep(Asleep),
    /// The thread's process has died, and the thread is never resumed.
    Dead,
}

/// A core's place in the schedule.
pub(crate) struct Place {
    pub(crate) state: State,
    /// Number of the core's thread.
    pub(crate) thread: usize,
    /// Whether the last sleep ended by a wake-up.
    pub(crate) woken: bool,
    /// Whether the thread was unparked, and has not parked since.
    pub(crate) token: bool,
    /// The virtual process of the thread, which can die.
    pub(crate) process: Option<u32>,
    pub(crate) yielder: *const Yielder<(), ()>,
    pub(crate) body: Option<Body>,
}

/// A thread, which may have ended.
pub(crate) struct ThreadRecord {
    pub(crate) name: Arc<str>,
    pub(crate) core: usize,
    pub(crate) ended: bool,
    /// Whether the run ends only after this thread.
    pub(crate) is_main: bool,
    /// Counts of a thread that has ended; until then, its core has them.
    pub(crate) counts: Counts,
    /// Cores whose threads wait for this thread's end.
    pub(crate) joiners: Vec<usize>,
    /// The text of its panic, until another thread has joined it.
    pub(crate) panic: Option<String>,
    pub(crate) locals: Locals,
}

/// A run.
pub(crate) struct Running {
    pub(crate) memory: Memory,
    /// The chance that decides, in a run by a schedule; otherwise the virtual clocks do.
    pub(crate) shuffle: Option<Shuffle>,
    /// Whether accesses are recorded.
    pub(crate) records: bool,
    /// Number of the run in the process.
    pub(crate) run: u64,
    /// The core whose turn it is.
    pub(crate) current: usize,
    pub(crate) places: Vec<Place>,
    /// A bit for each core whose place is not free.
    pub(crate) busy: u64,
    pub(crate) threads: Vec<ThreadRecord>,
    /// Number of the simulation's own threads that have not ended.
    pub(crate) mains_left: usize,
    /// When the last of these ended.
    pub(crate) ended_at: u64,
    /// When the measured time began.
    pub(crate) began_at: u64,
    /// The report of the moment at which the program ended the measured time.
    pub(crate) measured: Option<Report>,
    /// Cores that sleep on a word, in the order in which they went to sleep.
    pub(crate) futexes: ByAddress<VecDeque<usize>>,
    /// The core whose thread was unwinding when it let others run.
    pub(crate) unwinding: Option<usize>,
    /// The cores whose threads have begun panics that are marked ([`Panics`](crate::sync::Panics)),
    /// once for each.
    pub(crate) panics: Vec<usize>,
    /// Stacks of threads that have ended.
    pub(crate) spare_stacks: Vec<DefaultStack>,
    pub(crate) failure: Option<SimulationError>,
    /// The longest virtual time of the run.
    pub(crate) limit: u64,
    /// Virtual processes that have died.
    pub(crate) died: Vec<u32>,
}

impl Running {
    /// Makes the report of what was counted until now, with the time until `end`.
    pub(crate) fn report(&self, end: u64) -> Report {
        let counts = |thread: &ThreadRecord| match thread.ended {
            true => thread.counts,
            false => self.memory.cores[thread.core].counts,
        };
        let threads = self.threads.iter();
        let cores: Vec<(String, Counts)> =
            threads.map(|thread| (thread.name.to_string(), counts(thread))).collect();
        let mut total = Counts::default();
        cores.iter().for_each(|(_, counts)| total.add(counts));
        let lines = &self.memory.lines;
        let hot = lines.hot().into_iter().map(|(number, counts)| HotLine {
            number: number as usize,
            label: lines.label(number),
            counts,
        });
        Report {
            machine: String::new(),
            cores,
            time: duration(end.saturating_sub(self.began_at)),
            hot: hot.collect(),
            accesses: 0,
            switches: 0,
            deaths: 0,
            total,
        }
    }
}

/// Converts a duration to virtual time.
pub(crate) fn picos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().saturating_mul(1_000)).unwrap_or(u64::MAX)
}

/// Converts a virtual time to a duration. It loses parts of a nanosecond.
pub(crate) fn duration(picos: u64) -> Duration {
    Duration::from_nanos(picos / 1_000)
}

thread_local! {
    static CURRENT: Cell<*mut Running> = const { Cell::new(std::ptr::null_mut()) };
}

/// Returns whether the current thread unwinds. While another virtual thread does, which let others
/// run, the standard library's answer is about that thread.
pub(crate) fn panicking() -> bool {
    std::thread::panicking()
        && !Handle::current().is_some_and(|handle| {
            handle.with(|running| {
                let is_other = |core: usize| core != running.current;
                !running.panics.contains(&running.current)
                    && (running.unwinding.is_some_and(is_other) || !running.panics.is_empty())
            })
        })
}

/// Access to the run on this system thread.
#[derive(Clone, Copy)]
pub(crate) struct Handle(NonNull<Running>);

/// Ends the run on this system thread when it is dropped.
pub(crate) struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null_mut());
    }
}

impl Handle {
    /// Makes `running` the run of this system thread, until the result is dropped.
    ///
    /// # Safety
    ///
    /// `running` lives until then, and is used only through handles.
    pub(crate) unsafe fn enter(running: NonNull<Running>) -> (Handle, Entered) {
        CURRENT.set(running.as_ptr());
        (Handle(running), Entered(()))
    }

    /// Returns the run on this system thread, if there is one.
    #[inline(always)]
    pub(crate) fn current() -> Option<Handle> {
        NonNull::new(CURRENT.get()).map(Handle)
    }

    /// Lends the run to `body`, which does not switch (I2).
    #[inline(always)]
    pub(crate) fn with<R>(mut self, body: impl FnOnce(&mut Running) -> R) -> R {
        // SAFETY: I1 and I2.
        body(unsafe { self.0.as_mut() })
    }

    /// Lends the memory, and the number of the current core.
    #[inline(always)]
    pub(crate) fn memory<R>(self, body: impl FnOnce(&mut Memory, usize) -> R) -> R {
        self.with(|running| body(&mut running.memory, running.current))
    }

    /// Lets the cores with smaller clocks go first, and makes the stores visible that are due. In a
    /// run by a schedule, chance decides which core goes first.
    #[inline(always)]
    pub(crate) fn point(self) {
        if self.is_shuffled() {
            return self.step();
        }
        if self.memory(|memory, me| memory.cores[me].clock > memory.turn_ends) {
            self.pass();
        }
        self.memory(|memory, me| memory.commit_due(me));
    }

    /// Does the same as [`point`](Handle::point) in a loop that waits for another thread, and so
    /// also lets others run while this thread unwinds.
    pub(crate) fn spin_point(self) {
        if self.is_shuffled() {
            return self.spin_step();
        }
        if self.memory(|memory, me| memory.cores[me].clock > memory.turn_ends) {
            self.switch();
        }
        self.memory(|memory, me| memory.commit_due(me));
    }

    /// Returns whether chance decides whose turn it is.
    #[inline(always)]
    pub(crate) fn is_shuffled(self) -> bool {
        self.with(|running| running.shuffle.is_some())
    }

    /// Makes a step of a run by a schedule.
    #[inline(always)]
    fn step(self) {
        if self.with(|running| running.shuffle.as_mut().is_some_and(Shuffle::count)) {
            self.step_with_event();
        }
    }

    #[cold]
    fn step_with_event(self) {
        if self.with(Running::due) {
            self.pass();
        }
    }

    /// Makes a step in a loop that waits for another thread.
    fn spin_step(self) {
        self.step();
        let replaced = self.with(|running| {
            let core = running.current;
            running.shuffle.as_mut().is_some_and(|shuffle| {
                shuffle.give_way(core);
                shuffle.replaces_spinner()
            })
        });
        if replaced {
            self.switch();
        }
    }

    /// Lets other threads run, although this one could.
    #[cold]
    fn pass(self) {
        // A destructor that runs in a panic is not interrupted without need, since the standard
        // library would count the panic as one of each thread's.
        let must = self.with(|running| {
            running.limit_reached(running.current) || running.is_dead(running.current)
        });
        if must || !panicking() {
            self.switch();
        }
    }

    /// Lets the run's loop choose the next thread. Returns when it is this thread's turn again.
    #[inline(never)]
    pub(crate) fn switch(self) {
        let unwinds = panicking();
        let yielder = self.with(|running| {
            if unwinds {
                running.unwinding = Some(running.current);
            }
            running.places[running.current].yielder
        });
        // SAFETY: I3: the current core's thread calls this.
        unsafe { (*yielder).suspend(()) };
        if unwinds {
            self.with(|running| running.unwinding = None);
        }
    }

    /// Makes all stores of the current core visible, and its loads done.
    pub(crate) fn drain(self) {
        if self.is_shuffled() {
            return self.memory(|memory, me| memory.commit_own(me));
        }
        self.memory(|memory, me| memory.end_loads(me));
        while self.memory(|memory, me| memory.drain_step(me)) {
            // The stores of others that come first become visible first.
            self.point();
        }
    }
}

impl Running {
    pub(crate) fn thread(&self) -> &ThreadRecord {
        &self.threads[self.places[self.current].thread]
    }

    pub(crate) fn clock(&self) -> u64 {
        match &self.shuffle {
            Some(shuffle) => shuffle.clock(),
            None => self.memory.cores[self.current].clock,
        }
    }

    /// Lets the current core's clock go on.
    pub(crate) fn pay(&mut self, time: u64) {
        if let Some(shuffle) = &mut self.shuffle {
            return shuffle.pay(time);
        }
        let clock = &mut self.memory.cores[self.current].clock;
        *clock = clock.saturating_add(time);
    }

    fn limit_reached(&self, core: usize) -> bool {
        if let Some(shuffle) = &self.shuffle {
            return shuffle.limit_reached();
        }
        self.memory.accesses_left == 0 || self.memory.cores[core].clock > self.limit
    }

    /// Chooses the core that runs next. Returns `None` if the run is over, well or with a
    /// `failure`.
    pub(crate) fn choose(&mut self) -> Option<usize> {
        if self.failure.is_some() {
            return None;
        }
        if self.mains_left == 0 {
            self.failure = self.unjoined_panic();
            return None;
        }
        if let Some(shuffle) = &self.shuffle {
            if shuffle.limit_reached() {
                self.failure = Some(self.failure_at(0));
                return None;
            }
            let chosen = self.choose_by_chance();
            if chosen.is_none() {
                self.failure = Some(self.failure_at(u64::MAX));
            }
            return chosen;
        }
        let (mut first, mut least, mut second) = (0, u64::MAX, u64::MAX);
        for core in cores(self.busy) {
            let time = match &self.places[core].state {
                State::Free | State::Dead => continue,
                State::Runnable => self.memory.cores[core].clock,
                State::Asleep(asleep) => asleep.until,
            };
            if time < least {
                (first, least, second) = (core, time, least);
            } else if time < second {
                second = time;
            }
        }
        if least > self.limit || self.memory.accesses_left == 0 {
            self.failure = Some(self.failure_at(least));
            return None;
        }
        if let State::Asleep(_) = self.places[first].state {
            self.end_sleep(first, least, false);
        }
        self.current = first;
        self.memory.turn_ends = second.min(self.limit);
        Some(first)
    }

    /// Returns why no thread can go on, of which the first would at `least`. A panic that no thread
    /// has joined is the likely cause.
    #[cold]
    fn failure_at(&mut self, least: u64) -> SimulationError {
        self.unjoined_panic().unwrap_or_else(|| match least {
            u64::MAX => self.deadlock(),
            _ => self.limit_error(),
        })
    }

    /// Makes a sleeping core runnable at `time`.
    pub(crate) fn end_sleep(&mut self, core: usize, time: u64, woken: bool) {
        let place = &mut self.places[core];
        if let State::Asleep(asleep) = place.state {
            (place.state, place.woken) = (State::Runnable, woken);
            let of = &mut self.memory.cores[core];
            of.clock = of.clock.max(time);
            if self.shuffle.is_none() {
                of.counts.waited.asleep += of.clock.saturating_sub(asleep.since);
            }
            self.memory.turn_ends = self.memory.turn_ends.min(of.clock);
        }
    }

    fn unjoined_panic(&mut self) -> Option<SimulationError> {
        let thread = self.threads.iter_mut().find(|thread| thread.panic.is_some())?;
        let message = thread.panic.take()?;
        Some(SimulationError::Panicked { thread: thread.name.to_string(), message })
    }

    fn deadlock(&mut self) -> SimulationError {
        let sleeps = self.places.iter().filter_map(|place| match place.state {
            State::Asleep(asleep) => Some(asleep.since),
            _ => None,
        });
        let at = duration(sleeps.max().unwrap_or(0));
        SimulationError::Deadlock(Deadlock { at, waits: self.positions() })
    }

    fn limit_error(&mut self) -> SimulationError {
        let limit = if let Some(shuffle) = &self.shuffle {
            format!("{} accesses", shuffle.steps)
        } else if self.memory.accesses_left == 0 {
            let accesses: u64 = self.memory.cores.iter().map(|core| core.accesses()).sum();
            format!("{accesses} accesses")
        } else {
            format!("{} ns of virtual time", duration(self.limit).as_nanos())
        };
        SimulationError::Limit(LimitReached { limit, threads: self.positions() })
    }

    /// Returns where the threads are that have not ended.
    fn positions(&mut self) -> Vec<Position> {
        let mut positions = Vec::new();
        for core in 0..self.places.len() {
            let wait = match self.places[core].state {
                State::Free | State::Dead => continue,
                State::Runnable => None,
                State::Asleep(asleep) => Some(Wait {
                    cause: self.cause(asleep),
                    since: duration(asleep.since),
                    timed: asleep.until != u64::MAX,
                }),
            };
            positions.push(Position {
                thread: self.threads[self.places[core].thread].name.to_string(),
                core,
                time: duration(match &self.shuffle {
                    Some(shuffle) => shuffle.clock(),
                    None => self.memory.cores[core].clock,
                }),
                wait,
                location: self.memory.cores[core].location,
            });
        }
        positions
    }

    fn cause(&mut self, asleep: Asleep) -> Cause {
        match asleep.cause {
            Sleep::Futex => Cause::Futex(self.word(asleep.word)),
            Sleep::Lock => Cause::Lock(self.word(asleep.word)),
            Sleep::Condvar => Cause::Condvar(self.word(asleep.word)),
            Sleep::Park => Cause::Park,
            Sleep::Join(thread) => Cause::Join(self.threads[thread].name.to_string()),
            Sleep::Scope => Cause::Scope,
            Sleep::Time => Cause::Sleep,
        }
    }

    fn word(&mut self, at: usize) -> Word {
        let line = self.memory.lines.number(at);
        let label = self.memory.lines.label(line);
        Word { line: line as usize, offset: at % crate::lines::LINE, label }
    }
}
