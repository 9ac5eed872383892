//! The last accesses of a run by a schedule, for the text of its failure.
//!
//! - I1: Recording changes nothing in the run: it takes no chance and no time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;

use crate::error::Word;
use crate::lines::LINE;
use crate::running::{Handle, Running};

/// An access of a virtual thread.
///
/// Example: [`last_accesses`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Number of the access in the run.
    pub step: u64,
    /// The thread's name.
    pub thread: String,
    /// Its kind: `loads`, `stores` or `changes` (a read-modify-write).
    pub kind: &'static str,
    /// The word.
    pub word: Word,
    /// The source line.
    pub location: &'static Location<'static>,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access { step, thread, kind, word, location } = self;
        write!(f, "{step:>8} `{thread}` {kind} {word}, at {}:{}", location.file(), location.line())
    }
}

thread_local! {
    static LAST: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

struct Recorder {
    most: usize,
    accesses: VecDeque<Access>,
}

/// Records the last `most` accesses of this system thread's runs by schedules, from now on. 0:
/// records none.
///
/// Example: [`last_accesses`].
pub fn record_accesses(most: usize) {
    let recorder = (most != 0).then(|| Recorder { most, accesses: VecDeque::new() });
    LAST.set(recorder);
}

/// Returns whether accesses are recorded.
///
/// Example: [`last_accesses`].
pub fn records_accesses() -> bool {
    LAST.with_borrow(Option::is_some)
}

/// Returns the last accesses of this system thread's last run by a schedule, the latest at the end.
///
/// ```
/// use slipring_coherence::{Lines, Machine, Schedule, Simulation, sync};
///
/// #[global_allocator]
/// static LINES: Lines = Lines;
///
/// let word = slipring_coherence::own_lines(|| Box::new(sync::AtomicU64::new(0)));
/// slipring_coherence::record_accesses(10);
/// assert!(slipring_coherence::records_accesses());
/// let simulation = Simulation::new(&Machine::two_vcpus()).schedule(Schedule::new(1));
/// simulation.thread("adds", || drop(word.fetch_add(1, sync::Ordering::Relaxed))).run()?;
/// let last = slipring_coherence::last_accesses();
/// assert_eq!((last[0].thread.as_str(), last[0].kind), ("adds", "changes"));
/// # slipring_coherence::record_accesses(0);
/// # Ok::<(), slipring_coherence::SimulationError>(())
/// ```
pub fn last_accesses() -> Vec<Access> {
    LAST.with_borrow(|last| {
        last.as_ref().map_or_else(Vec::new, |last| last.accesses.iter().cloned().collect())
    })
}

/// Forgets the accesses of an earlier run.
pub(crate) fn begin_run() -> bool {
    LAST.with_borrow_mut(|last| {
        last.iter_mut().for_each(|last| last.accesses.clear());
        last.is_some()
    })
}

/// Records an access, if the run records them.
#[inline(always)]
pub(crate) fn note(handle: Handle, kind: &'static str, at: usize) {
    if handle.with(|running| running.records) {
        record(handle, kind, at);
    }
}

#[cold]
fn record(handle: Handle, kind: &'static str, at: usize) {
    let _outlives = crate::outlives();
    let access = handle.with(|running: &mut Running| {
        let line = running.memory.lines.number(at);
        let label = running.memory.lines.label(line);
        Access {
            step: running.shuffle.as_ref().map_or(0, |shuffle| shuffle.step()),
            thread: running.thread().name.to_string(),
            kind,
            word: Word { line: line as usize, offset: at % LINE, label },
            location: running.memory.cores[running.current].location,
        }
    });
    LAST.with_borrow_mut(|last| {
        if let Some(last) = last {
            if last.accesses.len() == last.most {
                last.accesses.pop_front();
            }
            last.accesses.push_back(access);
        }
    });
}
