//! An observer reads a mirror without holding up any thread, and counts exactly the values that it
//! missed.
//!
//! Invariants
//! - I1: an observer moves past a put by returning the put's value, or by counting the put as
//!   missed. The puts between two returned values are all counted. If any put follows the
//!   observer's start, the observer returns the last put's value before it reports
//!   [`ObserveError::Closed`].
//! - I2: an observer skips puts only if the put that it reads next was overwritten (words::I2), or
//!   if the caller asks for the newest value. Its position never goes beyond the last put.

use std::fmt;
use std::time::Instant;

use crate::errors::ObserveError;
use crate::observe::mirror::MirrorHandle;
use crate::observe::words::{PUT, Plain, SlotRead};
use crate::ring::words::ahead;
use crate::wait::{HandleLearner, Wait, WaitOptions, WaitStrategy, wait_until};

/// Maximum number of reads in one poll.
const ATTEMPTS: usize = if cfg!(slipring_loom) { 2 } else { 16 };

/// A value that an [`Observer`] read from its mirror.
///
/// Example: [`Observer::try_next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed<T> {
    /// The number that was put with the value, usually the position of the value's event.
    pub seq: u64,
    /// Number of values that the observer skipped since the previously returned value, or since the
    /// observer's start.
    pub missed: u64,
    /// The value, whole.
    pub value: T,
}

/// Reads the values of a [`Mirror`](crate::Mirror), as far as the observer keeps up with the
/// writer.
///
/// A [`MirrorHandle`] creates observers. A clone of an observer starts at the same position, and
/// then advances independently.
///
/// An observer holds up neither the writer nor the ring. It costs the writer only the time to fetch
/// back the cache lines that the observer loaded. An observer that the writer overtakes skips the
/// oldest quarter of the slots, because the next puts overwrite these slots. It counts the values
/// that it missed. At any time, the numbers of returned values, of missed values, and of values
/// [`behind`](Observer::behind) sum to the number of puts since the observer's start.
///
/// As an iterator, an observer waits for each value, and ends when the mirror is closed and
/// drained:
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
/// let quotes = mirror.handle().observe();
/// std::thread::scope(|s| {
///     let screen = s.spawn(|| quotes.map(|quote| {
///         assert!(quote.value.bid < quote.value.ask);
///         1 + quote.missed
///     }).sum::<u64>());
///     slipring::ring(64, || 1.0f64)
///         .observe("mirror", mirror, |mid| Quote { bid: mid - 0.1, ask: mid + 0.1 })
///         .feed(0..10_000, |slot, i| *slot = i as f64)?;
///     assert_eq!(screen.join().unwrap(), 10_000); // returned or missed
///     Ok::<(), slipring::Error>(())
/// })?;
/// # Ok::<(), slipring::Error>(())
/// ```
pub struct Observer<T> {
    mirror: MirrorHandle<T>,
    /// Twice the index of the put to read next (see `words::PUT`).
    next: u64,
    /// Twice the index of the first put that is neither returned nor counted as missed (see
    /// `words::PUT`).
    counted: u64,
    wait: Wait,
    learned: HandleLearner,
}

impl<T: Plain> MirrorHandle<T> {
    /// Creates an observer of all later puts. The observer returns each put or counts the put as
    /// missed.
    ///
    /// Example: [`MirrorHandle`].
    #[doc(alias = "subscribe")]
    pub fn observe(&self) -> Observer<T> {
        Observer::new(self.clone(), self.words.completed())
    }

    /// Creates an observer that begins at the oldest value that the mirror holds.
    ///
    /// The mirror holds at most the `capacity` newest values. If the writer overwrites a value
    /// before the observer reads it, the value counts as missed.
    ///
    /// Example: [`MirrorHandle`].
    pub fn observe_from_oldest(&self) -> Observer<T> {
        Observer::new(self.clone(), self.words.oldest())
    }
}

impl<T: Plain> Observer<T> {
    fn new(mirror: MirrorHandle<T>, next: u64) -> Observer<T> {
        Observer {
            mirror,
            next,
            counted: next,
            wait: Wait::SLEEPING,
            learned: HandleLearner::default(),
        }
    }

