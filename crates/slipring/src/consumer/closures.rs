//! [`Consumer::poll`] and [`Consumer::for_each`], which call a closure for each event.
//!
//! Invariants
//! - I1: `poll` and `for_each` release exactly the events for which the closure returned, also if
//!   the closure panics.
//! - I2: only handles marked [`Updating`] create an [`EachMut`].

use crate::base::fault::Fault;
use crate::consumer::drive::{End, GATHER_AT_LEAST, SPARSE, drive, find_next, handle_next};
use crate::consumer::handle::Consumer;
use crate::consumer::handler::{Handler, LentEvents, Progress};
use crate::consumer::markers::{Reading, Updating, sealed};
use crate::consumer::position::{Availability, ConsumerPosition};
use crate::consumer::waiting::Counting;
use crate::errors::WaitError;
use crate::ring::events::At;
use crate::ring::self_wait;
use crate::ring::slots::Layout;

impl<E, C: sealed::Delivery, L: Layout> Consumer<E, Reading, C, L> {
    /// Handles up to `max` events that are available now, without waiting, and releases these
    /// events. Returns the number of handled events: 0 if no event was available.
    ///
    /// A call releases its events at its end, and after each quarter of the ring (see
    /// [`Batch::release`] for the cost). In a line of stages, pass a `max` that takes a few
    /// microseconds to handle, such as 64: with `usize::MAX`, each stage sees nothing until the
    /// stage before it has handled a quarter of the ring, and eleven stages of 100 ns took three
    /// times as long for each event as with 64 (simulated). [`for_each`](Consumer::for_each)
    /// releases as soon as a later stage waits. In a [`Contiguous`](crate::markers::Contiguous)
    /// ring, the call first pauses for up to a microsecond if events come densely. If `f` panics at
    /// an event, the call releases the earlier events, and the handle's next call begins with the
    /// event at which `f` panicked.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// for i in 0..3 { tx.publish(|v| *v = i * 10)?; }
    /// let mut seen = Vec::new();
    /// assert_eq!(rx.poll(2, |v, at| seen.push((at.seq, *v)))?, 2);
    /// assert_eq!(seen, [(0, 0), (1, 10)]);
    /// assert_eq!((rx.poll(2, |_, _| ())?, rx.poll(2, |_, _| ())?), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more events come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    ///
    /// [`Batch::release`]: crate::Batch::release
    #[inline]
    pub fn poll(&mut self, max: usize, f: impl FnMut(&E, At)) -> Result<usize, WaitError> {
        self.poll_with(max, EachRef(f))
    }

    /// Handles every event until the stream is closed and drained. When no event is available, it
    /// waits as the graph's wait strategy says. Returns the number of handled events.
    ///
    /// The loop releases events at the earliest of these times:
    /// - before every wait;
    /// - after 1,024 events, or a quarter of the ring (an eighth if stages follow each other);
    /// - after about 32 µs of work (up to a millisecond if a release has to wake a sleeper);
    /// - while a later stage waits for events, after about a microsecond of work.
    ///
    /// In a graph with more threads than cores, two of these limits differ: the loop holds up to a
    /// quarter of the ring even if stages follow each other, and it releases for a waiting stage
    /// only after about 16 µs of work.
    ///
    /// If `f` panics at an event, the call releases the earlier events, and the handle's next call
    /// begins with the event at which `f` panicked.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// std::thread::spawn(move || tx.publish_all(0..100, |slot, i| *slot = i)); // and closes
    /// let mut sum = 0;
    /// assert_eq!(rx.for_each(|v, _| sum += v)?, 100);
    /// assert_eq!(sum, 4950);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    ///
    /// At the end of a closed stream, `for_each` returns `Ok`.
    #[doc(alias = "EventHandler")]
    #[inline]
    pub fn for_each(&mut self, f: impl FnMut(&E, At)) -> Result<u64, WaitError> {
        self.drive_with(EachRef(f))
    }
}

