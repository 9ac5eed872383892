//! A [`StageRef`] is the reference by which a tap, a pool handle or a monitor finds one stage of
//! its graph.
//!
//! Invariants
//! - I1: a `StageRef` owns none of the graph's events (owner::I3). It holds a `Weak` to the graph,
//!   and an `Arc` only during a call.
//! - I2: no reference to a graph is dropped under the lock of a `StageRef`, because the drop of the
//!   last one may free memory and run user code.

use crate::base::name::{Name, PRODUCER};
use crate::base::sync::unmodelled::{Mutex, MutexGuard};
use crate::base::sync::{Arc, Weak, whole};
use crate::errors::{BuildError, SubscribeError};
use crate::ring::passing::RingParts;

/// A reference to one stage of a graph, which is set when the graph is built. All clones refer to
/// the same stage.
pub(super) struct StageRef<R: ?Sized>(Arc<Mutex<Target<R>>>);

/// A graph, and the index of one of its stages. `None` before the graph is built.
type Target<R> = (Option<Weak<R>>, usize);

impl<R: ?Sized> Clone for StageRef<R> {
    fn clone(&self) -> Self {
        StageRef(self.0.clone())
    }
}

impl<R: RingParts + ?Sized> StageRef<R> {
    /// Creates a reference that refers to no graph yet.
    pub(super) fn unbound() -> Self {
        StageRef(Arc::new(Mutex::new((None, 0))))
    }

    /// Creates a reference to the stage with the index `stage` of a graph.
    pub(super) fn bound(graph: Weak<R>, stage: usize) -> Self {
        StageRef(Arc::new(Mutex::new((Some(graph), stage))))
    }

    fn lock(&self) -> MutexGuard<'_, Target<R>> {
        whole(self.0.lock())
    }

    /// Returns the graph and the stage's index. Fails if the graph is not running. Each caller
    /// drops the returned `Arc` before it returns (I1).
    pub(super) fn find(&self) -> Result<(Arc<R>, usize), SubscribeError> {
        // The `Weak` is cloned under the lock. The clone may become the last reference to the
        // graph's memory, so it is dropped after the unlock (I2).
        let (graph, stage) = {
            let target = self.lock();
            (target.0.clone(), target.1)
        };
        let core = graph.as_ref().and_then(Weak::upgrade).filter(|core| core.owners().are_there());
        Ok((core.ok_or(SubscribeError::NotRunning)?, stage))
    }

    /// Refers to the stage with the index `stage` of `graph` from now on. Fails if it
    /// already refers to a running graph. A graph counts as running until
    /// [`OwnerCount::end_run`](crate::ring::owner_count::OwnerCount::end_run), or until its last
    /// owner is gone.
    pub(super) fn bind(&self, graph: Weak<R>, stage: usize) -> Result<(), BuildError> {
        let mut target = self.lock();
        let before = target.0.as_ref().and_then(Weak::upgrade);
        if before.as_ref().is_some_and(|core| core.owners().are_there()) {
            drop(target);
            let graph = graph.upgrade();
            let name = graph.as_ref().map(|graph| graph.control().plan.name_of(stage));
            let name = name.unwrap_or_else(|| Name::new(PRODUCER));
            return Err(BuildError::Declaration {
                problem: format!(
                    "the handle declared at `{name}` already stands in a running graph; create one for each place"
                ),
            });
        }
        let replaced = std::mem::replace(&mut *target, (Some(graph), stage));
        drop(target);
        // These may be the last references to their graph, so they are dropped after the unlock
        // (I2).
        drop((replaced, before));
        Ok(())
    }
}
