//! A handle gathers a batch: it has an event, and waits for more, but only for some time.
//!
//! Invariants
//! - I1: the time of a batch begins when its handle first finds the batch's oldest event. A handle
//!   that finds the same event first again, because it released nothing, continues that time.
//! - I2: a batch has nothing to wait for as soon as it is full, as no event can directly follow it,
//!   or as its handle must stop ([`Availability::is_gathered`]). The wait for that is a wait like
//!   any other, with another condition.
//! - I3: a nap is shorter than a millisecond, so it delays a full batch, and an end, by no more.

use std::time::{Duration, Instant};

use crate::base::sync::{now, spin_loop};
use crate::consumer::position::Availability;
use crate::errors::WaitError;
use crate::ring::slots::Layout;

/// Length of the first nap: a little more than a sleep by a timer takes in any case.
const SHORTEST_NAP: Duration = Duration::from_micros(10);
/// Least time between two events, in the mean of a batch, at which the handle sleeps until the
/// batch's last event. A wake-up costs a few microseconds, and the publishing thread pays a part.
const WORTH_A_WAKE_UP: Duration = Duration::from_micros(50);
/// Number of polls that a wait for more events counts as made before it asks the wait strategy. The
/// pauses between its polls are longer than the strategy expects, so the strategy soon yields or
/// sleeps: `blocking` spins for 40 more polls, which take about 20 µs.
pub(crate) const POLLS_BEFORE: u32 = 160;
/// Upper bound of the pause before a poll, in spin hints.
const LONGEST_PAUSE: u64 = 16;
/// Upper bound of a nap's length (I3).
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// Time until the deadline of a batch whose stated time is beyond the clock's range.
const FOR_EVER: Duration = Duration::from_secs(1 << 31);

/// A batch that a handle gathers.
pub(crate) struct Gather {
    /// Largest number of events of the batch.
    pub(crate) len: u64,
    /// Position of the batch's oldest event.
    first: u64,
    /// The time at which the handle found the oldest event.
    since: Instant,
    /// The time at which the handle stops to wait for more events.
    pub(crate) deadline: Instant,
    /// End of the events that were found.
    pub(crate) end: u64,
    longest_nap: Duration,
    /// Length of a nap before which the stream's rate is not known.
    base_nap: Duration,
    /// Time of the last sleep's beginning, and the end of the events that were found before it.
    last: (Instant, u64),
    /// Whether the last sleep was a nap.
    napped: bool,
}

impl Gather {
    /// Begins or continues to gather a batch of `len` events from `first` on, whose events before
    /// `end` were found. `oldest` is the handle's [`oldest`] field.
    ///
    /// [`oldest`]: crate::consumer::position::ConsumerState::oldest
    pub(crate) fn begin(
        oldest: &mut Option<(u64, Instant)>,
        (len, time): (u64, Duration),
        (first, end): (u64, u64),
    ) -> Gather {
        let since = match *oldest {
            Some((seq, since)) if seq == first => since,
            _ => now(),
        };
        *oldest = Some((first, since));
        let deadline = since.checked_add(time).unwrap_or_else(|| since + FOR_EVER);
        let longest_nap = (time / 8).clamp(SHORTEST_NAP, LONGEST_NAP);
        let (base_nap, last) = (SHORTEST_NAP, (since, end));
        Gather { len, first, since, deadline, end, longest_nap, base_nap, last, napped: false }
    }

    /// Returns whether this is the batch that begins at `next`.
    pub(crate) fn is_at(&self, next: u64) -> bool {
        self.first == next
    }

    /// Returns whether the oldest event has waited long enough.
    pub(crate) fn is_over(&self) -> bool {
        now() >= self.deadline
    }

    /// Pauses before a poll, the longer the more events are missing. Each poll takes the cache line
    /// of the next stamp away from the producer that is about to write it.
    pub(crate) fn pause(&self) {
        let missing = self.len.saturating_sub(self.end.wrapping_sub(self.first));
        if !cfg!(slipring_loom) {
            (0..(missing / 4).clamp(1, LONGEST_PAUSE)).for_each(|_| spin_loop());
        }
    }

    /// Returns how long the handle sleeps by a timer before it looks for more events; `None` if it
    /// sleeps until the next publication.
    ///
    /// A publication that wakes the handle costs both threads microseconds, and an event that does
    /// not fill the batch is not worth that. So the handle naps until the rest of the batch may be
    /// there, as far as the events of the last nap tell. A nap is at most four times as long as the
    /// one before it, because the stream may become dense again and fill the ring meanwhile.
    ///
    /// If a nap brings no event, the stream has paused, and the handle sleeps until the next
    /// publication. It also does so if publications are rarer than naps in the mean of the batch,
    /// or if the next one fills the batch, unless events come densely.
    pub(crate) fn nap(&mut self, now: Instant) -> Option<Duration> {
        let found = self.end.wrapping_sub(self.first);
        let missing = self.len.saturating_sub(found);
        let mean = now.saturating_duration_since(self.since).as_nanos() / u128::from(found.max(1));
        let (began, end) = std::mem::replace(&mut self.last, (now, self.end));
        let took = now.saturating_duration_since(began);
        let nap = match self.end.wrapping_sub(end) {
            _ if !self.napped => Some(self.base_nap),
            0 => {
                self.base_nap = (4 * self.base_nap).min(self.longest_nap);
                None
            }
            got => {
                let rest = took.as_nanos() / u128::from(got) * u128::from(missing);
                let rest = Duration::from_nanos(u64::try_from(rest).unwrap_or(u64::MAX));
                Some(rest.min(4 * took).clamp(SHORTEST_NAP, self.longest_nap))
            }
        };
        let is_rare = mean >= self.longest_nap.as_nanos();
        let is_last = missing <= 1 && mean >= WORTH_A_WAKE_UP.as_nanos();
        // A model has no time, so its handles sleep until the next publication.
        let nap = nap.filter(|_| !cfg!(slipring_loom) && !is_rare && !is_last);
        self.napped = nap.is_some();
        nap
    }
}

