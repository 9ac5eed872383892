//! A monitor reports the positions and the counters of a graph's stages while the graph runs.

use std::fmt;
use std::time::Instant;

use crate::base::sync::Arc;
use crate::errors::{BuildError, PassError, Report};
use crate::live::stage_ref::StageRef;
use crate::ring::owner::Owner;
use crate::ring::passing::{AnyRing, Goal, PassAsync, observed};
use crate::ring::slots::Layout;

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
#[derive(Clone)]
pub struct Monitor {
    stage_ref: StageRef<dyn AnyRing>,
}

impl Default for Monitor {
    fn default() -> Self {
        Monitor::new()
    }
}

impl Monitor {
    /// Creates a monitor that is bound to no graph yet.
    ///
    /// Example: [`Monitor`].
    pub fn new() -> Self {
        Monitor { stage_ref: StageRef::unbound() }
    }

    pub(crate) fn of<E: Send, L: Layout>(core: &Owner<E, L>) -> Self {
        Monitor { stage_ref: StageRef::bound(observed(core), 0) }
    }

    #[cfg(all(test, not(slipring_loom)))]
    pub(super) fn stage_ref(&self) -> &StageRef<dyn AnyRing> {
        &self.stage_ref
    }

    pub(crate) fn bind<E: Send, L: Layout>(&self, core: &Owner<E, L>) -> Result<(), BuildError> {
        self.stage_ref.bind(observed(core), 0)
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
    /// | events, batches, tombstones and short waits of a reading handle | once a call that does not wait has found no event, or any call the end; else up to its last 1,024 batches |
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
    /// Waits until the stage named `stage` has passed the position `seq`. Any thread may call it;
    /// [`Producer::wait_for`](crate::Producer::wait_for) explains what it waits for, and how.
    ///
    /// ```
    /// let monitor = slipring::Monitor::new();
    /// slipring::ring(8, || 0u64).monitor(&monitor).read("journal", |_, _| ()).run(|tx| {
    ///     let seq = tx.publish(|slot| *slot = 7)?;
    ///     let monitor = monitor.clone();
    ///     let replies = std::thread::spawn(move || monitor.wait_for("journal", seq));
    ///     replies.join().unwrap()?; // the connection's thread answers
    ///     Ok(())
    /// })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// The call keeps the graph's memory, but does not delay the graph's end.
    ///
    /// # Errors
    /// - [`PassError::NotRunning`]: the graph has not started, or is gone.
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::NotPublished`]: the ring was closed before `seq`, or begins behind it.
    /// - [`PassError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    ///
    /// A position that was never published is awaited until the graph ends.
    pub fn wait_for(&self, stage: &str, seq: u64) -> Result<(), PassError> {
        let (ring, goal) = self.goal(stage, seq)?;
        goal.wait(&*ring, None)
    }

    /// Like [`wait_for`](Monitor::wait_for), but waits at most until `deadline`.
    ///
    /// Example: [`Producer::wait_for_by`](crate::Producer::wait_for_by).
    ///
    /// # Errors
    /// - [`PassError::NotRunning`]: the graph has not started, or is gone.
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::NotPublished`]: the ring was closed before `seq`, or begins behind it.
    /// - [`PassError::TimedOut`]: `deadline` passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn wait_for_by(&self, stage: &str, seq: u64, deadline: Instant) -> Result<(), PassError> {
        let (ring, goal) = self.goal(stage, seq)?;
        goal.wait(&*ring, Some(deadline))
    }

    /// Like [`wait_for`](Monitor::wait_for), but for a task instead of a thread. The future does
    /// not keep the graph's memory.
    ///
    /// Example: [`Producer::wait_for_async`](crate::Producer::wait_for_async).
    ///
    /// # Errors
    /// - [`PassError::NotRunning`]: the graph has not started, or is gone.
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::NotPublished`]: the ring was closed before `seq`, or begins behind it.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn wait_for_async(&self, stage: &str, seq: u64) -> PassAsync<'static> {
        PassAsync::observed(self.goal(stage, seq))
    }

    /// Waits until every last stage has passed everything that was published before the call;
    /// [`Producer::flush`](crate::Producer::flush) explains it.
    ///
    /// ```
    /// let monitor = slipring::Monitor::new();
    /// let chain = slipring::ring(8, || 0u64).monitor(&monitor).read("write", |_, _| ());
    /// let (mut tx, pipeline) = chain.spawn()?;
    /// tx.publish(|slot| *slot = 7)?;
    /// monitor.flush()?;
    /// assert_eq!(monitor.report().unwrap().stage("write").unwrap().seq, 1);
    /// drop(tx);
    /// pipeline.join()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`PassError::NotRunning`]: the graph has not started, or is gone.
    /// - [`PassError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn flush(&self) -> Result<(), PassError> {
        let (ring, goal) = self.all_before()?;
        goal.wait(&*ring, None)
    }

    /// Like [`flush`](Monitor::flush), but waits at most until `deadline`.
    ///
    /// Example: [`Producer::wait_for_by`](crate::Producer::wait_for_by).
    ///
    /// # Errors
    /// - [`PassError::NotRunning`]: the graph has not started, or is gone.
    /// - [`PassError::TimedOut`]: `deadline` passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn flush_by(&self, deadline: Instant) -> Result<(), PassError> {
        let (ring, goal) = self.all_before()?;
        goal.wait(&*ring, Some(deadline))
    }

    /// Like [`flush`](Monitor::flush), but for a task instead of a thread. The future waits for
    /// what was published before this call.
    ///
    /// Example: [`Producer::wait_for_async`](crate::Producer::wait_for_async).
    ///
    /// # Errors
    /// - [`PassError::NotRunning`]: the graph has not started, or is gone.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn flush_async(&self) -> PassAsync<'static> {
        PassAsync::observed(self.all_before())
    }

    fn ring(&self) -> Result<Arc<dyn AnyRing>, PassError> {
        Ok(self.stage_ref.find().map_err(|_| PassError::NotRunning)?.0)
    }

    fn goal(&self, stage: &str, seq: u64) -> Result<(Arc<dyn AnyRing>, Goal), PassError> {
        let ring = self.ring()?;
        let goal = Goal::stage(ring.control(), stage, seq)?;
        Ok((ring, goal))
    }

    fn all_before(&self) -> Result<(Arc<dyn AnyRing>, Goal), PassError> {
        let ring = self.ring()?;
        let goal = Goal::before(ring.published());
        Ok((ring, goal))
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}
