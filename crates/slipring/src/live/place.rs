//! A [`Place`] is a reference to one stage of a graph. Each tap, pool handle and monitor finds its
//! graph through a `Place`.
//!
//! Invariants
//! - I1: A `Place` owns none of the graph's events (owner::I3). A `Place` holds a `Weak` to the
//!   graph, and an `Arc` only during a call.
//! - I2: No reference to a graph is dropped under a `Place`'s lock, because the drop of a last
//!   reference may free memory and run user code.

use std::sync::{Mutex as StdMutex, MutexGuard as StdGuard};

use crate::base::sync::{Arc, Weak, whole};
use crate::errors::{BuildError, SubscribeError};
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;

/// A reference to one stage of a graph; the reference is set once the graph is built. All clones of
/// a `Place` refer to the same stage.
pub(super) struct Place<E, L: Layout>(Arc<StdMutex<StageRef<E, L>>>);

/// A graph, and the index of one of the graph's stages.
type StageRef<E, L> = (Weak<Core<E, L>>, usize);

impl<E, L: Layout> Clone for Place<E, L> {
    fn clone(&self) -> Self {
        Place(self.0.clone())
    }
}

impl<E, L: Layout> Place<E, L> {
    /// Creates a `Place` that refers to no graph yet.
    pub(super) fn unbound() -> Self {
        Place(Arc::new(StdMutex::new((Weak::new(), 0))))
    }

    /// Creates a `Place` that refers to the graph `core` and to the stage with the index `stage`.
    pub(super) fn bound(core: &Owner<E, L>, stage: usize) -> Self {
        Place(Arc::new(StdMutex::new((core.observed(), stage))))
    }

    fn lock(&self) -> StdGuard<'_, StageRef<E, L>> {
        whole(self.0.lock())
    }

    /// Returns the graph and the index of the stage to which this `Place` refers. Fails if the
    /// graph is not running. Each function that calls `find` drops the returned reference before
    /// the function returns (I1).
    pub(super) fn find(&self) -> Result<(Arc<Core<E, L>>, usize), SubscribeError> {
        // `Place::find` clones the graph's `Weak` reference under the `Place`'s lock, and drops the
        // clone after releasing the lock (I2). The cloned `Weak` may be the last reference to the
        // graph's memory.
        let (graph, stage) = {
            let place = self.lock();
            (place.0.clone(), place.1)
        };
        let core = graph.upgrade().filter(|core| core.owners.are_there());
        Ok((core.ok_or(SubscribeError::NotRunning)?, stage))
    }

    /// Makes this `Place` refer to the graph `core` and to the stage with the index `stage`. Fails
    /// if this `Place` already refers to a running graph. A graph counts as running until
    /// [`OwnerCount::end_run`](crate::ring::owner_count::OwnerCount::end_run), or until the graph's
    /// last owner is gone.
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
        // `replaced` and `before` may be the last references to their graph. `bind` drops
        // `replaced` and `before` only after releasing the `Place`'s lock (I2).
        drop((replaced, before));
        Ok(())
    }
}
