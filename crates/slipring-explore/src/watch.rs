//! Checks the events that one handle of a stage gets.
//!
//! - I1: A reference to an event comes from the library, which lends the event meanwhile. If the
//!   library breaks that promise, another virtual thread writes to the slot; all of them share one
//!   system thread, so even then no two accesses happen at once.

use std::sync::Arc;

use crate::event::{Parts, Seen, after_write, point};
use crate::oracle::Log;

/// Checks the events of one handle of a stage.
pub struct Watch {
    log: Arc<Log>,
    stage: usize,
    /// Number of the subscriber of a tap.
    subscriber: Option<usize>,
    writers: Vec<usize>,
    /// The place of its last event, if it gets its events in order.
    last: Option<u64>,
    in_order: bool,
    /// Whether events may come again, after a handler's failure that is retried.
    repeats: bool,
    /// The positions that may come again, by what the handle said when it was made.
    redelivered: (u64, usize),
}

impl Watch {
    /// Returns the watch of a handle, a worker or a shard of `stage`.
    pub fn new(log: &Arc<Log>, stage: usize, subscriber: Option<usize>) -> Watch {
        let writers = log.plan().writers_before(stage);
        let in_order = !log.plan().stages[stage].kind.is_pool();
        Watch {
            log: log.clone(),
            stage,
            subscriber,
            writers,
            last: None,
            in_order,
            repeats: false,
            redelivered: (0, 0),
        }
    }

    /// The ring's log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Whether the stage's handlers change events.
    pub fn writes(&self) -> bool {
        self.log.plan().stages[self.stage].kind.writes()
    }

    /// The stage's name.
    pub fn name(&self) -> String {
        Log::name(self.stage)
    }

    /// Checks an event that is lent, at two moments. Returns its new trail, for a writer.
    pub fn look(&self, seq: u64, event: &dyn Seen) -> u64 {
        let trail = |event: &Parts| {
            self.writers
                .iter()
                .fold(event.first_trail(), |trail, &writer| after_write(trail, writer))
        };
        let first = *event.parts();
        let own = after_write(trail(&first), self.stage);
        if self.repeats_at(seq) && first.trail() == own {
            return own;
        }
        if !first.is_whole() || first.trail() != trail(&first) {
            self.log.violation(format!(
                "stage s{} got a torn event, or one without its writers, at {seq}: {first:x?}",
                self.stage
            ));
        }
        point();
        // Another thread may have written to the slot: the compiler must not remember the first
        // look.
        // SAFETY: I1: the reference is valid for reads.
        let second = unsafe { std::ptr::read_volatile(event.parts()) };
        if first != second {
            self.log.violation(format!(
                "the event at {seq} changed while stage s{} had it: {first:x?}, then {second:x?}",
                self.stage
            ));
        }
        event.answer();
        own
    }

    /// Notes that an event was handled, and will not be delivered again. Returns whether it is the
    /// first time.
    pub fn handled(&mut self, seq: u64, id: u64) -> bool {
        let place = self.log.place(seq);
        if self.repeats_at(seq) && self.log.has_handled(self.stage, seq, id) {
            return false;
        }
        if self.in_order && self.last.is_some_and(|last| last >= place) {
            self.log.violation(format!("stage s{} handled {seq} out of order", self.stage));
        }
        self.last = Some(place);
        match self.subscriber {
            None => self.log.handled(self.stage, seq, id),
            Some(number) => self.log.read_by(number, self.stage, seq),
        }
        true
    }

    /// Notes the positions that may come again, of which the handle has told: the first one, and
    /// their number.
    pub fn may_repeat_at(&mut self, redelivered: (u64, usize)) {
        self.redelivered = redelivered;
    }

    fn repeats_at(&self, seq: u64) -> bool {
        let (first, len) = self.redelivered;
        self.repeats || seq.wrapping_sub(first) < len as u64
    }

    /// Notes that events since the last release may come again.
    pub fn may_repeat(&mut self) {
        self.repeats = true;
        self.log.retries(self.stage);
    }

    /// The identity of an event.
    pub fn id(event: &dyn Seen) -> u64 {
        event.parts().id()
    }
}
