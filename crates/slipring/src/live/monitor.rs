//! Looking at a graph from outside while it runs.

use std::fmt;

use crate::errors::BuildError;
use crate::errors::Report;
use crate::live::tap::Place;
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout};

/// Tells how a graph is doing, any time, from any thread; reading costs the graph nothing.
///
/// Put into a chain with [`Chain::monitor`](crate::Chain::monitor), or had from a
/// [`Ring`](crate::Ring::monitor). Clones are the same monitor. It does not keep the graph.
///
/// ```
/// let monitor = slipring::Monitor::new();
/// slipring::ring(64, || 0u64).monitor(&monitor).read("slow", |_, _| ()).run(|p| {
///     for i in 0..10 { p.publish(|v| *v = i)?; }
///     let now = monitor.report().expect("it runs");
///     assert_eq!(now.published_seq(), Some(10));
///     println!("{} behind, {:?} free\n{now}", now.stage("slow").unwrap().lag, now.remaining());
///     Ok(())
/// })?;
/// assert!(monitor.report().is_none()); // it is over
/// # Ok::<(), slipring::Error>(())
/// ```
pub struct Monitor<E, L: Layout = Interleaved> {
    place: Place<E, L>,
}

impl<E, L: Layout> Clone for Monitor<E, L> {
    fn clone(&self) -> Self {
        Monitor { place: self.place.clone() }
    }
}

impl<E, L: Layout> Default for Monitor<E, L> {
    fn default() -> Self {
        Monitor::new()
    }
}

impl<E, L: Layout> Monitor<E, L> {
    /// A monitor of nothing yet.
    pub fn new() -> Self {
        Monitor { place: Place::nowhere() }
    }

    pub(crate) fn of(core: &Owner<E, L>) -> Self {
        Monitor { place: Place::at(core, 0) }
    }

    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn place(&self) -> &Place<E, L> {
        &self.place
    }

    pub(crate) fn bind(&self, core: &Owner<E, L>) -> Result<(), BuildError> {
        self.place.bind(core, 0)
    }

    /// How the graph is doing now; `None`: it was not started yet, or is over and gone.
    ///
    /// What a stage has let go by its position here is done: whatever its handler did for those
    /// events before, the caller sees. Positions and lags are read one after the other while the
    /// graph goes on, so they are of about the same moment. Counts of events, batches and waits are
    /// as of the last time that a handle waited for more than a moment, ended, or had done 1,024
    /// batches; a wait is counted with the next one.
    pub fn report(&self) -> Option<Report> {
        self.place.find().ok().map(|(core, _)| core.report())
    }
}

impl<E, L: Layout> fmt::Debug for Monitor<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}
