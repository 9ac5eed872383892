//! Threads take turns at a value. All that a thread does in its turn happens before the next turn
//! begins.

use crate::base::sync::{AcqRel, Acquire, AtomicU32, Relaxed, Release, twin};

/// No thread has the turn.
pub(crate) const FREE: u32 = 0;
/// A thread has the turn.
const TAKEN: u32 = 1;
/// A thread has the turn, and since it took the turn, another thread has found the turn taken.
const WANTED: u32 = 2;

/// Takes the turn, before the value is used. If another thread has the turn, returns `false`, and
/// marks the turn as wanted if the caller `marks`. The thread that ends the turn then also sees all
/// that the caller had seen before the mark.
#[inline]
pub(crate) fn take(word: &AtomicU32, marks: bool) -> bool {
    let mut seen = word.load(Relaxed);
    loop {
        let (next, order) = match seen {
            FREE => (TAKEN, twin!("turn-unacquired": Acquire => Relaxed)),
            _ => (WANTED, twin!("want-unreleased": Release => Relaxed)),
        };
        if next == WANTED && !twin!("want-unmarked": marks => false) {
            return false;
        }
        // The store of the mark releases all that the caller has seen, so the caller stores the
        // mark even if the word is already marked.
        match word.compare_exchange(seen, next, order, Relaxed) {
            Ok(_) => return next == TAKEN,
            Err(now) => seen = now,
        }
    }
}

/// Ends the turn, after the value was used. Returns whether another thread has found the turn
/// taken.
#[inline]
pub(crate) fn give_back(word: &AtomicU32) -> bool {
    let order = twin!("turn-unreleased": AcqRel => Acquire);
    let order = twin!("want-unacquired": order => Release);
    word.swap(FREE, order) == WANTED
}
