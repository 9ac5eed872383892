//! The work: slices of the Leibniz series of pi, and the check of their sum.

use std::f64::consts::PI;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};

/// The work of one shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number of slices.
    pub slices: u64,
    /// Number of terms of the series in each slice, an even number.
    pub terms: u64,
}

/// Largest difference between a sum and its expected value. The rounding errors of the 5 million
/// additions, from the first slice on, sum to 5e-12.
const TOLERANCE: f64 = 1e-10;

impl Job {
    /// Computes a slice: the sum of its terms `4 (-1)^k / (2k + 1)`.
    pub fn slice(self, number: u64) -> f64 {
        let first = number * self.terms;
        let mut numerator = if first.is_multiple_of(2) { 4.0 } else { -4.0 };
        let mut denominator = (2 * first + 1) as f64;
        let mut sum = 0.0;
        for _ in 0..self.terms {
            sum += numerator / denominator;
            numerator = -numerator;
            denominator += 2.0;
        }
        sum
    }

    /// Returns the sum of all slices. It is computed from the series' error term, not from the
    /// terms themselves: after an even number `n` of terms, the rest is `1/n - 1/(4n^3) + ...`.
    /// From 100 terms on, the two terms used here are exact to 1e-10.
    pub fn expected(self) -> f64 {
        let terms = (self.slices * self.terms) as f64;
        PI - (1.0 / terms - 0.25 / terms.powi(3))
    }
}

/// The reducer's account of a shot.
#[derive(Clone, Debug)]
pub struct Reduction {
    job: Job,
    sum: f64,
    /// Number of slices that the reducer has received.
    received: u64,
    /// Number of slices that came out of order.
    misplaced: u64,
    /// Time at which the last slice came.
    ended: Option<Instant>,
}

impl Reduction {
    pub fn new(job: Job) -> Reduction {
        Reduction { job, sum: 0.0, received: 0, misplaced: 0, ended: None }
    }

    /// Adds the result of a slice.
    pub fn add(&mut self, number: u64, result: f64) {
        self.misplaced += u64::from(number != self.received);
        self.sum += result;
        self.received += 1;
        if self.received == self.job.slices {
            self.ended = Some(Instant::now());
        }
    }

    /// Returns the time at which the last slice came. Fails unless each slice was computed once,
    /// and came once and in order. The workers have computed `computed` slices.
    pub fn check(&self, computed: u64) -> Result<Instant> {
        let Job { slices, .. } = self.job;
        ensure!(computed == slices, "{computed} slices were computed instead of {slices}");
        ensure!(
            self.received == slices,
            "the reducer received {} slices of {slices}",
            self.received
        );
        ensure!(self.misplaced == 0, "{} of {slices} slices were out of order", self.misplaced);
        // A sum that is NaN fails this check, too.
        let (sum, expected) = (self.sum, self.job.expected());
        ensure!(
            (sum - expected).abs() <= TOLERANCE,
            "the slices' sum is {sum} instead of {expected}"
        );
        self.ended.ok_or_else(|| anyhow::anyhow!("there was no slice"))
    }
}

/// A journal: the account of a reader that sees all slices but computes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    entries: u64,
    hash: u64,
}

