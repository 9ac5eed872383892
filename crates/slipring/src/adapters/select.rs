//! One thread, or an event loop outside the library, waits for several handles.

use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::base::sync::{Arc, Condvar, Mutex, lock, now, sleep, twin, whole};
use crate::consumer::handle::Consumer;
use crate::consumer::markers::sealed as lease;
use crate::consumer::waiting::Waiting;
use crate::producer::{Producer, sealed as producer};
use crate::ring::slots::Layout;

mod sealed {
    use std::time::Instant;

    pub trait Sealed {
        /// Returns the deadline of the handle's graph.
        #[doc(hidden)]
        fn deadline(&self) -> Option<Instant>;
    }
}

/// A handle that can wake a [`Waker`] when a call on it may succeed: a consumer when events may be
/// available, a producer when slots may be free.
///
/// This trait is sealed: only handles of this library implement it.
///
/// ```
/// use slipring::tasks::Waitable;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::task::{Wake, Waker};
///
/// struct Flag(AtomicBool);
/// impl Wake for Flag {
///     fn wake(self: Arc<Self>) { self.0.store(true, Ordering::Release) }
/// }
///
/// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?; // its strategy parks
/// let flag = Arc::new(Flag(AtomicBool::new(false)));
/// assert!(!rx.arm(&flag.clone().into())); // no event yet
/// tx.publish(|slot| *slot = 1)?;
/// assert!(flag.0.load(Ordering::Acquire)); // woken by the publication
/// assert!(rx.arm(&flag.into())); // an event is there
/// rx.disarm();
/// assert!(rx.wakes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Waitable: sealed::Sealed {
    /// Registers `waker` to be woken once, when a call on the handle may succeed or the graph has
    /// ended. If a call may succeed already, or the graph has ended, returns `true` and registers
    /// no waker.
    ///
    /// After the wake-up, a call on this handle may still fail, because another handle may have
    /// taken the events or slots. A second call of `arm` replaces the waker of the first one.
    ///
    /// However often the program calls `arm`, each call says whether a call on the handle may
    /// succeed now. So a future of your own that does not return *pending* as long as `arm` returns
    /// `true` may starve the other tasks of its thread; the library's futures [do
    /// not](Consumer::batch_async).
    ///
    /// The waker runs on a thread that publishes events, releases slots or ends the graph. So a
    /// waker should be quick, as an executor's waker is, or a waker that writes to an eventfd. If
    /// the graph's wait strategy does not park, no thread notifies, and `arm` itself wakes the
    /// waker at once. The call costs a short lock of the wait queue.
    ///
    /// At a ring between processes, a thread of the library sleeps on behalf of all wakers of a
    /// queue, and the waker runs on that thread. `arm` then also checks for dead processes, as a
    /// call that finds nothing does, and returns `true` if the next call would return the error of
    /// a dead process.
    ///
    /// Example: [`Waitable`].
    fn arm(&mut self, waker: &Waker) -> bool;
    /// Removes the armed waker, if any.
    ///
    /// Example: [`Waitable`].
    fn disarm(&mut self);
    /// Returns whether a publication or a release wakes an armed waker. It does if the graph's wait
    /// strategy parks.
    ///
    /// Example: [`Waitable`].
    fn wakes(&self) -> bool;
}

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> sealed::Sealed for Consumer<E, A, C, L> {
    fn deadline(&self) -> Option<Instant> {
        self.state().control().status.deadline()
    }
}
impl<E, A: lease::Access, C: lease::Delivery, L: Layout> Waitable for Consumer<E, A, C, L> {
    fn arm(&mut self, waker: &Waker) -> bool {
        self.position().arm(waker) || self.hears_of_death()
    }
    fn disarm(&mut self) {
        self.position().disarm();
    }
    fn wakes(&self) -> bool {
        self.state().control().plan.parks(self.state().stage)
    }
}

impl<E, L: Layout, S: producer::Sharing> sealed::Sealed for Producer<E, L, S> {
    fn deadline(&self) -> Option<Instant> {
        self.core().control.status.deadline()
    }
}
impl<E, L: Layout, S: producer::Sharing> Waitable for Producer<E, L, S> {
    fn arm(&mut self, waker: &Waker) -> bool {
        self.arm_for_room(1, waker) || self.hears_of_death()
    }
    fn disarm(&mut self) {
        Producer::disarm(self);
    }
    fn wakes(&self) -> bool {
        self.core().control.plan.parks(self.core().control.plan.producer_party())
    }
}

/// Waits for several handles, of one ring or of several, on one thread.
///
/// A selector blocks its thread, so it is not for tasks: a task selects among futures.
///
/// ```
/// use slipring::tasks::Selector;
/// let (mut a, mut left) = slipring::unicast(8, || 0u32)?;
/// let (mut b, mut right) = slipring::unicast(8, String::new)?;
/// b.publish(|text| text.push_str("here"))?;
/// let mut selector = Selector::new();
/// match selector.wait(&mut [&mut left, &mut right], None) {
///     Some(0) => { left.poll(8, |_, _| ())?; }
///     Some(_) => { right.poll(8, |text, _| assert_eq!(text, "here"))?; }
///     None => unreachable!("no deadline was given"),
/// }
/// a.publish(|number| *number = 1)?;
/// assert_eq!(selector.wait(&mut [&mut left, &mut right], None), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Selector {
    parked: Arc<Parked>,
    /// Index of the handle that the next wait tries first, so that a busy handle does not starve
    /// the others.
    turn: usize,
}

