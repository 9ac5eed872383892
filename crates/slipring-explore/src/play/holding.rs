//! Batches that a handle holds, while it goes on with later ones.
//!
//! - I1: The library lends a held event until it is released, so it stays in its slot. If the
//!   library breaks that promise, another virtual thread writes to the slot; all of them share one
//!   system thread, so no two accesses happen at once.

use std::cell::Cell;
use std::time::Duration;

use slipring::errors::{BatchError, WaitError};
use slipring_coherence::sync;

use super::handles::{Ask, Finish, Handle};
use crate::event::{Parts, Seen};
use crate::oracle::Log;
use crate::watch::Watch;

/// A held event: its position, its place in memory, and its parts.
struct HeldEvent {
    seq: u64,
    place: *const Parts,
    parts: Parts,
}

/// The events that a handle holds, in their order.
#[derive(Default)]
pub struct Holding(Vec<HeldEvent>);

impl Holding {
    fn first(&self) -> Option<u64> {
        self.0.first().map(|held| held.seq)
    }

    /// Notes an event, whose trail is `trail` if the stage writes.
    fn add(&mut self, watch: &Watch, seq: u64, event: &dyn Seen, trail: u64) {
        let (place, mut parts) = (&raw const *event.parts(), *event.parts());
        if watch.writes() {
            parts.write(trail);
        }
        self.0.push(HeldEvent { seq, place, parts });
        watch.log().holds(watch.stage(), self.first());
    }

    /// Whether the ring has no slot that is not held.
    fn is_whole(&self, log: &Log) -> bool {
        let (first, last) = (self.0.first(), self.0.last());
        first.zip(last).is_some_and(|(first, last)| {
            last.seq.wrapping_sub(first.seq) + 1 >= log.plan().capacity as u64
        })
    }

    /// Checks the held events, and releases the first `count`.
    fn release(&mut self, handle: &mut dyn Handle, watch: &Watch, count: usize) {
        for held in &self.0 {
            // SAFETY: I1, and the ring lives as long as its handle.
            let now = unsafe { std::ptr::read_volatile(held.place) };
            if now != held.parts {
                watch.log().violation(format!(
                    "the event at {} changed while s{} held it: {:x?}, then {now:x?}",
                    held.seq,
                    watch.stage(),
                    held.parts
                ));
            }
        }
        let Some(last) = count.checked_sub(1).and_then(|last| self.0.get(last)) else { return };
        let end = last.seq.wrapping_add(1);
        self.0.drain(..count);
        // The release lets others see the event before the call returns.
        watch.log().holds(watch.stage(), self.first());
        handle.release_until(end);
    }
}

/// Holds a batch, and those of `calls` calls behind it, and releases them in two parts. `handled`
/// notes an event that the stage has handled. Returns the result of the last call.
pub fn hold(
    handle: &mut dyn Handle,
    watch: &mut Watch,
    (max, calls): (usize, u64),
    first: Ask,
    handled: &mut dyn FnMut(&mut Watch, u64, u64),
) -> Result<usize, BatchError> {
    let mut holding = Holding::default();
    let mut found = Ok(0);
    for call in 0..=calls {
        let is_whole = holding.is_whole(watch.log());
        let ask = match call {
            0 => first,
            _ if is_whole => Ask::Wait,
            // A producer may wait for what this handle holds.
            _ => {
                sync::sleep(Duration::from_micros(20));
                Ask::Try
            }
        };
        found = handle.batch(ask, max, Finish::Hold, &Cell::default(), &mut |seq, event| {
            let trail = watch.look(seq, event);
            holding.add(watch, seq, event, trail);
            handled(watch, seq, Watch::id(event));
            trail
        });
        let name = watch.name();
        let waits_for_itself = |error: &BatchError| match error {
            BatchError::Wait(WaitError::WaitsForItself(stage)) => stage.to_string() == name,
            _ => false,
        };
        match &found {
            Ok(len) if is_whole => watch.log().violation(format!(
                "s{} holds the whole ring, and got {len} events",
                watch.stage()
            )),
            Err(error) if waits_for_itself(error) && !holding.0.is_empty() => {
                found = Ok(0);
                break;
            }
            Err(BatchError::Wait(error)) if !matches!(error, WaitError::TimedOut(_)) => break,
            _ => {}
        }
    }
    let len = holding.0.len();
    holding.release(handle, watch, len.div_ceil(2));
    crate::event::point();
    let left = holding.0.len();
    holding.release(handle, watch, left);
    found
}
