//! The noise floor: how much equal measurements differ on this machine.
//!
//! The floor comes from an A/A comparison, in which a program is compared with itself. The steps
//! are those of an experiment:
//!
//! 1. Each round times the same work twice, once for each of two equal contenders. So a slow minute
//!    of the machine hits both, as it does in an experiment.
//! 2. An experiment compares the medians of few repetitions. So the estimator draws that many
//!    rounds at random (with repetition: a bootstrap), swaps the contenders of each round at
//!    random, and takes the ratio of the two medians.
//! 3. The floor is the 95th percentile of the ratios of all such draws, less 1.
//!
//! Each timed piece of work takes about 20 ms. The repetitions of an experiment are usually longer
//! and less noisy, so the floor is cautious for them.
//!
//! Half of the rounds come before the experiments, and half after them, so that a machine that
//! becomes busy in between has a high floor.
//!
//! There are two kinds of work: a computation on one thread, and the hand-over of events to another
//! thread. Both threads are bound to CPUs, because experiments bind theirs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use slipring_machine::{CorePair, allowed_cpus, bind, pin};
use slipring_support::numbers::median;

use super::interrupt;
use super::size::Size;
use super::statistics::Noise;

/// Number of random draws.
const DRAWS: usize = 1000;
/// Seed of the draws.
const SEED: u64 = 95;
/// The warm-up takes the first eighth of the events. The clock starts after the warm-up, so that
/// neither the start of threads nor the first touch of memory is timed.
const WARM_UP: u64 = 8;

/// Estimates the time that the measurement takes.
pub fn expected(size: Size) -> Duration {
    Duration::from_millis(size.pick(200, 3_000, 10_000))
}

/// Measures the whole noise floor at once, for measurements that do not measure one half before and
/// one half after the experiments.
pub fn measure(size: Size) -> Result<Noise> {
    let mut rounds = Rounds::default();
    rounds.measure_half(size)?;
    Ok(rounds.noise(size))
}

/// The rounds measured so far.
#[derive(Debug, Default)]
pub struct Rounds {
    computing: Vec<Round>,
    handover: Vec<Round>,
}

/// The times of a round's two equal contenders.
type Round = [f64; 2];

impl Rounds {
    /// Measures half of the rounds. Each round times both kinds of work. The calling thread is
    /// bound to a CPU during the rounds, and is free again afterwards.
    pub fn measure_half(&mut self, size: Size) -> Result<()> {
        let (pair, allowed) = (CorePair::choose(), allowed_cpus());
        let measured = self.measure_rounds(size, pair, &allowed);
        bind(allowed);
        measured
    }

    fn measure_rounds(
        &mut self,
        size: Size,
        pair: Option<CorePair>,
        allowed: &[usize],
    ) -> Result<()> {
        let steps = size.pick(100_000, 10_000_000, 20_000_000);
        let events = size.pick(20_000, 2_000_000, 4_000_000);
        for _ in 0..size.pick(2, 15, 30) {
            interrupt::check()?;
            // The two kinds of work alternate. So the two timings of one kind are as far apart in
            // time as the contenders of a round in an experiment.
            let (mut computed, mut handed) = ([0.0; 2], [0.0; 2]);
            for contender in 0..2 {
                pair.inspect(|pair| pin(pair.producer));
                computed[contender] = compute(steps);
                // A ring that is built on a bound thread would count only one core, and its waits
                // would not spin.
                bind(allowed.iter().copied());
                handed[contender] = hand_over(events, pair)?;
            }
            self.computing.push(computed);
            self.handover.push(handed);
        }
        Ok(())
    }

    /// Estimates the noise floor.
    pub fn noise(&self, size: Size) -> Noise {
        let repetitions = size.pick(2, 5, 9);
        Noise {
            computing: floor(&self.computing, repetitions),
            handover: floor(&self.handover, repetitions),
            repetitions: repetitions as u32,
        }
    }
}

