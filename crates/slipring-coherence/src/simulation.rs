//! Building and running a simulation.
//!
//! - I1: The bodies' borrows last for `'a`. `run` returns when each coroutine has ended, or will
//!   never be resumed: then it is leaked, so nothing uses the borrows after `run`. Only the stack
//!   of a dead process's thread is used again, with no destructor of what was on it: as in a
//!   process that was killed.

use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corosensei::CoroutineResult;

use crate::error::SimulationError;
use crate::lines::ByAddress;
use crate::machine::{Machine, Placement};
use crate::memory::Memory;
use crate::report::Report;
use crate::running::{Body, Handle, Place, Running, State, picos};
use crate::schedule::Schedule;
use crate::shuffle::Shuffle;
use crate::waiting::{Start, add_thread, keep_stacks};
use crate::{allocator, trace};

/// How long a run may take before it is given up as a livelock.
///
/// ```
/// use slipring_coherence::Limit;
/// use std::time::Duration;
///
/// let limit = Limit { time: Duration::from_millis(1), ..Limit::default() };
/// assert!(limit.accesses > 1_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Virtual time.
    pub time: Duration,
    /// Loads, stores and read-modify-writes of all cores.
    pub accesses: u64,
}

impl Default for Limit {
    /// Returns a limit of a virtual second and of 500 million accesses.
    fn default() -> Limit {
        Limit { time: Duration::from_secs(1), accesses: 500_000_000 }
    }
}

/// Threads to run on a virtual machine.
///
/// ```
/// use slipring_coherence::{Lines, Machine, Simulation, sync};
///
/// #[global_allocator]
/// static LINES: Lines = Lines;
///
/// let machine = Machine::server("1x2".parse()?);
/// let count = sync::AtomicU64::new(0);
/// let add = || {
///     for _ in 0..10 {
///         count.fetch_add(1, sync::Ordering::Relaxed);
///     }
/// };
/// let report = Simulation::new(&machine).thread("first", add).thread("second", add).run()?;
/// assert_eq!(report.counts().rmws, 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a simulation does nothing until `run`"]
pub struct Simulation<'a> {
    machine: Machine,
    placement: Placement,
    trace: bool,
    limit: Limit,
    schedule: Option<Schedule>,
    threads: Vec<(String, Box<dyn FnOnce() + 'a>)>,
}

impl<'a> Simulation<'a> {
    /// Returns a simulation without threads.
    ///
    /// Example: [`Simulation`].
    pub fn new(machine: &Machine) -> Simulation<'a> {
        Simulation {
            machine: machine.clone(),
            placement: Placement::default(),
            trace: false,
            limit: Limit::default(),
            schedule: None,
            threads: Vec::new(),
        }
    }

    /// Sets the order in which threads get cores.
    ///
    /// Example: [`Simulation`].
    pub fn place(mut self, placement: Placement) -> Simulation<'a> {
        self.placement = placement;
        self
    }

    /// Adds a thread, which runs on the next core from virtual time 0 on. The run ends when all
    /// threads that were added so have ended.
    ///
    /// Example: [`Simulation`].
    pub fn thread(mut self, name: impl Into<String>, body: impl FnOnce() + 'a) -> Simulation<'a> {
        self.threads.push((name.into(), Box::new(body)));
        self
    }

    /// Sets whether the report lists the lines that moved.
    ///
    /// Example: [`Simulation`].
    pub fn trace_lines(mut self, trace: bool) -> Simulation<'a> {
        self.trace = trace;
        self
    }

    /// Sets how long the run may take.
    ///
    /// Example: [`Simulation`].
    pub fn limit(mut self, limit: Limit) -> Simulation<'a> {
        self.limit = limit;
        self
    }

    /// Lets chance decide whose turn it is, in place of the virtual clocks. The run's limit is then
    /// the schedule's.
    ///
    /// Example: [`Schedule`].
    pub fn schedule(mut self, schedule: Schedule) -> Simulation<'a> {
        self.schedule = Some(schedule);
        self
    }

    /// Runs the threads until all have ended.
    ///
    /// Example: [`Simulation`].
    ///
    /// # Errors
    ///
    /// If the machine or the number of threads makes no run, the global allocator is not
    /// [`Lines`](crate::Lines), all threads sleep, the run reaches its limit, or a thread panics.
    /// Then the threads are leaked where they are: no destructor of theirs runs.
    pub fn run(self) -> Result<Report, SimulationError> {
        self.validate()?;
        let sockets = self.machine.topology.sockets_of_cores(self.placement);
        let mut lines = allocator::begin_run().ok_or(SimulationError::Allocator)?;
        let mut running = Box::new(Running {
            memory: Memory::new(&self.machine, &sockets, self.trace, self.limit.accesses),
            shuffle: self.schedule.map(|schedule| Shuffle::new(schedule, sockets.len())),
            records: trace::begin_run(),
            run: next_run(),
            current: 0,
            places: sockets.iter().map(|_| free()).collect(),
            busy: 0,
            threads: Vec::new(),
            mains_left: 0,
            ended_at: 0,
            began_at: 0,
            measured: None,
            futexes: ByAddress::default(),
            unwinding: None,
            panics: Vec::new(),
            spare_stacks: Vec::new(),
            failure: None,
            limit: picos(self.limit.time),
            died: Vec::new(),
        });
        // SAFETY: `running` lives until the end of this function, and is used only through the
        // handle until `entered` is dropped.
        let (handle, entered) = unsafe { Handle::enter(NonNull::from(&mut *running)) };
        let mut result = Ok(());
        for (core, (name, body)) in self.threads.into_iter().enumerate() {
            let start = Start { name, is_main: true, process: None };
            // SAFETY: I1.
            result = unsafe { add_thread(handle, core, start, body) }.map(drop);
            if result.is_err() {
                break;
            }
        }
        let result = result.map_err(SimulationError::from).and_then(|()| run_all(handle));
        drop(entered);
        for place in &mut running.places {
            // I1: threads that have not ended.
            mem::forget(place.body.take());
        }
        allocator::set_owner(None);
        // A copy: the list itself may be of a process that died.
        lines.died = running.died.clone();
        keep_stacks(&mut running);
        running.threads.iter_mut().for_each(|thread| mem::forget(mem::take(&mut thread.locals)));
        result?;
        match running.shuffle {
            Some(_) => running.memory.commit_everywhere(),
            None => running.memory.commit_all(),
        }
        Ok(report(self.machine.name, &mut running))
    }

    fn validate(&self) -> Result<(), SimulationError> {
        let (threads, topology) = (self.threads.len(), self.machine.topology);
        self.machine.costs.validate()?;
        if crate::is_simulating() {
            Err(SimulationError::Nested)
        } else if self.machine.jitter > 100 {
            Err(SimulationError::Jitter(self.machine.jitter))
        } else if threads == 0 {
            Err(SimulationError::NoThreads)
        } else if threads > topology.total() {
            Err(SimulationError::TooManyThreads { threads, cores: topology.total(), topology })
        } else {
            Ok(())
        }
    }
}

