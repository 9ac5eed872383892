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
//! - I3: an observer that sleeps has found that its next put is not due (`Words::is_due`) after it
//!   announced itself in the mirror's wait queue (words::I5). A task of the observer stays in the
//!   queue until a notification, until its future is dropped, or until the observer is dropped.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::task::{Poll, Waker, ready};
use std::time::Instant;

use crate::base::sync::now;
use crate::errors::ObserveError;
use crate::observe::mirror::MirrorHandle;
use crate::observe::words::{PUT, Plain, SlotRead, Words};
use crate::ring::helper;
use crate::ring::task_budget::TaskBudget;
use crate::ring::words::ahead;
use crate::wait::{
    Condition, HandleLearner, KeepWaiting, Wait, WaitOptions, WaitStrategy, wait_until,
};

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
/// back the cache lines that the observer loaded, and to wake the observer if it sleeps. An
/// observer that the writer overtakes skips the oldest quarter of the slots, because the next puts
/// overwrite these slots. It counts the values that it missed. At any time, the numbers of returned
/// values, of missed values, and of values [`behind`](Observer::behind) sum to the number of puts
/// since the observer's start.
///
/// | the observer wants | without waiting | waits | until a deadline | in a task |
/// |---|---|---|---|---|
/// | the next value | [`try_next`](Observer::try_next) | [`next`](Iterator::next) | [`next_by`](Observer::next_by) | [`next_async`](Observer::next_async) |
/// | the newest value | [`try_latest`](Observer::try_latest) | [`latest`](Observer::latest) | [`latest_by`](Observer::latest_by) | [`latest_async`](Observer::latest_async) |
///
/// A put wakes all threads and tasks that wait, and so does the mirror's drop. A mirror that a
/// stage fills closes when the stage ends, for whatever reason: no observer waits for a graph that
/// has ended, failed or was halted.
///
/// Do not wait for a value in a handler if that value can only come after the handler has returned:
/// in the mirror's own stage, in a stage before it, or on a thread that runs the mirror's stage in
/// turns with others ([`Chain::on`](crate::Chain::on),
/// [`Chain::run_inline`](crate::Chain::run_inline)). A mirror knows no graph, so such a wait is not
/// found, and does not end. A handler on shared threads ([`Chain::threads`](crate::Chain::threads))
/// may wait for another stage's mirror: its thread runs other stages meanwhile.
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
    /// The number of this observer's tasks in the wait queue; `None` before a task first waits.
    task: Option<u64>,
    budget: TaskBudget,
}

