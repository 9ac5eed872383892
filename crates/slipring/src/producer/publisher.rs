//! Publishing from any thread through a shared reference.
//!
//! Invariants
//! - I1: a cell is used by the thread that has the cell's number, and by no other. The next thread
//!   with that number sees all that the earlier one did (`thread_number::I2`). The publisher's end
//!   owns all cells.
//! - I2: a cell is busy while its handle is lent. A call that finds its own cell busy leaves the
//!   handle alone: it runs inside of another call, or its thread has got the number of a thread
//!   that called `exit` inside of one.
//! - I3: `mother` never claims, and is dropped after the cells. So there is a claimant while
//!   another thread makes its handle (`Membership::add_claimant`), and the ring is not closed
//!   before the last cell's handle has flushed its counts.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::num::NonZeroU64;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::OnceLock;
use std::task::{Poll, ready};
use std::time::Instant;

use crate::base::guarded::Guarded;
use crate::base::sync::array;
use crate::base::thread_number;
use crate::errors::{ClaimError, WaitError};
use crate::producer::handle::{Many, Producer, SharedProducer};
use crate::ring::owner::Owner;
use crate::ring::self_wait;
use crate::ring::slots::{Interleaved, Layout};

/// Number of buckets of a table. The first bucket holds cell 0, and bucket `n` the cells from
/// 2^(n-1) to 2^n - 1.
const BUCKETS: usize = thread_number::LIMIT.ilog2() as usize + 1;

/// A producer that publishes through a shared reference, from any thread: for a logger or a
/// registry in a `static`, or behind an [`Arc`](std::sync::Arc).
///
/// [`SharedProducer::into_publisher`](crate::Producer::into_publisher) makes it. Inside, the
/// publisher keeps a [`SharedProducer`] for each thread that has published with it. Its calls have
/// the names, errors and meanings of those of [`Producer`], and [`with`](Publisher::with) lends the
/// thread's handle for all others.
///
/// ```
/// use slipring::{Graph, Publisher};
/// use std::sync::OnceLock;
///
/// static LOG: OnceLock<Publisher<String>> = OnceLock::new();
///
/// fn log(text: &str) {
///     if let Some(log) = LOG.get() {
///         let _ = log.publish(|line| text.clone_into(line)); // the log may be closed
///     }
/// }
///
/// let graph = Graph::new(64, String::new).shared();
/// let lines = graph.reader("lines");
/// let ring = graph.build()?;
/// let mut lines = ring.reader(lines);
/// let _ = LOG.set(ring.producer().into_publisher());
/// drop(ring);
///
/// let writer = std::thread::spawn(move || lines.for_each(|line, _| println!("{line}")));
/// std::thread::scope(|scope| {
///     scope.spawn(|| log("from one thread"));
///     scope.spawn(|| log("from another"));
/// });
/// LOG.get().unwrap().close_all(); // a static is never dropped
/// assert_eq!(writer.join().unwrap()?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Calls inside of calls
/// A closure that fills an event may publish with the same publisher: a formatter, an allocator or
/// a panic hook that logs. The inner event comes behind the outer one, and reaches the stages after
/// it. If the ring is full up to the outer event, the inner call returns
/// [`WaitError::WaitsForItself`] with [`PRODUCER`](crate::stages::PRODUCER) as name. Claims that
/// you hold inside of [`with`](Publisher::with) are not detected, as those of any handle.
///
/// A destructor of a thread-local may publish, too.
///
/// # The ring's end
/// The publisher counts as a producer until it is dropped, so dropping it closes the ring if no
/// other producer is left. A static is never dropped: close it with
/// [`close_all`](Publisher::close_all).
///
/// If a thread panics while it drops the publisher, the graph fails, as for any producer. A panic
/// in the closure that fills an event gives the slot up and fails the graph. A panic in the closure
/// of [`with`](Publisher::with) does not, unless it drops a claim's fill on its way. The publisher
/// can be used afterwards.
///
/// # Reports
/// A thread's handle adds its counts to the report after 1,024 events, before it waits, and when
/// the publisher is dropped. So while the publisher lives, a report may count up to 1,023
/// publications too few for each thread, as for any handle that is not used; a drained stage's
/// number of events makes up for it. After the drop the report is complete.
///
/// # Cost
/// A call takes 1.2 to 2.5 ns more than one with a handle of the thread's own: 5.4 beside 4.2 ns
/// for one thread with warm caches, 12 beside 9.5 while another thread reads, 17.8 beside 15.8 for
/// two threads; a clone for each event takes 77 to 190 ns (AMD EPYC,
/// `records/2026-11-29-front-door`). A thread that publishes with several publishers in turns finds
/// its handle in a table, which takes 3 ns more.
///
/// Each thread allocates at its first call: a handle, and memory for more handles if the process
/// has more threads that publish than before. A thread that ends leaves its handle to the next new
/// thread. While 4,096 threads have handles, those of further threads last for one call, and so do
/// those of calls inside of calls, and of a thread's last destructors. Such a call costs what
/// cloning and dropping a [`SharedProducer`] costs.
pub struct Publisher<E, L: Layout = Interleaved> {
    cells: Cells<E, L>,
    /// The ticket under which threads remember their cells.
    ticket: NonZeroU64,
    /// The handle of which all others are clones (I3).
    mother: SharedProducer<E, L>,
}