impl<E, C: sealed::Delivery, L: Layout> Consumer<E, Updating, C, L> {
    /// Handles up to `max` events that are available now, without waiting, and releases these
    /// events. Returns the number of handled events: 0 if no event was available.
    ///
    /// A call releases its events at its end, and after each quarter of the ring (see
    /// [`Batch::release`] for the cost). In a line of stages, pass a `max` that takes a few
    /// microseconds to handle, such as 64: with `usize::MAX`, each stage sees nothing until the
    /// stage before it has handled a quarter of the ring, and eleven stages of 100 ns took three
    /// times as long for each event as with 64 (simulated). [`for_each`](Consumer::for_each)
    /// releases as soon as a later stage waits. In a [`Contiguous`](crate::markers::Contiguous)
    /// ring, the call first pauses for up to a microsecond if events come densely. If `f` panics at
    /// an event, the call releases the earlier events, and the handle's next call begins with the
    /// event at which `f` panicked. This event keeps the changes that `f` made.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u64);
    /// let double = graph.updater("double");
    /// let end = graph.reader("end").after(&double);
    /// let ring = graph.build()?;
    /// let (mut tx, mut double, mut end) =
    ///     (ring.producer(), ring.updater(double), ring.reader(end));
    /// tx.publish(|v| *v = 21)?;
    /// assert_eq!(double.poll(8, |v, _| *v *= 2)?, 1);
    /// assert_eq!(end.poll(8, |v, _| assert_eq!(*v, 42))?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more events come.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    ///
    /// [`Batch::release`]: crate::Batch::release
    #[inline]
    pub fn poll(&mut self, max: usize, f: impl FnMut(&mut E, At)) -> Result<usize, WaitError> {
        self.poll_with(max, EachMut(f))
    }

    /// Handles every event until the stream is closed and drained. When no event is available, it
    /// waits as the graph's wait strategy says. Returns the number of handled events.
    ///
    /// The loop releases events at the earliest of these times:
    /// - before every wait;
    /// - after 1,024 events, or a quarter of the ring (an eighth if stages follow each other);
    /// - after about 32 µs of work (up to a millisecond if a release has to wake a sleeper);
    /// - while a later stage waits for events, after about a microsecond of work.
    ///
    /// In a graph with more threads than cores, two of these limits differ: the loop holds up to a
    /// quarter of the ring even if stages follow each other, and it releases for a waiting stage
    /// only after about 16 µs of work.
    ///
    /// If `f` panics at an event, the call releases the earlier events, and the handle's next call
    /// begins with the event at which `f` panicked. This event keeps the changes that `f` made.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u64);
    /// let double = graph.updater("double");
    /// let end = graph.reader("end").after(&double);
    /// let ring = graph.build()?;
    /// let (mut tx, mut double, mut end) =
    ///     (ring.producer(), ring.updater(double), ring.reader(end));
    /// tx.publish_all(1..4, |slot, i| *slot = i)?;
    /// tx.close();
    /// assert_eq!(double.for_each(|v, _| *v *= 2)?, 3);
    /// let mut sum = 0;
    /// end.for_each(|v, _| sum += v)?;
    /// assert_eq!(sum, 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    ///
    /// At the end of a closed stream, `for_each` returns `Ok`.
    #[doc(alias = "EventHandler")]
    #[inline]
    pub fn for_each(&mut self, f: impl FnMut(&mut E, At)) -> Result<u64, WaitError> {
        self.drive_with(EachMut(f))
    }
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// Handles and releases up to `max` available events, and returns the number of handled events.
    #[inline(always)]
    fn poll_with<H: Handler<E, L>>(
        &mut self,
        max: usize,
        mut handler: H,
    ) -> Result<usize, WaitError> {
        self.position.check()?;
        let max = max as u64;
        self.position.limit_chunk(max);
        if Self::PAUSES {
            self.position.state_mut().calls.pause();
        }
        let handled = match max {
            1 => self.poll_single(&mut handler),
            _ => self.poll_many(max, &mut handler),
        };
        if Self::PAUSES && max != 0 {
            self.position.state_mut().calls.found(handled, max);
        }
        if handled != 0 {
            self.position.state_mut().is_sparse = handled < SPARSE;
            self.position.count_batch();
        } else {
            self.position.release(); // events that the handle holds
            if max != 0
                && let Some(closed) = self.ended_or_refused()
            {
                return Err(closed);
            }
        }
        Ok(handled as usize)
    }

