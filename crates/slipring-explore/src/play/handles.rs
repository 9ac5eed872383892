//! Handles of any kind as one type.
//!
//! - I1: `see` is called with each event that a call lends, in their order. For a writer, its
//!   result is the event's new trail, which is stored before the event is released.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use slipring::segment::{Seated, SeatedShard, SeatedWorker, SegmentConsumer};
use slipring::{
    Reader, Updater,
    errors::{BatchError, WaitError},
    handles::{PoolReader, PoolUpdater, ShardReader, ShardUpdater, Subscription},
    markers::{Joined, Layout, Reading, Updating},
    raw::SeqRange,
    tasks::Waitable,
};
use slipring_coherence::sync::{self, Thread};

use crate::event::{Event, Parts, Seen};

/// The action on each event.
pub type See<'a> = &'a mut dyn FnMut(u64, &dyn Seen) -> u64;

/// The call that asks for a batch.
#[derive(Clone, Copy)]
pub enum Ask {
    Wait,
    Try,
    For(Duration),
    /// Polls a future, which is dropped after so many polls that found nothing (0: never).
    Task(u64),
}

/// The end of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    All,
    FrontFirst,
    Drop,
    Forget,
    /// It is held, if the handle can hold it; else it is released.
    Hold,
}

/// A handle of a stage.
pub trait Handle: Send {
    fn poll(&mut self, max: usize, see: See<'_>) -> Result<usize, WaitError>;
    fn for_each(&mut self, see: See<'_>) -> Result<u64, WaitError>;
    /// Takes a batch, and finishes it. Returns its length. A worker's batch between processes tells
    /// in `again` which of its positions may come again.
    fn batch(
        &mut self,
        ask: Ask,
        max: usize,
        finish: Finish,
        again: &Cell<(u64, usize)>,
        see: See<'_>,
    ) -> Result<usize, BatchError>;
    /// The positions that may come again, as a handle between processes tells: the first one, and
    /// their number.
    fn redelivered(&self) -> (u64, usize) {
        (0, 0)
    }
    /// The positions that may be half-written, if the handle tells.
    fn suspects(&self) -> Option<(u64, usize)> {
        None
    }
    /// Passes over these positions. Returns the number of their events.
    fn pass_over(&mut self) -> Result<u64, WaitError> {
        Ok(0)
    }
    /// Whether a batch tells which of its positions may come again.
    fn tells_again(&self) -> bool {
        false
    }
    /// Whether it can hold batches.
    fn holds(&self) -> bool {
        false
    }
    /// Releases the held events before a position.
    fn release_until(&mut self, _seq: u64) {}
    /// Leaves: by its own call, if it has one.
    fn leave(self: Box<Self>) {}
    /// The handle, for a selector, if its content can be selected.
    fn waitable(&mut self) -> &mut dyn Waitable {
        unreachable!("a program selects no such handle")
    }
    /// Takes a batch by positions, and gives all of it back, if its content has such a call.
    fn raw(&mut self, _max: usize, _see: See<'_>) -> Result<usize, BatchError> {
        unreachable!("a program takes no positions from such a handle")
    }
}

/// Returns the first position of a range, and their number.
pub fn positions(range: SeqRange) -> (u64, usize) {
    (range.first_seq(), range.len())
}

/// A handle that can be taken apart for a moment.
pub struct Held<H>(Option<H>);

impl<H> Held<H> {
    pub fn new(handle: H) -> Held<H> {
        Held(Some(handle))
    }

    fn get(&mut self) -> &mut H {
        self.0.as_mut().expect("it is taken only within a call")
    }
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future until it is done. Returns `None`, and so lets the caller drop the future, after
/// `polls` polls that found it pending (0: never). Notes in `pended` whether one did.
pub fn poll_some<F: Future>(future: F, polls: u64, pended: &mut bool) -> Option<F::Output> {
    let waker: Waker = Arc::new(Unparks(sync::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    for poll in 1.. {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        *pended = true;
        // A future whose ring notifies no task wakes itself, so an executor lets others go first.
        sync::spin_loop();
        if poll == polls {
            return None;
        }
        sync::park();
    }
    None
}

macro_rules! each_event {
    (reads, $see:ident, $seq:expr, $event:expr) => {{
        let _trail = $see($seq, $event);
    }};
    (writes, $see:ident, $seq:expr, $event:expr) => {{
        let trail = $see($seq, $event);
        $event.write(trail);
    }};
}

macro_rules! each_of_batch {
    (reads, $see:ident, $batch:ident) => {
        for (offset, event) in $batch.iter().enumerate() {
            let _trail = $see($batch.first_seq().wrapping_add(offset as u64), event);
        }
    };
    (writes, $see:ident, $batch:ident) => {
        let first = $batch.first_seq();
        for (offset, event) in $batch.iter_mut().enumerate() {
            let trail = $see(first.wrapping_add(offset as u64), event);
            event.write(trail);
        }
    };
}

macro_rules! each_of_range {
    (reads, $see:ident, $raw:ident, $seq:ident) => {
        if let Some(event) = $raw.at($seq) {
            let _trail = $see($seq, event);
        }
    };
    (writes, $see:ident, $raw:ident, $seq:ident) => {
        if let Some(event) = $raw.at_mut($seq) {
            let trail = $see($seq, event);
            event.write(trail);
        }
    };
}

macro_rules! hold {
    ($batch:ident) => {
        $batch.release()
    };
    ($batch:ident holds $($can:ident)*) => {
        $batch.hold()
    };
}

macro_rules! ability {
    (holds) => {
        fn holds(&self) -> bool {
            true
        }
        fn release_until(&mut self, seq: u64) {
            self.get().release_until(seq);
        }
    };
    (leaves) => {
        fn leave(mut self: Box<Self>) {
            if let Some(handle) = self.0.take() {
                handle.leave();
            }
        }
    };
}

macro_rules! handle {
    ($([$($layout:ident)?] $type:ty, $access:ident
        $(, again $again:ident)? $(, by_batch $by_batch:ident)?
        $(, suspects $suspects:ident $pass_over:ident)? $(=> $($can:ident)*)?;)*) =>
    { $(
        impl$(<$layout: Layout>)? Handle for Held<$type> {
            $($(ability! { $can })*)?

            $(fn redelivered(&self) -> (u64, usize) {
                let range = self.0.as_ref().map(|handle| handle.$again());
                range.map_or((0, 0), |range| (range.first_seq(), range.len()))
            })?

            $(fn suspects(&self) -> Option<(u64, usize)> {
                let range = self.0.as_ref()?.$suspects();
                Some((range.first_seq(), range.len()))
            }

            fn pass_over(&mut self) -> Result<u64, WaitError> {
                self.get().$pass_over()
            })?

            $(fn tells_again(&self) -> bool {
                stringify!($by_batch) == "redelivered"
            })?

            fn poll(&mut self, max: usize, see: See<'_>) -> Result<usize, WaitError> {
                self.get().poll(max, |event, at| each_event!($access, see, at.seq, event))
            }

            fn for_each(&mut self, see: See<'_>) -> Result<u64, WaitError> {
                self.get().for_each(|event, at| each_event!($access, see, at.seq, event))
            }

            #[allow(unused_mut, reason = "a reader's batch is not changed")]
            #[allow(clippy::drop_non_drop, clippy::forget_non_drop, reason = "a batch's end is the subject")]
            fn batch(
                &mut self,
                ask: Ask,
                max: usize,
                finish: Finish,
                _again: &Cell<(u64, usize)>,
                see: See<'_>,
            ) -> Result<usize, BatchError> {
                let handle = self.get();
                $(let suspects = handle.$suspects();)?
                let mut batch = match ask {
                    Ask::Wait => handle.batch(max)?,
                    Ask::Try => handle.try_batch(max)?,
                    Ask::For(time) => handle.batch_by(max, sync::now() + time)?,
                    Ask::Task(polls) => {
                        // The batch is dropped, and taken again: a loop cannot lend it.
                        loop {
                            if let Some(found) = poll_some(handle.batch_async(max), polls, &mut false) {
                                break found.map(drop)?;
                            }
                        }
                        handle.try_batch(max)?
                    }
                };
                let len = batch.len();
                $(_again.set((batch.$by_batch().first_seq(), batch.$by_batch().len()));)?
                $(
                    let left = suspects.end_seq().wrapping_sub(batch.first_seq()) as i64;
                    let half_written = left.clamp(0, len as i64) as usize;
                    assert_eq!(batch.$suspects(), half_written, "suspects of a batch");
                )?
                each_of_batch!($access, see, batch);
                match finish {
                    Finish::All => batch.release(),
                    Finish::FrontFirst => {
                        batch.release_front(len.div_ceil(2));
                        crate::event::point();
                        batch.release();
                    }
                    Finish::Drop => drop(batch),
                    Finish::Forget => std::mem::forget(batch),
                    Finish::Hold => hold!(batch $($($can)*)?),
                }
                Ok(len)
            }

            fn waitable(&mut self) -> &mut dyn Waitable {
                self.get()
            }

            #[allow(unused_mut, reason = "a reader's events are not changed")]
            fn raw(&mut self, max: usize, see: See<'_>) -> Result<usize, BatchError> {
                let mut raw = self.0.take().expect("it is taken only here").into_raw();
                let found = raw.available(max);
                if let Ok(range) = &found {
                    for offset in 0..range.len() as u64 {
                        let seq = range.first_seq().wrapping_add(offset);
                        each_of_range!($access, see, raw, seq);
                    }
                    let last = range.first_seq().wrapping_add(range.len() as u64 - 1);
                    raw.done(last).expect("the range is held");
                }
                self.0 = Some(raw.into_inner());
                Ok(found?.len())
            }
        }
    )* };
}
handle! {
    [L] Reader<Event, L>, reads => holds;
    [L] Updater<Event, L>, writes => holds;
    [L] PoolReader<Event, L>, reads;
    [L] PoolUpdater<Event, L>, writes;
    [L] ShardReader<Event, L>, reads;
    [L] ShardUpdater<Event, L>, writes;
    [L] Subscription<Event, L>, reads => holds leaves;
    [] SegmentConsumer<Parts, Reading, Seated>, reads, again redelivered;
    [] SegmentConsumer<Parts, Updating, Seated>, writes, again redelivered, suspects suspects pass_over_suspects;
    [] SegmentConsumer<Parts, Reading, SeatedWorker>, reads, again redelivered, by_batch redelivered;
    [] SegmentConsumer<Parts, Updating, SeatedWorker>, writes, again redelivered, by_batch redelivered;
    [] SegmentConsumer<Parts, Reading, SeatedShard>, reads, again redelivered;
    [] SegmentConsumer<Parts, Updating, SeatedShard>, writes, again redelivered, suspects suspects pass_over_suspects;
    [] SegmentConsumer<Parts, Reading, Joined>, reads;
}
