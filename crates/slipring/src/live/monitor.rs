//! A monitor reports the positions and the counters of a graph's stages while the graph runs.

use std::fmt;

use crate::errors::{BuildError, Report};
use crate::live::stage_ref::StageRef;
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout};

/// A handle by which any thread gets the positions and the counters of a running graph.
///
/// [`Chain::monitor`](crate::Chain::monitor) binds a monitor to a chain, and
/// [`Ring::monitor`](crate::Ring::monitor) returns the monitor of a ring. All clones of a monitor
/// report on the same graph. They do not keep the graph alive.
///
/// ```
/// let monitor = slipring::Monitor::new();
/// slipring::ring(64, || 0u64).monitor(&monitor).read("slow", |_, _| ()).run(|p| {
///     for i in 0..10 { p.publish(|v| *v = i)?; }
///     let now = monitor.report().expect("the graph runs");
///     assert_eq!(now.published_seq(), Some(10));
///     println!("{} behind, {:?} free\n{now}", now.stage("slow").unwrap().lag, now.remaining());
///     Ok(())
/// })?;
/// assert!(monitor.report().is_none()); // the run is over
/// # Ok::<(), slipring::Error>(())
/// ```
pub struct Monitor<E, L: Layout = Interleaved> {
    stage_ref: StageRef<E, L>,
}

impl<E, L: Layout> Clone for Monitor<E, L> {
    fn clone(&self) -> Self {
        Monitor { stage_ref: self.stage_ref.clone() }
    }
}

impl<E, L: Layout> Default for Monitor<E, L> {
    fn default() -> Self {
        Monitor::new()
    }
}

impl<E, L: Layout> Monitor<E, L> {
    /// Creates a monitor that is bound to no graph yet.
    ///
    /// Example: [`Monitor`].
    pub fn new() -> Self {
        Monitor { stage_ref: StageRef::unbound() }
    }

    pub(crate) fn of(core: &Owner<E, L>) -> Self {
        Monitor { stage_ref: StageRef::bound(core, 0) }
    }

    #[cfg(all(test, not(slipring_loom)))]
    pub(super) fn stage_ref(&self) -> &StageRef<E, L> {
        &self.stage_ref
    }

    pub(crate) fn bind(&self, core: &Owner<E, L>) -> Result<(), BuildError> {
        self.stage_ref.bind(core, 0)
    }

    /// Returns a report of the graph, or `None` if the graph has not started or is gone.
    ///
    /// A stage has handled every event before its reported position, and the caller sees the
    /// effects of the stage's handler on these events. The positions in a report belong to slightly
    /// different moments, because the report loads them one by one while the graph runs.
    ///
    /// Each handle counts for itself, and flushes its counts to the graph now and then. No count is
    /// smaller than in an earlier report, unless a stage has started again at its last release. The
    /// counts lag behind the handles:
    ///
    /// | count | is complete |
    /// |---|---|
    /// | events of a single producer | up to [`published_seq`](Report::published_seq); if that is unknown, up to the furthest stage, and up to the last 1,024 events at least |
    /// | events of several producers | up to the events that an idle stage has handled, and up to the last 1,024 events of each handle at least |
    /// | batches of producers | up to the last 1,024 events of each handle; once a call that does not wait has found no room |
    /// | given-up claims, dropped and replaced events | at once |
    /// | events, batches, tombstones and short waits of a reading handle | once a call that does not wait has found no event; else up to its last 1,024 batches |
    /// | waits of a task, and of an armed waker | once the future is pending, or the waker is armed |
    /// | waits of a thread, and their time | at the first flush after the wait |
    /// | latencies, turns | at once |
    ///
    /// A thread that waits flushes its handle's counts before it sleeps, or once the handle has
    /// waited for five milliseconds since its last flush. The drop of a handle flushes all of the
    /// handle's counts. A handle flushes nothing while its thread does not use it.
    ///
    /// A report costs the calling thread one load per position and count, and a few allocations.
    /// The graph's own threads only spend the time to fetch back the cache lines that the report
    /// loaded.
    ///
    /// Example: [`Monitor`].
    pub fn report(&self) -> Option<Report> {
        self.stage_ref.find().ok().map(|(core, _)| core.report())
    }
}

impl<E, L: Layout> fmt::Debug for Monitor<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}
