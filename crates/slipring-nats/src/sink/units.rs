//! The units that a sink appends: one that is being filled, and those in flight.
//!
//! Invariants
//! - I1: units are contiguous: `after` of each is the end of its predecessor.
//! - I2: the window has the units that are not acknowledged, in the order in which they were sent.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::frame::{HEADER, Header, LENGTH};
use crate::message;
use crate::nats::publish::{Body, Single};

/// Greatest number of single events in a batch.
pub const BATCH: usize = 1000;

/// Greatest length of the headers of a message with a single event, in bytes.
pub const MESSAGE_HEADERS: usize = 512;

/// An append: a frame, or a batch of single events.
pub struct Unit {
    /// Number of the append, which its answer repeats.
    pub number: u64,
    /// Position behind the last event.
    pub end: u64,
    pub events: u64,
    pub body: Body,
    /// Time at which the unit was last handed to the client.
    pub sent: Instant,
}

/// Events that are not sent yet.
pub struct Filling {
    /// Header of each unit, except for the positions.
    pub template: Header,
    /// Position behind the last event of the previous unit.
    after: u64,
    first: u64,
    count: u32,
    bytes: Vec<u8>,
    singles: Vec<Single>,
    /// Length of the singles' payloads and headers, in bytes.
    singles_length: usize,
    taken: Instant,
    /// Greatest length of a unit, in bytes.
    max: usize,
    next_number: u64,
    /// Buffers of acknowledged frames, for later units.
    spare: Vec<Vec<u8>>,
}

impl Filling {
    /// Returns an empty unit behind position `after`.
    pub fn new(template: Header, after: u64, max: usize) -> Filling {
        Filling {
            template,
            after,
            first: after,
            count: 0,
            bytes: Vec::new(),
            singles: Vec::new(),
            singles_length: 0,
            taken: Instant::now(),
            max,
            next_number: 0,
            spare: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sets the greatest length of a unit, in bytes.
    pub fn limit(&mut self, max: usize) {
        self.max = max;
    }

    /// Returns whether the unit has become longer than allowed, because the limit fell.
    pub fn is_long(&self) -> bool {
        self.count != 0 && self.bytes.len() > self.max
    }

    /// Continues behind position `after` with another header for each unit. The unit that is being
    /// filled must be empty.
    pub fn begin_again(&mut self, template: Header, after: u64) {
        (self.template, self.after) = (template, after);
    }

    /// Returns when the first event was taken from the ring.
    pub fn taken(&self) -> Instant {
        self.taken
    }

    /// Returns the position behind the last event.
    #[inline]
    pub fn end(&self) -> u64 {
        if self.count == 0 { self.after } else { self.first + u64::from(self.count) }
    }

    /// Returns for how many events of `size` bytes the unit has room.
    pub fn room(&self, size: usize) -> usize {
        let used = self.bytes.len().max(HEADER);
        self.max.saturating_sub(used) / size.max(1)
    }

    /// Returns whether there is a hole between the last event and one at `seq`.
    #[inline]
    pub fn is_behind_hole(&self, seq: u64) -> bool {
        self.count != 0 && seq != self.end()
    }

    /// Returns whether the frame has no room for an event of varying size with `length` bytes.
    pub fn is_full_for(&self, length: usize) -> bool {
        self.count != 0 && self.bytes.len() + LENGTH + length > self.max
    }

    /// Returns whether the batch has no room for a message of `length` bytes.
    pub fn is_full_for_single(&self, length: usize) -> bool {
        self.singles.len() >= BATCH
            || (!self.singles.is_empty() && self.singles_length + length > self.max)
    }

    /// Counts the event at `seq`, which may be the first.
    #[inline]
    fn begin(&mut self, seq: u64) {
        if self.count == 0 {
            self.first = seq;
            self.taken = Instant::now();
        }
        self.count += 1;
    }

    /// Returns the buffer to which the bytes of the event at `seq` are appended.
    #[inline] // called for each event, from the crate that makes the ring
    pub fn plain(&mut self, seq: u64) -> &mut Vec<u8> {
        self.begin_frame(seq);
        &mut self.bytes
    }

    /// Adds an event of varying size.
    pub fn varied(&mut self, seq: u64, event: &[u8]) {
        self.begin_frame(seq);
        self.bytes.extend_from_slice(&(event.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(event);
    }

    #[inline]
    fn begin_frame(&mut self, seq: u64) {
        if self.count == 0 {
            self.take_buffer();
        }
        self.begin(seq);
    }

    /// Makes room for a frame's header.
    fn take_buffer(&mut self) {
        self.bytes = self.spare.pop().unwrap_or_default();
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
    }

    /// Adds an event as a message of its own.
    pub fn single(&mut self, seq: u64, subject: String, event: &[u8]) {
        let after = self.end();
        self.begin(seq);
        let header = Header { after, first: seq, count: 1, event_size: 0, ..self.template };
        let description = message::describe(&header, event);
        self.singles_length += event.len() + description.len() + subject.len();
        let description = Some((description, seq));
        let payload = Bytes::copy_from_slice(event);
        self.singles.push(Single { subject, description, payload });
    }

    /// Ends the unit, and begins the next one behind it.
    pub fn seal(&mut self) -> Unit {
        let (end, events) = (self.end(), u64::from(self.count));
        let body = if self.singles.is_empty() {
            let header =
                Header { after: self.after, first: self.first, count: self.count, ..self.template };
            header.write(&mut self.bytes);
            Body::Frame(Bytes::from(std::mem::take(&mut self.bytes)))
        } else {
            self.singles_length = 0;
            Body::Batch(std::mem::take(&mut self.singles))
        };
        let number = self.next_number;
        self.next_number += 1;
        (self.after, self.count) = (end, 0);
        step!("sink-sealed");
        Unit { number, end, events, body, sent: self.taken }
    }

    /// Returns a unit without events that declares a hole up to position `end`.
    pub fn seal_hole(&mut self, end: u64, message: impl FnOnce(&Header) -> Single) -> Unit {
        let header = Header { after: self.after, first: end, count: 0, ..self.template };
        let body = Body::Batch(vec![message(&header)]);
        self.after = end;
        let number = self.next_number;
        self.next_number += 1;
        Unit { number, end, events: 0, body, sent: Instant::now() }
    }

    /// Keeps the buffer of a frame for a later one, if the client no longer uses it.
    pub fn recycle(&mut self, body: Body) {
        if let Body::Frame(frame) = body
            && self.spare.len() < 4
            && let Ok(buffer) = frame.try_into_mut().map(BytesMut::into)
        {
            self.spare.push(buffer);
        }
    }
}

/// The units that are sent and not acknowledged, the oldest first.
#[derive(Default)]
pub struct Window {
    units: VecDeque<Unit>,
}

impl Window {
    pub fn len(&self) -> usize {
        self.units.len()
    }

    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    pub fn oldest(&self) -> Option<&Unit> {
        self.units.front()
    }

    pub fn push(&mut self, unit: Unit) {
        self.units.push_back(unit);
    }

    pub fn pop(&mut self) -> Option<Unit> {
        self.units.pop_front()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Unit> {
        self.units.iter_mut()
    }
}
