//! The wait of a producer for room in a full ring.
//!
//! When the ring is full, its stage has a whole lap of events to handle. A producer that sleeps
//! while the stage handles half of these events, at its usual rate, delays no event. So a timer can
//! wake the producer, and no release has to. This saves the stage the microseconds of a wake-up,
//! during which all other parties would wait for the stage.
//!
//! A handler that is slow only now and then is faster than average in between, and may empty the
//! ring during the sleep. A producer that notices this collects more samples before its next nap.
//!
//! Invariants
//! - I1: a sample describes handlers that had events all the time. At the start of a wait for `len`
//!   positions, more than `capacity - len` events are unreleased. By the start of the next wait,
//!   the stages have released about as many events as the producers have published meanwhile. If
//!   this number is at most `capacity - len`, no stage ran out of events.

use std::time::Instant;

use super::moving_average::{MovingAverage, nanos};

/// Time after which a sample is complete even with few events, in nanoseconds.
const SAMPLE_TIME: f64 = 4_000_000.0;

/// Upper bound of [`ReleaseRate::caution`].
const MOST_CAUTION: u32 = 1023;

/// The full ring for which a producer waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullRing {
    /// The producer's next position.
    pub(crate) at: u64,
    /// Number of positions that the producer waits for.
    pub(crate) len: u64,
    /// Number of the ring's slots.
    pub(crate) capacity: u64,
}

/// The rate at which stages release the events of a full ring, as one producer learns it.
#[derive(Debug)]
pub(super) struct ReleaseRate {
    /// Start of the last wait for room, and the producer's position at that time.
    last: Option<(Instant, u64)>,
    /// Number of events released since the last sample, and time since that sample, in nanoseconds.
    /// A stage releases up to a quarter of the ring at once, or the events of a millisecond, so a
    /// sample is complete only after a lap of events, or after [`SAMPLE_TIME`].
    since_sample: (u64, f64),
    /// Time per released event, in nanoseconds.
    event: MovingAverage,
    /// Number of samples that are needed before a nap. The number is multiplied by four whenever a
    /// stage runs out of events during a nap, because handlers whose time varies may empty the ring
    /// sooner than the average suggests. It falls by one after each nap during which no stage ran
    /// out.
    caution: u32,
    /// Whether the producer has napped in the last wait for room.
    napped: bool,
}

impl ReleaseRate {
    pub(super) fn new() -> ReleaseRate {
        ReleaseRate {
            last: None,
            since_sample: (0, 0.0),
            event: MovingAverage::new(0.0),
            caution: 0,
            napped: false,
        }
    }

    /// Called when a wait for room begins; learns from the time since the previous wait began.
    /// Returns the time until half of the ring's events are released, in nanoseconds, or `None` if
    /// that time is unknown.
    pub(super) fn learn(&mut self, now: Instant, ring: &FullRing) -> Option<f64> {
        let (began, at) = *self.last.get_or_insert((now, ring.at));
        let released = ring.at.wrapping_sub(at);
        if released > ring.capacity.saturating_sub(ring.len) {
            // Events may have run out, perhaps because of a nap that was too long.
            let caution = match self.napped {
                true => (4 * self.caution + 3).min(MOST_CAUTION),
                false => self.caution,
            };
            *self = ReleaseRate { last: Some((now, ring.at)), caution, ..ReleaseRate::new() };
        } else if released != 0 {
            if std::mem::take(&mut self.napped) {
                self.caution = self.caution.saturating_sub(1);
            }
            self.last = Some((now, ring.at));
            let (events, time) = &mut self.since_sample;
            *events += released; // I1
            *time += nanos(now.saturating_duration_since(began));
            if *events >= ring.capacity || *time >= SAMPLE_TIME {
                self.event.learn_clamped(*time / *events as f64);
                self.since_sample = (0, 0.0);
            }
        }
        let is_known = self.event.samples > self.caution;
        is_known.then_some(self.event.mean * (ring.capacity / 2) as f64)
    }

    /// Records that the producer is about to nap until half of the ring's events are released.
    pub(super) fn naps(&mut self) {
        self.napped = true;
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Each pair in `waits` describes a wait for room: the nanoseconds and the number of events
    /// since the previous wait began. Returns what the producer expects at each wait: the time
    /// until half of the ring's events are released, in nanoseconds.
    fn learned<const N: usize>(waits: [(u64, u64); N]) -> [Option<f64>; N] {
        let (mut now, mut at) = (Instant::now(), u64::MAX - 100);
        let mut rate = ReleaseRate::new();
        waits.map(|(nanos, events)| {
            (now, at) = (now + Duration::from_nanos(nanos), at.wrapping_add(events));
            rate.learn(now, &FullRing { at, len: 2, capacity: 64 })
        })
    }

    #[test]
    fn the_time_of_half_a_ring_follows_from_a_lap() {
        let waits = learned([(0, 0), (1600, 16), (3200, 32), (1600, 16)]);
        assert_eq!(waits, [None, None, None, Some(3200.0)]);
    }

    /// Stages release many events at once. One release may come just before a wait, and the next
    /// one long after it, so the time between two waits is not yet a sample.
    #[test]
    fn no_single_release_is_a_sample() {
        let waits = learned([(0, 0), (1600, 1), (1600, 31), (1600, 1), (1600, 31)]);
        assert_eq!(waits, [None, None, None, None, Some(3200.0)]);
    }

    #[test]
    fn a_wait_that_begins_again_is_the_same_wait() {
        let [.., last] = learned([(0, 0), (100, 0), (500, 0), (5800, 60), (0, 0), (400, 4)]);
        assert_eq!(last, Some(3400.0));
    }

    /// Shows that if events run out during a nap, four times as many laps pass until the next nap.
    #[test]
    fn a_producer_becomes_cautious_where_events_run_out_behind_its_naps() {
        let (now, ring) = (Instant::now(), FullRing { at: 0, len: 1, capacity: 64 });
        let (mut rate, mut at, mut laps) = (ReleaseRate::new(), 0, Vec::new());
        let mut lap = |rate: &mut ReleaseRate, events| {
            at += events;
            rate.learn(now, &FullRing { at, ..ring }).is_some()
        };
        for _ in 0..7 {
            lap(&mut rate, 64); // events ran out
            let mut waits = 1;
            while !lap(&mut rate, 32) {
                waits += 1;
            }
            rate.naps();
            laps.push(waits / 2);
        }
        assert_eq!(laps, [1, 4, 16, 64, 256, 1024, 1024]);
        for _ in 0..2000 {
            lap(&mut rate, 32);
            rate.naps();
        }
        lap(&mut rate, 64);
        assert_eq!(rate.caution, 3, "naps without harm lower the caution");
    }

    #[test]
    fn nothing_is_known_after_a_lap_in_which_events_may_have_run_out() {
        let [.., known, unknown, half, again] =
            learned([(0, 0), (3200, 32), (3200, 32), (6300, 63), (320, 32), (320, 32)]);
        assert_eq!((known, unknown, half), (Some(3200.0), None, None));
        assert_eq!(again, Some(320.0), "what was learned before does not count");
    }
}
