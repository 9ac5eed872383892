//! The hooks of a graph: code of the user that is called at a thread's start and after a failure.

use std::sync::Arc;

use super::placement::Assigned;
use crate::base::panics::Contained;
use crate::errors::Cause;
use crate::ring::control::Control;
use crate::ring::policy::Faulted;

pub(crate) type OnFaults<'env> = Contained<Arc<dyn Fn(&Faulted) + Send + Sync + 'env>>;
pub(crate) type OnStart<'env> = Contained<Arc<dyn Fn(&str) + Send + Sync + 'env>>;

/// The graph's own references to the user's hooks. [`Chain::run`](crate::Chain::run) and similar
/// calls drop them after all stages have ended, and return an error if a drop panics.
#[derive(Default)]
pub(crate) struct Hooks<'env> {
    /// Hook that each thread calls before its stages start.
    pub(crate) on_start: Option<OnStart<'env>>,
    /// Hook that is called for each failure that a stage survives.
    pub(crate) on_faults: Option<OnFaults<'env>>,
    /// Where each thread runs.
    pub(crate) places: Option<Assigned>,
}

impl<'env> Hooks<'env> {
    pub(crate) fn set_on_start(&mut self, hook: impl Fn(&str) + Send + Sync + 'env) {
        self.on_start = Some(Contained::new(Arc::new(hook)));
    }

    pub(crate) fn set_on_faults(&mut self, hook: impl Fn(&Faulted) + Send + Sync + 'env) {
        self.on_faults = Some(Contained::new(Arc::new(hook)));
    }

    /// Drops the hooks. A panic of a hook's drop fails the graph.
    pub(crate) fn drop_contained(self, control: &Control) {
        let panics = [
            self.on_start.and_then(Contained::drop_contained),
            self.on_faults.and_then(Contained::drop_contained),
            self.places.and_then(Contained::drop_contained),
        ];
        for panic in panics.into_iter().flatten() {
            control.fail(control.plan.producer_party(), None, Cause::Panic(panic));
        }
    }
}
