//! The evaluation of repeated values: medians, spreads, and whether two contenders differ.
//!
//! Two series of values differ if both of these hold:
//!
//! 1. The ratio of their medians exceeds the machine's noise floor (`noise.rs`). The floor guards
//!    against differences that even equal programs show on this machine.
//! 2. The exact rank test of Mann and Whitney rejects, at a level of 5 %, that both series come
//!    from one population. The test guards against the spread of the compared values themselves,
//!    which may be larger than the floor. It assumes no shape of the distribution, and one
//!    disturbed repetition among several costs it little.
//!
//! With few values a rank test never rejects: at 5 % it needs four in each series. Shorter series
//! count as different only if all values of one lie above all values of the other, and the medians
//! differ by more than [`FAR`] and by more than five times the floor. On a machine with that floor,
//! two equal programs do not differ that much.
//!
//! Two *records* are compared at a level of 1 %. Two runs differ in more ways than the repetitions
//! of one run, such as the placement of threads and memory, and many values are compared at once.

use serde::{Deserialize, Serialize};
use slipring_support::numbers::median;

/// Level of the rank test within a run: the share of equal series that the test mistakes for
/// different ones.
const LEVEL: f64 = 0.05;
/// Level of the rank test between two runs.
const LEVEL_OF_RUNS: f64 = 0.01;
/// Ratio of medians beyond which short series may count as different without a rank test.
const FAR: f64 = 2.0;
/// Largest number of values, of both series together, for which the rank test counts all
/// arrangements.
const COUNTED_AT_MOST: usize = 60;

/// How much equal measurements differ on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// For a computation on one thread: how much the medians of two equal series differ at most in
    /// 95 % of cases, as their ratio less 1.
    pub computing: f64,
    /// Like `computing`, but for a hand-over between two threads.
    pub handover: f64,
    /// Number of repetitions in each of the two equal series. A median of more repetitions has less
    /// noise, so the floor is cautious for longer series.
    pub repetitions: u32,
}

impl Noise {
    /// Returns the noise floor that applies to experiments with several threads.
    pub fn floor(&self) -> f64 {
        self.computing.max(self.handover)
    }
}

/// Median and quartiles of repeated values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    /// Computes the spread of some values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        // With fewer than four values, the extremes serve as quartiles.
        let quarter = if sorted.len() < 4 { 0 } else { last / 4 };
        Some(Spread {
            low: sorted[quarter],
            median: median(sorted.clone()),
            high: sorted[last - quarter],
        })
    }
}

/// The comparison of two medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The difference exceeds the noise. The value is the ratio of the first median to the second.
    Differs(f64),
    /// The difference is within the noise.
    WithinNoise,
}

/// Compares two series of values of one run. Returns `None` if a series has no values, or if the
/// medians have no ratio because one of them is 0 and the other is not.
pub fn compare(one: &[f64], other: &[f64], floor: f64) -> Option<Verdict> {
    compare_at(LEVEL, one, other, floor)
}

/// Like [`compare`], but for series of two different runs, and stricter.
pub fn compare_runs(one: &[f64], other: &[f64], floor: f64) -> Option<Verdict> {
    compare_at(LEVEL_OF_RUNS, one, other, floor)
}

fn compare_at(level: f64, one: &[f64], other: &[f64], floor: f64) -> Option<Verdict> {
    let (median, other_median) = (Spread::of(one)?.median, Spread::of(other)?.median);
    if median == other_median {
        return Some(Verdict::WithinNoise);
    }
    let ratio = median / other_median;
    if !ratio.is_finite() || ratio == 0.0 {
        return None;
    }
    let size = ratio.abs().max(1.0 / ratio.abs());
    let differs = if least_chance(one.len(), other.len()) > level {
        are_apart(one, other) && (ratio < 0.0 || size > FAR.max(1.0 + 5.0 * floor))
    } else {
        (ratio < 0.0 || size > 1.0 + floor) && chance(one, other) <= level
    };
    Some(if differs { Verdict::Differs(ratio) } else { Verdict::WithinNoise })
}

/// Returns the least probability that the rank test can give for `one` and `other` values: the
/// probability of the two arrangements in which all values of one series lie above the other.
fn least_chance(one: usize, other: usize) -> f64 {
    let arrangements = (1..=one).map(|i| (other + i) as f64 / i as f64).product::<f64>();
    2.0 / arrangements
}

/// Returns whether each series has at least two values, and all values of one lie above all values
/// of the other.
fn are_apart(one: &[f64], other: &[f64]) -> bool {
    let extremes = |values: &[f64]| {
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| {
            (value.min(low), value.max(high))
        })
    };
    let ((low, high), (other_low, other_high)) = (extremes(one), extremes(other));
    one.len().min(other.len()) > 1 && (low > other_high || other_low > high)
}