    /// Handles and releases an event, if one is available, and returns the number of handled
    /// events.
    #[inline(always)]
    fn poll_single<H: Handler<E, L>>(&mut self, handler: &mut H) -> u64 {
        if !self.position.poll_single() {
            return 0;
        }
        // If the handler panics, the guard releases the events that the handle holds.
        let guard = ReleaseOnDrop { consumer: self };
        let position = &guard.consumer.position;
        // SAFETY: the event was just polled (position::I2). The position releases nothing while
        // `guard` is borrowed.
        let lent = unsafe { LentEvents::new(position.state(), position.next(), 1, 1) };
        if let Err(fault) = handler.handle(lent, &mut Progress::default()) {
            unreachable!("a closure without errors returned one: {fault}");
        }
        std::mem::forget(guard);
        self.position.pass_single();
        1
    }

    /// Handles and releases up to `max` available events, and returns their number.
    #[inline(always)]
    fn poll_many<H: Handler<E, L>>(&mut self, max: u64, handler: &mut H) -> u64 {
        // The guard releases the handled events if the handler panics.
        let guard = ReleaseOnDrop { consumer: self };
        let position = &mut guard.consumer.position;
        let mut handled = 0;
        // If the last call found few events, this call handles the first events one by one. Behind
        // these, the events come densely, and it gathers them.
        let (mut least, mut stride) = match position.state().is_sparse {
            true => (0, GATHER_AT_LEAST),
            false => (GATHER_AT_LEAST, u64::MAX),
        };
        while handled < max {
            let upcoming = find_next(position, least, stride.min(max - handled));
            if upcoming.len == 0 {
                break;
            }
            let (progress, outcome) = handle_next(position, handler, &upcoming);
            if let Err(fault) = outcome {
                unreachable!("a closure without errors returned one: {fault}");
            }
            handled += progress.handled;
            // With many producers, `find_next` stops at a tombstone. The loop polls again, because
            // live events can follow the tombstone.
            if position.is_exhausted(upcoming.exhausted || progress.exhausted)
                && !position.state().control().plan.many_producers
            {
                break;
            }
            if handled == max {
                break;
            }
            // If a call held the whole ring, the producer would have no slot to fill meanwhile.
            let max_held = (position.state().core.capacity() / 4).max(1);
            if position.next().wrapping_sub(position.first_unreleased()) >= max_held {
                position.release();
            }
            (least, stride) = (GATHER_AT_LEAST, u64::MAX);
        }
        std::mem::forget(guard);
        self.position.release();
        handled
    }

    /// Handles every event until the stream ends. Returns the number of handled events.
    #[inline(always)]
    fn drive_with<H: Handler<E, L>>(&mut self, mut handler: H) -> Result<u64, WaitError> {
        let before = self.position.handled();
        self.position.limit_chunk(u64::MAX);
        let _inside = self_wait::enter(self.position.state().control(), [self.position.line()]);
        let guard = ReleaseOnDrop { consumer: self };
        match drive(&mut guard.consumer.position, &mut handler) {
            End::Wait(WaitError::Closed) => {
                Ok(guard.consumer.position.handled().wrapping_sub(before))
            }
            End::Wait(closed) => Err(closed),
            End::Fault(_) | End::Panic(_) => {
                unreachable!("the closure cannot fail, and `drive` catches no panic")
            }
        }
    }
}

/// A guard whose drop releases the handled events, also if the closure panics (I1).
struct ReleaseOnDrop<'c, E, A: sealed::Access, C: sealed::Delivery, L: Layout> {
    consumer: &'c mut Consumer<E, A, C, L>,
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Drop for ReleaseOnDrop<'_, E, A, C, L> {
    #[inline(always)]
    fn drop(&mut self) {
        self.consumer.position.release();
    }
}

/// A handler that calls a closure with `&E`.
struct EachRef<F>(F);
/// A handler that calls a closure with `&mut E` (I2).
struct EachMut<F>(F);

impl<E, L: Layout, F: FnMut(&E, At)> Handler<E, L> for EachRef<F> {
    #[inline(always)]
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        lent.each(progress, |event, at| {
            (self.0)(event, at);
            Ok(())
        })
    }
}

impl<E, L: Layout, F: FnMut(&mut E, At)> Handler<E, L> for EachMut<F> {
    #[inline(always)]
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        // SAFETY: I2, so the stage was declared as an updating stage.
        unsafe {
            lent.each_mut(progress, |event, at| {
                (self.0)(event, at);
                Ok(())
            })
        }
    }
}
