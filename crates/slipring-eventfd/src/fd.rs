//! The descriptor, and the waker that writes to it.
//!
//! Invariants
//! - I1: the descriptor is non-blocking, so a notifying thread never waits for the loop.
//! - I2: a waker sets `signalled` before it writes, and `clear` resets it after its read. So a
//!   waker that finds it set skips the write: another waker has written a signal that is still
//!   unread, or is about to write it, or `clear` is between its read and its reset.
//! - I3: setting and resetting are acquire-release swaps. So everything that happened before a
//!   signal, written or skipped, is visible to the loop after the `clear` that resets it.
//! - I4: wakers hold the descriptor weakly: after the `EventFd` is dropped they do nothing.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, retry_on_intr, write};
use slipring::tasks::Waitable;

/// A descriptor that becomes readable when a ring's handle can make progress.
///
/// # The loop
///
/// 1. Poll the handle until no event is available.
/// 2. Call [`arm`](EventFd::arm). If it returns `true`, go back to 1.
/// 3. Wait for the descriptor (`epoll_wait`).
/// 4. Call [`clear`](EventFd::clear), and go back to 1.
///
/// ```
/// use rustix::{buffer::spare_capacity, event::epoll, io::retry_on_intr};
/// use slipring::errors::WaitError;
/// use slipring_eventfd::EventFd;
///
/// let (mut tx, mut rx) = slipring::unicast(64, || 0u64)?;
/// let publisher = std::thread::spawn(move || tx.publish_all(1..=1000, |slot, i| *slot = i));
///
/// let ready = EventFd::new()?;
/// let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
/// epoll::add(&epoll, &ready, epoll::EventData::new_u64(7), epoll::EventFlags::IN)?;
///
/// let (mut sum, mut events) = (0, Vec::with_capacity(8));
/// 'ring: loop {
///     loop {
///         match rx.poll(64, |value, _| sum += value) {
///             Ok(0) => break, // no event is available
///             Ok(_) => {}
///             Err(WaitError::Closed) => break 'ring,
///             Err(other) => return Err(other.into()),
///         }
///     }
///     if ready.arm(&mut rx) {
///         continue; // an event came meanwhile, and will not be signalled
///     }
///     // The loop sleeps here, also for its sockets and timers.
///     retry_on_intr(|| epoll::wait(&epoll, spare_capacity(&mut events), None))?;
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
/// # Signals
///
/// The descriptor is readable from the first signal until it is cleared. Each call of `arm` that
/// returns `false` causes one signal, at the next progress or at the end of the ring. Progress
/// while no handle is armed does not touch the descriptor.
///
/// A signal asks the loop to poll; it does not promise an event. Another worker of the same pool
/// may take the event first, and a handle may be disarmed or dropped just after its signal.
///
/// Level-triggered and edge-triggered loops are written alike: they wait for `EPOLLIN` or `POLLIN`,
/// and after each report they clear first and then poll. A level-triggered loop that does not clear
/// is woken again at once. An edge-triggered loop that does not clear is not woken again, because a
/// signal is not written while an earlier one is uncleared.
///
/// Only [`clear`](EventFd::clear) may read from the descriptor, and only the `EventFd` may write to
/// it. `poll(2)`, epoll, mio's `SourceFd` and tokio's `AsyncFd` do neither.
///
/// # Why no wake-up is lost
///
/// `arm` announces the waker in the ring's wait queue, fences, and then polls. A publisher stores
/// the event, fences, and then reads the announcement. So one of the two sees the other: either
/// `arm` finds the event and returns `true`, or the publisher finds the waker and signals. A signal
/// lasts until it is cleared, so it may come before the loop waits, or while it does.
///
/// Clear before `arm`: a clear between `arm` and the wait loses a wake-up. `arm` itself polls, so
/// it finds all progress that was made before it, whichever handle the cleared signal belonged to.
///
/// # One descriptor or several
///
/// With a descriptor for each ring, the loop knows which ring to poll. One descriptor can also
/// serve many handles, consumers and producers mixed: arm each of them with it; after a signal
/// clear it once, poll each handle, and arm each again. While the descriptor is readable, a further
/// signal writes nothing.
///
/// # Cost
///
/// A signal is one system call (`write`). The thread that makes the progress pays for it: the
/// publishing thread or, if a producer waits for room, the releasing thread. There is at most one
/// signal for each `arm`, and none while the loop finds events without sleeping. `arm` takes a lock
/// of the ring for a moment, so poll first, and arm only when no event is available.
///
/// For a ring between processes (`slipring-shm`), a thread of this process sleeps on behalf of the
/// armed handles and writes the signal. The publishing process pays for waking that thread. The
/// thread also signals when the handle's next call will report that a process has died.
///
/// # Limits
///
/// - If the handle's strategy does not park, its ring sends no signals: `arm` signals at once, and
///   the loop never sleeps. [`Waitable::wakes`] returns `false` then. Of the library's strategies
///   [`Adaptive`](slipring::Wait::Adaptive) (the default), `Blocking` and the two
///   `Alternating…Block` park.
/// - A graph's `deadline` sends no signal. Wait with a timeout, or add a timer.
/// - After the end of a ring `arm` always returns `true`. Stop arming a handle whose calls return
///   [`WaitError`](slipring::errors::WaitError).
///
/// # Dropping
///
/// Dropping an `EventFd` disarms each handle that was armed with it, and closes the descriptor. If
/// another thread is signalling at that moment, that thread closes the descriptor afterwards. The
/// handles can be armed with another `EventFd`.
///
/// A handle may be dropped while it is armed. Its ring may then signal once without progress;
/// [`Waitable::disarm`] before the drop avoids that.
pub struct EventFd {
    counter: Arc<Counter>,
    /// Waker of all handles, made once, so that arming allocates nothing.
    waker: Waker,
}

