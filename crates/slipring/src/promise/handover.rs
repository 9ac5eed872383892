//! The allocation that a promise and its waiter share, and the two halves that own it.
//!
//! # Protocol
//!
//! The word begins as 0. It is a sum that contains each of these numbers at most once: [`ASLEEP`],
//! [`ABANDONED`], and either [`FULFILLED`] or [`BROKEN`].
//!
//! The promise's half settles:
//!
//! 1. It writes the value, and adds [`FULFILLED`]; or it adds [`BROKEN`]. This addition is
//!    wait-free.
//! 2. If the previous word was 0, the half is done, and the allocation belongs to the waiter's
//!    half.
//! 3. If the previous word was [`ASLEEP`], the half takes the sleeper out of the allocation, and
//!    subtracts [`ASLEEP`]. If the word contained [`ABANDONED`] at that subtraction, the half frees
//!    the allocation. Then it wakes the sleeper.
//! 4. If the previous word was [`ABANDONED`], the half takes the value back, and frees the
//!    allocation.
//!
//! The waiter's half sleeps:
//!
//! 1. If the word is 0, it stores the sleeper, and swaps the word from 0 to [`ASLEEP`]. If the word
//!    is not 0 or the swap fails, the promise is settled, and the waiter does not sleep.
//! 2. After the sleep it swaps the word from [`ASLEEP`] to 0. If the swap succeeds, it takes its
//!    sleeper back. If the swap fails, the promise is settled, and the sleeper belongs to the
//!    promise's half.
//!
//! The waiter's half leaves:
//!
//! 1. It takes back a sleeper that is registered.
//! 2. If the promise is settled, it takes the value. If the word lacks [`ASLEEP`], it frees the
//!    allocation. Otherwise it adds [`ABANDONED`], and frees the allocation if the word lacked
//!    [`ASLEEP`] at that addition.
//! 3. If the promise is not settled, it adds [`ABANDONED`]. If the previous word was 0, the
//!    allocation belongs to the promise's half. Otherwise the promise has been settled meanwhile;
//!    the waiter's half takes the value and frees the allocation.
//!
//! # Invariants
//!
//! - I1: each allocation has one [`PromiseHalf`] and one [`WaiterHalf`]. Only the waiter's half
//!   swaps [`ASLEEP`] into the word, and only if the word is 0.
//! - I2: the promise's half writes the value before it settles the promise. After that the value is
//!   read once: by the waiter's half, when it leaves; or by the promise's half, if the word was
//!   [`ABANDONED`] when the promise was settled.
//! - I3: the sleeper belongs to the waiter's half while the word lacks [`ASLEEP`] and is not
//!   settled. If the word has [`ASLEEP`] when the promise is settled, the sleeper belongs to the
//!   promise's half from then on, until that half subtracts [`ASLEEP`].
//! - I4: exactly one half frees the allocation, and it is the last half that uses the allocation. A
//!   half no longer uses the allocation
//!   - after it has settled the promise while the word was 0,
//!   - after it has subtracted [`ASLEEP`] from a word without [`ABANDONED`], or
//!   - after it has added [`ABANDONED`] to a word that is 0 or has [`ASLEEP`].

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use super::sleeper::Sleeper;
use crate::base::edge::{last_used, settled};
use crate::base::guarded::{Guarded, GuardedAllocation};
use crate::base::panics::drop_contained;
use crate::base::sync::{AtomicU32, Relaxed, twin};

/// The promise is not settled, and no sleeper is registered.
const PENDING: u32 = 0;
/// A sleeper is registered.
const ASLEEP: u32 = 1;
/// The promise was fulfilled.
const FULFILLED: u32 = 2;
/// The promise was dropped without a value.
const BROKEN: u32 = 4;
/// The waiter's half no longer uses the allocation.
const ABANDONED: u32 = 8;

/// The allocation that a promise and its waiter share.
struct Handover<T> {
    word: AtomicU32,
    sleeper: Guarded<Option<Sleeper>>,
    value: Guarded<MaybeUninit<T>>,
    memory: GuardedAllocation,
}

/// The way in which a promise was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settlement {
    Fulfilled,
    Broken,
}

