//! A deterministic simulator of cache coherence.
//!
//! A program imports its atomics, locks and threads from [`sync`]. A [`Simulation`] then runs its
//! threads as coroutines on one system thread, each on a virtual core of a [`Machine`]. The core
//! whose virtual clock is least makes the next access. Each access costs what the state of its
//! cache line makes it cost, and the [`Report`] says how often lines moved between cores, and how
//! many read-modify-writes, fences, sleeps and so on each thread made. The counts are the same in
//! every run, on every machine, in debug and release builds; virtual durations are plausible and no
//! more.
//!
//! ```
//! use slipring_coherence::{Lines, Machine, Simulation, sync};
//! use slipring_coherence::sync::Ordering::{Acquire, Release};
//!
//! #[global_allocator]
//! static LINES: Lines = Lines;
//!
//! let machine = Machine::server("2x6".parse()?);
//! let word = || slipring_coherence::own_lines(|| Box::new(sync::AtomicU64::new(0)));
//! let (ping, pong) = (word(), word());
//! let report = Simulation::new(&machine)
//!     .thread("ping", || {
//!         for turn in 1..=100 {
//!             ping.store(turn, Release);
//!             while pong.load(Acquire) < turn {
//!                 sync::spin_loop();
//!             }
//!         }
//!     })
//!     .thread("pong", || {
//!         for turn in 1..=100 {
//!             while ping.load(Acquire) < turn {
//!                 sync::spin_loop();
//!             }
//!             pong.store(turn, Release);
//!         }
//!     })
//!     .run()?;
//! // Each word goes to its writer and back to its reader.
//! assert!(report.counts().per_event(100).transfers < 4.1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The model
//!
//! - A line of 64 bytes has an owner or sharers. A transfer keeps the line busy for its latency.
//! - A store waits in the core's store buffer until its line has arrived, and the other cores see
//!   its value then (total store order, as on x86). The core's own loads see it at once.
//!   Read-modify-writes, sequentially consistent stores and such fences wait for the buffer.
//! - A core runs ahead of loads that wait for lines, within a window. It sees the value of a load
//!   when it issues it.
//! - A sleep, a wake-up, a spin hint and a reading of the clock take virtual time.
//!
//! Not modelled: the capacity of caches, prefetching by hardware, bandwidth, preemption, more
//! threads than cores, loads that are reordered, plain memory that is not reported by [`read`] and
//! [`write()`], and counts within [`Arc`](std::sync::Arc).
//!
//! # Needs of repeatable counts
//!
//! - [`Lines`] as the global allocator, so that no two allocations share a line and no address is
//!   used twice in a run. A structure that is built before the run is built within [`own_lines`].
//! - Shared atomics on the heap: their place on a stack depends on the compiler. For the same
//!   reason, a store to an atomic on a virtual thread's stack is seen at once.
//! - A program that takes no other input: no real clock, no random state, no system threads.
//!
//! # Late stores
//!
//! A store can still wait when a thread gets its word for itself. `get_mut` makes the store visible
//! first, and memory that is freed stays allocated until the end of the run. Three things remain
//! with the program, since no function of this crate sees them:
//!
//! - A value with atomics is not moved once a virtual thread has stored to it through a shared
//!   reference, unless it is on such a thread's stack: the store would go to the old place.
//! - For the same reason, memory in which an atomic was is not reused in the run for something
//!   else, as by an enumeration that changes its variant, and not unmapped.
//! - The count within an [`Arc`](std::sync::Arc) is real. So its last owner can load a value that
//!   is older than a store that another thread made before it dropped its own handle. On a real
//!   core, the drop would have waited for the store.
//!
//! # Leaks
//!
//! A run that fails leaves its threads where they are: their stacks and all that they own are
//! leaked, and no destructor runs. The same holds for spawned threads that still run when the last
//! of the simulation's own threads ends, as in a process that returns from `main`.
#![deny(unsafe_op_in_unsafe_fn)]