#[derive(Debug, Default)]
struct Parked {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        *lock(&self.woken) = true;
        self.changed.notify_one();
    }
}

/// Time between two polls of the handles, if at least one of the graphs cannot wake the thread.
const NAP: Duration = Duration::from_micros(50);

impl Selector {
    /// Creates a selector. Each waiting thread needs a selector of its own.
    ///
    /// Example: [`Selector`].
    pub fn new() -> Selector {
        Selector::default()
    }

    /// Waits until a call on one of the handles may succeed. Returns the index of the ready handle.
    ///
    /// If several handles are ready, successive calls of `wait` return them in turn. The call
    /// returns `None` if no handle was ready before the deadline, or if the caller gave neither a
    /// handle nor a deadline.
    ///
    /// If the wait strategies of all graphs park, the thread sleeps until one of the handles wakes
    /// it; otherwise the thread polls every 50 µs. If a graph's own
    /// [deadline](crate::Graph::deadline) passes during the wait, that graph fails, and its handle
    /// counts as ready.
    ///
    /// Example: [`Selector`].
    pub fn wait(
        &mut self,
        handles: &mut [&mut dyn Waitable],
        deadline: Option<Instant>,
    ) -> Option<usize> {
        if handles.is_empty() && deadline.is_none() {
            return None;
        }
        let waker = Waker::from(self.parked.clone());
        let wakes = handles.iter().all(|handle| handle.wakes());
        // If the deadline of a handle's graph has passed, `arm` makes the graph fail, and returns
        // `true` (ready) for its handles.
        let earliest = handles.iter().filter_map(|handle| handle.deadline()).chain(deadline).min();
        loop {
            // `wait` resets the flag `woken` before it arms the handles, because a reset after the
            // arming could erase a handle's wake-up.
            twin!("woken-reset-late": *lock(&self.parked.woken) = false => ());
            let count = handles.len();
            let from = self.turn;
            let ready = (0..count).map(|i| (from + i) % count).find(|&i| handles[i].arm(&waker));
            twin!("woken-reset-late": () => *lock(&self.parked.woken) = false);
            if let Some(ready) = ready {
                self.turn = ready + 1;
                handles.iter_mut().for_each(|handle| handle.disarm());
                return Some(ready);
            }
            if deadline.is_some_and(|deadline| now() >= deadline) {
                handles.iter_mut().for_each(|handle| handle.disarm());
                return None;
            }
            let limit = earliest.map(|earliest| earliest.saturating_duration_since(now()));
            if wakes {
                self.park(limit);
            } else {
                sleep(limit.unwrap_or(NAP).min(NAP));
            }
        }
    }

    fn park(&self, limit: Option<Duration>) {
        let mut woken = lock(&self.parked.woken);
        let until = limit.and_then(|limit| now().checked_add(limit));
        while !*woken {
            woken = match until.map(|until| until.saturating_duration_since(now())) {
                None => whole(self.parked.changed.wait(woken)),
                Some(Duration::ZERO) => return,
                Some(left) => whole(self.parked.changed.wait_timeout(woken, left)).0,
            };
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// A handle that wakes its waker as soon as it is armed. From its second call on, `arm` reports
    /// the handle as ready, until the handle's time limit.
    struct Hasty(u32, Instant);

    impl sealed::Sealed for Hasty {
        fn deadline(&self) -> Option<Instant> {
            None
        }
    }
    impl Waitable for Hasty {
        fn arm(&mut self, waker: &Waker) -> bool {
            self.0 += 1;
            waker.wake_by_ref();
            self.0 > 1 && Instant::now() < self.1
        }
        fn disarm(&mut self) {}
        fn wakes(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_wake_up_while_handles_are_armed_is_not_lost() {
        let limit = Instant::now() + Duration::from_secs(20);
        assert_eq!(
            Selector::new().wait(&mut [&mut Hasty(0, limit)], Some(limit)),
            Some(0),
            "slept through a wake-up"
        );
    }

    #[test]
    fn handles_keep_no_waker_after_the_wait() {
        let (mut one, mut left) = crate::unicast(8, || 0u64).unwrap();
        let (_two, mut right) = crate::unicast(8, || 0u64).unwrap();
        let mut selector = Selector::new();
        let soon = Some(Instant::now());
        assert_eq!(selector.wait(&mut [&mut right, &mut left], soon), None);
        assert_eq!(Arc::strong_count(&selector.parked), 1, "after the deadline");
        one.publish(|_| ()).unwrap();
        assert_eq!(selector.wait(&mut [&mut right, &mut left], None), Some(1));
        assert_eq!(Arc::strong_count(&selector.parked), 1, "after another handle was ready");
    }
}
