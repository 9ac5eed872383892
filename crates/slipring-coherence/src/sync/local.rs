//! Values of one virtual thread each, and plain memory whose accesses a simulation counts.
//!
//! - I1: A value of a [`CoreLocal`] is used by one thread, while that thread runs, and dropped by
//!   it.

use std::any::Any;
use std::cell::{RefCell, UnsafeCell};
use std::panic::Location;
use std::rc::Rc;

use crate::running::Locals;
use crate::{access, waiting};

/// A thread-local of virtual threads, which all share one system thread; outside of a simulation,
/// of system threads. Its uses cost no time.
///
/// ```
/// use slipring_coherence::sync::CoreLocal;
/// use std::cell::Cell;
///
/// static DEPTH: CoreLocal<Cell<u32>> = CoreLocal::new(|| Cell::new(1));
///
/// DEPTH.with(|depth| depth.set(depth.get() + 1));
/// assert_eq!(DEPTH.with(Cell::get), 2);
/// ```
pub struct CoreLocal<T: 'static> {
    init: fn() -> T,
    /// Makes each static of this type distinct in memory, since the address is its key.
    _place: u8,
}

thread_local! {
    static OUTSIDE: RefCell<Locals> = const { RefCell::new(Locals::new()) };
}

impl<T: 'static> CoreLocal<T> {
    /// Returns a thread-local that each thread makes by `init` at its first use.
    ///
    /// Example: [`CoreLocal`].
    pub const fn new(init: fn() -> T) -> CoreLocal<T> {
        CoreLocal { init, _place: 0 }
    }

    /// Calls `body` with the thread's value.
    ///
    /// Example: [`CoreLocal`].
    ///
    /// # Panics
    ///
    /// If a real thread's value is used while the thread ends.
    pub fn with<R>(&'static self, body: impl FnOnce(&T) -> R) -> R {
        let key = std::ptr::from_ref(self).addr();
        let value = self.find(key).unwrap_or_else(|| {
            let made = Rc::new((self.init)());
            self.keep(key, made.clone());
            made
        });
        body(&value)
    }

    fn find(&self, key: usize) -> Option<Rc<T>> {
        match waiting::with_locals(|values| values.get(key)) {
            Some(found) => found,
            None => OUTSIDE.with(|values| values.borrow().get(key)),
        }
    }

    fn keep(&self, key: usize, made: Rc<T>) {
        let entry: (usize, Rc<dyn Any>) = (key, made);
        let mut entry = Some(entry);
        if waiting::with_locals(|values| values.extend(entry.take())).is_none() {
            OUTSIDE.with(|values| values.borrow_mut().extend(entry));
        }
    }
}

/// A value in plain memory whose reads and writes a simulation counts, such as an event or a field
/// that one thread writes.
///
/// ```
/// use slipring_coherence::sync::Payload;
///
/// let payload = Payload::new(1);
/// // SAFETY: there is one thread.
/// unsafe {
///     payload.set(2);
///     assert_eq!(payload.get(), 2);
/// }
/// ```
#[repr(transparent)]
pub struct Payload<T>(UnsafeCell<T>);

// SAFETY: `get` and `set` leave the absence of races to their callers.
unsafe impl<T: Send> Sync for Payload<T> {}

impl<T: Copy> Payload<T> {
    /// Returns a payload with the given value.
    ///
    /// Example: [`Payload`].
    pub const fn new(value: T) -> Payload<T> {
        Payload(UnsafeCell::new(value))
    }

    /// Reads the value.
    ///
    /// Example: [`Payload`].
    ///
    /// # Safety
    ///
    /// No other thread writes it meanwhile.
    #[inline]
    #[track_caller]
    pub unsafe fn get(&self) -> T {
        access::read(self.0.get().addr(), size_of::<T>(), Location::caller());
        // SAFETY: the caller's promise.
        unsafe { *self.0.get() }
    }

    /// Writes the value. The other cores see it at once, so only a store that follows can be late.
    ///
    /// Example: [`Payload`].
    ///
    /// # Safety
    ///
    /// No other thread reads or writes it meanwhile.
    #[inline]
    #[track_caller]
    pub unsafe fn set(&self, value: T) {
        access::write(self.0.get().addr(), size_of::<T>(), Location::caller());
        // SAFETY: the caller's promise.
        unsafe { *self.0.get() = value }
    }
}