mod access;
mod allocator;
mod chance;
mod costs;
mod counts;
mod error;
mod life;
mod lines;
mod machine;
mod memory;
mod planted;
mod protocol_step;
mod report;
mod running;
mod schedule;
mod shuffle;
mod simulation;
pub mod sync;
mod trace;
mod waiting;

use std::panic::Location;
use std::time::Duration;

pub use allocator::{Lines, Outlives, outlives, own_lines};
pub use costs::{Costs, CostsError};
pub use counts::{Counts, PerEvent, Waited};
pub use error::{Cause, Deadlock, LimitReached, Position, SimulationError, Wait, Word};
pub use life::{Life, lives};
pub use machine::{MOST_CORES, Machine, Placement, Topology, TopologyError};
pub use planted::{Planted, class, plant};
pub use protocol_step::is_planted;
pub use report::{HotLine, Report};
pub use schedule::{Dice, Order, Schedule, UnknownOrder};
pub use simulation::{Limit, Simulation};
pub use trace::{Access, last_accesses, record_accesses, records_accesses};

/// Returns whether a simulation runs on the calling system thread.
///
/// ```
/// assert!(!slipring_coherence::is_simulating());
/// ```
pub fn is_simulating() -> bool {
    waiting::cores().is_some()
}

/// Forgets what all cores have counted, and begins the measured time. Outside of a simulation,
/// nothing happens.
///
/// ```
/// slipring_coherence::begin_measuring();
/// ```
pub fn begin_measuring() {
    access::begin_measuring();
}

/// Ends the measured time: the report has what was counted until now. Outside of a simulation,
/// nothing happens.
///
/// ```
/// slipring_coherence::end_measuring();
/// ```
pub fn end_measuring() {
    access::end_measuring();
}

/// Lets private work of the calling core take so much virtual time. Outside of a simulation, it
/// takes none.
///
/// ```
/// slipring_coherence::work(std::time::Duration::from_nanos(100));
/// ```
#[track_caller]
pub fn work(time: Duration) {
    access::work(running::picos(time), Location::caller());
}

/// Reports that the core reads `len` bytes of plain memory, such as an event.
///
/// ```
/// let event = [0u8; 100];
/// slipring_coherence::read(event.as_ptr(), event.len());
/// ```
#[inline]
#[track_caller]
pub fn read(at: *const u8, len: usize) {
    access::read(at.addr(), len, Location::caller());
}

/// Reports that the core writes `len` bytes of plain memory, such as an event.
///
/// ```
/// let mut event = [0u8; 100];
/// slipring_coherence::write(event.as_mut_ptr(), event.len());
/// ```
#[inline]
#[track_caller]
pub fn write(at: *const u8, len: usize) {
    access::write(at.addr(), len, Location::caller());
}

/// Asks for the right to change the line of `at`, without waiting for it.
///
/// ```
/// slipring_coherence::prefetch_for_store(std::ptr::from_ref(&1u64).cast());
/// ```
#[inline]
#[track_caller]
pub fn prefetch_for_store(at: *const u8) {
    access::prefetch_for_store(at.addr(), Location::caller());
}

/// Issues a fence on all cores: each makes its stores visible before the call returns.
///
/// ```
/// slipring_coherence::membarrier();
/// ```
#[track_caller]
pub fn membarrier() {
    access::membarrier(Location::caller());
}

/// Returns the number of spin hints that take `time`, at least 1. Outside of a simulation, it is 1.
///
/// ```
/// assert_eq!(slipring_coherence::hints_in(std::time::Duration::from_micros(1)), 1);
/// ```
pub fn hints_in(time: Duration) -> u32 {
    if waiting::shortened(u64::MAX) < u64::MAX {
        return 1;
    }
    let hints = access::pause_cost().map_or(1, |cost| running::picos(time).div_ceil(cost));
    u32::try_from(hints).unwrap_or(u32::MAX).max(1)
}

/// Returns `number`, or a number from 1 to 3 in its place in a run by a
/// [schedule](Schedule::short) that shortens repetitions.
///
/// ```
/// assert_eq!(slipring_coherence::shortened(200), 200);
/// ```
pub fn shortened(number: u64) -> u64 {
    waiting::shortened(number)
}

