//! A [`StageRef`] is the reference by which a tap, a pool handle or a monitor finds one stage of
//! its graph.
//!
//! Invariants
//! - I1: a `StageRef` owns none of the graph's events (owner::I3). It holds a `Weak` to the graph,
//!   and an `Arc` only during a call.
//! - I2: no reference to a graph is dropped under the lock of a `StageRef`, because the drop of the
//!   last one may free memory and run user code.

use crate::base::sync::unmodelled::{Mutex, MutexGuard};
use crate::base::sync::{Arc, Weak, whole};
use crate::errors::{BuildError, SubscribeError};
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;

/// A reference to one stage of a graph, which is set when the graph is built. All clones refer to
/// the same stage.
pub(super) struct StageRef<E, L: Layout>(Arc<Mutex<Target<E, L>>>);

/// A graph, and the index of one of its stages.
type Target<E, L> = (Weak<Core<E, L>>, usize);

impl<E, L: Layout> Clone for StageRef<E, L> {
    fn clone(&self) -> Self {
        StageRef(self.0.clone())
    }
}

impl<E, L: Layout> StageRef<E, L> {
    /// Creates a reference that refers to no graph yet.
    pub(super) fn unbound() -> Self {
        StageRef(Arc::new(Mutex::new((Weak::new(), 0))))
    }

    /// Creates a reference to the stage with the index `stage` of the graph `core`.
    pub(super) fn bound(core: &Owner<E, L>, stage: usize) -> Self {
        StageRef(Arc::new(Mutex::new((core.observed(), stage))))
    }

    fn lock(&self) -> MutexGuard<'_, Target<E, L>> {
        whole(self.0.lock())
    }

    /// Returns the graph and the stage's index. Fails if the graph is not running. Each caller
    /// drops the returned `Arc` before it returns (I1).
    pub(super) fn find(&self) -> Result<(Arc<Core<E, L>>, usize), SubscribeError> {
        // The `Weak` is cloned under the lock. The clone may become the last reference to the
        // graph's memory, so it is dropped after the unlock (I2).
        let (graph, stage) = {
            let target = self.lock();
            (target.0.clone(), target.1)
        };
        let core = graph.upgrade().filter(|core| core.owners.are_there());
        Ok((core.ok_or(SubscribeError::NotRunning)?, stage))
    }

    /// Refers to the stage with the index `stage` of the graph `core` from now on. Fails if it
    /// already refers to a running graph. A graph counts as running until
    /// [`OwnerCount::end_run`](crate::ring::owner_count::OwnerCount::end_run), or until its last
    /// owner is gone.
    pub(super) fn bind(&self, core: &Owner<E, L>, stage: usize) -> Result<(), BuildError> {
        let mut target = self.lock();
        let before = target.0.upgrade();
        if before.as_ref().is_some_and(|core| core.owners.are_there()) {
            drop(target);
            let name = &core.control.plan.stages[stage].name;
            return Err(BuildError::Declaration {
                problem: format!(
                    "the handle declared at `{name}` already stands in a running graph; create one for each place"
                ),
            });
        }
        let replaced = std::mem::replace(&mut *target, (core.observed(), stage));
        drop(target);
        // These may be the last references to their graph, so they are dropped after the unlock
        // (I2).
        drop((replaced, before));
        Ok(())
    }
}