/// The handle of one thread.
struct HandleCell<E, L: Layout> {
    usage: Use,
    handle: Guarded<Option<SharedProducer<E, L>>>,
}

// SAFETY: one thread at a time uses a cell (I1), and any thread may drop it.
unsafe impl<E: Send, L: Layout> Sync for HandleCell<E, L> {}

impl<E, L: Layout> HandleCell<E, L> {
    fn new() -> Self {
        HandleCell { usage: Use(Cell::new(IDLE)), handle: Guarded::new(None) }
    }
}

/// Says in a cell that its handle is not lent.
const IDLE: u64 = 0;
/// Says in a cell that its handle is lent.
const LENT: u64 = 1;
/// Says in a cell that its handle fills a claim, whose position is in the upper 62 bits.
const FILLS: u64 = 2;

/// How a cell's handle is used at the moment, for calls inside of that use.
struct Use(Cell<u64>);

impl Use {
    /// Notes a use, unless the handle is in use already.
    #[inline(always)]
    fn begin(&self) -> Option<Lent<'_>> {
        (self.0.get() == IDLE).then(|| {
            self.0.set(LENT);
            Lent(self)
        })
    }

    /// Returns the position of the claim that is being filled, if there is one. `next` is a later
    /// position of the ring.
    fn claim(&self, next: u64) -> Option<u64> {
        let word = self.0.get();
        let distance = (next << 2).wrapping_sub(word & !FILLS) >> 2;
        (word & FILLS != 0).then(|| next.wrapping_sub(distance))
    }
}

/// A use of a cell's handle, which ends with this guard.
struct Lent<'c>(&'c Use);

impl Drop for Lent<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.0.set(IDLE);
    }
}

/// A table of handles, by the numbers of their threads. A bucket is allocated when a thread needs
/// it, and never moves.
struct Cells<E, L: Layout>([OnceLock<Bucket<E, L>>; BUCKETS]);

type Bucket<E, L> = Box<[HandleCell<E, L>]>;

impl<E, L: Layout> Cells<E, L> {
    fn new() -> Self {
        Cells([const { OnceLock::new() }; BUCKETS])
    }

    /// Returns the cell of a thread's number. Returns `None` if there is no memory for it. The
    /// allocation runs outside of the initialization, because the allocator may publish.
    fn get(&self, number: usize) -> Option<&HandleCell<E, L>> {
        let bucket = (usize::BITS - number.leading_zeros()) as usize;
        let len = 1 << bucket.saturating_sub(1);
        let cells = match self.0[bucket].get() {
            Some(cells) => cells,
            None => {
                let cells = array(len, |_| HandleCell::new())?;
                self.0[bucket].get_or_init(|| cells)
            }
        };
        cells.get(number % len)
    }

    /// Returns all handles, for a publisher that ends.
    fn handles(&mut self) -> impl Iterator<Item = &mut SharedProducer<E, L>> {
        let cells = self.0.iter_mut().filter_map(OnceLock::get_mut).flatten();
        // SAFETY: the table is borrowed exclusively (I1).
        cells.filter_map(|cell| unsafe { &mut *cell.handle.exclusive() }.as_mut())
    }
}

