//! Sleeping, waking and starting threads, in virtual time.
//!
//! - I1: Between the check that a thread makes before a sleep and the sleep no other thread runs,
//!   so no wake-up is lost.
//! - I2: A queue of `futexes` has only cores that sleep on its word. A core that wakes by its timer
//!   leaves the queue before another thread runs.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem};

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, Yielder};

use crate::counts::Counts;
use crate::error::{SimulationError, panic_text};
use crate::machine::MOST_CORES;
pub(crate) use crate::running::Sleep;
use crate::running::{Asleep, Handle, Locals, Running, State, ThreadRecord, VirtualId, picos};

type Caller = &'static Location<'static>;

/// Size of a virtual thread's stack, in bytes. The system gives memory to the used pages only.
const STACK: usize = 1 << 20;

thread_local! {
    /// Stacks of earlier runs on this system thread.
    static KEPT_STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the stacks of threads that have ended for the next run.
pub(crate) fn keep_stacks(running: &mut Running) {
    KEPT_STACKS.with_borrow_mut(|kept| {
        kept.append(&mut running.spare_stacks);
        kept.truncate(MOST_CORES);
    });
}

/// Puts the current thread to sleep, and returns whether it was woken.
fn block(handle: Handle, cause: Sleep, word: usize, limit: Option<Duration>) -> bool {
    handle.with(|running| {
        let since = running.clock();
        let until = match limit {
            None => u64::MAX,
            Some(Duration::ZERO) => since,
            // Below the value that means no timer.
            Some(limit) => since
                .saturating_add(picos(limit))
                .saturating_add(running.memory.costs.timer_lateness)
                .min(u64::MAX - 1),
        };
        running.memory.cores[running.current].counts.sleeps += 1;
        let place = &mut running.places[running.current];
        place.state = State::Asleep(Asleep { cause, word, since, until });
    });
    handle.switch();
    handle.with(|running| running.places[running.current].woken)
}

fn note(handle: Handle, location: Caller) {
    handle.memory(|memory, me| memory.cores[me].location = location);
}

/// Wakes the thread of a core that sleeps, at the current core's expense.
fn wake(running: &mut Running, core: usize) {
    running.pay(running.memory.costs.futex_wake);
    running.memory.cores[running.current].counts.wakes += 1;
    let at = running.clock() + running.memory.costs.wake_latency;
    running.end_sleep(core, at, true);
}

/// Sleeps for a time. Returns `false` outside of a simulation.
pub(crate) fn sleep(time: Duration, location: Caller) -> bool {
    let Some(handle) = Handle::current() else { return false };
    note(handle, location);
    handle.with(|running| running.pay(running.memory.costs.futex_wait));
    block(handle, Sleep::Time, 0, Some(time));
    true
}

/// Sleeps on the word at `at` unless it has `changed`. Returns whether the thread was woken, or did
/// not sleep; `None` outside of a simulation.
pub(crate) fn futex_wait(
    at: usize,
    changed: impl FnOnce() -> bool,
    limit: Option<Duration>,
    cause: Sleep,
    location: Caller,
) -> Option<bool> {
    let handle = Handle::current()?;
    handle.point();
    handle.drain();
    handle.with(|running| running.pay(running.memory.costs.futex_call));
    handle.point();
    if changed() {
        return Some(true);
    }
    note(handle, location);
    // I1.
    let me = handle.with(|running| {
        running.pay(running.memory.costs.futex_wait);
        running.futexes.entry(at).or_default().push_back(running.current);
        running.current
    });
    let woken = block(handle, cause, at, limit);
    if !woken {
        handle.with(|running| {
            if let Some(queue) = running.futexes.get_mut(&at) {
                queue.retain(|core| *core != me);
            }
        });
    }
    Some(woken)
}

/// Wakes at most `most` threads that sleep on the word at `at`. Returns their number; `None`
/// outside of a simulation.
pub(crate) fn futex_wake(at: usize, most: usize, location: Caller) -> Option<usize> {
    let handle = Handle::current()?;
    note(handle, location);
    handle.point();
    handle.drain();
    Some(handle.with(|running| {
        running.pay(running.memory.costs.futex_call);
        let Some(queue) = running.futexes.get_mut(&at) else { return 0 };
        let number = queue.len().min(most);
        let cores: Vec<usize> = queue.drain(..number).collect();
        cores.into_iter().for_each(|core| wake(running, core));
        number
    }))
}

/// Sleeps until an unpark. Returns `false` outside of a simulation.
pub(crate) fn park(limit: Option<Duration>, cause: Sleep, location: Caller) -> bool {
    let Some(handle) = Handle::current() else { return false };
    note(handle, location);
    handle.point();
    let unparked = |running: &mut Running| mem::take(&mut running.places[running.current].token);
    if !handle.with(unparked) {
        handle.drain();
        // Another thread may have come first while the stores drained.
        if !handle.with(unparked) {
            handle.with(|running| running.pay(running.memory.costs.futex_wait));
            block(handle, cause, 0, limit);
            handle.with(unparked);
        }
    }
    true
}

/// Ends a park of a thread, or its next one. A thread that has ended, with its run or before, is
/// not woken.
pub(crate) fn unpark(id: VirtualId, location: Caller) {
    let Some(handle) = Handle::current() else { return };
    note(handle, location);
    handle.point();
    handle.drain();
    handle.with(|running| {
        if running.run != id.run || running.threads[id.thread].ended {
            return;
        }
        let core = running.threads[id.thread].core;
        running.pay(running.memory.costs.futex_call);
        running.places[core].token = true;
        if let State::Asleep(asleep) = running.places[core].state
            && matches!(asleep.cause, Sleep::Park | Sleep::Scope)
        {
            wake(running, core);
        }
    });
}

/// Ends all threads of a virtual process where they are. The calling thread does not go on if it is
/// one of them. Returns whether the process lived.
pub(crate) fn kill(process: u32) -> bool {
    let Some(handle) = Handle::current() else { return false };
    handle.point();
    let (lived, own) = handle.with(|running| {
        let own = running.places[running.current].process == Some(process);
        (running.kill(process), own)
    });
    if own {
        handle.switch();
    }
    lived
}

/// Returns the number of accesses of a run by a schedule.
pub(crate) fn accesses() -> u64 {
    let step = |running: &mut Running| running.shuffle.as_ref().map_or(0, |shuffle| shuffle.step());
    Handle::current().map_or(0, |handle| handle.with(step))
}

/// Returns the number of accesses that the threads of a core have made in a run by a schedule.
pub(crate) fn accesses_of(core: usize) -> u64 {
    let made = |running: &mut Running| {
        let current = running.current;
        running.shuffle.as_ref().map_or(0, |shuffle| shuffle.made_by(core, current))
    };
    Handle::current().map_or(0, |handle| handle.with(made))
}

/// Returns the core of the calling thread, or 0 outside of a simulation.
pub(crate) fn core() -> usize {
    Handle::current().map_or(0, |handle| handle.with(|running| running.current))
}

/// Returns the number of virtual processes that have died.
pub(crate) fn deaths() -> usize {
    Handle::current().map_or(0, |handle| handle.with(|running| running.died.len()))
}

/// Returns whether a virtual process was killed, or died by chance.
pub(crate) fn has_died(process: u32) -> bool {
    Handle::current().is_some_and(|handle| handle.with(|running| running.died.contains(&process)))
}

/// Waits for the end of a thread.
pub(crate) fn join(id: VirtualId, location: Caller) {
    let handle = Handle::current().filter(|handle| handle.with(|running| running.run == id.run));
    let handle = handle.expect("a virtual thread is joined within its run");
    note(handle, location);
    handle.point();
    handle.drain();
    handle.with(|running| running.pay(running.memory.costs.futex_call));
    handle.point();
    let sleeps = handle.with(|running| {
        let thread = &mut running.threads[id.thread];
        if !thread.ended {
            thread.joiners.push(running.current);
        }
        !thread.ended
    });
    if sleeps {
        handle.with(|running| running.pay(running.memory.costs.futex_wait));
        block(handle, Sleep::Join(id.thread), 0, None);
    }
}

/// Returns the current virtual thread and its name.
pub(crate) fn current() -> Option<(VirtualId, Arc<str>)> {
    Some(Handle::current()?.with(|running| {
        let thread = running.places[running.current].thread;
        (VirtualId { run: running.run, thread }, running.thread().name.clone())
    }))
}

/// Returns the number of cores of the simulated machine.
pub(crate) fn cores() -> Option<usize> {
    Some(Handle::current()?.with(|running| match &running.shuffle {
        Some(shuffle) => shuffle.schedule.cores,
        None => running.places.len(),
    }))
}

/// Ends the run with an error of the program's own.
pub(crate) fn give_up(why: &str) {
    let Some(handle) = Handle::current() else { return };
    let outlives = crate::outlives();
    let failure = SimulationError::GivenUp(why.to_owned());
    drop(outlives);
    handle.with(|running| running.failure = Some(failure));
    handle.switch();
}

/// Returns whether the system offers a barrier on all cores.
pub(crate) fn has_membarrier() -> bool {
    Handle::current().is_none_or(|handle| {
        handle.with(|running| {
            running.shuffle.as_ref().is_none_or(|shuffle| shuffle.schedule.membarrier)
        })
    })
}

/// Returns `number`, or a small number in its place.
pub(crate) fn shortened(number: u64) -> u64 {
    let shuffled = Handle::current().and_then(|handle| {
        handle.with(|running| running.shuffle.as_mut().map(|shuffle| shuffle.shortened(number)))
    });
    shuffled.unwrap_or(number)
}

/// Returns `slots`, or 3 in its place.
pub(crate) fn longest_run(slots: u64) -> u64 {
    let are_short = |running: &mut Running| {
        running.shuffle.as_ref().is_some_and(|shuffle| shuffle.schedule.short_runs)
    };
    match Handle::current().is_some_and(|handle| handle.with(are_short)) {
        true => 3,
        false => slots,
    }
}

/// Calls `body` with the current thread's locals.
pub(crate) fn with_locals<R>(body: impl FnOnce(&mut Locals) -> R) -> Option<R> {
    Some(Handle::current()?.with(|running| {
        let thread = running.places[running.current].thread;
        body(&mut running.threads[thread].locals)
    }))
}

/// Notes the panic of the current thread, for the run's result unless another thread joins it.
pub(crate) fn note_panic(message: String) {
    if let Some(handle) = Handle::current() {
        handle.with(|running| {
            let thread = running.places[running.current].thread;
            running.threads[thread].panic = Some(message);
        });
    }
}

/// Forgets the panic of a thread that has been joined.
pub(crate) fn forget_panic(id: VirtualId) {
    if let Some(handle) = Handle::current() {
        handle.with(|running| running.threads[id.thread].panic = None);
    }
}

/// Starts a thread on a free core.
///
/// # Safety
///
/// The borrows of `life` live until it has run, or for ever.
pub(crate) unsafe fn spawn<'a>(
    name: Option<String>,
    process: Option<u32>,
    life: Box<dyn FnOnce() + Send + 'a>,
    location: Caller,
) -> io::Result<(VirtualId, Arc<str>)> {
    let handle = Handle::current().expect("the caller looked");
    note(handle, location);
    handle.point();
    handle.drain();
    handle.with(|running| running.pay(running.memory.costs.spawn));
    handle.point();
    let free = |running: &Running| {
        running.places.iter().position(|place| matches!(place.state, State::Free))
    };
    let core = handle.with(|running| {
        free(running).ok_or_else(|| {
            let cores = running.places.len();
            io::Error::other(format!("each of the machine's {cores} cores has a thread"))
        })
    })?;
    let name = name.unwrap_or_else(|| format!("thread {}", handle.with(|r| r.threads.len())));
    // A thread belongs to the process of the thread that starts it.
    let own = handle.with(|running| running.places[running.current].process);
    let start = Start { name, is_main: false, process: process.or(own) };
    // SAFETY: the caller's promise.
    let id = unsafe { add_thread(handle, core, start, life) }?;
    Ok((id, handle.with(|running| running.threads[id.thread].name.clone())))
}

