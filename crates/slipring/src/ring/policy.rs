//! The policy of a stage says what it does when its handler fails, and how many events it handles
//! between two releases.
//!
//! Invariants
//! - I1: a stage that survives a failure has released only events that it handled or skipped. A
//!   retry begins at its last release, and a skip releases the failed event as if the handler had
//!   handled it.
//! - I2: a stage marks an event as skipped before it releases the event, so every later stage sees
//!   the mark.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::name::Name;
use crate::base::sync::{AtomicU64, Relaxed, array};

/// A stage's reaction when its handler returns an error or panics. Default: the stage stops, and
/// the graph fails.
///
/// [`Chain::on_error`](crate::Chain::on_error) and [`Chain::on_panic`](crate::Chain::on_panic) set
/// the reaction of one stage.
///
/// ```
/// use slipring::OnFault;
/// use std::time::Duration;
/// let mut tries = 0;
/// let done = slipring::ring(8, || 0u64)
///     .read("send", |v, _| {
///         tries += u32::from(*v == 3);
///         if *v == 3 && tries < 3 { Err("busy") } else { Ok(()) } // succeeds at the third try
///     })
///     .on_error(OnFault::retry(5).pause(Duration::from_millis(1)))
///     .update("check", |v, _| if *v == 4 { Err("odd") } else { Ok(()) })
///     .on_error(OnFault::skip())
///     .feed(0..8, |slot, i| *slot = i)?;
/// assert_eq!(done.report.stage("check").unwrap().skipped, 1);
/// assert_eq!(done.report.stage("send").unwrap().retries, 2);
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnFault {
    /// Largest number of retries between two releases.
    retries: u32,
    /// Time before each retry.
    pause: Duration,
    /// Whether the stage skips when no retry is left. Otherwise it stops.
    skips: bool,
}

impl OnFault {
    /// Fails the graph: every other stage and the producer end with an error, too.
    ///
    /// Example: [`OnFault`].
    pub const fn stop() -> OnFault {
        OnFault { retries: 0, pause: Duration::ZERO, skips: false }
    }

    /// Skips the event at which the handler failed, and counts it in
    /// [`StageReport::skipped`](crate::reports::StageReport::skipped).
    ///
    /// Example: [`OnFault`].
    ///
    /// Later stages see the event as the handler left it, perhaps half changed. With [`Marks`],
    /// later stages can ask whether an event was skipped. A skipped event ends its batch. A stage
    /// that handles batches ([`Chain::read_batch`](crate::Chain::read_batch)) skips the whole
    /// batch.
    #[doc(alias = "IgnoreExceptionHandler")]
    pub const fn skip() -> OnFault {
        OnFault { skips: true, ..OnFault::stop() }
    }

    /// Lets the handler retry all events since the stage's last release. After `times` retries
    /// without a new release, the graph fails, unless [`OnFault::then_skip`] makes the stage skip
    /// the event. In a graph that was halted, the stage ends instead of a retry, without a failure.
    ///
    /// Example: [`OnFault`].
    ///
    /// On a retry, a handler that may write gets the events with the changes that it has already
    /// made. With a [`Chain::max_batch`](crate::Chain::max_batch) of 1 the handler gets only the
    /// failed event again.
    #[doc(alias = "BatchRewindStrategy")]
    pub const fn retry(times: u32) -> OnFault {
        OnFault { retries: times, ..OnFault::stop() }
    }

    /// Pauses the stage for this time before each retry. If the graph ends during a pause, the
    /// pause ends early.
    ///
    /// Example: [`OnFault`].
    pub const fn pause(self, pause: Duration) -> OnFault {
        OnFault { pause, ..self }
    }

    /// When no retry is left, the stage skips the event instead of stopping.
    ///
    /// ```
    /// use slipring::OnFault;
    /// let done = slipring::ring(8, || 0u64)
    ///     .read("send", |v, _| if *v == 3 { Err("refused") } else { Ok(()) })
    ///     .on_error(OnFault::retry(2).then_skip())
    ///     .feed(0..8, |slot, i| *slot = i)?;
    /// let send = done.report.stage("send").unwrap();
    /// assert_eq!((send.retries, send.skipped), (2, 1));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub const fn then_skip(self) -> OnFault {
        OnFault { skips: true, ..self }
    }

    /// Returns the stage's action after a failure, or `None` if the stage stops. `tries` is the
    /// number of earlier failures since the last release.
    pub(crate) fn verdict(self, tries: u32) -> Option<Verdict> {
        if tries < self.retries {
            Some(Verdict::Retried)
        } else {
            self.skips.then_some(Verdict::Skipped)
        }
    }

    /// Returns the time before each retry.
    pub(crate) fn pause_time(self) -> Duration {
        self.pause
    }
}

/// A stage's action after a failure that the stage survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The stage goes back to its last release and handles the later events again.
    Retried,
    /// The stage skips the event at which the handler failed, or a batch handler's whole batch.
    Skipped,
}

/// A failure that a stage survives, as passed to the hook of
/// [`Chain::on_faults`](crate::Chain::on_faults).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Faulted {
    /// The stage.
    pub stage: Name,
    /// Position of the event at which the handler failed; `None` if it failed between events.
    pub seq: Option<u64>,
    /// Message of the error or the panic.
    pub message: String,
    /// The stage's action after the failure.
    pub verdict: Verdict,
}

