//! What becomes of a stage whose handler fails, and how much it handles at a time.
//!
//! Invariants
//! - I1: a stage that goes on after a failure has let go of nothing it did not handle or skip: it
//!   starts again at its last release, or passes over the event that it failed at as if that had
//!   been handled.
//! - I2: that an event was skipped is noted before it is released, so every later stage can know.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::name::Name;
use crate::base::sync::{AtomicU64, Relaxed, array};

/// What becomes of a stage when its handler returns an error, or panics. The default is to stop:
/// the graph fails.
///
/// ```
/// use slipring::OnFault;
/// use std::time::Duration;
/// let mut tries = 0;
/// let done = slipring::ring(8, || 0u64)
///     .read("send", |v, _| { tries += 1; if *v == 3 && tries % 3 != 0 { Err("busy") } else { Ok(()) } })
///     .on_error(OnFault::retry(5).pause(Duration::from_millis(1)))
///     .write("check", |v, _| if *v == 4 { Err("odd") } else { Ok(()) })
///     .on_error(OnFault::skip())
///     .feed(0..8, |slot, i| *slot = i)?;
/// assert_eq!(done.report.stage("check").unwrap().skipped, 1);
/// assert!(done.report.stage("send").unwrap().retries >= 1);
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnFault {
    retries: u32,
    pause: Duration,
    skips: bool,
}

impl OnFault {
    /// The graph fails, and everybody is told why.
    pub const fn stop() -> OnFault {
        OnFault { retries: 0, pause: Duration::ZERO, skips: false }
    }

    /// The event is passed over, counted, and goes on to later stages as it is: half done, where
    /// the handler changes events. They can know it by a mark ([`Marks`]). It ends its batch. A
    /// handler of batches skips its whole batch.
    #[doc(alias = "IgnoreExceptionHandler")]
    pub const fn skip() -> OnFault {
        OnFault { skips: true, ..OnFault::stop() }
    }

    /// The stage starts again at its last release, up to so many times before it comes to the next
    /// one; then the graph fails. The handler sees events again that it has handled, and with
    /// `&mut` finds them as it left them. With [`Chain::max_batch`](crate::Chain::max_batch) of 1
    /// that is only the event that it failed at.
    #[doc(alias = "BatchRewindStrategy")]
    pub const fn retry(times: u32) -> OnFault {
        OnFault { retries: times, ..OnFault::stop() }
    }

    /// Waits so long before each retry. An end of the graph ends the pause.
    pub const fn pause(self, pause: Duration) -> OnFault {
        OnFault { pause, ..self }
    }

    /// When no retry is left, skips instead of stopping.
    pub const fn then_skip(self) -> OnFault {
        OnFault { skips: true, ..self }
    }

    /// What to do at the `tries`th failure at the same event, counted from 0; `None`: stop.
    pub(crate) fn verdict(self, tries: u32) -> Option<Verdict> {
        if tries < self.retries {
            Some(Verdict::Retried)
        } else {
            self.skips.then_some(Verdict::Skipped)
        }
    }

    pub(crate) fn pauses(self) -> Duration {
        self.pause
    }
}

/// How a stage went on after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It started again at its last release.
    Retried,
    /// It passed over the event, or the batch.
    Skipped,
}

/// A failure that a stage survived, as [`Chain::on_faults`](crate::Chain::on_faults) is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Faulted {
    /// The stage.
    pub stage: Name,
    /// The event's position, if it was at one.
    pub seq: Option<u64>,
    /// What the error says, or the panic.
    pub message: String,
    /// What became of it.
    pub verdict: Verdict,
}

impl fmt::Display for Faulted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.verdict == Verdict::Retried { "starts again" } else { "goes on" };
        write!(f, "stage `{}` {what}", self.stage)?;
        if let Some(seq) = self.seq {
            write!(f, " after event {seq}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Says of events whether a stage skipped them. Put behind the stage with
/// [`Chain::marks`](crate::Chain::marks).
///
/// ```
/// use slipring::{Marks, OnFault};
/// let marks = Marks::new();
/// let mut good = Vec::new();
/// slipring::ring(8, || 0u64)
///     .write("parse", |v, _| if *v % 3 == 0 { Err("three") } else { Ok(()) }).on_error(OnFault::skip()).marks(&marks)
///     .read("keep", |v, at| if !marks.skipped(at.seq) { good.push(*v) })
///     .feed(1..8, |slot, i| *slot = i)?;
/// assert_eq!(good, [1, 2, 4, 5, 7]);
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Marks(Arc<OnceLock<Box<[AtomicU64]>>>);

impl Marks {
    /// Marks of no stage yet.
    pub fn new() -> Marks {
        Marks::default()
    }

    /// Whether the stage skipped the event at this position. For handlers of later stages, and for
    /// events that they have in hand; anybody else may get either answer.
    #[inline]
    pub fn skipped(&self, seq: u64) -> bool {
        // Relaxed: whoever has the event in hand acquired what its stage released, and the mark was
        // stored before (I2).
        self.0.get().is_some_and(|marks| {
            marks[seq as usize & (marks.len() - 1)].load(Relaxed) == seq.wrapping_add(1)
        })
    }

    /// Bytes that a slot takes.
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<AtomicU64>();

    /// Room for a ring that begins at `start`. `false`: there is one already. `None`: there is no
    /// memory for it.
    pub(crate) fn make(&self, start: u64, capacity: usize) -> Option<bool> {
        let slots = capacity;
        let capacity = capacity as u64;
        // No slot is marked for a position that it will hold: each is for the one that it would
        // have held a lap before the first.
        let before = |slot: u64| {
            start.wrapping_add(slot.wrapping_sub(start) & (capacity - 1)).wrapping_sub(capacity)
        };
        Some(
            self.0
                .set(array(slots, |slot| AtomicU64::new(before(slot as u64).wrapping_add(1)))?)
                .is_ok(),
        )
    }

    pub(crate) fn mark(&self, first: u64, len: u64) {
        if let Some(marks) = self.0.get() {
            for seq in (0..len).map(|offset| first.wrapping_add(offset)) {
                marks[seq as usize & (marks.len() - 1)].store(seq.wrapping_add(1), Relaxed);
            }
        }
    }
}

/// All that is settled for one stage of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) error: OnFault,
    pub(crate) panic: OnFault,
    /// It handles no more at a time.
    pub(crate) max_batch: u64,
    /// While it waits it is told so often.
    pub(crate) idle_every: Option<Duration>,
    pub(crate) marks: Option<Marks>,
    /// It runs a loop of its own, so it cannot take turns with others.
    pub(crate) own_loop: bool,
}

impl Policy {
    /// Whether a stage may have to go back to its last release.
    pub(crate) fn rewinds(&self) -> bool {
        self.error.retries != 0 || self.panic.retries != 0
    }
}

impl Default for Policy {
    fn default() -> Policy {
        let stop = OnFault::stop();
        Policy {
            error: stop,
            panic: stop,
            max_batch: u64::MAX,
            idle_every: None,
            marks: None,
            own_loop: false,
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn marks_that_no_memory_holds_are_refused() {
        for capacity in [1 << 50, 1 << 60, 1 << 63] {
            let marks = Marks::new();
            assert_eq!(marks.make(7, capacity), None, "{capacity}");
            assert_eq!(
                (marks.make(7, 4), marks.make(7, 4)),
                (Some(true), Some(false)),
                "it can be used all the same"
            );
        }
    }
}