/// Returns `slots`, or 3 in a run by a [schedule](Schedule::short_runs) that shortens runs of
/// slots.
///
/// ```
/// assert_eq!(slipring_coherence::longest_run(200), 200);
/// ```
pub fn longest_run(slots: u64) -> u64 {
    waiting::longest_run(slots)
}

/// Returns whether the simulated system offers [`membarrier`]. All do, except in a run by some
/// [schedules](Schedule::membarrier).
///
/// ```
/// assert!(slipring_coherence::has_membarrier());
/// ```
pub fn has_membarrier() -> bool {
    waiting::has_membarrier()
}

/// Kills a virtual process: all of its threads end where they are, and no destructor runs. The
/// calling thread does not go on if it is one of them. Returns whether the process lived. Outside
/// of a simulation, nothing happens.
///
/// Processes die by chance, too, in a run by a [schedule](Schedule::deaths).
///
/// ```
/// use slipring_coherence::{Lines, Machine, Schedule, Simulation, sync};
///
/// #[global_allocator]
/// static LINES: Lines = Lines;
///
/// let simulation = Simulation::new(&Machine::server("1x2".parse()?));
/// let simulation = simulation.schedule(Schedule { deaths: 0, ..Schedule::new(1) });
/// simulation.thread("main", || {
///     let child = sync::Builder::new().process(7).spawn(sync::park).unwrap();
///     assert!(slipring_coherence::kill(7));
///     assert!(child.join().is_err());
///     assert!(slipring_coherence::has_died(7));
/// }).run()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn kill(process: u32) -> bool {
    waiting::kill(process)
}

/// Returns the number of accesses that a run by a [schedule](Schedule) has made, of all threads.
/// Elsewhere, it is 0.
///
/// ```
/// assert_eq!(slipring_coherence::accesses(), 0);
/// ```
pub fn accesses() -> u64 {
    waiting::accesses()
}

/// Returns the number of accesses that a [core](core()) has made in a run by a
/// [schedule](Schedule). Elsewhere, it is 0.
///
/// ```
/// assert_eq!(slipring_coherence::accesses_of(slipring_coherence::core()), 0);
/// ```
pub fn accesses_of(core: usize) -> u64 {
    waiting::accesses_of(core)
}

/// Returns the number of the core on which the calling thread runs. Outside of a simulation, it is
/// 0.
///
/// Example: [`accesses_of`].
pub fn core() -> usize {
    waiting::core()
}

/// Returns the number of virtual processes that have died. Takes no time, as [`has_died`].
///
/// ```
/// assert_eq!(slipring_coherence::deaths(), 0);
/// ```
pub fn deaths() -> usize {
    waiting::deaths()
}

/// Returns whether a virtual process was killed, or died by chance. Takes no time, and no other
/// thread comes between. Outside of a simulation, none has.
///
/// Example: [`kill`].
pub fn has_died(process: u32) -> bool {
    waiting::has_died(process)
}

/// Ends the run: the program has found what it looked for, and says what. The calling thread never
/// goes on. Outside of a simulation, nothing happens.
///
/// ```
/// use slipring_coherence::{Lines, Machine, Simulation, SimulationError};
///
/// #[global_allocator]
/// static LINES: Lines = Lines;
///
/// let simulation = Simulation::new(&Machine::two_vcpus());
/// let error = simulation.thread("a", || slipring_coherence::give_up("two and two")).run();
/// assert!(matches!(error, Err(SimulationError::GivenUp(why)) if why == "two and two"));
/// ```
pub fn give_up(why: &str) {
    waiting::give_up(why);
}

/// Gives the lines of `value` a name, for hot lines in the report and for the text of a deadlock.
/// Outside of a simulation, nothing happens.
///
/// ```
/// slipring_coherence::label(&1u64, "cursor");
/// ```
pub fn label<T: ?Sized>(value: &T, name: &str) {
    access::label(std::ptr::from_ref(value).cast::<u8>().addr(), size_of_val(value), name);
}