/// Returns the probability that two series from equal populations are at least as far apart as
/// these two, by the two-sided rank test of Mann and Whitney. Equal values share their mean rank.
fn chance(one: &[f64], other: &[f64]) -> f64 {
    let ranks = doubled_ranks(one, other);
    let sum: usize = ranks[..one.len()].iter().sum();
    let all: usize = ranks.iter().sum();
    // Distance between a rank sum and the mean rank sum of `one`. All values are multiplied by the
    // number of ranks, so they stay whole numbers.
    let distance = |sum: usize| (sum * ranks.len()).abs_diff(all * one.len());
    if ranks.len() > COUNTED_AT_MOST {
        return approximate(&ranks, one.len(), distance(sum));
    }
    // `ways[n][s]`: number of choices of `n` ranks with the sum `s`.
    let mut ways = vec![vec![0.0_f64; all + 1]; one.len() + 1];
    ways[0][0] = 1.0;
    for rank in &ranks {
        for n in (1..=one.len()).rev() {
            for s in *rank..=all {
                ways[n][s] += ways[n - 1][s - rank];
            }
        }
    }
    let ways = &ways[one.len()];
    let far = ways.iter().enumerate().filter(|(s, _)| distance(*s) >= distance(sum));
    far.map(|(_, ways)| ways).sum::<f64>() / ways.iter().sum::<f64>()
}

/// Returns twice the ranks of the values of both series, so that the mean rank of equal values is a
/// whole number, too.
fn doubled_ranks(one: &[f64], other: &[f64]) -> Vec<usize> {
    let all = || one.iter().chain(other);
    let rank = |value: &f64| {
        let less = all().filter(|other| *other < value).count();
        let equal = all().filter(|other| *other == value).count();
        2 * less + equal + 1
    };
    all().map(rank).collect()
}

