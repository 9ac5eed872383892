//! Observers of a mirror: they see what they can, are told exactly what they missed, and hold
//! nobody up.
//!
//! Invariants
//! - I1: an observer's position passes a put when it gives it out, or to count it as missed:
//!   between two values that it gives out it counts every other put, and before it says *closed* it
//!   has given out the last one.
//! - I2: it passes over a put only where that is overwritten (mirror::I2) or was asked to be
//!   skipped, and never beyond what is put.

use std::fmt;
use std::time::Instant;

use crate::observe::mirror::{Found, MirrorHandle, PUT, Plain};
use crate::ring::words::ahead;
use crate::wait::queue::WaitQueue;
use crate::wait::{HandleLearner, Wait, WaitOptions, WaitStrategy, wait_until};

/// How often one look starts again because the writer overtook it.
const ATTEMPTS: usize = if cfg!(slipring_loom) { 2 } else { 16 };

/// A value that an [`Observer`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen<T> {
    /// What was put with it: the event's position.
    pub seq: u64,
    /// How many values were put between the one that this observer saw before (or its beginning)
    /// and this one: exactly those it will never see. Positions at which nothing was put do not
    /// count.
    pub missed: u64,
    /// The value, whole.
    pub value: T,
}

/// Why an [`Observer`] saw nothing this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObserveError {
    /// Nothing new was put yet.
    Unavailable,
    /// The writer overwrote each value while it was being copied, several times in a row. Trying
    /// again may succeed at once; more slots help.
    Overrun,
    /// The deadline passed and nothing was seen.
    TimedOut,
    /// The mirror is closed, and everything in it was seen or missed. All later calls say the same.
    Closed,
}

impl fmt::Display for ObserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObserveError::Unavailable => "nothing new was put into the mirror yet",
            ObserveError::Overrun => "the mirror's writer is faster than its observer can copy: give the mirror more slots, or try again",
            ObserveError::TimedOut => "nothing was seen until the deadline",
            ObserveError::Closed => "the mirror is closed",
        })
    }
}

impl std::error::Error for ObserveError {}

/// Sees what is put into a [`Mirror`](crate::Mirror), as far as it keeps up; made by [`MirrorHandle`].
/// A clone goes on from the same place by itself.
///
/// Observers hold nobody up and cost the writer nothing but the lines that they look at. One that
/// comes too late goes on behind what may be overwritten next, a quarter of the slots (at least
/// one) after the oldest value, and is told how many it missed. All that it saw, all that it was
/// told it missed, and all it is still [`behind`](Observer::behind) add up to what was put since it
/// began.
///
/// As an iterator it waits for each value, and ends when the mirror is closed and all was seen:
///
/// ```
/// use slipring::Mirror;
/// # use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Quote { bid: f64, ask: f64 }
///
/// let mirror = Mirror::<Quote>::new(1024)?;
/// let quotes = mirror.mirrored().observe();
/// std::thread::scope(|s| {
///     let screen = s.spawn(|| quotes.map(|seen| { assert!(seen.value.bid < seen.value.ask); 1 + seen.missed }).sum::<u64>());
///     slipring::ring(64, || 1.0f64)
///         .observe("mirror", mirror, |mid| Quote { bid: mid - 0.1, ask: mid + 0.1 })
///         .feed(0..10_000, |slot, i| *slot = i as f64)?;
///     assert_eq!(screen.join().unwrap(), 10_000); // seen or missed
///     Ok::<(), slipring::Error>(())
/// })?;
/// # Ok::<(), slipring::Error>(())
/// ```
pub struct Observer<T> {
    mirrored: MirrorHandle<T>,
    /// The number of the put to look at next, doubled.
    next: u64,
    /// Behind the last one that was given out.
    counted: u64,
    wait: Wait,
    learned: HandleLearner,
}

impl<T: Plain> Observer<T> {
    pub(crate) fn new(mirrored: MirrorHandle<T>, next: u64) -> Observer<T> {
        Observer {
            mirrored,
            next,
            counted: next,
            wait: Wait::SLEEPING,
            learned: HandleLearner::default(),
        }
    }

    /// What it keeps of the newest when it was overtaken: all but a quarter of the slots.
    fn kept(&self) -> u64 {
        let capacity = self.mirrored.capacity();
        (capacity - capacity.div_ceil(4)).max(1) as u64 * PUT
    }

