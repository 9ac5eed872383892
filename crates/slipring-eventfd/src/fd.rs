//! The descriptor, and the waker that writes to it.
//!
//! Invariants
//! - I1: the descriptor never blocks, so a publisher never waits for the loop.
//! - I2: `signalled` is set before a write and reset after the read that takes it, never before. So
//!   who finds it set leaves the write to another one: that one has written and nobody has read, or
//!   is about to write, or the loop is between its read and its reset.
//! - I3: both setting and resetting are swaps that acquire and release. So a loop that resets knows
//!   whatever was done before any signal that it takes back, written or left out, and finds it when
//!   it looks.
//! - I4: wakers hold the descriptor weakly: they do nothing once its owner is gone.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, retry_on_intr, write};
use slipring::Waitable;

/// A descriptor that becomes readable when a ring is worth a look.
///
/// # The loop
///
/// 1. Handle what is there, until there is nothing.
/// 2. [`arm`](EventFd::arm). If it says `true`, look again: go back to 1.
/// 3. `epoll_wait`.
/// 4. [`clear`](EventFd::clear), and go back to 1.
///
/// ```
/// use rustix::event::epoll;
/// use slipring::WaitError;
/// use slipring_eventfd::EventFd;
///
/// let (mut tx, mut rx) = slipring::unicast(64, || 0u64)?;
/// let publisher = std::thread::spawn(move || (1..=1000).try_for_each(|i| tx.publish(|slot| *slot = i).map(drop)));
///
/// let ready = EventFd::new()?;
/// let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
/// epoll::add(&epoll, &ready, epoll::EventData::new_u64(7), epoll::EventFlags::IN)?;
///
/// let (mut sum, mut events) = (0, Vec::with_capacity(8));
/// 'ring: loop {
///     loop {
///         match rx.poll(64, |value, _| sum += value) {
///             Ok(0) => break, // nothing more for now
///             Ok(_) => {}
///             Err(WaitError::Closed) => break 'ring,
///             Err(other) => return Err(other.into()),
///         }
///     }
///     if ready.arm(&mut rx) {
///         continue; // something came meanwhile; nobody will signal it
///     }
///     // Here the loop sleeps, for sockets and timers too.
///     rustix::io::retry_on_intr(|| epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None))?;
///     for event in events.drain(..) {
///         if event.data.u64() == 7 {
///             ready.clear()?;
///         }
///     }
/// }
/// assert_eq!(sum, 500_500);
/// publisher.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What the loop sees
///
/// The descriptor is readable from the first signal until it is cleared. Each call of `arm` that
/// says `false` leads to one signal, at the next progress or at the end of the ring, and to no
/// more: what is published while nobody is armed does not touch the descriptor. A signal says
/// *look*, not *there is something*: another worker of the same pool may have been faster, and a
/// handle that was disarmed or dropped may have been signalled just before.
///
/// Level-triggered and edge-triggered loops do the same: wait for reading (`EPOLLIN`, `POLLIN`),
/// and at each report clear first, look then. A level-triggered loop that does not clear is told
/// again at once; an edge-triggered one is told once, and never again until it has cleared, for
/// signals that come before that are not written again.
///
/// Nobody but [`clear`](EventFd::clear) may read from the descriptor, and nobody write to it.
/// `poll(2)`, epoll, mio's `SourceFd` and tokio's `AsyncFd` do neither.
///
/// # Why no wake-up is lost
///
/// `arm` announces the waker at the ring, fences, and then looks. Whoever publishes stores the
/// event, fences, and then looks for announcements. So one of the two sees the other: either `arm`
/// finds the event and says `true`, or the publisher finds the waker and signals. A signal stays
/// until it is cleared, so it may come at any time before the loop waits, or while it does.
///
/// One order does lose a wake-up: to clear between arming and waiting. Clear first; the next `arm`
/// looks at all that was published until then, whatever the cleared signal was about.
///
/// # One descriptor or several
///
/// A descriptor for each ring tells the loop which ring to look at. One descriptor can also stand
/// for many handles: arm all of them with it, and after a signal clear it once, look at all, and
/// arm all again. Consumers and producers can be mixed. Those who signal while it is readable
/// already do not write again.
///
/// # What it costs
///
/// A signal is a `write`, a system call on the thread that made the progress: the publisher's, or
/// for a producer that waits for room the slowest stage's. It is paid once for each time the loop
/// is armed, and not at all while the loop finds events without sleeping. `arm` takes a lock of the
/// ring for a moment, so look first and arm when there is nothing.
///
/// # What it does not do
///
/// - Where the graph's strategy does not park (of the library's own
///   [`Adaptive`](slipring::Wait::Adaptive), the default, `Blocking` and the two
///   `Alternating…Block` do), nobody signals progress: `arm` signals at once, and the loop never
///   sleeps. [`Waitable::wakes`] tells.
/// - A graph's own `deadline` signals nobody. Wait with a timeout, or add a timer.
/// - At the end of a ring `arm` says `true` every time. Stop arming a handle whose calls say
///   [`WaitError`](slipring::WaitError).
///
/// # Dropping
///
/// Dropping it disarms whatever was armed with it: nobody signals any more, and the descriptor is
/// closed, at once or when a publisher who is signalling at that moment has done so; epoll forgets
/// it then. The handles can be armed with another one.
///
/// A handle may be dropped while it is armed. Its ring may keep the waker until its next progress
/// and signal for nothing then; disarm it first ([`Waitable::disarm`]) where that matters.
pub struct EventFd {
    counter: Arc<Counter>,
    /// Made once, so that arming allocates nothing.
    waker: Waker,
}