    /// Returns twice the number of newest puts that an overtaken observer does not skip (see
    /// `words::PUT`). It skips only the oldest quarter of the slots.
    fn kept(&self) -> u64 {
        let capacity = self.mirror.capacity();
        (capacity - capacity.div_ceil(4)).max(1) as u64 * PUT
    }

    /// Sets how [`next`](Iterator::next) and [`next_by`](Observer::next_by) wait. Default:
    /// [`Wait::SLEEPING`].
    ///
    /// The writer notifies no observer, because a notification would cost every put. If the wait
    /// strategy would sleep until it is woken, the observer sleeps for 50 µs and polls again.
    ///
    /// ```
    /// let mut mirror = slipring::Mirror::new(4)?;
    /// let mut observer = mirror.handle().observe().wait(slipring::Wait::YIELDING);
    /// mirror.put(0, &7u64);
    /// drop(mirror);
    /// assert_eq!(observer.next().map(|next| next.value), Some(7));
    /// assert!(observer.next().is_none());
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn wait(mut self, wait: Wait) -> Self {
        self.learned = wait.learner().into();
        self.wait = wait;
        self
    }

    /// Returns the next value. If the next value is overwritten, skips the oldest quarter of the
    /// slots. Never waits.
    ///
    /// Costs one load per 8 bytes of the value, one load of the number `seq`, and two loads of the
    /// slot's version word.
    ///
    /// ```
    /// use slipring::errors::ObserveError;
    /// let mut mirror = slipring::Mirror::new(4)?;
    /// let mut observer = mirror.handle().observe();
    /// assert_eq!(observer.try_next(), Err(ObserveError::Unavailable));
    /// mirror.put(10, &1.5f64);
    /// let observed = observer.try_next().unwrap();
    /// assert_eq!((observed.seq, observed.value, observed.missed), (10, 1.5, 0));
    /// drop(mirror);
    /// assert_eq!(observer.try_next(), Err(ObserveError::Closed));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ObserveError::Unavailable`], [`ObserveError::Overrun`] or [`ObserveError::Closed`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Observed<T>, ObserveError> {
        self.poll(self.kept())
    }

    /// Returns the newest value, unless this observer has returned it already. Never waits.
    ///
    /// The call skips older values, and counts them as missed. The writer may put newer values
    /// during the call.
    ///
    /// ```
    /// let mut mirror = slipring::Mirror::new(4)?;
    /// let mut observer = mirror.handle().observe();
    /// for price in [10, 11, 12u64] { mirror.put(0, &price); }
    /// let newest = observer.latest().unwrap();
    /// assert_eq!((newest.value, newest.missed), (12, 2));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Observer::try_next`].
    pub fn latest(&mut self) -> Result<Observed<T>, ObserveError> {
        let newest = self.mirror.words.completed().wrapping_sub(PUT);
        if ahead(newest, self.next) > 0 {
            self.next = newest;
        }
        self.poll(PUT)
    }

    /// Returns the next value as [`Observer::try_next`] does, but waits at most until `deadline`.
    ///
    /// ```
    /// use slipring::errors::ObserveError;
    /// use std::time::{Duration, Instant};
    /// let mut mirror = slipring::Mirror::new(4)?;
    /// let mut observer = mirror.handle().observe();
    /// mirror.put(0, &1u64);
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(observer.next_by(soon).unwrap().value, 1);
    /// assert_eq!(observer.next_by(soon), Err(ObserveError::TimedOut));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ObserveError::TimedOut`] or [`ObserveError::Closed`].
    pub fn next_by(&mut self, deadline: Instant) -> Result<Observed<T>, ObserveError> {
        self.wait_for(Some(deadline))
    }

    /// Returns the number of values that this observer has neither returned nor counted as missed.
    /// Values that the writer has overwritten are included. Each put raises the number by one.
    ///
    /// ```
    /// let mut mirror = slipring::Mirror::new(4)?;
    /// let observer = mirror.handle().observe();
    /// for price in [10, 11u64] { mirror.put(0, &price); }
    /// assert_eq!(observer.behind(), 2);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn behind(&self) -> u64 {
        ahead(self.mirror.words.completed(), self.counted).max(0) as u64 / PUT
    }

    /// Returns a handle that creates more observers of this observer's mirror.
    ///
    /// Example: [`MirrorHandle`].
    pub fn handle(&self) -> &MirrorHandle<T> {
        &self.mirror
    }

    /// Reads the next put. If that put is overwritten, continues with the newest puts. `kept` is
    /// twice the number of newest puts that the observer does not skip (see `words::PUT`).
    #[inline]
    fn poll(&mut self, kept: u64) -> Result<Observed<T>, ObserveError> {
        for _ in 0..ATTEMPTS {
            match self.mirror.words.read(self.next) {
                SlotRead::Value(seq, value) => return Ok(self.accept(seq, value)),
                SlotRead::NotYet => match self.mirror.words.closed() {
                    None => return Err(ObserveError::Unavailable),
                    Some(puts) if puts == self.next => return Err(ObserveError::Closed),
                    Some(_) => {}
                },
                SlotRead::Overwritten(newest) => {
                    let (onward, target) = (self.next.wrapping_add(PUT), newest.wrapping_sub(kept));
                    self.next = if ahead(target, onward) > 0 { target } else { onward };
                }
            }
        }
        Err(ObserveError::Overrun)
    }

    /// Moves past the value that this observer has read, and counts the missed values before that
    /// value (I1).
    #[inline]
    fn accept(&mut self, seq: u64, value: T) -> Observed<T> {
        let missed = self.next.wrapping_sub(self.counted) / PUT;
        self.next = self.next.wrapping_add(PUT);
        self.counted = self.next;
        Observed { seq, missed, value }
    }

    fn wait_for(&mut self, deadline: Option<Instant>) -> Result<Observed<T>, ObserveError> {
        let mut polled = self.try_next();
        let settled = |polled: &Result<_, _>| {
            !matches!(polled, Err(ObserveError::Unavailable | ObserveError::Overrun))
        };
        if settled(&polled) {
            return polled;
        }
        let (wait, mut learned) = (self.wait.clone(), std::mem::take(&mut self.learned));
        let site = WaitOptions {
            wait: &wait,
            polls: 0,
            full_ring: None,
            queue: None,
            deadline,
            timeout: deadline.map_or(wait.timeout(), |_| None),
        };
        let (ended, _) = wait_until(site, &mut learned, &mut || {
            polled = self.try_next();
            settled(&polled)
        });
        self.learned = learned;
        if ended.is_ok() { polled } else { Err(ObserveError::TimedOut) }
    }
}

