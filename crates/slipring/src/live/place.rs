//! A place refers to one stage of a graph. Each tap, each pool handle and each monitor has a place.
//!
//! Invariants
//! - I1: A place owns none of the graph's events (owner::I3). A place holds a `Weak` to the graph,
//!   and an `Arc` only during a call.
//! - I2: No reference to a graph is dropped under a place's lock, because such a drop may free
//!   memory and run user code.

use std::sync::{Mutex as StdMutex, MutexGuard as StdGuard};

use crate::base::sync::{Arc, Weak, whole};
use crate::errors::{BuildError, SubscribeError};
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;

/// A stage of a graph, once the graph is built. Clones share one place.
pub(super) struct Place<E, L: Layout>(Arc<StdMutex<StageRef<E, L>>>);

/// A graph, and the number of a stage in it.
type StageRef<E, L> = (Weak<Core<E, L>>, usize);

impl<E, L: Layout> Clone for Place<E, L> {
    fn clone(&self) -> Self {
        Place(self.0.clone())
    }
}

impl<E, L: Layout> Place<E, L> {
    /// Creates a place that refers to no graph yet.
    pub(super) fn unbound() -> Self {
        Place(Arc::new(StdMutex::new((Weak::new(), 0))))
    }

    /// Creates the place of a stage of this graph.
    pub(super) fn bound(core: &Owner<E, L>, stage: usize) -> Self {
        Place(Arc::new(StdMutex::new((core.observed(), stage))))
    }

    fn lock(&self) -> StdGuard<'_, StageRef<E, L>> {
        whole(self.0.lock())
    }

    /// Returns a reference to the graph and the number of the place's stage, if the graph is
    /// running. A caller drops the returned reference before its own call ends (I1).
    pub(super) fn find(&self) -> Result<(Arc<Core<E, L>>, usize), SubscribeError> {
        // The cloned reference may be the last reference to the graph, so this call drops the clone
        // after the lock's release (I2).
        let (graph, stage) = {
            let place = self.lock();
            (place.0.clone(), place.1)
        };
        let core = graph.upgrade().filter(|core| core.owners.are_there());
        Ok((core.ok_or(SubscribeError::NotRunning)?, stage))
    }

    /// Binds the place to a stage until the run is over
    /// ([`OwnerCount::end_run`](crate::ring::owner_count::OwnerCount::end_run)) or the last owner
    /// is gone.
    pub(super) fn bind(&self, core: &Owner<E, L>, stage: usize) -> Result<(), BuildError> {
        let mut place = self.lock();
        let before = place.0.upgrade();
        if before.as_ref().is_some_and(|core| core.owners.are_there()) {
            drop(place);
            let name = &core.control.plan.stages[stage].name;
            return Err(BuildError::Declaration {
                problem: format!(
                    "the handle declared at `{name}` already stands in a running graph; create one for each place"
                ),
            });
        }
        let replaced = std::mem::replace(&mut *place, (core.observed(), stage));
        drop(place);
        // The replaced references are dropped after the lock's release (I2), because they may be
        // the last references to an earlier graph.
        drop((replaced, before));
        Ok(())
    }
}