struct Counter {
    /// The kernel's counter: signals written since the last read.
    fd: OwnedFd,
    /// Whether a signal came since the last `clear` (I2).
    signalled: AtomicBool,
}

/// The implementation of an [`EventFd`]'s waker (I4).
struct Signal(Weak<Counter>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(counter) = self.0.upgrade() else { return };
        // I2, I3: pairs with the swap in `clear`.
        if !counter.signalled.swap(true, AcqRel) {
            // `AGAIN` means that the counter is at its maximum, so the descriptor is readable
            // already. No other error is possible for our own eventfd, and the notifying thread
            // could not handle any.
            let _ = retry_on_intr(|| write(&counter.fd, &1u64.to_ne_bytes()));
        }
    }
}

impl EventFd {
    /// Opens a descriptor that is non-blocking, closed on `exec`, and not readable yet.
    ///
    /// Example: [`EventFd`].
    ///
    /// # Errors
    /// The system's error: too many open descriptors (`EMFILE`, `ENFILE`), or no memory (`ENOMEM`).
    pub fn new() -> io::Result<EventFd> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?; // I1
        let counter = Arc::new(Counter { fd, signalled: AtomicBool::new(false) });
        let waker = Waker::from(Arc::new(Signal(Arc::downgrade(&counter))));
        Ok(EventFd { counter, waker })
    }

    /// Requests one signal at the next progress of `handle`, and returns `false`. If the handle can
    /// make progress now, returns `true`, and no signal comes.
    ///
    /// For a consumer, progress is an event; for a producer, it is room for one event. The end of
    /// the ring counts as progress for both, whether the ring was closed or has failed. Arming a
    /// handle again replaces its earlier waker.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// let ready = slipring_eventfd::EventFd::new()?;
    /// assert!(!ready.arm(&mut rx)); // no event: one signal will come
    /// tx.publish(|slot| *slot = 1)?; // signals
    /// assert!(ready.clear()?);
    /// assert!(ready.arm(&mut rx)); // the event is available: poll before the loop waits
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cost
    /// The call takes a lock of the ring, fences, and polls. The next notifying thread pays one
    /// `write`.
    #[must_use = "if it is `true`, no signal comes: poll again before the loop waits"]
    pub fn arm(&self, handle: &mut dyn Waitable) -> bool {
        handle.arm(&self.waker)
    }

    /// Makes the descriptor unreadable until the next signal, and returns whether it was readable.
    /// Never blocks; one `read`.
    ///
    /// After this call, not before it, poll the handles that are armed with this descriptor.
    ///
    /// ```
    /// let ready = slipring_eventfd::EventFd::new()?;
    /// assert!(!ready.clear()?);
    /// ready.waker().wake_by_ref();
    /// assert!(ready.clear()?);
    /// assert!(!ready.clear()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The system's error if the descriptor cannot be read, because unsafe code closed or replaced
    /// it.
    pub fn clear(&self) -> io::Result<bool> {
        let taken = match retry_on_intr(|| read(&self.counter.fd, &mut [0; 8])) {
            Ok(_) => true,
            Err(Errno::AGAIN) => false, // I1
            Err(error) => return Err(error.into()),
        };
        // I2, I3: this swap comes after the read, and pairs with the swap in `wake_by_ref`.
        self.counter.signalled.swap(false, AcqRel);
        Ok(taken)
    }

    /// Returns the waker that signals the descriptor. With it, other sources can wake the loop,
    /// such as futures that the loop polls, or other threads of the program.
    ///
    /// Any number of threads may use the waker at once. After the `EventFd` is dropped, the waker
    /// does nothing.
    ///
    /// ```
    /// let ready = slipring_eventfd::EventFd::new()?;
    /// let waker = ready.waker().clone();
    /// std::thread::spawn(move || waker.wake()).join().unwrap();
    /// assert!(ready.clear()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