/// The settings of a thread that begins.
pub(crate) struct Start {
    pub(crate) name: String,
    /// Whether the run ends only after this thread.
    pub(crate) is_main: bool,
    pub(crate) process: Option<u32>,
}

/// Adds a thread that begins at the current clock, on a core that is free.
///
/// # Safety
///
/// The borrows of `life` live until it has run, or for ever.
pub(crate) unsafe fn add_thread<'a>(
    handle: Handle,
    core: usize,
    start: Start,
    life: Box<dyn FnOnce() + 'a>,
) -> io::Result<VirtualId> {
    let Start { name, is_main, process } = start;
    let stack = match handle.with(|running| running.spare_stacks.pop()) {
        Some(stack) => stack,
        None => {
            let kept = KEPT_STACKS.with_borrow_mut(Vec::pop);
            let stack = kept.map_or_else(|| DefaultStack::new(STACK), Ok)?;
            let range = stack.limit().get()..stack.base().get();
            handle.memory(|memory, _| memory.add_stack(range));
            stack
        }
    };
    let body = move |yielder: &Yielder<(), ()>, ()| {
        handle.with(|running| running.places[core].yielder = yielder);
        let ended = catch_unwind(AssertUnwindSafe(life));
        let message = ended.err().map(|payload| panic_text(&*payload));
        end_thread(handle, message);
    };
    // SAFETY: by the caller's promise, the borrows of `life` outlive the coroutine's last step.
    let body = unsafe { Coroutine::with_stack_unchecked(stack, body) };
    Ok(handle.with(|running| {
        let thread = running.threads.len();
        let now = running.clock();
        let place = &mut running.places[core];
        (place.state, place.thread, place.token) = (State::Runnable, thread, false);
        place.process = process;
        place.body = Some(body);
        running.busy |= 1 << core;
        let of = &mut running.memory.cores[core];
        of.clock = of.clock.max(now);
        of.counts = Counts::default();
        if let Some(shuffle) = &mut running.shuffle {
            shuffle.add_thread(core);
        }
        running.memory.turn_ends = running.memory.turn_ends.min(of.clock);
        running.mains_left += usize::from(is_main);
        running.threads.push(ThreadRecord {
            name: name.into(),
            core,
            ended: false,
            is_main,
            counts: Counts::default(),
            joiners: Vec::new(),
            panic: None,
            locals: Locals::default(),
        });
        VirtualId { run: running.run, thread }
    }))
}

/// Ends the current thread, whose body has returned, or panicked with `message`.
fn end_thread(handle: Handle, mut message: Option<String>) {
    loop {
        let locals = with_locals(mem::take).unwrap_or_default();
        if locals.is_empty() {
            break;
        }
        // A destructor may use other locals, and make them anew.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(locals))) {
            message.get_or_insert_with(|| panic_text(&*payload));
        }
    }
    if handle.is_shuffled() {
        // The last stores can be late as well.
        handle.point();
    }
    handle.drain();
    handle.with(|running| {
        let core = running.current;
        let number = running.places[core].thread;
        let joiners = mem::take(&mut running.threads[number].joiners);
        joiners.into_iter().for_each(|joiner| wake(running, joiner));
        running.places[core].state = State::Free;
        running.busy &= !(1 << core);
        let thread = &mut running.threads[number];
        thread.ended = true;
        thread.counts = mem::take(&mut running.memory.cores[core].counts);
        if thread.is_main {
            running.mains_left -= 1;
            running.ended_at = running.ended_at.max(running.memory.cores[core].clock);
        }
        if let Some(message) = message {
            let thread = thread.name.to_string();
            running.failure = Some(SimulationError::Panicked { thread, message });
        }
    });
}