fn next_run() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    RUNS.fetch_add(1, Ordering::Relaxed)
}

fn free() -> Place {
    Place {
        state: State::Free,
        thread: 0,
        woken: false,
        token: false,
        process: None,
        yielder: std::ptr::null(),
        body: None,
    }
}

/// Resumes the threads, each at its turn, until the run ends.
fn run_all(handle: Handle) -> Result<(), SimulationError> {
    while let Some(core) = handle.with(Running::choose) {
        let body = handle.with(|running| running.places[core].body.take());
        let mut body = body.expect("a core that is not free has a thread");
        allocator::set_owner(handle.with(|running| running.places[core].process));
        match body.resume(()) {
            CoroutineResult::Yield(()) => {
                allocator::set_owner(None);
                let dead = handle.with(|running| running.is_dead(core));
                match dead {
                    // SAFETY: I1: nothing of a dead thread is used again.
                    true => unsafe { bury(handle, body) },
                    false => handle.with(|running| running.places[core].body = Some(body)),
                }
                while let Some(body) = handle.with(Running::next_corpse) {
                    // SAFETY: as above.
                    unsafe { bury(handle, body) };
                }
            }
            CoroutineResult::Return(()) => {
                allocator::set_owner(None);
                let stack = body.into_stack();
                handle.with(|running| running.spare_stacks.push(stack));
            }
        }
    }
    handle.with(|running| running.failure.take()).map_or(Ok(()), Err)
}

/// Gives the stack of a dead thread back. The objects on it are leaked.
///
/// # Safety
///
/// The thread is never resumed, and nothing uses its stack.
unsafe fn bury(handle: Handle, mut body: Body) {
    // SAFETY: the caller's promise.
    unsafe { body.force_reset() };
    let stack = body.into_stack();
    handle.with(|running| running.spare_stacks.push(stack));
}

/// Makes the report of the run. If the program ended the measured time, the report of that moment
/// is completed.
fn report(machine: String, running: &mut Running) -> Report {
    let measured = running.measured.take();
    let measured = measured.unwrap_or_else(|| running.report(running.ended_at));
    let (accesses, switches) = match &running.shuffle {
        Some(shuffle) => (shuffle.steps, shuffle.switches),
        None => (running.memory.cores.iter().map(|core| core.accesses()).sum(), 0),
    };
    let deaths = running.died.len() as u64;
    Report { machine, accesses, switches, deaths, ..measured }
}