/// A panic leaves each handle as usable as before.
impl<E, L: Layout> UnwindSafe for Publisher<E, L> {}
/// As for [`UnwindSafe`].
impl<E, L: Layout> RefUnwindSafe for Publisher<E, L> {}

impl<E, L: Layout> Producer<E, L, Many> {
    /// Turns this handle into a [`Publisher`], which publishes by `&self` from any thread.
    ///
    /// Between processes, a producer's handle belongs to a place that its segment declares, and
    /// cannot be cloned. So it cannot become a publisher.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0).shared();
    /// let sum = graph.reader("sum");
    /// let ring = graph.build()?;
    /// let (numbers, mut reader) = (ring.producer().into_publisher(), ring.reader(sum));
    /// drop(ring);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| numbers.publish(|slot| *slot = 1));
    ///     scope.spawn(|| numbers.publish(|slot| *slot = 2));
    /// });
    /// numbers.close();
    /// let mut sum = 0;
    /// reader.for_each(|number, _| sum += number)?;
    /// assert_eq!(sum, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cost
    /// The call itself allocates nothing.
    pub fn into_publisher(mut self) -> Publisher<E, L> {
        self.give_up_open_claim();
        self.flush_counts();
        Publisher { cells: Cells::new(), ticket: thread_number::ticket(), mother: self }
    }
}

impl<E, L: Layout> Publisher<E, L> {
    /// Fills the next slot in place and publishes the event, as [`Producer::publish`] does.
    ///
    /// Example: [`Publisher`].
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - [`WaitError::WaitsForItself`]: only this thread could free a slot. Inside of a closure
    ///   that fills an event: the ring is full up to that event.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    #[inline]
    pub fn publish(&self, fill: impl FnOnce(&mut E)) -> Result<u64, WaitError> {
        self.lend(|handle, used| {
            let seq = handle.reserve_waiting()?;
            Ok(fill_noted(handle, used, seq, fill))
        })
    }

    /// Like [`publish`](Publisher::publish), but never waits, as [`Producer::try_publish`].
    ///
    /// ```
    /// use slipring::errors::ClaimError;
    /// let ring = slipring::Graph::new(1, || 0).shared().build()?;
    /// let last = ring.producer().into_publisher();
    /// last.try_publish(|slot| *slot = 1)?;
    /// assert_eq!(last.try_publish(|slot| *slot = 2)?, 1); // no stage holds the ring up
    /// last.close_all();
    /// assert!(matches!(last.try_publish(|slot| *slot = 3), Err(ClaimError::Wait(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Gated`]: the ring is full.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    #[inline]
    pub fn try_publish(&self, fill: impl FnOnce(&mut E)) -> Result<u64, ClaimError> {
        self.lend(|handle, used| {
            let seq = handle.try_reserve(1)?;
            Ok(fill_noted(handle, used, seq, fill))
        })
    }

    /// Like [`publish`](Publisher::publish), but waits at most until `deadline`, as
    /// [`Producer::publish_by`].
    ///
    /// ```
    /// use slipring::errors::ClaimError;
    /// use std::time::{Duration, Instant};
    /// let graph = slipring::Graph::new(1, || 0).shared();
    /// let slow = graph.reader("slow");
    /// let ring = graph.build()?;
    /// let (numbers, _slow) = (ring.producer().into_publisher(), ring.reader(slow));
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// numbers.publish_by(soon, |slot| *slot = 1)?;
    /// let late = numbers.publish_by(soon, |slot| *slot = 2);
    /// assert!(matches!(late, Err(ClaimError::TimedOut(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::TimedOut`]: `deadline` passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free a slot, as for
    ///   [`publish`](Publisher::publish).
    pub fn publish_by(
        &self,
        deadline: Instant,
        fill: impl FnOnce(&mut E),
    ) -> Result<u64, ClaimError> {
        self.lend(|handle, used| {
            let seq = handle.reserve_by(1, Some(deadline))?;
            Ok(fill_noted(handle, used, seq, fill))
        })
    }