    /// How [`next`](Iterator::next) and [`next_by`](Observer::next_by) wait. Default:
    /// [`Wait::SLEEPING`].
    ///
    /// Nobody rings for an observer, since that would cost the writer something. Where a strategy
    /// would sleep until woken, it sleeps for 50 µs and looks again.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.learned = wait.learner().into();
        self.wait = wait;
        self
    }

    /// The next value, or, if that is overwritten, the oldest one that is not about to be. Never
    /// waits.
    ///
    /// # Errors
    /// [`ObserveError::Unavailable`], [`ObserveError::Overrun`] or [`ObserveError::Closed`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Seen<T>, ObserveError> {
        self.look(self.kept())
    }

    /// The newest value, if it was not seen yet; those it skips count as missed. Never waits. By
    /// the time that it is used, newer ones may be there.
    ///
    /// # Errors
    /// As [`Observer::try_next`].
    pub fn latest(&mut self) -> Result<Seen<T>, ObserveError> {
        let newest = self.mirrored.shared.completed().wrapping_sub(PUT);
        if ahead(newest, self.next) > 0 {
            self.next = newest;
        }
        self.look(PUT)
    }

    /// Waits for the next value, until the deadline at most.
    ///
    /// # Errors
    /// [`ObserveError::TimedOut`] or [`ObserveError::Closed`].
    pub fn next_by(&mut self, deadline: Instant) -> Result<Seen<T>, ObserveError> {
        self.wait_for(Some(deadline))
    }

    /// How many values this observer has neither seen nor been told of as missed; more by the time
    /// that it is used. Some of them may be overwritten already.
    pub fn behind(&self) -> u64 {
        ahead(self.mirrored.shared.completed(), self.counted).max(0) as u64 / PUT
    }

    /// A handle to make more observers of the same mirror.
    pub fn mirrored(&self) -> &MirrorHandle<T> {
        &self.mirrored
    }

    /// Looks at the next put. If that is overwritten, goes on so far behind the newest.
    #[inline]
    fn look(&mut self, kept: u64) -> Result<Seen<T>, ObserveError> {
        for _ in 0..ATTEMPTS {
            match self.mirrored.shared.find(self.next) {
                Found::Held(seq, value) => return Ok(self.see(seq, value)),
                Found::Nothing => match self.mirrored.shared.closed() {
                    None => return Err(ObserveError::Unavailable),
                    Some(puts) if puts == self.next => return Err(ObserveError::Closed),
                    Some(_) => {}
                },
                Found::Overwritten(newest) => {
                    let (onward, target) = (self.next.wrapping_add(PUT), newest.wrapping_sub(kept));
                    self.next = if ahead(target, onward) > 0 { target } else { onward };
                }
            }
        }
        Err(ObserveError::Overrun)
    }

    /// Gives out the value that this observer stands at, and counts what it did not give out before
    /// it (I1).
    #[inline]
    fn see(&mut self, seq: u64, value: T) -> Seen<T> {
        let missed = self.next.wrapping_sub(self.counted) / PUT;
        self.next = self.next.wrapping_add(PUT);
        self.counted = self.next;
        Seen { seq, missed, value }
    }

    fn wait_for(&mut self, deadline: Option<Instant>) -> Result<Seen<T>, ObserveError> {
        let mut looked = self.try_next();
        let settled = |looked: &Result<_, _>| {
            !matches!(looked, Err(ObserveError::Unavailable | ObserveError::Overrun))
        };
        if settled(&looked) {
            return looked;
        }
        let (wait, mut learned) = (self.wait.clone(), std::mem::take(&mut self.learned));
        let site = WaitOptions {
            wait: &wait,
            oversubscribed: false,
            parks: false,
            queue: &WaitQueue::new(),
            deadline,
            timeout: deadline.map_or(wait.timeout(), |_| None),
        };
        let (in_time, _) = wait_until(site, &mut learned, &mut || true, &mut || {
            looked = self.try_next();
            settled(&looked)
        });
        self.learned = learned;
        if in_time { looked } else { Err(ObserveError::TimedOut) }
    }
}

impl<T: Plain> Iterator for Observer<T> {
    type Item = Seen<T>;

    /// Waits for the next value; `None`: the mirror is closed, and all was seen or missed.
    fn next(&mut self) -> Option<Seen<T>> {
        loop {
            match self.wait_for(None) {
                // The strategy's own.
                Err(ObserveError::TimedOut) => {}
                seen => return seen.ok(),
            }
        }
    }
}

impl<T> Clone for Observer<T> {
    fn clone(&self) -> Self {
        Observer {
            mirrored: self.mirrored.clone(),
            next: self.next,
            counted: self.counted,
            wait: self.wait.clone(),
            learned: self.wait.learner().into(),
        }
    }
}

impl<T> fmt::Debug for Observer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("capacity", &self.mirrored.shared.capacity())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;
    use crate::observe::mirror::Mirror;

    #[test]
    fn counts_wrap() {
        let _watched = crate::watchdog::watched();
        for capacity in [1, 2, 8] {
            for before in 0..2 * capacity as u64 {
                let mut mirror =
                    Mirror::<u64>::starting_at(capacity, 0u64.wrapping_sub(before * PUT)).unwrap();
                let (mut close, mut far) =
                    (mirror.mirrored().observe(), mirror.mirrored().observe_from_oldest());
                assert_eq!(close.try_next(), Err(ObserveError::Unavailable));
                let puts = 3 * capacity as u64;
                for i in 0..puts {
                    mirror.put(i, &!i);
                    assert_eq!(close.try_next(), Ok(Seen { seq: i, missed: 0, value: !i }));
                    let held = mirror.mirrored().observe_from_oldest();
                    assert_eq!(held.behind(), (i + 1).min(capacity as u64));
                }
                let mut left = far.behind();
                assert_eq!(left, puts);
                drop(mirror);
                for seen in far.by_ref() {
                    left -= seen.missed + 1;
                    assert_eq!((seen.seq, seen.value), (puts - left - 1, !seen.seq));
                }
                assert_eq!(
                    (left, far.try_next(), close.try_next()),
                    (0, Err(ObserveError::Closed), Err(ObserveError::Closed))
                );
            }
        }
    }

    #[test]
    fn whoever_is_overtaken_keeps_all_but_a_quarter() {
        let _watched = crate::watchdog::watched();
        for (capacity, kept) in [(1, 1), (2, 1), (4, 3), (8, 6), (1024, 768)] {
            let mut mirror = Mirror::<()>::new(capacity).unwrap();
            let mut observer = mirror.mirrored().observe();
            let puts = capacity as u64 + 1;
            (0..puts).for_each(|i| mirror.put(i, &()));
            assert_eq!(observer.try_next().unwrap().missed, puts - kept, "{capacity}");
        }
    }
}