impl<T: Plain> Iterator for Observer<T> {
    type Item = Observed<T>;

    /// Waits for the next value. Returns `None` if the mirror is closed and drained.
    fn next(&mut self) -> Option<Observed<T>> {
        loop {
            match self.wait_for(None) {
                // `next` has no deadline, so `next` keeps waiting after the wait strategy's
                // timeout.
                Err(ObserveError::TimedOut) => {}
                polled => return polled.ok(),
            }
        }
    }
}

impl<T> Clone for Observer<T> {
    fn clone(&self) -> Self {
        Observer {
            mirror: self.mirror.clone(),
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
            .field("capacity", &self.mirror.words.capacity())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;
    use crate::observe::mirror::Mirror;

    #[test]
    fn put_counts_wrap_around() {
        let _watched = crate::watchdog::watched();
        for capacity in [1, 2, 8] {
            for before in 0..2 * capacity as u64 {
                let mut mirror =
                    Mirror::<u64>::starting_at(capacity, 0u64.wrapping_sub(before * PUT), false)
                        .unwrap();
                let (mut close, mut far) =
                    (mirror.handle().observe(), mirror.handle().observe_from_oldest());
                assert_eq!(close.try_next(), Err(ObserveError::Unavailable));
                let puts = 3 * capacity as u64;
                for i in 0..puts {
                    mirror.put(i, &!i);
                    assert_eq!(close.try_next(), Ok(Observed { seq: i, missed: 0, value: !i }));
                    let held = mirror.handle().observe_from_oldest();
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
    fn an_overtaken_observer_keeps_all_but_a_quarter() {
        let _watched = crate::watchdog::watched();
        for (capacity, kept) in [(1, 1), (2, 1), (4, 3), (8, 6), (1024, 768)] {
            let mut mirror = Mirror::<()>::new(capacity).unwrap();
            let mut observer = mirror.handle().observe();
            let puts = capacity as u64 + 1;
            (0..puts).for_each(|i| mirror.put(i, &()));
            assert_eq!(observer.try_next().unwrap().missed, puts - kept, "{capacity}");
        }
    }
}