    /// Like [`publish`](Publisher::publish), but drops the event if the ring is full, as
    /// [`Producer::publish_or_drop`]. Returns the event's position, or `None` if it was dropped.
    ///
    /// ```
    /// let graph = slipring::Graph::new(2, || 0).shared();
    /// let slow = graph.reader("slow");
    /// let ring = graph.build()?;
    /// let (numbers, _slow) = (ring.producer().into_publisher(), ring.reader(slow));
    /// let sent = [0, 1, 2].map(|i| numbers.publish_or_drop(|slot| *slot = i).unwrap());
    /// assert_eq!(sent, [Some(0), Some(1), None]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    #[inline]
    pub fn publish_or_drop(&self, fill: impl FnOnce(&mut E)) -> Result<Option<u64>, WaitError> {
        self.lend(|handle, used| match handle.reserve_now()? {
            Some(seq) => Ok(Some(fill_noted(handle, used, seq, fill))),
            None => {
                handle.count_dropped();
                Ok(None)
            }
        })
    }

    /// Like [`publish`](Publisher::publish), but for a task instead of a thread, as
    /// [`Producer::publish_async`]. The task may move to other threads while it waits.
    ///
    /// ```
    /// # use std::{pin::pin, task::{Context, Waker}, future::Future};
    /// let graph = slipring::Graph::new(1, || 0).shared();
    /// let slow = graph.reader("slow");
    /// let ring = graph.build()?;
    /// let (numbers, mut slow) = (ring.producer().into_publisher(), ring.reader(slow));
    /// let two = async {
    ///     numbers.publish_async(|slot| *slot = 1).await?;
    ///     numbers.publish_async(|slot| *slot = 2).await
    /// };
    /// # let (mut two, mut cx) = (pin!(two), Context::from_waker(Waker::noop()));
    /// # assert!(two.as_mut().poll(&mut cx).is_pending());
    /// # slow.poll(1, |_, _| ())?;
    /// # assert!(two.as_mut().poll(&mut cx).is_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    ///
    /// # Cost
    /// A call that has to wait clones a handle.
    pub async fn publish_async(&self, fill: impl FnOnce(&mut E)) -> Result<u64, WaitError> {
        let mut fill = Some(fill);
        let mut fill_at = |handle: &mut _, used: Option<&_>, seq| match fill.take() {
            Some(fill) => fill_noted(handle, used, seq, fill),
            None => seq,
        };
        let at_once = poll_fn(|cx| {
            self.lend(|handle, used| {
                ready!(handle.budget.spend(cx.waker()));
                let reserved = handle.reserve_now();
                Poll::Ready(reserved.map(|free| free.map(|seq| fill_at(handle, used, seq))))
            })
        });
        if let Some(seq) = at_once.await? {
            return Ok(seq);
        }
        // The other tasks of a thread wait under the number of its handle, so this one needs its
        // own.
        let mut handle = self.mother.clone();
        handle.ignores_panic = true;
        let seq = poll_fn(|cx| handle.reserve_or_arm(1, cx.waker())).await?;
        Ok(fill_at(&mut handle, None, seq))
    }

    pub(super) fn core(&self) -> &Owner<E, L> {
        self.mother.core()
    }