impl fmt::Display for Faulted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage `{}` failed", self.stage)?;
        if let Some(seq) = self.seq {
            write!(f, " at event {seq}")?;
        }
        let verdict = match self.verdict {
            Verdict::Retried => "retried",
            Verdict::Skipped => "skipped",
        };
        write!(f, " ({verdict}): {}", self.message)
    }
}

/// Marks on the events that one stage skipped. Later stages ask [`Marks::skipped`] whether an event
/// was skipped. [`Chain::marks`](crate::Chain::marks) makes a stage mark the events that it skips.
/// Clones of a [`Marks`] share their marks.
///
/// ```
/// use slipring::{OnFault, faults::Marks};
/// let marks = Marks::new();
/// let mut good = Vec::new();
/// slipring::ring(8, || 0u64)
///     .update("parse", |v, _| if *v % 3 == 0 { Err("three") } else { Ok(()) })
///     .on_error(OnFault::skip())
///     .marks(&marks)
///     .read("keep", |v, at| if !marks.skipped(at.seq) { good.push(*v) })
///     .feed(1..8, |slot, i| *slot = i)?;
/// assert_eq!(good, [1, 2, 4, 5, 7]);
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Marks(Arc<OnceLock<Box<[AtomicU64]>>>);

impl Marks {
    /// Creates marks that belong to no stage yet.
    ///
    /// Example: [`Marks`].
    pub fn new() -> Marks {
        Marks::default()
    }

    /// Returns whether the stage skipped the event at this position.
    ///
    /// Example: [`Marks`].
    ///
    /// The result is valid only in the handler of a stage after the marking stage, and only for
    /// events that it is handling. A call costs one relaxed load.
    #[inline]
    pub fn skipped(&self, seq: u64) -> bool {
        // A relaxed load suffices: the marking stage stored the mark before it released the event
        // (I2), and the calling stage has acquired the release.
        self.0.get().is_some_and(|marks| {
            marks[seq as usize & (marks.len() - 1)].load(Relaxed) == seq.wrapping_add(1)
        })
    }

    /// Size of the marks of skipped events, in bytes per slot.
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<AtomicU64>();

    /// Returns whether the marks belong to a stage of a ring.
    pub(crate) fn are_taken(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns whether `self` and `other` share their marks.
    pub(crate) fn are_same(&self, other: &Marks) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Allocates the marks of a ring that begins at `start`. Returns `Some(false)` if an earlier
    /// call has allocated the marks, and `None` if there is no memory for them.
    pub(crate) fn allocate(&self, start: u64, capacity: usize) -> Option<bool> {
        let slots = capacity;
        let capacity = capacity as u64;
        // Each slot begins with the mark of a position in the lap before `start`, where the ring
        // has no event.
        let before = |slot: u64| {
            start.wrapping_add(slot.wrapping_sub(start) & (capacity - 1)).wrapping_sub(capacity)
        };
        Some(
            self.0
                .set(array(slots, |slot| AtomicU64::new(before(slot as u64).wrapping_add(1)))?)
                .is_ok(),
        )
    }

    /// Marks `len` events from `first` on as skipped.
    pub(crate) fn mark(&self, first: u64, len: u64) {
        if let Some(marks) = self.0.get() {
            for seq in (0..len).map(|offset| first.wrapping_add(offset)) {
                marks[seq as usize & (marks.len() - 1)].store(seq.wrapping_add(1), Relaxed);
            }
        }
    }
}

/// The options of one stage of a chain, except its strategy and its thread.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) on_error: OnFault,
    pub(crate) on_panic: OnFault,
    /// Largest number of events between two releases.
    pub(crate) max_batch: u64,
    /// Largest number of events of a batch that the stage gathers, and the time for which the
    /// oldest of them waits for the others; `None` if the stage does not wait for a batch to grow.
    pub(crate) batch_within: Option<(u64, Duration)>,
    /// Time between two calls of the handler's `idle` during one wait.
    pub(crate) idle_every: Option<Duration>,
    pub(crate) marks: Option<Marks>,
    /// Whether the user's own loop runs the stage, which then cannot share a thread with other
    /// stages.
    pub(crate) user_loop: bool,
}

impl Policy {
    /// Lets the stage gather batches of up to `max` events within `time`.
    pub(crate) fn gather(&mut self, max: usize, time: Duration) {
        self.batch_within = Some(((max as u64).max(1), time));
    }

    /// Returns the correction of a declaration by which a stage gathers batches for a handler of
    /// single events; `None` if there is nothing to correct.
    pub(crate) fn gathers_in_vain(&self, takes_batches: bool) -> Option<&'static str> {
        (self.batch_within.is_some() && !takes_batches).then_some(
            "whose handler takes single events: `read_batch` or `update_batch` takes the batch",
        )
    }

    /// Returns whether the stage may go back to its last release.
    pub(crate) fn rewinds(&self) -> bool {
        self.on_error.retries != 0 || self.on_panic.retries != 0
    }
}

impl Default for Policy {
    fn default() -> Policy {
        let stop = OnFault::stop();
        Policy {
            on_error: stop,
            on_panic: stop,
            max_batch: u64::MAX,
            batch_within: None,
            idle_every: None,
            marks: None,
            user_loop: false,
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends at an allocation that is larger than memory")]
    fn marks_larger_than_memory_are_refused() {
        for capacity in [1 << 50, 1 << 60, 1 << 63] {
            let marks = Marks::new();
            assert_eq!(marks.allocate(7, capacity), None, "{capacity}");
            assert_eq!(
                (marks.allocate(7, 4), marks.allocate(7, 4)),
                (Some(true), Some(false)),
                "the marks fit a smaller ring afterwards"
            );
        }
    }
}
