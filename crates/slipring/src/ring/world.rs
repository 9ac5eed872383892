//! The differences between a ring of threads and a ring of processes, in one trait.
//!
//! The handles of a ring live in a [`World`]: the threads of [`OneProcess`], or the processes that
//! share a segment (`crate::processes`). Each layout of slots names its world, so the compiler
//! knows the world of each ring, and a ring of one process holds no code for several processes.
//!
//! Each method of `World` is called at a place where the two kinds of ring differ. Its default is
//! the behaviour for threads: no handle dies alone, and no other program writes the ring's words.

use std::time::Duration;

use crate::errors::WaitError;
use crate::ring::control::Control;
use crate::ring::seat::Seat;
use crate::ring::task_number::TaskNumber;
use crate::ring::waits::{Place, Waiter, WaitingTask};

/// The threads, or the processes, that share a ring.
#[doc(hidden)]
#[allow(private_interfaces)]
pub trait World: Sized + Send + Sync + 'static {
    /// Whether other processes share the ring. Other processes may write the ring's words at any
    /// time, whatever the protocol says. If a panic or a death ends a handle, a handle of another
    /// process may take its place.
    const SHARED: bool;

    /// Schedule by which one handle's non-waiting calls check for deaths.
    type Checks: Default + Send + Sync;

    /// Makes the world of a ring on the heap.
    fn of_heap() -> Self;

    /// Called when a call that does not wait has found no event or no room. Returns whether that
    /// call must check for deaths.
    #[inline(always)]
    fn is_due(&self, _checks: &mut Self::Checks) -> bool {
        false
    }

    /// Makes the handle check for deaths again at its next call that finds no event or no room and
    /// does not wait. Called when a call has found a death that it cannot return as an error.
    fn check_again(_checks: &mut Self::Checks) {}

    /// Returns the longest time between two checks for deaths, or `None` if no check is needed.
    #[inline(always)]
    fn notice(&self) -> Option<Duration> {
        None
    }

    /// Checks for deaths that hold up a waiter. Returns the error that ends its wait, if any.
    fn watch(&self, _ring: Watched<'_>, _waiter: &Waiter) -> Option<WaitError> {
        None
    }

    /// Called when a call at `place` does not wait and has found no event or no room. `due` says
    /// whether a check for deaths is due. Returns the error that the call must return, if any.
    fn refuse(
        &self,
        _ring: Watched<'_>,
        _place: Place,
        _task: &TaskNumber,
        _due: bool,
    ) -> Option<WaitError> {
        None
    }

    /// Called when the current call cannot return `error`. The handle's next call that finds no
    /// event or no room then returns the error.
    fn tell_later(&self, _task: &TaskNumber, _error: WaitError) {}

    /// Registers a task for the next notification, unless `ready` returns `true`. Returns `true` if
    /// the task must poll again.
    fn arm(
        &self,
        control: &Control,
        task: WaitingTask<'_>,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        control.waits.arm(&control.plan, task, ready)
    }

    /// Removes a task, if it is registered.
    fn disarm(&self, control: &Control, party: usize, number: u64) {
        control.waits.queue_of(&control.plan, party).queue.disarm(number);
    }

    /// Called by the last owner of the ring before the ring is freed.
    fn end(&self, _control: &Control) {}

    /// Called after a ring's only producer has left.
    fn producer_left(&self, _control: &Control) {}

    /// Returns whether the stream of a closing ring ends at `at`, the position at which a handle
    /// has found no event.
    fn is_end(_control: &Control, _at: u64) -> bool {
        false
    }

    /// Called by a producer that leaves. Recovers everything that dead producers left unfinished.
    fn settle_dead_producers(&self, _ring: Watched<'_>) {}

    /// Returns whether the death of the last producer closes the ring.
    fn closes_at_death(&self, _control: &Control) -> bool {
        false
    }

    /// Returns whether the owner of `seat`, a seat of the producers, is alive and has not begun to
    /// leave.
    fn is_staying(&self, _seat: &Seat) -> bool {
        true
    }
}

/// The world of a ring on the heap: all of its handles belong to one process.
#[derive(Debug)]
pub struct OneProcess;

impl World for OneProcess {
    const SHARED: bool = false;

    type Checks = ();

    fn of_heap() -> OneProcess {
        OneProcess
    }
}

/// The view of a ring that a check for dead processes uses: the ring's control, and those steps of
/// a recovery that need the ring's slots.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'a> {
    pub(crate) control: &'a Control,
    pub(crate) ring: &'a dyn Recover,
    /// Returns whether the words at which the caller waits contradict each other.
    pub(crate) is_damaged: &'a dyn Fn() -> bool,
}

/// The steps of a recovery that need a ring's slots. The ring's world does not know the type of the
/// slots. `crate::processes` implements them for each ring.
pub(crate) trait Recover {
    /// Recovers everything that the dead participant `dead` left unfinished. The caller holds the
    /// proof of the death.
    fn settle(&self, dead: u32);

    /// Returns whether producers have passed over `at`, a position at which a party waits and at
    /// which a run may begin. That happens only in a damaged segment.
    fn is_passed_over(&self, at: u64) -> bool;
}