/// Allocates a handover, and returns its halves.
pub(super) fn halves<T>() -> (PromiseHalf<T>, WaiterHalf<T>) {
    let handover = Handover {
        word: AtomicU32::new(PENDING),
        sleeper: Guarded::new(None),
        value: Guarded::new(MaybeUninit::uninit()),
        memory: GuardedAllocation::new(),
    };
    // The halves keep a raw pointer, because a `Box` would claim sole access.
    let at = NonNull::from(Box::leak(Box::new(handover)));
    (PromiseHalf(at), WaiterHalf(at))
}

/// Frees the allocation without dropping the value. No sleeper is left in it: none was stored, or
/// it was taken out.
///
/// # Safety
/// The caller is the last user of the allocation (I4).
unsafe fn free<T>(at: NonNull<Handover<T>>) {
    // SAFETY: the allocation is still there, and this is its last use (I4).
    unsafe { at.as_ref().memory.freed() };
    // In a model, the memory is not freed, so that the checker catches a twin that uses it later.
    if !cfg!(slipring_loom) {
        // SAFETY: `halves` made the allocation as a `Box`, and this call frees it once (I4).
        drop(unsafe { Box::from_raw(at.as_ptr()) });
    }
}

/// The half that belongs to the promise's owner.
pub(super) struct PromiseHalf<T>(NonNull<Handover<T>>);

impl<T> PromiseHalf<T> {
    /// Settles the promise: with a value, or as broken. Returns the value if no waiter is left.
    #[inline]
    pub(super) fn settle(self, value: Option<T>) -> Option<T> {
        let at = ManuallyDrop::new(self).0;
        // SAFETY: this half uses the allocation until it is settled (I4).
        let handover = unsafe { at.as_ref() };
        handover.memory.touch();
        let outcome = match value {
            Some(value) => {
                // SAFETY: until the promise is settled, only this half uses the value's place (I2).
                unsafe { (*handover.value.exclusive()).write(value) };
                FULFILLED
            }
            None => BROKEN,
        };
        match settled::settle(&handover.word, outcome) {
            PENDING => None,
            ABANDONED => {
                // SAFETY: the value was written above if the promise was fulfilled, and the
                // waiter's half, which is gone, has not read it (I2).
                let value = (outcome == FULFILLED)
                    .then(|| unsafe { (*handover.value.moved_out()).assume_init_read() });
                // SAFETY: the waiter's half no longer uses the allocation (I4).
                unsafe { free(at) };
                value
            }
            _ => {
                // SAFETY: the previous word was ASLEEP (I1), so the allocation is kept until this
                // half subtracts ASLEEP (I4).
                unsafe { wake(at) };
                None
            }
        }
    }

    /// Returns whether the waiter's half is gone.
    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        // SAFETY: this half uses the allocation until it is settled (I4).
        let handover = unsafe { self.0.as_ref() };
        handover.memory.touch();
        handover.word.load(Relaxed) == ABANDONED
    }
}

/// Takes the sleeper out of a promise that was settled while the sleeper slept, and wakes the
/// sleeper.
///
/// # Safety
/// The caller is the promise's half, and the word was `ASLEEP` when this half settled the promise.
#[cold]
unsafe fn wake<T>(at: NonNull<Handover<T>>) {
    // SAFETY: this half uses the allocation until it subtracts ASLEEP (I4).
    let handover = unsafe { at.as_ref() };
    handover.memory.touch();
    // SAFETY: the sleeper belongs to this half (I3).
    let sleeper = unsafe { (*handover.sleeper.exclusive()).take() };
    handover.memory.touch();
    let is_last = last_used::take_sleeper(&handover.word, ASLEEP) & ABANDONED != 0;
    if twin!("freed-by-none": is_last => false) {
        // SAFETY: the waiter's half no longer uses the allocation (I4).
        unsafe { free(at) };
    }
    // The wake-up comes last, because it may run the user's code.
    if let Some(sleeper) = sleeper {
        twin!("settled-unnotified": sleeper.wake() => drop(sleeper));
    }
}

impl<T> Drop for PromiseHalf<T> {
    fn drop(&mut self) {
        PromiseHalf(self.0).settle(None);
    }
}

/// The half that belongs to the waiter.
pub(super) struct WaiterHalf<T>(NonNull<Handover<T>>);

impl<T> WaiterHalf<T> {
    fn handover(&self) -> &Handover<T> {
        // SAFETY: this half uses the allocation until it leaves (I4).
        let handover = unsafe { self.0.as_ref() };
        handover.memory.touch();
        handover
    }