/// A call that reads a value without waiting: [`Observer::try_next`] or [`Observer::try_latest`].
pub(super) type Look<T> = fn(&mut Observer<T>) -> Result<Observed<T>, ObserveError>;

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
        Observer::at(mirror, next, next, Wait::ADAPTIVE)
    }

    /// Returns twice the number of newest puts that an overtaken observer does not skip (see
    /// `words::PUT`). It skips only the oldest quarter of the slots.
    fn kept(&self) -> u64 {
        let capacity = self.mirror.capacity();
        (capacity - capacity.div_ceil(4)).max(1) as u64 * PUT
    }

    /// Sets how a thread waits in [`next`](Iterator::next), [`latest`](Observer::latest) and the
    /// calls with a deadline. Default: [`Wait::ADAPTIVE`], as everywhere in the library. A timeout
    /// of the strategy ends [`latest`](Observer::latest), but not the iterator.
    ///
    /// The strategy also decides what the wait costs the mirror's writer. If it sleeps until it is
    /// woken, as the default and [`Wait::Blocking`] do in long waits, the next put makes one system
    /// call. With [`Wait::SLEEPING`], [`Wait::YIELDING`] or [`Wait::BusySpin`], the observer polls
    /// the mirror, and costs the writer the time to fetch the polled cache lines back.
    ///
    /// ```
    /// let mut mirror = slipring::Mirror::new(4)?;
    /// let mut observer = mirror.handle().observe().wait(slipring::Wait::SLEEPING);
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
    /// - [`ObserveError::Unavailable`]: there is no value that this observer has not returned.
    /// - [`ObserveError::Overrun`]: the writer overwrote each value that the call tried to read.
    /// - [`ObserveError::Closed`]: the mirror is closed, and has no value left.
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
    /// let newest = observer.try_latest().unwrap();
    /// assert_eq!((newest.value, newest.missed), (12, 2));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ObserveError::Unavailable`]: there is no value that this observer has not returned.
    /// - [`ObserveError::Overrun`]: the writer overwrote each value that the call tried to read.
    /// - [`ObserveError::Closed`]: the mirror is closed, and has no value left.
    pub fn try_latest(&mut self) -> Result<Observed<T>, ObserveError> {
        let newest = self.mirror.words.completed().wrapping_sub(PUT);
        if ahead(newest, self.next) > 0 {
            self.next = newest;
        }
        self.poll(PUT)
    }

    /// Returns the newest value. If this observer has returned it already, waits for the next one.
    ///
    /// The call skips older values, and counts them as missed. It waits as [`Observer::wait`] says.
    ///
    /// ```
    /// use slipring::errors::ObserveError;
    /// let mut mirror = slipring::Mirror::new(4)?;
    /// let mut observer = mirror.handle().observe();
    /// let writing = std::thread::spawn(move || {
    ///     for price in [10, 11, 12u64] { mirror.put(0, &price); }
    /// });
    /// let mut newest = 0;
    /// let end = loop {
    ///     match observer.latest() {
    ///         Ok(seen) => newest = seen.value,
    ///         Err(end) => break end,
    ///     }
    /// };
    /// assert_eq!((newest, end), (12, ObserveError::Closed));
    /// # writing.join().unwrap();
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ObserveError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`ObserveError::Closed`]: the mirror is closed, and has no value left.
    pub fn latest(&mut self) -> Result<Observed<T>, ObserveError> {
        self.wait_for(Observer::try_latest, None)
    }

    /// Returns the newest value as [`Observer::latest`] does, but waits at most until `deadline`.
    ///
    /// Example: [`Observer::next_by`].
    ///
    /// # Errors
    /// - [`ObserveError::TimedOut`]: `deadline` passed.
    /// - [`ObserveError::Closed`]: the mirror is closed, and has no value left.
    pub fn latest_by(&mut self, deadline: Instant) -> Result<Observed<T>, ObserveError> {
        self.wait_for(Observer::try_latest, Some(deadline))
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
    /// - [`ObserveError::TimedOut`]: `deadline` passed.
    /// - [`ObserveError::Closed`]: the mirror is closed, and has no value left.
    pub fn next_by(&mut self, deadline: Instant) -> Result<Observed<T>, ObserveError> {
        self.wait_for(Observer::try_next, Some(deadline))
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

    /// Waits until `look` finds a value or the end. Without a `deadline`, the timeout of the wait
    /// strategy ends the wait, too.
    fn wait_for(
        &mut self,
        look: Look<T>,
        deadline: Option<Instant>,
    ) -> Result<Observed<T>, ObserveError> {
        let found = look(self);
        if is_settled(&found) { found } else { self.wait_on(look, deadline) }
    }

    #[cold]
    #[inline(never)]
    fn wait_on(
        &mut self,
        look: Look<T>,
        deadline: Option<Instant>,
    ) -> Result<Observed<T>, ObserveError> {
        let timeout = || self.wait.timeout().and_then(|after| now().checked_add(after));
        let deadline = deadline.or_else(timeout);
        loop {
            let is_due = self.wait_until_due(deadline);
            let found = look(self);
            if is_settled(&found) {
                return found;
            }
            // The clock is read here, too, because a writer that laps this observer makes one put
            // due after another, and overwrites each of them before it is read.
            if !is_due || deadline.is_some_and(|deadline| now() >= deadline) {
                return Err(ObserveError::TimedOut);
            }
        }
    }

    /// Waits until the next put is due. Returns `false` if the time was up first.
    fn wait_until_due(&mut self, deadline: Option<Instant>) -> bool {
        #[cfg(all(test, slipring_loom))]
        let _asleep = crate::base::model_hooks::asleep("observer");
        let Observer { mirror, next, wait, learned, .. } = self;
        let words = &*mirror.words;
        let options = WaitOptions {
            wait,
            polls: 0,
            full_ring: None,
            queue: wait.parks().then_some(&words.queue as _),
            deadline,
            timeout: None,
        };
        let mut due = Due::<T> { words, next: *next, deadline, kind: PhantomData };
        wait_until(options, learned, &mut due).unmet.is_none()
    }

    /// Like `wait_for`, but for a task.
    pub(super) fn look_or_arm(
        &mut self,
        look: Look<T>,
        waker: &Waker,
    ) -> Poll<Result<Observed<T>, ObserveError>> {
        ready!(self.budget.spend(waker));
        for _ in 0..ATTEMPTS {
            let found = look(self);
            if is_settled(&found) {
                return Poll::Ready(found);
            }
            let (words, next) = (&self.mirror.words, self.next);
            let number = *self.task.get_or_insert_with(|| words.next_task());
            if !words.queue.arm(number, waker, &mut || words.is_due::<T>(next)) {
                self.budget.refill();
                return Poll::Pending;
            }
        }
        // The writer is faster than this task. Other tasks of the thread may run meanwhile.
        self.budget.refill();
        waker.wake_by_ref();
        Poll::Pending
    }
}

impl<T> Observer<T> {
    /// Makes an observer, which no task waits for.
    fn at(mirror: MirrorHandle<T>, next: u64, counted: u64, wait: Wait) -> Observer<T> {
        let learned = wait.learner().into();
        Observer { mirror, next, counted, wait, learned, task: None, budget: TaskBudget::default() }
    }

    /// Takes this observer's task out of the wait queue, if it waits there.
    pub(super) fn disarm(&self) {
        if let Some(number) = self.task {
            self.mirror.words.queue.disarm(number);
        }
    }
}

impl<T> Drop for Observer<T> {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// Returns whether a call has found a value or the end.
fn is_settled<T>(found: &Result<Observed<T>, ObserveError>) -> bool {
    !matches!(found, Err(ObserveError::Unavailable | ObserveError::Overrun))
}

/// The put that a waiting observer reads next, as the subject of its wait.
struct Due<'m, T> {
    words: &'m Words,
    /// Twice the index of the put (see `words::PUT`).
    next: u64,
    deadline: Option<Instant>,
    kind: PhantomData<T>,
}

impl<T> Condition for Due<'_, T> {
    fn is_ready(&mut self) -> bool {
        self.words.is_due::<T>(self.next)
    }

    /// If the waiting thread runs the stages of a graph, runs them meanwhile: one of them may be
    /// the mirror's writer.
    fn keep_waiting(&mut self) -> KeepWaiting {
        if helper::at(|_| true, |_| ()).is_none() {
            return ControlFlow::Continue(None);
        }
        let is_late = || self.deadline.is_some_and(|deadline| now() >= deadline);
        let step = || helper::at(|ring| helper::step(ring, self.deadline), |_| ()).is_some();
        while !self.words.is_due::<T>(self.next) && !is_late() && step() {}
        ControlFlow::Continue(Some(helper::LOOK_AGAIN))
    }
}

impl<T: Plain> Iterator for Observer<T> {
    type Item = Observed<T>;

    /// Waits for the next value. Returns `None` if the mirror is closed and drained.
    fn next(&mut self) -> Option<Observed<T>> {
        loop {
            match self.wait_for(Observer::try_next, None) {
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
        Observer::at(self.mirror.clone(), self.next, self.counted, self.wait.clone())
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
