//! What works, and is most likely not what was meant: said once per process, and only about threads
//! that hold cores.

use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::base::name::Name;
use crate::base::panics::drop_payload;
use crate::base::sync::{Relaxed, Statistic};

/// What a graph is likely to suffer from, though it works. See [`on_warning`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Warning {
    /// A strategy that holds its core was chosen where there are more threads than cores: a thread
    /// that spins keeps the one that it waits for from running.
    Oversubscribed {
        /// The stage that spins, or [`PRODUCER`](crate::PRODUCER).
        stage: Name,
        /// Its strategy.
        wait: String,
        /// How many threads the graph is likely to have.
        threads: usize,
        /// Number of cores on which the thread that built the graph may run. The graph's own
        /// threads may be bound elsewhere later.
        cores: usize,
    },
    /// Two that spin are bound to the same core, so one keeps the other from running.
    SharedCore {
        /// One stage.
        stage: Name,
        /// The other one, bound there before.
        other: Name,
        /// Their core.
        core: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Oversubscribed { stage, wait, threads, cores } => write!(
                f,
                "`{stage}` waits by `{wait}`, which holds a core; the graph is likely to have {threads} threads, and the thread that built it may run \
                 on {cores} core{}: unless the graph's threads are bound to other cores, a thread that spins keeps those from running that it waits \
                 for; take `adaptive`, `yielding` or `blocking`, or put stages on shared threads",
                if *cores == 1 { "" } else { "s" }
            ),
            Warning::SharedCore { stage, other, core } => write!(
                f,
                "`{stage}` and `{other}` both spin, and each was bound to core {core} when it first waited for long: there each keeps the other from \
                 running; bind one of them elsewhere, or let one wait by `adaptive`, `yielding` or `blocking`"
            ),
        }
    }
}

type Hook = fn(&Warning);
static HOOK: OnceLock<Hook> = OnceLock::new();

/// Has `hook` called for warnings, instead of a line on the standard error stream; for each kind at
/// most once per process. Later calls, and calls after the first warning, change nothing and return
/// `false`.
///
/// `hook` runs on the thread that builds the graph or waits, under no lock of the library. A panic
/// of it is contained, and a warning that cannot be printed is dropped: neither fails a graph.
/// Without a hook the warning is written under the lock of [`std::io::Stderr`], so a thread that
/// holds that lock while it waits for a graph to be built waits for itself.
///
/// ```
/// assert!(slipring::on_warning(|warning| eprintln!("careful: {warning}")));
/// ```
pub fn on_warning(hook: fn(&Warning)) -> bool {
    HOOK.set(hook).is_ok()
}

/// Gives a warning once. Runs user code (the hook, a strategy's alias), so call it under no lock.
/// No panic leaves it.
pub(crate) fn warn(announced: &Statistic, warning: impl FnOnce() -> Warning) {
    if announced.swap(1, Relaxed) == 0
        && let Err(panic) =
            catch_unwind(AssertUnwindSafe(|| HOOK.get_or_init(|| print)(&warning())))
    {
        drop_payload(panic);
    }
}

/// Prints a warning, or drops it: `eprintln!` would panic where standard error is closed or full.
fn print(warning: &Warning) {
    let line = format!("slipring: {warning}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
