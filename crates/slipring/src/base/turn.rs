//! A value that threads use in turns, without waiting for each other.
//!
//! Invariants
//! - I1: one thread at a time has the turn: the thread whose exchange took the word, until it gives
//!   the turn back. Only that thread uses the value.
//! - I2: a thread that finds the turn taken, and does not try again, leaves a mark. The thread that
//!   has the turn finds the mark when it gives the turn back, and then sees all that the marking
//!   thread had seen. So if a use of the value became possible meanwhile, one of the two threads
//!   knows of it.

use std::ops::{Deref, DerefMut};

use crate::base::edge::turn_taken;
use crate::base::guarded::Guarded;
use crate::base::sync::AtomicU32;

/// A value that threads use in turns.
pub(crate) struct InTurns<T> {
    word: AtomicU32,
    value: Guarded<T>,
}

// SAFETY: only one thread at a time uses the value (I1), and any thread may drop it.
unsafe impl<T: Send> Sync for InTurns<T> {}

impl<T> InTurns<T> {
    pub(crate) fn new(value: T) -> InTurns<T> {
        InTurns { word: AtomicU32::new(turn_taken::FREE), value: Guarded::new(value) }
    }

    /// Takes the turn. If another thread has the turn, marks that this thread wants it (I2), and
    /// returns `None`.
    #[inline]
    pub(crate) fn take(&self) -> Option<Turn<'_, T>> {
        self.begin(true)
    }

    /// Takes the turn. If another thread has the turn, returns `None` and leaves no mark, so the
    /// caller has to try again.
    #[inline]
    pub(crate) fn take_unmarked(&self) -> Option<Turn<'_, T>> {
        self.begin(false)
    }

    #[inline]
    fn begin(&self, marks: bool) -> Option<Turn<'_, T>> {
        if !turn_taken::take(&self.word, marks) {
            return None;
        }
        self.value.exclusive();
        Some(Turn { value: self })
    }
}

/// A turn at a value. Dropping it gives the turn back, and ignores the mark of another thread.
pub(crate) struct Turn<'a, T> {
    value: &'a InTurns<T>,
}

impl<T> Turn<'_, T> {
    /// Gives the turn back. Returns whether another thread has found the turn taken. If so, the
    /// caller checks again whether there is a use for the value (I2).
    #[inline]
    pub(crate) fn give_back(self) -> bool {
        let value = self.value;
        std::mem::forget(self);
        turn_taken::give_back(&value.word)
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        turn_taken::give_back(&self.value.word);
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this thread has the turn (I1).
        unsafe { &*self.value.value.unwatched() }
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the turn (I1), and the turn is borrowed mutably.
        unsafe { &mut *self.value.value.unwatched() }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_turn() {
        let value = InTurns::new(0);
        let mut turn = value.take().expect("free");
        *turn += 1;
        assert!(!turn.give_back(), "no other thread wanted it");
        let turn = value.take().expect("given back");
        assert!(value.take().is_none() && value.take().is_none());
        assert!(turn.give_back(), "marked");
        drop(value.take().expect("given back"));
        assert_eq!(*value.take().expect("dropped"), 1);
    }

    #[test]
    fn threads_that_take_turns_lose_no_change() {
        const TURNS: u32 = if cfg!(miri) { 50 } else { 10_000 };
        let value = InTurns::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut turns = 0;
                    while turns < TURNS {
                        match value.take() {
                            Some(mut turn) => {
                                (*turn, turns) = (*turn + 1, turns + 1);
                                turn.give_back();
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        assert_eq!(*value.take().expect("free"), 3 * TURNS);
    }
}
