//! Values and allocations that a protocol guards. In a model, the checker watches every use of
//! them, and the simulator of cache coherence counts the uses of values. Elsewhere, the types cost
//! nothing.

use std::cell::UnsafeCell;

/// A value that a protocol guards. The model checker reports two accesses that race.
pub(crate) struct Guarded<V> {
    value: UnsafeCell<V>,
    #[cfg(slipring_loom)]
    watched: loom::cell::UnsafeCell<()>,
}

impl<V> Guarded<V> {
    pub(crate) fn new(value: V) -> Guarded<V> {
        Guarded {
            value: UnsafeCell::new(value),
            #[cfg(slipring_loom)]
            watched: loom::cell::UnsafeCell::new(()),
        }
    }

    /// Returns the address for an exclusive access: the model fails if any other access races with
    /// it.
    #[inline(always)]
    pub(crate) fn exclusive(&self) -> *mut V {
        #[cfg(slipring_loom)]
        self.watched.with_mut(|_| ());
        #[cfg(slipring_coherence)]
        slipring_coherence::write(self.value.get().cast(), size_of::<V>());
        self.value.get()
    }

    /// Returns the address for an exclusive access that moves the value out, and stores nothing.
    #[inline(always)]
    pub(crate) fn moved_out(&self) -> *mut V {
        #[cfg(slipring_loom)]
        self.watched.with_mut(|_| ());
        #[cfg(slipring_coherence)]
        slipring_coherence::read(self.value.get().cast(), size_of::<V>());
        self.value.get()
    }

    /// Tells the model checker of a shared access, which may run at the same time as other shared
    /// accesses.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        #[cfg(slipring_loom)]
        self.watched.with(|_| ());
    }

    /// Returns the address for an access of which the model checker already knows.
    #[inline(always)]
    pub(crate) fn unwatched(&self) -> *mut V {
        self.value.get()
    }
}

/// Stands for an allocation in a model: a use is a read, and the freeing is a write. The model
/// fails if the allocation is never freed. So does a simulated run, and also if the allocation is
/// used after it was freed, or freed twice.
pub(crate) struct GuardedAllocation {
    memory: Guarded<()>,
    #[cfg(slipring_loom)]
    leak: UnsafeCell<Option<loom::alloc::Track<()>>>,
    #[cfg(slipring_coherence)]
    life: slipring_coherence::Life,
}

impl GuardedAllocation {
    pub(crate) fn new() -> GuardedAllocation {
        GuardedAllocation {
            memory: Guarded::new(()),
            #[cfg(slipring_loom)]
            leak: UnsafeCell::new(Some(loom::alloc::Track::new(()))),
            #[cfg(slipring_coherence)]
            life: slipring_coherence::Life::begin(),
        }
    }

    /// Tells the model checker of a use of the allocation.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        self.memory.touch();
        #[cfg(slipring_coherence)]
        self.life.go_on();
    }

    /// Tells the model checker that the allocation is freed.
    ///
    /// # Safety
    /// The caller is the last user of the allocation.
    #[inline(always)]
    pub(crate) unsafe fn freed(&self) {
        self.memory.exclusive();
        #[cfg(slipring_coherence)]
        self.life.end();
        #[cfg(slipring_loom)]
        // SAFETY: the caller promises to be the last user, and the model checker has found no other
        // use.
        drop(unsafe { (*self.leak.get()).take() });
    }
}