/// Returns whether a batch that has `len` events has nothing to wait for. The result is `false` if
/// more events have come since the position found these. Fails if the handle must stop.
pub(crate) fn has_nothing_to_wait_for<E, L: Layout>(
    position: &mut impl Availability<E, L>,
    gather: &mut Gather,
    len: u64,
) -> Result<bool, WaitError> {
    if !position.is_gathered(gather.len, &mut gather.end) {
        return Ok(false);
    }
    position.check()?;
    Ok(position.grow(gather.len) == len)
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    fn gather(len: u64, time: Duration) -> Gather {
        Gather::begin(&mut None, (len, time), (u64::MAX, 0))
    }

    #[test]
    fn the_time_of_the_same_first_event_goes_on() {
        let (time, mut oldest) = (Duration::from_secs(1), None);
        let first = Gather::begin(&mut oldest, (8, time), (7, 8)).deadline;
        assert_eq!(Gather::begin(&mut oldest, (8, time), (7, 9)).deadline, first);
        assert_eq!(Gather::begin(&mut oldest, (8, time * 2), (7, 9)).deadline, first + time);
        assert!(Gather::begin(&mut oldest, (8, time), (8, 9)).deadline >= first);
        assert_eq!(oldest.unwrap().0, 8);
        Gather::begin(&mut oldest, (8, Duration::MAX), (9, 10));
    }

    /// Lets the handle nap for the time that it chooses, while an event comes every `gap` of time.
    /// Returns its naps, and 0 for a sleep until the next event.
    fn naps(gather: &mut Gather, gap: Duration) -> Vec<Duration> {
        let (mut now, mut came, mut naps) = (gather.since, 1, Vec::new());
        let end = gather.since + Duration::from_millis(50);
        while now < end && gather.end.wrapping_sub(gather.first) < gather.len {
            let nap = gather.nap(now).unwrap_or_default();
            naps.push(nap);
            let next = gather.since + gap * came;
            now = if nap.is_zero() { next.max(now) } else { now + nap };
            let elapsed = now.duration_since(gather.since);
            came = 1 + (elapsed.as_nanos() / gap.as_nanos()) as u32;
            gather.end = gather.first.wrapping_add(u64::from(came).min(gather.len));
        }
        naps
    }

    #[test]
    fn a_dense_stream_is_looked_at_when_the_batch_may_be_full() {
        let mut gather = gather(1000, Duration::from_millis(50));
        let naps = naps(&mut gather, Duration::from_nanos(100));
        assert!(naps.len() <= 4 && naps.iter().sum::<Duration>() < LONGEST_NAP, "{naps:?}");
    }

    #[test]
    fn a_steady_stream_wakes_the_handle_once_in_a_longest_nap() {
        let mut gather = gather(1000, Duration::from_millis(50));
        let naps = naps(&mut gather, Duration::from_micros(100));
        assert!(naps.len() <= 60, "500 events: {naps:?}");
        assert_eq!(naps.iter().max(), Some(&LONGEST_NAP));
    }

    #[test]
    fn a_rare_event_wakes_the_handle() {
        let mut gather = gather(1000, Duration::from_millis(50));
        let naps = naps(&mut gather, Duration::from_millis(5));
        let until_next = naps.iter().filter(|nap| nap.is_zero()).count();
        assert!(until_next >= 9 && naps.len() <= 12, "10 events: {naps:?}");
    }

    #[test]
    fn a_stream_that_pauses_wakes_the_handle_and_is_taken_for_dense_again() {
        let mut gather = gather(1000, Duration::from_millis(50));
        let mut now = gather.since;
        gather.end = gather.end.wrapping_add(300);
        assert_eq!(gather.nap(now), Some(SHORTEST_NAP));
        now += SHORTEST_NAP;
        assert_eq!(gather.nap(now), None, "a nap in vain");
        now += Duration::from_millis(5);
        gather.end = gather.end.wrapping_add(1);
        assert_eq!(gather.nap(now), Some(4 * SHORTEST_NAP));
        now += 4 * SHORTEST_NAP;
        gather.end = gather.end.wrapping_add(400);
        assert_eq!(gather.nap(now), Some(Duration::from_nanos(29_800)), "298 more events");
    }

    #[test]
    fn the_last_event_of_a_batch_wakes_the_handle() {
        let mut gather = gather(2, Duration::from_millis(50));
        assert_eq!(gather.nap(gather.since + WORTH_A_WAKE_UP), None);
        assert_eq!(gather.nap(gather.since + SHORTEST_NAP), Some(SHORTEST_NAP), "a dense stream");
    }
}
