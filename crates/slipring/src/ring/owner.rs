//! Owning references to a ring. Observing references are plain `Arc`s of the core and own no event.
//!
//! Handles, chains and pipelines own their ring: each holds an [`Owner`]. Monitors, taps, pool
//! handles, leave handles and keys observe their ring: each holds a `Weak`, and upgrades it to an
//! `Arc` only while one of its calls runs. Owners are counted separately from the `Arc`'s
//! references. So an observer's reference does not delay the end of a ring, and dropping that
//! reference never drops events.
//!
//! Invariants
//! - I1: `Core::owners` is the number of [`Owner`]s. All owners together hold a single strong
//!   reference of the `Arc`, which the last owner drops.
//! - I2: the last owner drops the events, on the thread that drops it. An observer's reference
//!   yields no owner once the count of owners is zero or the run is over.
//! - I3: an observer accesses no event. An observer that drops the last `Arc` frees memory and
//!   drops the plan's user values, whose panics the library catches.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::ptr;

use crate::base::panics::{drop_payload, panic_message};
use crate::base::sync::{Arc, Weak, panicking, twin};
use crate::ring::core::Core;
use crate::ring::slots::Layout;
use crate::ring::world::World as _;

/// An owning reference to a ring. Dereferencing and cloning an owner cost as much as for an `Arc`.
pub(crate) struct Owner<E, L: Layout>(ManuallyDrop<Arc<Core<E, L>>>);

impl<E, L: Layout> Owner<E, L> {
    /// Makes the first owner of a ring whose slots are filled.
    pub(crate) fn new(core: Core<E, L>) -> Self {
        let core = Arc::new(core);
        #[cfg(slipring_coherence)]
        slipring_coherence::label(&core.owners, "count of owners");
        Owner(ManuallyDrop::new(core))
    }

    /// Makes another owner of an observed ring. Returns `None` if the run is over, or if the last
    /// owner was dropped, and the events with it.
    pub(crate) fn of(observed: &Arc<Core<E, L>>) -> Option<Self> {
        // SAFETY: I1: the copy shares the owners' strong reference. The owner just counted keeps
        // that reference alive.
        observed.owners.try_add().then(|| Owner(ManuallyDrop::new(unsafe { ptr::read(observed) })))
    }

    /// Returns a weak reference to the ring, which an observer upgrades for one call.
    pub(crate) fn observed(&self) -> Weak<Core<E, L>> {
        Arc::downgrade(&self.0)
    }

    /// Returns whether both owners own the same ring. While both owners are alive, neither ring's
    /// address can be reused.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Drops this owner. If this owner was the last one and an event's drop panicked, returns the
    /// panic's message.
    pub(crate) fn take_apart(self) -> Option<String> {
        ManuallyDrop::new(self).leave().map(panic_message)
    }

    /// Subtracts this owner from the count; the last owner drops the events. Called once for each
    /// owner, when it is dropped or taken apart.
    #[inline]
    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        self.0.control.notify_drained();
        // SAFETY: just counted out.
        if self.0.owners.remove() { unsafe { self.end() } } else { None }
    }

    /// # Safety
    /// The count said that this owner was the last one, and the owner is not used afterwards.
    #[cold]
    #[inline(never)]
    unsafe fn end(&mut self) -> Option<Box<dyn Any + Send>> {
        // No thread of the library uses the ring afterwards (reactors::I2).
        self.0.world.end(&self.0.control);
        if !L::World::SHARED {
            // Only observers can still wait, and a ring of processes has no observers by handles.
            twin!("gone-unnotified": self.0.control.waits.notify_all() => ());
        }
        let askers = self.0.control.askers.clone();
        askers.detach(); // askers::I1
        // SAFETY: I1: the last owner has the shared strong reference, and takes it once.
        let core = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: I2: no owner is left and none can be made, so no reference to an event is left.
        let dropped = unsafe { core.drop_events() };
        askers.notify();
        dropped
    }
}

impl<E, L: Layout> Clone for Owner<E, L> {
    fn clone(&self) -> Self {
        self.owners.add();
        // SAFETY: I1: as in `of`.
        Owner(ManuallyDrop::new(unsafe { ptr::read(&*self.0) }))
    }
}

impl<E, L: Layout> Deref for Owner<E, L> {
    type Target = Core<E, L>;
    #[inline(always)]
    fn deref(&self) -> &Core<E, L> {
        &self.0
    }
}

impl<E, L: Layout> Drop for Owner<E, L> {
    fn drop(&mut self) {
        if let Some(panic) = self.leave() {
            // If a panic from an event's drop were resumed on a thread that is already unwinding,
            // the process would abort.
            if panicking() { drop_payload(panic) } else { resume_unwind(panic) }
        }
    }
}