/// Times a computation of one thread. Each step needs the result of the previous one, and mixed
/// shifts and products have no closed form, so the compiler can neither leave out steps nor do
/// several at once.
fn compute(steps: u64) -> f64 {
    let began = Instant::now();
    let mut state = black_box(1_u64);
    for _ in 0..steps {
        state = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    black_box(state);
    began.elapsed().as_secs_f64()
}

/// Times the hand-over of events to another thread, from the end of the warm-up to the last event.
fn hand_over(events: u64, pair: Option<CorePair>) -> Result<f64> {
    let (mut sum, mut ended) = (0_u64, None);
    let mut began = Instant::now();
    let numbers = (0..events).inspect(|event| {
        if *event == events / WARM_UP {
            began = Instant::now();
        }
    });
    slipring::ring(1024, || 0_u64)
        .on_thread_start(|_| pair.iter().for_each(|pair| pin(pair.waiter)))
        .read("sum", |event, _| {
            sum += *event;
            if *event == events - 1 {
                ended = Some(Instant::now());
            }
        })
        .run(|tx| {
            pair.inspect(|pair| pin(pair.producer));
            Ok(tx.publish_all(numbers, |slot, event| *slot = event)?)
        })
        .context("the noise floor")?;
    let ended = ended.filter(|_| sum == events * (events - 1) / 2);
    let ended = ended.context("the noise floor: an event was lost or changed")?;
    ensure!(ended > began, "the noise floor: the clock went backwards");
    Ok((ended - began).as_secs_f64())
}

/// Draws two equal series many times, and takes the ratio of their medians, less 1. Returns the
/// value that 95 % of the draws stay below, or 0 if there are no rounds.
fn floor(rounds: &[Round], repetitions: usize) -> f64 {
    if rounds.is_empty() {
        return 0.0;
    }
    let mut random = Rng::with_seed(SEED);
    let mut differences: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            for _ in 0..repetitions {
                let [first, second] = rounds[random.usize(..rounds.len())];
                let swapped = random.bool();
                one.push(if swapped { second } else { first });
                other.push(if swapped { first } else { second });
            }
            let ratio = median(one) / median(other);
            ratio.max(1.0 / ratio) - 1.0
        })
        .collect();
    differences.sort_by(f64::total_cmp);
    differences[DRAWS * 95 / 100]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns rounds of equal contenders, whose times vary by about `noise`.
    fn rounds(random: &mut Rng, count: usize, noise: f64) -> Vec<Round> {
        let mut time = || 1.0 + noise * (random.f64() + random.f64() + random.f64() - 1.5);
        (0..count).map(|_| [time(), time()]).collect()
    }

    #[test]
    fn equal_times_have_no_noise_and_a_drift_of_both_contenders_has_little() {
        assert_eq!(floor(&[[2.0; 2]; 20], 5), 0.0);
        let mut random = Rng::with_seed(3);
        let scattered = floor(&rounds(&mut random, 30, 0.05), 5);
        assert!((0.01..0.1).contains(&scattered), "{scattered}");
        // The machine becomes twice as slow, for both contenders.
        let drift: Vec<Round> = (0..30).map(|round| [1.0 + f64::from(round) / 30.0; 2]).collect();
        assert_eq!(floor(&drift, 5), 0.0);
    }

    #[test]
    fn more_repetitions_have_a_lower_floor() {
        let rounds = rounds(&mut Rng::with_seed(4), 60, 0.05);
        assert!(floor(&rounds, 9) < floor(&rounds, 3));
    }

    #[test]
    fn about_one_in_twenty_equal_comparisons_exceeds_the_floor() {
        let mut random = Rng::with_seed(5);
        let floor = floor(&rounds(&mut random, 60, 0.05), 5);
        let exceeds = |_: &u32| {
            let (one, other): (Vec<f64>, Vec<f64>) =
                rounds(&mut random, 5, 0.05).into_iter().map(|[one, other]| (one, other)).unzip();
            let ratio = median(one) / median(other);
            ratio.max(1.0 / ratio) - 1.0 > floor
        };
        let beyond = (0..2000).filter(exceeds).count();
        assert!((20..240).contains(&beyond), "{beyond} of 2000");
    }

    #[test]
    fn a_smoke_run_measures_a_floor() {
        let mut rounds = Rounds::default();
        rounds.measure_half(Size::Smoke).unwrap();
        rounds.measure_half(Size::Smoke).unwrap();
        let noise = rounds.noise(Size::Smoke);
        assert_eq!((rounds.computing.len(), rounds.handover.len()), (4, 4));
        assert!(noise.computing >= 0.0 && noise.handover >= 0.0 && noise.floor().is_finite());
    }
}