    /// Lends the calling thread's handle to `use_handle`, and returns the closure's result: for
    /// batches, claims, requests and whatever else a [`Producer`] does.
    ///
    /// A call inside of another call of the same publisher on the same thread lends a clone. If the
    /// closure swaps the handle for the handle of another ring, that handle is dropped at the end.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0).shared();
    /// let sum = graph.reader("sum");
    /// let ring = graph.build()?;
    /// let (numbers, mut reader) = (ring.producer().into_publisher(), ring.reader(sum));
    /// numbers.with(|producer| producer.publish_batches(4, 1..=4, |slot, i| *slot = i))?;
    /// assert_eq!(reader.poll(8, |_, _| ())?, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn with<R>(&self, use_handle: impl FnOnce(&mut SharedProducer<E, L>) -> R) -> R {
        /// A guard of a handle that the user may have swapped for the handle of another ring.
        struct Lease<'a, E, L: Layout> {
            handle: &'a mut SharedProducer<E, L>,
            mother: &'a SharedProducer<E, L>,
        }
        impl<E, L: Layout> Drop for Lease<'_, E, L> {
            fn drop(&mut self) {
                if !self.handle.core().same(self.mother.core()) {
                    *self.handle = self.mother.clone();
                }
            }
        }
        self.lend(|handle, _| {
            let lease = Lease { handle, mother: &self.mother };
            use_handle(&mut *lease.handle)
        })
    }

    /// Lends the calling thread's handle, and the place for notes about its use, if it has one.
    #[inline(always)]
    fn lend<R>(&self, body: impl FnOnce(&mut SharedProducer<E, L>, Option<&Use>) -> R) -> R {
        let cell = match thread_number::found(self.ticket) {
            // SAFETY: thread_number::I4: `find` has stored the address of this thread's cell, and
            // the table is alive and does not move its cells.
            Some(cell) => Some(unsafe { &*cell.cast::<HandleCell<E, L>>() }),
            None => self.find(),
        };
        if let Some(cell) = cell
            && let Some(_lent) = cell.usage.begin()
        {
            // SAFETY: this thread's cell (I1), which was not busy (I2).
            let handle = unsafe { &mut *cell.handle.exclusive() };
            body(handle.get_or_insert_with(|| self.mother.clone()), Some(&cell.usage))
        } else {
            self.lend_clone(cell, body)
        }
    }

    /// Finds the calling thread's cell in the table.
    #[inline(never)]
    fn find(&self) -> Option<&HandleCell<E, L>> {
        let cell = self.cells.get(thread_number::of_this_thread()?)?;
        thread_number::remember(self.ticket, ptr::from_ref(cell).cast());
        Some(cell)
    }

    /// Lends a clone to a call that found its thread's handle in use, or no cell for it.
    #[cold]
    #[inline(never)]
    fn lend_clone<R>(
        &self,
        cell: Option<&HandleCell<E, L>>,
        body: impl FnOnce(&mut SharedProducer<E, L>, Option<&Use>) -> R,
    ) -> R {
        let mut handle = self.mother.clone();
        // A panic of the closure drops this handle, and would drop none if it had a cell.
        handle.ignores_panic = true;
        let claim = cell.and_then(|cell| cell.usage.claim(handle.next_seq()));
        let _claim = claim.map(|seq| self_wait::enter_claim(&self.core().control, seq));
        body(&mut handle, None)
    }

    /// Returns the number of slots of the ring.
    ///
    /// Example: [`Producer::capacity`].
    pub fn capacity(&self) -> usize {
        self.mother.capacity()
    }

    /// Closes this publisher, as a drop does. If the ring has no other producer, the stages drain
    /// it and end.
    ///
    /// A drop during a panic of the thread fails the graph; a close does not.
    ///
    /// Example: [`Producer::into_publisher`].
    pub fn close(mut self) {
        for handle in self.cells.handles() {
            handle.ignores_panic = true;
        }
        self.mother.ignores_panic = true;
    }

    /// Closes the ring for all its producers at once, as [`Producer::close_all`] does, also for
    /// those that have no part in this publisher.
    ///
    /// The stages drain the events that were claimed before, also those that other threads are just
    /// filling. Later calls of any thread return [`WaitError::Closed`], and so do calls that wait
    /// for a slot.
    ///
    /// Example: [`Publisher`].
    pub fn close_all(&self) {
        self.mother.close_shared();
    }

    /// Ends the graph at once, without draining the ring, as [`Producer::halt`] does.
    ///
    /// ```
    /// use slipring::errors::WaitError;
    /// let ring = slipring::Graph::new(8, || 0).shared().build()?;
    /// let numbers = ring.producer().into_publisher();
    /// numbers.halt();
    /// assert!(matches!(numbers.publish(|slot| *slot = 1), Err(WaitError::Halted)));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn halt(&self) {
        self.mother.halt();
    }
}

/// Fills a claimed slot and publishes it. While `fill` runs, the claim is noted, so that a call
/// inside of `fill` that would wait for the claim returns an error: in `used`, or in the thread's
/// list if the handle has no cell.
#[inline(always)]
fn fill_noted<E, L: Layout>(
    handle: &mut SharedProducer<E, L>,
    used: Option<&Use>,
    seq: u64,
    fill: impl FnOnce(&mut E),
) -> u64 {
    match used {
        Some(used) => handle.fill(seq, |event| {
            used.0.set(seq << 2 | FILLS);
            fill(event);
            used.0.set(LENT);
        }),
        None => {
            let claim = self_wait::enter_claim(&handle.core().control, seq);
            handle.fill(seq, |event| {
                let _claim = claim;
                fill(event);
            });
        }
    }
    seq
}

impl<E, L: Layout> fmt::Debug for Publisher<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}
