//! Handles that copy events in and out of a segment.

use std::cell::Cell;

use slipring::segment::{
    Access, Apart, CopyingConsumer, CopyingProducer, Delivery, Seated, SeatedShard, SeatedWorker,
    Sharing,
};
use slipring::{
    errors::{BatchError, ClaimError, WaitError},
    markers::{Joined, Reading, Single, Updating},
};
use slipring_coherence::sync;

use super::acts::{settle, settle_all};
use super::handles::{Ask, Finish, Handle, See, positions};
use super::plain::{Patience, Puts};
use crate::event::{Parts, point};
use crate::oracle::Log;
use crate::plan::Fate;

/// The words of an event.
pub type Words = [u64; 3];

/// Number of events that a call copies at most.
const MOST: usize = 16;

/// The way in which a stage uses copies.
pub trait Copies: Access {
    /// Shows a copy to the oracle.
    fn show<C: Again>(
        handle: &mut CopyingConsumer<Words, Self, C>,
        seq: u64,
        words: Words,
        see: See<'_>,
    ) where
        Self: Sized;
    fn for_each<C: Again>(
        handle: &mut CopyingConsumer<Words, Self, C>,
        see: See<'_>,
    ) -> Result<u64, WaitError>
    where
        Self: Sized;
}

impl Copies for Reading {
    fn show<C: Again>(
        _: &mut CopyingConsumer<Words, Reading, C>,
        seq: u64,
        words: Words,
        see: See<'_>,
    ) {
        see(seq, &Parts::of_words(words));
    }
    fn for_each<C: Again>(
        handle: &mut CopyingConsumer<Words, Reading, C>,
        see: See<'_>,
    ) -> Result<u64, WaitError> {
        handle.for_each(|words, seq| _ = see(seq, &Parts::of_words(words)))
    }
}

impl Copies for Updating {
    fn show<C: Again>(
        handle: &mut CopyingConsumer<Words, Updating, C>,
        seq: u64,
        words: Words,
        see: See<'_>,
    ) {
        let mut event = Parts::of_words(words);
        let trail = see(seq, &event);
        event.write(trail);
        assert!(handle.write_back(seq, &event.words()), "the copy of {seq} is not released");
    }
    fn for_each<C: Again>(
        handle: &mut CopyingConsumer<Words, Updating, C>,
        see: See<'_>,
    ) -> Result<u64, WaitError> {
        handle.for_each(|words, seq| {
            let mut event = Parts::of_words(*words);
            let trail = see(seq, &event);
            event.write(trail);
            *words = event.words();
        })
    }
}

/// Calls by which a handle tells of events that come again.
pub trait Again: Delivery + Sized {
    /// Whether it tells with each batch.
    const IN_CHUNKS: bool = false;
    fn again<A: Access>(_: &CopyingConsumer<Words, A, Self>) -> (u64, usize) {
        (0, 0)
    }
}

macro_rules! again {
    ($($delivery:ident $in_chunks:literal),*) => { $(
        impl Again for $delivery {
            const IN_CHUNKS: bool = $in_chunks;
            fn again<A: Access>(handle: &CopyingConsumer<Words, A, $delivery>) -> (u64, usize) {
                positions(handle.redelivered())
            }
        }
    )* };
}
again!(Seated false, SeatedShard false, SeatedWorker true);
impl Again for Joined {}

/// A consumer that copies. It releases its events in its next call, or by its own.
pub struct Copied<A: Access, C: Delivery>(pub CopyingConsumer<Words, A, C>);

impl<A: Copies, C: Again> Handle for Copied<A, C>
where
    CopyingConsumer<Words, A, C>: Send,
{
    fn redelivered(&self) -> (u64, usize) {
        C::again(&self.0)
    }

    fn tells_again(&self) -> bool {
        C::IN_CHUNKS
    }

    fn poll(&mut self, max: usize, see: See<'_>) -> Result<usize, WaitError> {
        match self.batch(Ask::Try, max, Finish::All, &Cell::default(), see) {
            Err(BatchError::Wait(error)) => Err(error),
            found => Ok(found.unwrap_or(0)),
        }
    }

    fn for_each(&mut self, see: See<'_>) -> Result<u64, WaitError> {
        A::for_each(&mut self.0, see)
    }

    fn batch(
        &mut self,
        ask: Ask,
        max: usize,
        finish: Finish,
        again: &Cell<(u64, usize)>,
        see: See<'_>,
    ) -> Result<usize, BatchError> {
        let (handle, mut copies) = (&mut self.0, [Words::default(); MOST]);
        let (first, len) = if max == 1 {
            let (event, seq) = match ask {
                Ask::Wait | Ask::Task(_) => handle.next()?,
                Ask::Try => handle.try_next()?,
                Ask::For(time) => handle.next_by(sync::now() + time)?,
            };
            copies[0] = event;
            (seq, 1)
        } else {
            let copies = &mut copies[..max.min(MOST)];
            match ask {
                Ask::Wait | Ask::Task(_) => handle.read_batch(copies)?,
                Ask::Try => handle.try_read_batch(copies)?,
                Ask::For(time) => handle.read_batch_by(sync::now() + time, copies)?,
            }
        };
        if C::IN_CHUNKS {
            again.set(C::again(handle));
        }
        for (offset, words) in copies[..len].iter().enumerate() {
            A::show(handle, first.wrapping_add(offset as u64), *words, see);
        }
        if finish == Finish::FrontFirst {
            point();
            handle.release();
        }
        Ok(len)
    }
}

impl<S: Sharing> Puts for CopyingProducer<Words, S>
where
    Self: Closes,
{
    fn capacity(&self) -> usize {
        CopyingProducer::capacity(self)
    }

    fn put_by(&mut self, log: &Log, id: u64, patience: Patience) -> Result<u64, ClaimError> {
        let event = Parts::of(id).words();
        let done = match patience {
            Patience::Wait => self.publish(&event).map_err(ClaimError::from),
            Patience::Try => self.try_publish(&event),
            Patience::Until(deadline) => self.publish_by(deadline, &event),
        };
        settle(log, id, false, &done, |seq| *seq);
        done
    }

    fn put_all(&mut self, log: &Log, events: usize) -> Result<(), ClaimError> {
        let most = CopyingProducer::capacity(self);
        for first in (0..events).step_by(most) {
            let ids: Vec<u64> = (first..events.min(first + most)).map(|_| log.begin()).collect();
            let all: Vec<Words> = ids.iter().map(|id| Parts::of(*id).words()).collect();
            let done = Patience::all_ways(|patience| match patience {
                Patience::Wait => self.publish_batch(&all),
                Patience::Try => self.try_publish_batch(&all),
                Patience::Until(deadline) => self.publish_batch_by(deadline, &all),
            });
            settle_all(log, &ids, &done);
            log.whole(done?, ids.len() as u64);
        }
        Ok(())
    }

    /// It holds no claim between two calls.
    fn claim(&mut self, log: &Log, len: usize, _: Fate) -> Result<(), ClaimError> {
        self.put_all(log, len)
    }

    fn remaining(&mut self) -> Option<usize> {
        Some(CopyingProducer::remaining(self))
    }

    fn close_all(self: Box<Self>) {
        Closes::close_all(*self);
    }
}

/// Producers that can close the ring for all, if they are several.
pub trait Closes {
    fn close_all(self);
}

impl Closes for CopyingProducer<Words, Single> {
    fn close_all(self) {
        self.close();
    }
}

impl Closes for CopyingProducer<Words, Apart> {
    fn close_all(self) {
        CopyingProducer::close_all(self);
    }
}