    /// Returns how the promise was settled, or `None` if it is not settled yet.
    #[inline]
    pub(super) fn settlement(&self) -> Option<Settlement> {
        let word = settled::see(&self.handover().word);
        if word & FULFILLED != 0 {
            Some(Settlement::Fulfilled)
        } else if word & BROKEN != 0 {
            Some(Settlement::Broken)
        } else {
            None
        }
    }

    /// Registers a sleeper, which is woken when the promise is settled. If the promise is settled
    /// already, drops the sleeper and returns `false`.
    ///
    /// # Safety
    /// No other thread uses this half during the call. If the promise is not settled, no sleeper is
    /// registered.
    pub(super) unsafe fn register(&self, sleeper: Sleeper) -> bool {
        let handover = self.handover();
        // The promise's half may be reading the sleeper that was registered before.
        if twin!("registered-unasked": settled::see(&handover.word) != PENDING => false) {
            drop_contained(sleeper);
            return false;
        }
        // SAFETY: the word was 0, so the sleeper's place belongs to this half (I1, I3).
        unsafe { *handover.sleeper.exclusive() = Some(sleeper) };
        let registered = settled::register(&handover.word, PENDING, ASLEEP);
        if !registered {
            // SAFETY: the promise's half has settled a word without ASLEEP, so the sleeper's place
            // still belongs to this half (I3).
            drop_contained(unsafe { (*handover.sleeper.exclusive()).take() });
        }
        registered
    }

    /// Takes back the registered sleeper. Returns `None` if no sleeper is registered, or if the
    /// promise is settled.
    ///
    /// # Safety
    /// No other thread uses this half meanwhile.
    pub(super) unsafe fn withdraw(&self) -> Option<Sleeper> {
        let handover = self.handover();
        // The load and the swap need no ordering, because they take back a value that this half
        // itself has stored.
        if handover.word.load(Relaxed) != ASLEEP
            || handover.word.compare_exchange(ASLEEP, PENDING, Relaxed, Relaxed).is_err()
        {
            return None;
        }
        // SAFETY: the word lacks ASLEEP and was not settled, so the sleeper belongs to this half
        // (I3).
        unsafe { (*handover.sleeper.exclusive()).take() }
    }

    /// Gives the half up, and returns the value if there is one.
    pub(super) fn leave(self) -> Option<T> {
        let at = ManuallyDrop::new(self).0;
        // SAFETY: this half is consumed, so the call is its last use.
        unsafe { leave(at) }
    }
}

/// Leaves, as the [protocol](self) says, and returns the value if there is one.
///
/// # Safety
/// The caller is the waiter's half, and does not use the allocation after this call.
unsafe fn leave<T>(at: NonNull<Handover<T>>) -> Option<T> {
    let half = ManuallyDrop::new(WaiterHalf(at));
    // SAFETY: this thread alone uses the half.
    let own = unsafe { half.withdraw() };
    let handover = half.handover();
    // SAFETY: called once, after the promise was settled as fulfilled (I2).
    let take = || unsafe { (*handover.value.moved_out()).assume_init_read() };
    let (value, is_last) = match settled::see(&handover.word) {
        PENDING => match last_used::abandon(&handover.word, ABANDONED) {
            PENDING => (None, false),
            // No sleeper is registered, so the promise's half has not used the allocation since it
            // settled.
            word => ((word & FULFILLED != 0).then(take), true),
        },
        word => {
            // The value is read before ABANDONED is added, because the promise's half may free the
            // allocation after that.
            let value = (word & FULFILLED != 0).then(take);
            let asked = twin!("freed-unasked": word & ASLEEP != 0 => false);
            let kept = asked && last_used::abandon(&handover.word, ABANDONED) & ASLEEP != 0;
            (value, !kept)
        }
    };
    if is_last {
        // SAFETY: the promise's half no longer uses the allocation (I4).
        unsafe { free(at) };
    }
    if own.is_some() {
        drop_contained(own);
    }
    value
}

impl<T> Drop for WaiterHalf<T> {
    fn drop(&mut self) {
        // SAFETY: the drop is this half's last use. The value is dropped last, because its drop may
        // panic.
        drop(unsafe { leave(self.0) });
    }
}
