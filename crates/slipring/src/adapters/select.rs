//! Waiting for several rings at once, and being woken by way of somebody else's event loop.

use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::base::sync::{Arc, Condvar, Mutex, lock, twin, whole};
use crate::consumer::handle::Consumer;
use crate::consumer::markers::sealed as lease;
use crate::consumer::waiting::Waiting;
use crate::producer::{Producer, sealed as producer};
use crate::ring::slots::Layout;

mod sealed {
    use std::time::Instant;

    pub trait Sealed {
        /// The deadline of the handle's graph.
        #[doc(hidden)]
        fn deadline(&self) -> Option<Instant>;
    }
}

/// A handle that may have something to do later: events for a consumer, room for a producer.
///
/// Sealed: the handles of this library are.
pub trait Waitable: sealed::Sealed {
    /// Has `waker` woken once, when it is worth looking again; unless it is now: then `true`, and
    /// nobody will wake it.
    ///
    /// Worth a look is progress, and the end, good or bad; the look may still find nothing, for
    /// others may be faster. A second call replaces the waker of the first. It is woken on the
    /// thread that made the progress, so it should be quick: an executor's waker, or one that
    /// writes to an eventfd. Where the graph's strategy does not park, nobody tells: the waker is
    /// woken at once.
    fn arm(&mut self, waker: &Waker) -> bool;
    /// Takes the waker back.
    fn disarm(&mut self);
    /// Whether progress wakes: whether the graph's strategy parks.
    fn wakes(&self) -> bool;
}

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> sealed::Sealed for Consumer<E, A, C, L> {
    fn deadline(&self) -> Option<Instant> {
        self.state().control().status.deadline()
    }
}
impl<E, A: lease::Access, C: lease::Delivery, L: Layout> Waitable for Consumer<E, A, C, L> {
    fn arm(&mut self, waker: &Waker) -> bool {
        self.position().arm(waker)
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
        self.arm_for_room(1, waker)
    }
    fn disarm(&mut self) {
        Producer::disarm(self);
    }
    fn wakes(&self) -> bool {
        self.core().control.plan.parks(self.core().control.producer_party())
    }
}

/// Waits for several handles, of one ring or of several, on one thread.
///
/// ```
/// use slipring::Selector;
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
    /// Where the next wait begins to look, so that a busy handle does not hide the others.
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

/// Where nobody wakes, this long between two looks.
const NAP: Duration = Duration::from_micros(50);

impl Selector {
    /// A selector; one for each thread that waits.
    pub fn new() -> Selector {
        Selector::default()
    }

    /// Waits until one of the handles is worth a look, and says which; they are favoured in turn.
    /// `None`: the deadline passed first, or there is no handle and no deadline.
    ///
    /// Sleeps until woken, if all graphs have strategies that park; else it looks every 50 µs. A
    /// graph whose own [deadline](crate::Graph::deadline) passes meanwhile fails, and its handle is
    /// worth a look then.
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
        // A graph whose deadline has passed fails when its handle is armed, and so is worth a look.
        let earliest = handles.iter().filter_map(|handle| handle.deadline()).chain(deadline).min();
        loop {
            // Before any handle is armed: from then on it may be woken.
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
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                handles.iter_mut().for_each(|handle| handle.disarm());
                return None;
            }
            let limit = earliest.map(|earliest| earliest.saturating_duration_since(Instant::now()));
            if wakes {
                self.park(limit);
            } else {
                std::thread::sleep(limit.unwrap_or(NAP).min(NAP));
            }
        }
    }

    fn park(&self, limit: Option<Duration>) {
        let mut woken = lock(&self.parked.woken);
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        while !*woken {
            woken = match until.map(|until| until.saturating_duration_since(Instant::now())) {
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

    /// Wakes at once when it is armed, and is ready the second time, if that is before the limit.
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

    /// Handles keep no waker of a wait that is over.
    #[test]
    fn a_wait_that_is_over_leaves_no_waker() {
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
