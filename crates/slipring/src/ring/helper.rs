//! Threads that run stages of a graph instead of waiting for the graph's progress.
//!
//! A thread of an executor, or the thread that produces for one, may have to wait for the
//! executor's own graph: for room in the graph's ring, or for an event of one of the graph's
//! handles. It then runs stages itself, because that room or event may depend on stages that no
//! other thread runs.
//!
//! Invariants
//! - I1: a thread's list names a helper only while [`during`] runs for that helper on that thread.
//!   So each pointer in the list is valid.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use crate::base::sync::per_thread;
use crate::ring::control::Control;

/// Interval at which a waiting thread that can run stages looks for a stage to run: a stage that
/// becomes ready may notify other queues than the thread's own.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Runs the stages of one graph.
pub(crate) trait Help {
    /// Runs one batch of a stage that has events to handle. Returns `false` if there is none: no
    /// stage is ready, or other threads run all ready stages. Outside of handlers, the method runs
    /// only a stage whose usual turn would end by `until`.
    fn step(&self, until: Option<Instant>) -> bool;

    /// Returns whether [`Help::step`] would find a stage. The caller may hold a wait queue's lock.
    fn is_ready(&self, until: Option<Instant>) -> bool;

    /// Called before this thread begins a wait that calls [`Help::is_ready`].
    fn wait_begins(&self);

    /// Called after each wait of this thread that began with [`Help::wait_begins`]. Wakes another
    /// thread if this thread leaves a stage ready, or if the other thread could not check a stage
    /// because this thread was checking it.
    fn wait_ended(&self);
}

/// An entry of a thread's list of helpers.
struct Entry {
    control: *const Control,
    help: NonNull<dyn Help>,
    /// The entry of the enclosing call of [`during`]; `None` for the outermost call.
    outer: Option<NonNull<Entry>>,
}

per_thread! {
    /// The entry of the innermost call of [`during`].
    static INNERMOST: Cell<Option<NonNull<Entry>>> = const { Cell::new(None) };
}

/// A guard whose drop takes the innermost entry off the list.
struct Leave(Option<NonNull<Entry>>);

impl Drop for Leave {
    fn drop(&mut self) {
        INNERMOST.set(self.0);
    }
}

/// Calls `run`. If the current thread has to wait for the ring of `control` during this call, it
/// runs stages through `help`. In a model there are no lists of helpers, because a model's threads
/// run on one system thread.
pub(crate) fn during<T>(control: &Control, help: &dyn Help, run: impl FnOnce() -> T) -> T {
    if cfg!(slipring_loom) {
        return run();
    }
    let outer = INNERMOST.get();
    // SAFETY: the pointer without the lifetime is used only while `help` is borrowed (I1).
    let help = unsafe {
        std::mem::transmute::<NonNull<dyn Help + '_>, NonNull<dyn Help>>(NonNull::from(help))
    };
    let entry = Entry { control, help, outer };
    INNERMOST.set(Some(NonNull::from(&entry)));
    let _leave = Leave(outer);
    run()
}

/// Calls `look` with the first ring of the current thread's list that `is_ring` accepts, and with
/// the helper for that ring. Does nothing if the list has no such ring.
fn find<T>(
    is_ring: impl Fn(&Control) -> bool,
    look: impl FnOnce(&Control, &dyn Help) -> T,
) -> Option<T> {
    if cfg!(slipring_loom) {
        return None;
    }
    let mut next = INNERMOST.get();
    while let Some(entry) = next {
        // SAFETY: the call of `during` that made the entry has not ended (I1).
        let Entry { control, help, outer } = unsafe { entry.as_ref() };
        // SAFETY: the call of `during` that made the entry borrows the control and the helper, and
        // has not ended (I1).
        let control = unsafe { &**control };
        if is_ring(control) {
            // SAFETY: as above.
            return Some(look(control, unsafe { help.as_ref() }));
        }
        next = *outer;
    }
    None
}

/// If the current thread runs stages of a ring while it waits, and `is_ring` accepts that ring,
/// calls `look` with it.
pub(crate) fn at<T>(
    is_ring: impl Fn(&Control) -> bool,
    look: impl FnOnce(&Control) -> T,
) -> Option<T> {
    find(is_ring, |control, _| look(control))
}

/// If the current thread has a helper for the ring of `control`, calls `look` with that helper. The
/// pointer is compared, and never dereferenced.
fn with<T>(control: *const Control, look: impl FnOnce(&dyn Help) -> T) -> Option<T> {
    find(|ring| ptr::eq(ring, control), |_, help| look(help))
}

/// Runs one batch of a stage of the ring of `control`, if the current thread may run stages of this
/// ring and a stage is ready. `until` is the deadline of the call that waits ([`Help::step`]).
#[cold]
pub(crate) fn step(control: &Control, until: Option<Instant>) -> bool {
    with(control, |help| help.step(until)).unwrap_or(false)
}

/// Calls `wait`, which may call [`is_ready`]. The ring is given by a pointer, so that `wait` may
/// borrow the ring's handle mutably.
///
/// After the wait, the current thread may return to the user's code while a stage is ready, and
/// another thread may have relied on it to run that stage. So the call wakes another thread if
/// necessary ([`Help::wait_ended`]).
pub(crate) fn waiting<T>(control: *const Control, wait: impl FnOnce() -> T) -> T {
    /// A guard whose drop ends the wait, even if the user's strategy panics.
    struct Ended(*const Control);
    impl Drop for Ended {
        fn drop(&mut self) {
            with(self.0, |help| help.wait_ended());
        }
    }
    with(control, |help| help.wait_begins());
    let _ended = Ended(control);
    wait()
}

/// Returns whether the current thread runs stages of the ring of `control`.
#[inline(always)]
pub(crate) fn is_there(control: &Control) -> bool {
    !cfg!(slipring_loom) && INNERMOST.get().is_some() && with(control, |_| ()).is_some()
}

/// Returns whether [`step`] would run a stage.
pub(crate) fn is_ready(control: &Control, until: Option<Instant>) -> bool {
    with(control, |help| help.is_ready(until)).unwrap_or(false)
}