impl Journal {
    /// Notes a slice in the journal.
    pub fn enter(&mut self, number: u64) {
        self.entries += 1;
        // The multiplication makes the hash depend on the order.
        self.hash = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Fails unless the journal has each slice once, in order.
    pub fn check(self, job: Job) -> Result<()> {
        let mut whole = Journal::default();
        (0..job.slices).for_each(|number| whole.enter(number));
        ensure!(
            self == whole,
            "the journal has {} entries of {}, or others than were published",
            self.entries,
            job.slices
        );
        Ok(())
    }
}

/// Number of slices that a worker has computed, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Tally(AtomicU64);

impl Tally {
    /// Counts a slice. One thread at a time counts, so no addition is lost.
    pub fn count(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Makes a tally for each worker.
    pub fn of_workers(workers: usize) -> Vec<Tally> {
        (0..workers).map(|_| Tally::default()).collect()
    }

    /// Returns the number of slices that all workers have computed.
    pub fn total(all: &[Tally]) -> u64 {
        all.iter().map(|tally| tally.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Job = Job { slices: 200, terms: 10 };

    fn reduce(job: Job, numbers: impl IntoIterator<Item = u64>) -> Result<Instant> {
        let mut reduction = Reduction::new(job);
        numbers.into_iter().for_each(|number| reduction.add(number, job.slice(number)));
        reduction.check(job.slices)
    }

    #[test]
    fn a_slice_is_the_sum_of_its_terms() {
        let term = |k: i32| 4.0 * f64::from(1 - k % 2 * 2) / f64::from(2 * k + 1);
        for number in [0_u64, 1, 2, 199] {
            let first = number as i32 * 10;
            let sum: f64 = (first..first + 10).map(term).sum();
            assert!((SMALL.slice(number) - sum).abs() < 1e-15, "{number}");
        }
    }

    /// The sum over all terms, from the smallest one on, agrees with the error term.
    #[test]
    fn the_expected_sum_is_that_of_all_terms() {
        for (slices, terms) in [(1_000, 10), (20_000, 10), (5_000, 100)] {
            let job = Job { slices, terms };
            let sum: f64 = (0..slices).rev().map(|number| job.slice(number)).sum();
            assert!((sum - job.expected()).abs() < 1e-13, "{job:?}: {sum}");
        }
    }

    /// Rounding moves a sum by less than the tolerance. The sum of another number of slices differs
    /// by more.
    #[test]
    fn five_million_slices_give_pi_to_eight_digits() {
        let job = Job { slices: 5_000_000, terms: 10 };
        let expected = job.expected();
        assert!((expected - 3.141_592_633_589_79).abs() < 1e-14, "{expected}");
        let in_order: f64 = (0..job.slices).map(|number| job.slice(number)).sum();
        let shares: f64 = (0..4)
            .map(|own| (own..job.slices).step_by(4).map(|of| job.slice(of)).sum::<f64>())
            .sum();
        // This sum is computed as the reducer computes it: in order, from the first slice on.
        assert!((in_order - 3.141_592_633_584_65).abs() < 1e-14, "{in_order}");
        for sum in [in_order, shares] {
            assert!((expected - sum).abs() < TOLERANCE, "{sum}");
        }
        for other in [PI, Job { slices: 4_900_000, ..job }.expected()] {
            assert!((expected - other).abs() > TOLERANCE, "{other}");
        }
    }

    #[test]
    fn a_lost_doubled_or_misplaced_slice_is_an_error() {
        let message = |numbers: Vec<u64>| reduce(SMALL, numbers).unwrap_err().to_string();
        assert!(reduce(SMALL, 0..200).is_ok());
        assert!(message((0..199).collect()).contains("199 slices of 200"));
        assert!(message((0..200).chain([199]).collect()).contains("201 slices of 200"));
        assert!(message((0..199).chain([198]).collect()).contains("1 of 200"));
        assert!(message((0..200).rev().collect()).contains("out of order"));
    }

    #[test]
    fn a_slice_that_no_worker_or_two_workers_computed_is_an_error() {
        let mut reduction = Reduction::new(SMALL);
        (0..200).for_each(|number| {
            let result = if number == 150 { f64::NAN } else { SMALL.slice(number) };
            reduction.add(number, result);
        });
        assert!(reduction.check(200).unwrap_err().to_string().contains("NaN"));
        assert!(reduction.check(199).unwrap_err().to_string().contains("199 slices were computed"));
        assert!(reduction.check(201).unwrap_err().to_string().contains("201 slices were computed"));
    }

    #[test]
    fn a_wrong_result_is_an_error() {
        let mut reduction = Reduction::new(SMALL);
        (0..200).for_each(|number| reduction.add(number, SMALL.slice(number) * 1.000_001));
        assert!(reduction.check(200).unwrap_err().to_string().contains("instead of"));
    }

    #[test]
    fn a_journal_without_an_entry_or_in_another_order_is_an_error() {
        let journal = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut journal = Journal::default();
            numbers.for_each(|number| journal.enter(number));
            journal.check(SMALL)
        };
        assert!(journal(&mut (0..200)).is_ok());
        assert!(journal(&mut (0..199)).is_err());
        assert!(journal(&mut (0..200).rev()).is_err());
    }
}
