//! The work on an event, and the check that all of it was done.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Result, ensure};

/// Number of integers that are sorted at once.
const INTEGERS: u32 = 100;

/// Does the work on an event: sorts `sorts` arrays of 100 consecutive integers, each filled afresh
/// in descending order. Returns a value that only sorted arrays yield.
pub fn sort(event: u64, sorts: u32) -> u64 {
    (0..sorts).fold(0, |sum: u64, which| {
        let first = first(event, which);
        let mut integers: [u32; INTEGERS as usize] =
            std::array::from_fn(|place| first + (INTEGERS - 1 - place as u32));
        // The compiler knows neither what the array contains nor that only some places are read.
        black_box(&mut integers).sort_unstable();
        sum.wrapping_add(digest(black_box(&integers)))
    })
}

/// Returns the smallest integer of the array number `which` of an event. It is less than 2^31.
fn first(event: u64, which: u32) -> u32 {
    (event.wrapping_mul(INTEGERS.into()).wrapping_add(which.into()) as u32) >> 1
}

/// Computes a value from both ends of an array, and from two places between them.
fn digest(sorted: &[u32; INTEGERS as usize]) -> u64 {
    let at = |place: usize| u64::from(sorted[place]);
    at(0) + 3 * at(33) + 5 * at(66) + 7 * at(99)
}

/// Computes, without sorting, the value that [`sort`] returns.
fn expected(event: u64, sorts: u32) -> u64 {
    (0..sorts).fold(0, |sum: u64, which| {
        let first = u64::from(first(event, which));
        sum.wrapping_add(16 * first + 3 * 33 + 5 * 66 + 7 * 99)
    })
}

/// The account of one consumer, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Tally {
    // The word is atomic because a pool's handlers share the list of tallies. Only one consumer
    // writes each tally, so a load and a store suffice.
    events: AtomicU64,
    /// Sum of the values that the sorts returned.
    sum: AtomicU64,
    /// Sum of the squares of the events' numbers. It reveals an event that was handled in place of
    /// another.
    squares: AtomicU64,
}

impl Tally {
    /// Does the work on an event, and notes it.
    pub fn work(&self, event: u64, sorts: u32) {
        self.add(event, sort(event, sorts));
    }

    fn add(&self, event: u64, value: u64) {
        let add = |to: &AtomicU64, value| to.store(to.load(Relaxed).wrapping_add(value), Relaxed);
        add(&self.events, 1);
        add(&self.sum, value);
        add(&self.squares, event.wrapping_mul(event));
    }
}

/// All events of a run.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Number of the first event.
    pub first: u64,
    /// Number of events.
    pub events: u64,
    /// Number of sorts for each event.
    pub sorts: u32,
}

impl Job {
    /// Returns the numbers of all events.
    pub fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.events
    }

    /// Checks that the consumers together have done the work of each event once.
    pub fn check(&self, tallies: &[Tally]) -> Result<()> {
        let total = |of: fn(&Tally) -> &AtomicU64| {
            tallies.iter().fold(0, |sum: u64, tally| sum.wrapping_add(of(tally).load(Relaxed)))
        };
        let found = total(|tally| &tally.events);
        ensure!(found == self.events, "{found} of {} events were handled", self.events);
        let all = Tally::default();
        self.numbers().for_each(|event| all.add(event, expected(event, self.sorts)));
        let is_same = |of: fn(&Tally) -> &AtomicU64| total(of) == of(&all).load(Relaxed);
        ensure!(is_same(|tally| &tally.squares), "an event was handled in place of another one");
        ensure!(is_same(|tally| &tally.sum), "an array was not sorted");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_arrays_give_the_expected_value_and_others_do_not() {
        for event in [0, 1, 7, 1 << 20, u64::MAX] {
            for sorts in [0, 1, 15] {
                assert_eq!(sort(event, sorts), expected(event, sorts), "{event}, {sorts}");
            }
        }
        assert_ne!(expected(3, 1), expected(4, 1));
        let mut integers: [u32; 100] = std::array::from_fn(|place| place as u32);
        let sorted = digest(&integers);
        integers.reverse();
        assert_ne!(digest(&integers), sorted);
    }

    /// Does the work of these events, by two consumers, and checks it.
    fn check(events: &[u64], change: fn(&Tally)) -> Result<()> {
        let job = Job { first: 100, events: 10, sorts: 2 };
        let tallies = [Tally::default(), Tally::default()];
        for &event in events {
            tallies[usize::from(event % 3 == 0)].work(event, job.sorts);
        }
        change(&tallies[0]);
        job.check(&tallies)
    }

    #[test]
    fn a_lost_a_doubled_and_a_wrongly_handled_event_are_detected() {
        let all: Vec<u64> = (100..110).collect();
        let error = |events: &[u64]| check(events, |_| ()).unwrap_err().to_string();
        check(&all, |_| ()).unwrap();
        assert_eq!(error(&all[1..]), "9 of 10 events were handled");
        assert_eq!(error(&[all.as_slice(), &[100]].concat()), "11 of 10 events were handled");
        let mut doubled = all.clone();
        doubled[0] = 101;
        assert_eq!(error(&doubled), "an event was handled in place of another one");
        // The same sum of numbers.
        (doubled[0], doubled[2]) = (101, 101);
        assert_eq!(error(&doubled), "an event was handled in place of another one");
        let unsorted = check(&all, |tally| tally.sum.store(1, Relaxed)).unwrap_err().to_string();
        assert_eq!(unsorted, "an array was not sorted");
    }
}
