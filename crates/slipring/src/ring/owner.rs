//! Owning references to a ring. References that only observe are plain `Arc`s of the core, and own
//! no event.
//!
//! Handles, chains and pipelines own their ring: they hold an [`Owner`]. Monitors, taps, pool
//! handles, leave handles and keys observe it: they hold a `Weak`, and an `Arc` for the length of one
//! call. Owners are counted apart from the `Arc`'s references. So an observer's reference neither
//! delays the end of a ring nor moves the drop of its events to the observer's thread.
//!
//! Invariants
//! - I1: `Core::owners` is the number of [`Owner`]s. All of them together hold one strong reference
//!   of the `Arc`, which the last one drops.
//! - I2: the last owner drops the events, on its own thread. No owner is made from an observer's
//!   reference once the count is zero, or the run over.
//! - I3: an observer touches no event. If it drops the last `Arc`, it frees memory and drops user
//!   values that the plan holds, with their panics contained.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::ptr;

use crate::base::panics::{drop_payload, panic_message};
use crate::base::sync::{Arc, Weak};
use crate::ring::core::Core;
use crate::ring::slots::Layout;

/// An owning reference to a ring. Costs as much to follow and to clone as an `Arc`.
pub(crate) struct Owner<E, L: Layout>(ManuallyDrop<Arc<Core<E, L>>>);

impl<E, L: Layout> Owner<E, L> {
    /// Makes the first owner of a core that is filled.
    pub(crate) fn new(core: Core<E, L>) -> Self {
        Owner(ManuallyDrop::new(Arc::new(core)))
    }

    /// Makes another owner of an observed ring. `None`: the last owner is gone, and the events with
    /// it, or the run is over.
    pub(crate) fn of(observed: &Arc<Core<E, L>>) -> Option<Self> {
        // SAFETY: I1: the copy is one more reference of the owners' strong count, which lasts until
        // the last of them, just counted, is gone.
        observed.owners.try_add().then(|| Owner(ManuallyDrop::new(unsafe { ptr::read(observed) })))
    }

    /// Returns a reference for observers.
    pub(crate) fn observed(&self) -> Weak<Core<E, L>> {
        Arc::downgrade(&self.0)
    }

    /// Returns whether both own the same ring. Neither address can be reused while both are alive.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Gives this reference up. Returns a panic's message, if this was the last owner and an
    /// event's drop panicked.
    pub(crate) fn take_apart(self) -> Option<String> {
        ManuallyDrop::new(self).leave().map(panic_message)
    }

    /// Counts this owner out; the last one drops the events. Called once, in place of a drop.
    #[inline]
    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        // SAFETY: just counted out.
        if self.0.owners.remove() { unsafe { self.end() } } else { None }
    }

    /// # Safety
    /// This was the last owner, and is not used afterwards.
    #[cold]
    #[inline(never)]
    unsafe fn end(&mut self) -> Option<Box<dyn Any + Send>> {
        // SAFETY: I1: this was the last owner, so the one strong reference that all of them share
        // is its own; this is called once.
        let core = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: I2: no owner is left and none can be made, so no reference to an event is left.
        unsafe { core.drop_events() }
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
            // Two panics at once would be an abort.
            if std::thread::panicking() { drop_payload(panic) } else { resume_unwind(panic) }
        }
    }
}