struct Counter {
    /// The kernel's counter: signals since it was last read.
    fd: OwnedFd,
    /// Somebody has signalled since (I2).
    signalled: AtomicBool,
}

/// What the waker of an [`EventFd`] does (I4).
struct Signal(Weak<Counter>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(counter) = self.0.upgrade() else { return };
        // I2, I3: with the swap in `clear`.
        if !counter.signalled.swap(true, AcqRel) {
            // `AGAIN`: the counter is as high as it goes, so the descriptor is readable, and that
            // is all a signal is for. Nothing else can happen to a descriptor of our own, and the
            // publisher, whose thread this is, could not mend it.
            let _ = retry_on_intr(|| write(&counter.fd, &1u64.to_ne_bytes()));
        }
    }
}

impl EventFd {
    /// A descriptor of its own, non-blocking and closed on `exec`; not readable yet.
    ///
    /// # Errors
    /// What the system says: too many descriptors are open (`EMFILE`, `ENFILE`), or there is no
    /// memory.
    pub fn new() -> io::Result<EventFd> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?; // I1
        let counter = Arc::new(Counter { fd, signalled: AtomicBool::new(false) });
        let waker = Waker::from(Arc::new(Signal(Arc::downgrade(&counter))));
        Ok(EventFd { counter, waker })
    }

    /// Has the descriptor signalled once, when it is worth looking at `handle` again; unless it is
    /// now: then `true`, and nobody will signal. Arming a handle again replaces what it was armed
    /// with before.
    ///
    /// Worth a look is progress (events for a consumer, room for one event for a producer) and the
    /// end of the ring, good or bad.
    #[must_use = "if it is `true`, nobody will signal: look again before the loop waits"]
    pub fn arm(&self, handle: &mut dyn Waitable) -> bool {
        handle.arm(&self.waker)
    }

    /// Makes the descriptor unreadable until the next signal; says whether it was readable. Never
    /// blocks.
    ///
    /// Look at everything that is armed with it afterwards, not before.
    ///
    /// # Errors
    /// If the descriptor cannot be read: it is not the one it was any more, because somebody closed
    /// it or put another in its place. No safe code can.
    pub fn clear(&self) -> io::Result<bool> {
        let taken = match retry_on_intr(|| read(&self.counter.fd, &mut [0; 8])) {
            Ok(_) => true,
            Err(Errno::AGAIN) => false, // I1
            Err(error) => return Err(error.into()),
        };
        // I2, I3: after the read; with the swap in `wake_by_ref`
        self.counter.signalled.swap(false, AcqRel);
        Ok(taken)
    }

    /// The waker that signals, for whatever else is to wake the loop: futures that it polls itself,
    /// or threads of its own.
    ///
    /// It may be woken from any thread, by as many as like; it does nothing once the `EventFd` is
    /// dropped.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.fd.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.counter.fd.as_raw_fd()
    }
}

impl fmt::Debug for EventFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventFd").field(&self.as_raw_fd()).finish()
    }
}
