//! The stages of one graph. Until the graph is built, the user can change a stage through its key.

use std::sync::Arc;

use crate::base::sync::unmodelled::{Mutex, MutexGuard};
use crate::base::sync::{Weak, whole};
use crate::ring::passing::AnyRing;
use crate::ring::spec::{Delivery, StageList};

/// The stages of one graph, which the graph, its keys and its ring share. The address of this value
/// is the graph's identity.
pub(super) struct SharedStages(Mutex<Stages>);

/// The data behind the lock of [`SharedStages`]. A thread that holds this lock runs no user code.
#[derive(Default)]
pub(super) struct Stages {
    pub(super) list: StageList,
    /// Indices of the stages whose keys were dropped before the build.
    pub(super) abandoned: Vec<usize>,
    /// Whether the build has taken the stages, so that no key may change its own stage any more.
    pub(super) frozen: bool,
    /// The built ring, which fails when a stage's key is dropped. `None` before the build.
    pub(super) ring: Option<Weak<dyn AnyRing>>,
}

impl SharedStages {
    pub(super) fn new() -> Arc<SharedStages> {
        Arc::new(SharedStages(Mutex::default()))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Stages> {
        whole(self.0.lock())
    }

    /// Returns the name of a stage.
    pub(super) fn name(&self, stage: usize) -> String {
        self.lock().list.specs()[stage].name.clone()
    }
}

impl Stages {
    /// Returns whether a stage is a tap. A tap's key may be dropped, because a tap needs no reader.
    pub(super) fn is_tap(&self, stage: usize) -> bool {
        matches!(self.list.specs()[stage].delivery, Delivery::Tap(_))
    }

    /// Returns the indices of the stages whose keys must be exchanged for handles.
    pub(super) fn required(&self) -> Vec<usize> {
        (0..self.list.specs().len()).filter(|&stage| !self.is_tap(stage)).collect()
    }
}
