//! Small numbers for threads, by which a table finds what belongs to the current thread. A thread
//! also remembers where it has found it last, because the way through a table takes longer than a
//! publication.
//!
//! Invariants
//! - I1: no two threads have the same number at the same time. A thread that asks for its number
//!   gets the least free one, and keeps it until its thread-locals are destroyed.
//! - I2: the next owner of a number sees all that the earlier owner did while it had the number
//!   (`edge::number_returned`).
//! - I3: once a thread has given its number back, it has none. So a destructor of another
//!   thread-local, which may run later, finds no number instead of another thread's.
//! - I4: a thread remembers an address only while it has its number, and under a ticket that was
//!   drawn once. So a table that finds its own ticket has itself stored the address, for this
//!   thread.
//! - I5: taking a number and giving it back allocate nothing and wait for no thread, so that an
//!   allocator, a panic hook or a signal handler may ask for its thread's number.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::ptr;

use crate::base::edge::number_returned;
use crate::base::sync::{
    AtomicU64, Relaxed, Static, Statistic, modelled_static, per_modelled_thread,
};

/// Number of words of [`Numbers`].
const WORDS: usize = if cfg!(slipring_loom) { 1 } else { 64 };
/// Number of threads that can have a number at the same time.
pub(crate) const LIMIT: usize = WORDS * 64;

/// Stands in [`NUMBER`] for a thread that has not asked for its number yet.
const UNKNOWN: usize = usize::MAX;
/// Stands in [`NUMBER`] for a thread that has given its number back.
const GIVEN_BACK: usize = usize::MAX - 1;

/// The numbers that threads have: one bit each.
struct Numbers([AtomicU64; WORDS]);

impl Numbers {
    #[cfg(not(slipring_loom))]
    const fn new() -> Numbers {
        Numbers([const { AtomicU64::new(0) }; WORDS])
    }

    #[cfg(slipring_loom)]
    fn new() -> Numbers {
        Numbers([AtomicU64::new(0)])
    }

    /// Takes the least free number. Returns `None` if [`LIMIT`] threads have one.
    fn take(&self) -> Option<usize> {
        self.0.iter().enumerate().find_map(|(i, word)| {
            number_returned::take_lowest(word).map(|bit| i * 64 + bit as usize)
        })
    }

    fn give_back(&self, number: usize) {
        number_returned::give_back(&self.0[number / 64], 1 << (number % 64));
    }
}

/// Returns the numbers of this process's threads.
fn numbers() -> Static<Numbers> {
    modelled_static!(Numbers = Numbers::new())
}

per_modelled_thread! {
    /// The thread's number, [`UNKNOWN`] or [`GIVEN_BACK`].
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    /// The address that the thread has found last, and the ticket of its table, or 0.
    static FOUND: Cell<(u64, *const ())> = const { Cell::new((0, ptr::null())) };
    /// Gives the number back when the thread ends.
    static OWNED: Owned = const { Owned(Cell::new(None)) };
}

/// A thread's number, and where it goes back.
struct Owned(Cell<Option<(Static<Numbers>, usize)>>);

impl Drop for Owned {
    fn drop(&mut self) {
        // In this order: I3, I4. In a model, these thread-locals are gone already.
        _ = FOUND.try_with(|found| found.set((0, ptr::null())));
        _ = NUMBER.try_with(|number| number.set(GIVEN_BACK));
        if let Some((numbers, number)) = self.0.take() {
            numbers.give_back(number);
        }
    }
}

/// Draws a table's ticket.
pub(crate) fn ticket() -> NonZeroU64 {
    static DRAWN: Statistic = Statistic::new(0);
    NonZeroU64::MIN.saturating_add(DRAWN.fetch_add(1, Relaxed))
}

/// Returns the address that this thread remembers for the table with this ticket.
#[inline(always)]
pub(crate) fn found(ticket: NonZeroU64) -> Option<*const ()> {
    let (own, address) = FOUND.try_with(Cell::get).map_or((0, ptr::null()), |found| found);
    (own == ticket.get()).then_some(address)
}

/// Remembers an address until this thread gives its number back, or remembers another address. The
/// thread has a number.
pub(crate) fn remember(ticket: NonZeroU64, address: *const ()) {
    debug_assert!(of_this_thread().is_some(), "I4");
    _ = FOUND.try_with(|found| found.set((ticket.get(), address)));
}

/// Returns the number of the current thread, which is less than [`LIMIT`]. Returns `None` if too
/// many threads have a number, or if this thread is ending.
pub(crate) fn of_this_thread() -> Option<usize> {
    match NUMBER.try_with(Cell::get).map_or(GIVEN_BACK, |number| number) {
        GIVEN_BACK => return None,
        UNKNOWN => {}
        number => return Some(number),
    }
    // The destructor is registered before the number is taken, so that no number is lost.
    let taken = OWNED.try_with(|owned| {
        let (numbers, number) = (numbers(), numbers().take()?);
        owned.0.set(Some((numbers, number)));
        _ = NUMBER.try_with(|own| own.set(number));
        Some(number)
    });
    taken.unwrap_or_default()
}

#[cfg(all(test, not(any(slipring_loom, slipring_coherence))))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn a_number_has_one_owner_at_a_time() {
        let numbers = Numbers::new();
        assert!((0..LIMIT).all(|number| numbers.take() == Some(number)));
        assert_eq!(numbers.take(), None, "each number has an owner");
        [5, 100, 7].into_iter().for_each(|number| numbers.give_back(number));
        assert_eq!([(); 4].map(|()| numbers.take()), [Some(5), Some(7), Some(100), None]);
    }

    /// Other tests take and give back numbers meanwhile.
    #[test]
    fn threads_have_different_numbers_until_they_end() {
        let all = Barrier::new(8);
        let own = thread::scope(|scope| {
            let ask = || {
                let own = of_this_thread().expect("fewer than `LIMIT` threads");
                all.wait();
                assert_eq!(of_this_thread(), Some(own));
                own
            };
            let threads = [(); 8].map(|()| scope.spawn(ask));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let mut distinct = own.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 8, "{own:?}");
    }

    /// Asks for the number when it is dropped.
    struct Last(Cell<Option<usize>>, std::sync::mpsc::Sender<(Option<usize>, Option<usize>)>);

    impl Drop for Last {
        fn drop(&mut self) {
            _ = self.1.send((self.0.get(), of_this_thread()));
        }
    }

    thread_local! {
        static LAST: Cell<Option<Last>> = const { Cell::new(None) };
    }

    #[test]
    fn a_destructor_finds_the_own_number_or_none() {
        for asks_first in [false, true] {
            let (tx, rx) = std::sync::mpsc::channel();
            thread::spawn(move || {
                let before = || asks_first.then(of_this_thread).flatten();
                let known = before();
                LAST.set(Some(Last(Cell::new(known), tx)));
                let known = of_this_thread();
                LAST.with(|last| {
                    let own = last.take().expect("just set");
                    own.0.set(known);
                    last.set(Some(own));
                });
            })
            .join()
            .expect("no panic");
            let (known, found) = rx.recv().expect("the destructor ran");
            assert!(known.is_some());
            assert!(found.is_none() || found == known, "{found:?} instead of {known:?}");
        }
    }
}
