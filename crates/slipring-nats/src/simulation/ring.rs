//! Rings of the simulation, which survive the sinks and sources at them.
//!
//! Invariants
//! - I1: a handle lends a run of consecutive positions, as a batch of the library does: it passes
//!   over positions without events, and stops in front of the next one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use slipring::errors::{BatchError, ClaimError, WaitError};
use tokio::sync::Notify;

use super::oracle::Oracle;
use crate::frame::Id;
use crate::sink::{Stage, StageSealed};
use crate::source::{Feed, FeedSealed};

/// Locks a part of the simulation, which has a single thread.
pub fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ring of a sink.
#[derive(Clone)]
pub struct SinkRing(Arc<Mutex<Slots>>);

struct Slots {
    epoch: Id,
    /// Events that are not released yet.
    events: BTreeMap<u64, u64>,
    /// Position behind the last published one.
    end: u64,
    /// Position of the sink.
    next: u64,
    released: u64,
    capacity: u64,
    closed: bool,
    waker: Option<Waker>,
    oracle: Arc<Mutex<Oracle>>,
}

impl SinkRing {
    pub fn new(epoch: Id, first: u64, capacity: u64, oracle: Arc<Mutex<Oracle>>) -> SinkRing {
        let (events, waker) = (BTreeMap::new(), None);
        let (end, next, released) = (first, first, first);
        let closed = false;
        let slots = Slots { epoch, events, end, next, released, capacity, closed, waker, oracle };
        SinkRing(Arc::new(Mutex::new(slots)))
    }

    pub fn epoch(&self) -> Id {
        lock(&self.0).epoch
    }

    /// Lets a new sink begin at the first position that is not released. Returns that position.
    pub fn attach(&self) -> u64 {
        let mut slots = lock(&self.0);
        slots.next = slots.released;
        slots.next
    }

    /// Publishes up to `events` events, as far as there is room.
    pub fn publish(&self, events: u64) {
        let mut slots = lock(&self.0);
        for _ in 0..events {
            if slots.closed || slots.end >= slots.released + slots.capacity {
                break;
            }
            let (epoch, seq) = (slots.epoch, slots.end);
            let event = lock(&slots.oracle).published(epoch, seq);
            slots.events.insert(seq, event);
            slots.end += 1;
        }
        slots.wake();
    }

    /// Leaves out up to `positions` positions, as far as there is room.
    pub fn leave_out(&self, positions: u64) {
        let mut slots = lock(&self.0);
        let room = slots.released + slots.capacity - slots.end;
        slots.end += positions.min(room);
    }

    pub fn close(&self) {
        let mut slots = lock(&self.0);
        slots.closed = true;
        slots.wake();
    }
}

impl Slots {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Returns the events that a handle may lend (I1).
    fn run(&self) -> impl Iterator<Item = (u64, u64)> {
        let first = self.events.range(self.next..).next().map_or(0, |(seq, _)| *seq);
        let run = self.events.range(first.max(self.next)..).zip(first..);
        run.take_while(|((seq, _), at)| **seq == *at).map(|((seq, event), _)| (*seq, *event))
    }

    fn nothing(&self) -> BatchError {
        match self.closed {
            true => BatchError::Wait(WaitError::Closed),
            false => BatchError::Unavailable,
        }
    }
}

/// The sink's handle of its ring.
pub struct SinkStage(pub SinkRing);

impl StageSealed for SinkStage {}

