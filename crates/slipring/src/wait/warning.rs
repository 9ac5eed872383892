//! Warnings about graphs that work but are likely to be slow, because threads spin on too few
//! cores, about loops that release no batch, and about segments that have lost their names.

use std::cell::RefCell;
use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;

use crate::base::name::Name;
use crate::base::name_lost::NameLost;
use crate::base::panics::call_contained;
use crate::base::sync::{Relaxed, Statistic, per_thread};

/// A likely reason why a graph is slow or stands still, or the loss of a segment's name. The
/// library gives each kind of warning at most once per process. It warns of the loss of a name once
/// for each segment.
///
/// Example: [`on_warning`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Warning {
    /// A strategy spins, and the graph has more threads than cores, so that a spinning thread may
    /// hold the core that the awaited thread needs.
    Oversubscribed {
        /// Name of a stage that spins; [`PRODUCER`](crate::stages::PRODUCER) for the producers.
        stage: Name,
        /// The stage's strategy, as [`WaitStrategy::alias`](crate::waiting::WaitStrategy::alias)
        /// names it.
        wait: String,
        /// Number of threads that the graph is likely to have.
        threads: usize,
        /// Number of cores that the graph's threads can use at the same time: by their affinity
        /// masks, the machine and the quota of the process's control group, or by the graph's
        /// [`Placement`](crate::placement::Placement).
        cores: usize,
    },
    /// Two threads that spin are bound to the same core, so each of them delays the other.
    SharedCore {
        /// Name of one of the two stages that spin on the same core;
        /// [`PRODUCER`](crate::stages::PRODUCER) for the producers.
        stage: Name,
        /// Name of the stage that spins on the same core as `stage`;
        /// [`PRODUCER`](crate::stages::PRODUCER) for the producers.
        other: Name,
        /// Number of the core, as the system counts cores.
        core: usize,
    },
    /// A loop takes the same batch again and again, because it releases none. Only builds with
    /// debug assertions warn of this, once [`Consumer::batch`](crate::Consumer::batch) has lent the
    /// same events a hundred times in a row.
    NeverReleased {
        /// Name of the stage.
        stage: Name,
        /// Position of the batch's first event.
        seq: u64,
    },
    /// The name of a segment no longer means the file that this process is attached to. A waiting
    /// thread finds this within one notice interval.
    NameLost(NameLost),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Oversubscribed { stage, wait, threads, cores } => write!(
                f,
                "`{stage}` waits by `{wait}`, which holds a core. The graph is likely to have \
                 {threads} threads, which can use {cores} core{} at the same time. A spinning \
                 thread may hold the core that the awaited thread needs. Choose `adaptive`, \
                 `yielding` or `blocking`, or put stages on shared threads",
                if *cores == 1 { "" } else { "s" }
            ),
            Warning::SharedCore { stage, other, core } => write!(
                f,
                "`{stage}` and `{other}` both spin, and each was bound to core {core} at its first \
                 long wait, so each delays the other. Bind one of them to another core, or let one \
                 wait by `adaptive`, `yielding` or `blocking`"
            ),
            Warning::NeverReleased { stage, seq } => write!(
                f,
                "`{stage}` got the batch at event {seq} a hundred times in a row. A batch that is \
                 dropped is lent again: give its events back by `release`, or take events by \
                 `for_each`, which releases them itself"
            ),
            Warning::NameLost(lost) => lost.fmt(f),
        }
    }
}

type Hook = fn(&Warning);
static HOOK: OnceLock<Hook> = OnceLock::new();

/// Sets the function that receives warnings. If no function is set, the library writes each warning
/// as a line to the standard error stream. It gives each kind of warning at most once per process,
/// and [`Warning::NameLost`] once for each segment.
///
/// Returns `false` and changes nothing if a function is set already, or if a warning was given
/// before.
///
/// The library calls `hook` on the thread that builds the graph, on a waiting thread of the graph,
/// or, between processes, on the thread that sleeps for waiting tasks. That thread holds no lock of
/// the library meanwhile. A warning never fails a graph: a panic of `hook` is contained, and a
/// warning that cannot be printed is dropped.
///
/// If no function is set, the library writes under the lock of [`std::io::Stderr`]. If a thread
/// holds that lock and waits for another thread that builds a graph, the two may deadlock.
///
/// ```
/// assert!(slipring::waiting::on_warning(|warning| eprintln!("careful: {warning}")));
/// ```
pub fn on_warning(hook: fn(&Warning)) -> bool {
    HOOK.set(hook).is_ok()
}

/// Gives a warning, unless `given` says that a warning of its kind was given before. The call may
/// run user code, namely the function passed to [`on_warning`] and the `alias` function of a custom
/// strategy. So the caller holds no lock. The call contains panics of that code.
pub(crate) fn warn(given: &Statistic, warning: impl FnOnce() -> Warning) {
    if given.swap(1, Relaxed) == 0 {
        call_hook(warning);
    }
}

fn call_hook(warning: impl FnOnce() -> Warning) {
    call_contained(|| HOOK.get_or_init(|| print)(&warning()));
}

per_thread! {
    /// The warnings that this thread gives later; `None` if it gives warnings at once.
    static HELD_BACK: RefCell<Option<Vec<Warning>>> = const { RefCell::new(None) };
}

/// Gives a warning that a thread found while it waited. The function is not meant for users:
/// `slipring-shm` calls it for warnings about segments.
pub fn warn_of_segment(warning: Warning) {
    let hold = |held: &RefCell<Option<Vec<_>>>| {
        held.borrow_mut().as_mut().map(|held| held.push(warning.clone())).is_some()
    };
    // A thread that is ending no longer has a list of held-back warnings.
    if !HELD_BACK.try_with(hold).unwrap_or(false) {
        call_hook(|| warning);
    }
}

/// Runs `work`, during which no user code may run, and then gives the warnings about segments that
/// `work` caused.
pub(crate) fn hold_back<R>(work: impl FnOnce() -> R) -> R {
    HELD_BACK.set(Some(Vec::new()));
    let result = work();
    for warning in HELD_BACK.take().unwrap_or_default() {
        call_hook(|| warning);
    }
    result
}

/// Prints a warning, or drops it if standard error is closed or full, where `eprintln!` would
/// panic.
fn print(warning: &Warning) {
    let line = format!("slipring: {warning}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