/// Computes the rank test by the normal approximation, for long series.
fn approximate(ranks: &[usize], taken: usize, distance: usize) -> f64 {
    let (all, taken) = (ranks.len() as f64, taken as f64);
    let mean = ranks.iter().sum::<usize>() as f64 / all;
    let variance = ranks.iter().map(|rank| (*rank as f64 - mean).powi(2)).sum::<f64>() / all;
    let deviation = (taken * (all - taken) / (all - 1.0) * variance).sqrt();
    // This is twice the tail of the normal distribution, approximated by a logistic curve. The
    // error is at most 0.0003.
    let z = distance as f64 / all / deviation;
    if z.is_nan() { 1.0 } else { 2.0 / (1.0 + (1.5976 * z + 0.070_566 * z.powi(3)).exp()) }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// Values around `centre`, skewed as times are: some repetitions are disturbed and take longer.
    fn times(random: &mut Rng, count: usize, centre: f64, spread: f64) -> Vec<f64> {
        let one = |random: &mut Rng| {
            let disturbed = if random.u8(..10) == 0 { 5.0 } else { 1.0 };
            centre * (1.0 + disturbed * spread * (random.f64() + random.f64()))
        };
        (0..count).map(|_| one(random)).collect()
    }

    #[test]
    fn the_rank_test_agrees_with_its_tables() {
        // For two series of five, U = 2 is the limit at 5 % in every table, and U = 3 is beyond it.
        let one = [1.0, 2.0, 3.0, 4.0, 7.0];
        assert!((chance(&one, &[5.0, 6.0, 8.0, 9.0, 10.0]) - 8.0 / 252.0).abs() < 1e-9);
        let p = chance(&[1.0, 2.0, 3.0, 4.0, 8.0], &[5.0, 6.0, 7.0, 9.0, 10.0]);
        assert!((p - 14.0 / 252.0).abs() < 1e-9, "{p}");
        assert_eq!(chance(&[1.0; 4], &[1.0; 6]), 1.0);
        assert!((chance(&[1.0; 4], &[2.0; 4]) - 2.0 / 70.0).abs() < 1e-9);
        // For longer series, the approximation gives about the same result as the exact test.
        let (low, high): (Vec<f64>, Vec<f64>) =
            (0..31).map(|i| (f64::from(i), f64::from(i) + 8.5)).unzip();
        let exact = chance(&low[..30], &high[..30]);
        let approximate = chance(&low, &high);
        assert!((exact - approximate).abs() < 0.01, "{exact} {approximate}");
    }

    #[test]
    fn equal_series_are_rarely_called_different() {
        let mut random = Rng::with_seed(1);
        for repetitions in [2, 3, 5, 9, 15] {
            let mut named = 0;
            for _ in 0..1000 {
                let [one, other] = [(); 2].map(|()| times(&mut random, repetitions, 20.0, 0.05));
                let verdict = compare(&one, &other, 0.02).unwrap();
                named += usize::from(verdict != Verdict::WithinNoise);
            }
            assert!(named <= 60, "{repetitions}: {named} of 1000");
            assert!(repetitions > 3 || named == 0, "{repetitions}: {named} of 1000");
        }
    }

    #[test]
    fn clearly_different_series_are_called_different() {
        let mut random = Rng::with_seed(2);
        for repetitions in [5, 9] {
            let mut named = 0;
            for _ in 0..1000 {
                let slow = times(&mut random, repetitions, 26.0, 0.05);
                let fast = times(&mut random, repetitions, 20.0, 0.05);
                let Some(Verdict::Differs(ratio)) = compare(&slow, &fast, 0.05) else { continue };
                assert!((1.05..2.0).contains(&ratio), "{ratio}");
                named += 1;
            }
            assert!(named >= 900, "{repetitions}: {named} of 1000");
        }
    }

    #[test]
    fn few_values_differ_only_if_they_are_far_apart() {
        assert_eq!([least_chance(1, 1), least_chance(2, 2)], [1.0, 1.0 / 3.0]);
        assert!((least_chance(4, 4) - 2.0 / 70.0).abs() < 1e-9);
        let tenfold = compare_runs(&[1.0, 1.1, 1.2, 1.3], &[10.0, 11.0, 12.0, 13.0], 0.1);
        assert!(matches!(tenfold, Some(Verdict::Differs(_))), "four values, at 1 %");
        let far = compare(&[30.0, 31.0], &[1.0, 1.1], 0.1);
        assert!(matches!(far, Some(Verdict::Differs(ratio)) if ratio > 25.0));
        let alone = compare(&[30.0], &[1.0], 0.1);
        let near = compare(&[1.9, 1.9, 1.9], &[1.0, 1.0, 1.0], 0.0);
        let noisy = compare(&[5.0, 5.0, 5.0], &[1.0, 1.0, 1.0], 1.0);
        let mixed = compare(&[9.0, 9.0, 1.0], &[1.0, 1.1, 2.0], 0.0);
        assert_eq!([alone, near, noisy, mixed], [Some(Verdict::WithinNoise); 4]);
    }

    #[test]
    fn runs_are_compared_more_strictly_than_repetitions_of_one() {
        let (one, other) = ([1.0, 2.0, 3.0, 4.0, 7.0], [5.0, 6.0, 8.0, 9.0, 10.0]);
        assert!(matches!(compare(&one, &other, 0.1), Some(Verdict::Differs(_))));
        assert_eq!(compare_runs(&one, &other, 0.1), Some(Verdict::WithinNoise));
        let apart = [8.0, 9.0, 10.0, 11.0, 12.0];
        assert!(matches!(compare_runs(&one, &apart, 0.1), Some(Verdict::Differs(_))));
        let (four, above) = ([1.0, 1.1, 1.2, 1.3], [1.5, 1.6, 1.7, 1.8]);
        assert!(matches!(compare(&four, &above, 0.1), Some(Verdict::Differs(_))));
        assert_eq!(compare_runs(&four, &above, 0.1), Some(Verdict::WithinNoise));
    }

    #[test]
    fn a_difference_below_the_floor_does_not_count() {
        let (one, other) =
            ([100.0, 100.1, 100.2, 100.3, 100.4], [101.0, 101.1, 101.2, 101.3, 101.4]);
        assert_eq!(compare(&one, &other, 0.02), Some(Verdict::WithinNoise));
        assert!(
            matches!(compare(&one, &other, 0.005), Some(Verdict::Differs(ratio)) if ratio < 1.0)
        );
    }

    #[test]
    fn zeros_and_missing_values_have_no_ratio() {
        assert_eq!(compare(&[], &[1.0], 0.0), None);
        assert_eq!(compare(&[0.0; 5], &[1.0; 5], 0.0), None);
        assert_eq!(compare(&[1.0; 5], &[0.0; 5], 0.0), None);
        assert_eq!(compare(&[0.0; 5], &[0.0; 5], 0.0), Some(Verdict::WithinNoise));
        assert_eq!(compare(&[1e308; 5], &[1e-308; 5], 0.0), None);
        assert_eq!(Spread::of(&[]), None);
        let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (1.0, 2.0, 3.0));
        let spread = Spread::of(&[9.0, 1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 3.0, 4.0));
    }
}