impl Stage for SinkStage {
    type Event = u64;
    fn name(&self) -> String {
        "journal".into()
    }
    fn next(&self) -> u64 {
        lock(&self.0.0).next
    }
    fn known(&mut self) -> Result<usize, BatchError> {
        let slots = lock(&self.0.0);
        match slots.run().count() {
            0 => Err(slots.nothing()),
            known => Ok(known),
        }
    }
    fn hold(
        &mut self,
        max: usize,
        mut each: impl FnMut(&u64, u64) -> ControlFlow<()>,
    ) -> Result<usize, BatchError> {
        let mut slots = lock(&self.0.0);
        let run: Vec<(u64, u64)> = slots.run().take(max).collect();
        if run.is_empty() {
            return if max == 0 { Ok(0) } else { Err(slots.nothing()) };
        }
        let mut held = 0;
        for (seq, event) in run {
            held += 1;
            slots.next = seq + 1;
            if each(&event, seq).is_break() {
                break;
            }
        }
        Ok(held)
    }
    fn release(&mut self, end: u64) {
        let mut slots = lock(&self.0.0);
        let (epoch, from, end) = (slots.epoch, slots.released, end.min(slots.next));
        lock(&slots.oracle).released(epoch, from, end);
        slots.released = from.max(end);
        slots.events = slots.events.split_off(&end);
    }
    fn arm(&mut self, waker: &Waker) -> bool {
        let mut slots = lock(&self.0.0);
        let is_ready = slots.closed || slots.run().next().is_some();
        slots.waker = (!is_ready).then(|| waker.clone());
        is_ready
    }
    fn disarm(&mut self) {
        lock(&self.0.0).waker = None;
    }
}

/// The ring of a source, of which a reader takes all events at intervals.
#[derive(Clone)]
pub struct SourceRing(Arc<Mutex<Filled>>);

struct Filled {
    next: u64,
    read: u64,
    capacity: u64,
    /// Event of the previous lap, which each slot still has.
    stale: u64,
    published: Arc<Notify>,
    waker: Option<Waker>,
    oracle: Arc<Mutex<Oracle>>,
}

impl SourceRing {
    pub fn new(capacity: u64, oracle: Arc<Mutex<Oracle>>) -> SourceRing {
        let (published, waker) = (Arc::default(), None);
        let filled = Filled { next: 0, read: 0, capacity, stale: 0, published, waker, oracle };
        SourceRing(Arc::new(Mutex::new(filled)))
    }

    pub fn next(&self) -> u64 {
        lock(&self.0).next
    }

    /// Takes all events again and again, so long after the first of them.
    pub async fn read(self, pause: Duration) {
        let published = lock(&self.0).published.clone();
        loop {
            published.notified().await;
            tokio::time::sleep(pause).await;
            let mut filled = lock(&self.0);
            filled.read = filled.next;
            if let Some(waker) = filled.waker.take() {
                waker.wake();
            }
        }
    }
}

/// The source's handle of its ring.
pub struct SourceFeed(pub SourceRing);

impl SourceFeed {
    /// Waits for room for `len` positions.
    async fn room(&self, len: usize) {
        std::future::poll_fn(|context| {
            let mut filled = lock(&self.0.0);
            if filled.next + len as u64 <= filled.read + filled.capacity {
                return Poll::Ready(());
            }
            filled.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl FeedSealed for SourceFeed {}

impl Feed for SourceFeed {
    type Event = u64;
    fn next(&self) -> u64 {
        self.0.next()
    }
    fn slots(&self) -> usize {
        lock(&self.0.0).capacity as usize
    }
    fn end_failed(&self) {}
    async fn fill<R>(
        &mut self,
        len: usize,
        mut fill: impl FnMut(&mut u64) -> Result<(), R>,
    ) -> Result<Result<u64, R>, ClaimError> {
        self.room(len).await;
        let mut filled = lock(&self.0.0);
        let first = filled.next;
        let mut events = Vec::new();
        for _ in 0..len {
            let mut slot = filled.stale;
            if let Err(error) = fill(&mut slot) {
                return Ok(Err(error));
            }
            events.push(slot);
        }
        for (seq, event) in (first..).zip(&events) {
            lock(&filled.oracle).filled(seq, *event);
            filled.stale = *event;
        }
        filled.next += len as u64;
        filled.published.notify_one();
        Ok(Ok(first))
    }
    async fn skip(&mut self, len: usize) -> Result<bool, ClaimError> {
        self.room(len).await;
        let mut filled = lock(&self.0.0);
        let first = filled.next;
        lock(&filled.oracle).skipped(first, len as u64);
        filled.next += len as u64;
        filled.published.notify_one();
        Ok(true)
    }
}
