//! Checks the events that one handle of a stage gets.
//!
//! - I1: A reference to an event comes from the library, which lends the event meanwhile. If the
//!   library breaks that promise, another virtual thread writes to the slot; all of them share one
//!   system thread, so even then no two accesses happen at once.

use std::sync::Arc;
use std::time::Duration;

use slipring_coherence::sync;

use crate::event::{Parts, Seen, after_write, point};
use crate::oracle::Log;
use crate::plan::Kind;

/// Number of accesses without progress after which a stage is taken to have lost a wake-up. A slow
/// or held thread makes some thousand of the first quarter million of a run. Then it gets its
/// turns, and may have some thousand polls before it.
const PATIENCE: u64 = 700_000;

/// The same as a number of looks, between which all others may sleep without an access. Where the
/// clock leaps, two looks are a few dozen accesses apart.
const LOOKS: u32 = 20_000;

/// Time for which a party's processes may be absent one after the other, in nanoseconds: four
/// deaths, each before an absence of 20 ms. A program that polls meanwhile makes more accesses than
/// [`PATIENCE`] in one absence.
const ABSENCES: u64 = 100_000_000;

/// Waits until `what` returns `None`, or the graph is disrupted. Returns a value that it returned
/// without a change, until patience ended.
pub fn await_none<T: Clone + PartialEq>(log: &Log, what: impl Fn() -> Option<T>) -> Option<T> {
    let least = if log.pauses() { ABSENCES } else { 0 };
    await_none_for(least, || what().filter(|_| !log.is_disrupted()))
}

/// The same, although the graph is disrupted.
pub fn await_none_at_end<T: Clone + PartialEq>(what: impl Fn() -> Option<T>) -> Option<T> {
    await_none_for(0, what)
}

/// The same, for at least so many nanoseconds without a change, unless all others sleep.
fn await_none_for<T: Clone + PartialEq>(least: u64, what: impl Fn() -> Option<T>) -> Option<T> {
    let (mut last, mut since, mut looks) = (None, (0, 0), 0);
    let now = || (slipring_coherence::accesses(), sync::virtual_nanos().unwrap_or(0));
    while let Some(found) = what() {
        let (accesses, nanos) = now();
        let is_long = accesses - since.0 > PATIENCE && nanos - since.1 >= least;
        if last.as_ref() != Some(&found) {
            (last, since, looks) = (Some(found), (accesses, nanos), 0);
        } else if looks > LOOKS || is_long {
            return last;
        }
        looks += 1;
        // Longer than any timer of the library. The clock leaps to its end when all sleep.
        sync::sleep(Duration::from_millis(1));
    }
    None
}

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

    /// The stage.
    pub fn stage(&self) -> usize {
        self.stage
    }

    /// Whether the stage's handlers change events.
    pub fn writes(&self) -> bool {
        self.log.plan().stages[self.stage].kind.writes()
    }

    /// Waits until another stage has handled what this one has handled before `seq`, or all that is
    /// published. A worker waits for its colleagues, but not for its own event.
    pub fn await_stage(&self, other: usize, seq: u64) {
        let is_behind = self.log.plan().before(other).contains(&self.stage);
        let lags = || match is_behind {
            true => !self.log.has_followed(other, self.stage, seq),
            false => self.log.lags(other, usize::from(other == self.stage)),
        };
        if await_none(&self.log, || lags().then_some(())).is_some() {
            self.log.violation(format!(
                "stage s{other} sleeps on, while s{} waits for it at {seq}",
                self.stage
            ));
        }
    }

    /// Waits until at most `left` producers have not ended.
    pub fn await_producers(&self, left: usize) {
        let producing = || self.log.producing().filter(|number| *number > left);
        if let Some(number) = await_none_at_end(producing) {
            self.log.violation(format!("{number} producers of a closed ring sleep on"));
        }
    }

    /// Notes that the stage skips an event.
    pub fn skips(&self, seq: u64) {
        self.log.skips(self.stage, seq);
    }

    /// Notes that a call has returned events.
    pub fn called(&self, first: u64, len: u64, max: usize) {
        if self.subscriber.is_none() {
            self.log.called(self.stage, first, len, max as u64);
        }
    }

    /// Notes that a call of the handle has released the events that it has handled.
    pub fn has_released(&self) {
        if self.in_order && !self.repeats && self.subscriber.is_none() {
            self.log.has_released(self.stage);
        }
    }

    /// The stage's name.
    pub fn name(&self) -> String {
        Log::name(self.stage)
    }

    /// Whether the handle is a reader of a tap.
    pub fn is_subscriber(&self) -> bool {
        self.subscriber.is_some()
    }

    /// Checks an event that is lent, and answers its request. Returns its new trail, for a writer.
    pub fn look(&self, seq: u64, event: &dyn Seen) -> u64 {
        let trail = self.look_in_vain(seq, event);
        let mut stages = self.log.plan().stages.iter();
        let last = stages.rposition(|stage| stage.kind != Kind::Tap);
        // The first stage answers, or the last one.
        if Watch::id(event).is_multiple_of(2) || last == Some(self.stage) {
            event.answer();
        }
        trail
    }

    /// Checks an event that is lent, at two moments. Returns its new trail, for a writer.
    pub fn look_in_vain(&self, seq: u64, event: &dyn Seen) -> u64 {
        let first = *event.parts();
        let trails = self.trails(seq, &first);
        let own = |trail: &u64| after_write(*trail, self.stage);
        if self.repeats_at(seq) && trails.iter().map(own).any(|own| own == first.trail()) {
            return first.trail();
        }
        if !first.is_whole() || !trails.contains(&first.trail()) {
            self.log.violation(format!(
                "stage s{} got a torn event, or one without its writers, at {seq}: {first:x?}",
                self.stage
            ));
        }
        self.check_bytes(seq, event);
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
        self.check_bytes(seq, event);
        self.log.check_marks(self.stage, seq);
        own(&first.trail())
    }

    /// Checks the bytes of an event beside its parts.
    fn check_bytes(&self, seq: u64, event: &dyn Seen) {
        if let Some(flaw) = event.flaw() {
            self.log.violation(format!("stage s{} got {flaw} at {seq}", self.stage));
        }
    }

    /// Returns the trails that an event may have before this stage.
    fn trails(&self, seq: u64, event: &Parts) -> Vec<u64> {
        self.log.trails(&self.writers, seq, event)
    }

    /// Passes over the suspects of a handle that has not lent an event yet: the position and the
    /// identity that each of their slots has.
    pub fn passes_over(&self, slots: impl IntoIterator<Item = (u64, u64)>) {
        slots.into_iter().for_each(|(seq, id)| self.log.passes_over(self.stage, seq, id));
    }

    /// Notes which positions may come again in this call, as its batch has told, and no others.
    pub fn repeats_only(&mut self, redelivered: (u64, usize)) -> bool {
        self.redelivered = redelivered;
        std::mem::replace(&mut self.repeats, false)
    }

    /// Notes whether any event may come again.
    pub fn repeats_any(&mut self, repeats: bool) {
        self.repeats = repeats;
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
