//! Tests of `bell.rs`, outside of it because `bell_model.rs` includes that file a second time.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::bell::{self, Bell, CALM, FENCED, QUIET, SLEEPER};
use crate::sync::{Relaxed, Statistic, lock, spin_loop};

/// Longer than any wake-up takes on a machine that is busy with other things.
const BOUND: Duration = Duration::from_secs(20);

fn soaks() -> bool {
    std::env::var_os("SLIPRING_SOAK").is_some()
}

fn ring(bell: &Bell) {
    bell::ring(std::slice::from_ref(bell), &[0]);
}

fn word(bell: &Bell) -> u32 {
    bell.word().load(Relaxed)
}

/// Makes a bell as quiet as if it had been rung for nobody for long, if it may be. `true`: it is.
fn hush(bell: &Bell) -> bool {
    bell.rests_until().store(0, Relaxed);
    bell.calm().store(CALM - 1, Relaxed);
    ring(bell);
    word(bell) == QUIET
}

/// Waits for `word` to reach `value`, always asleep if there is anything to wait for.
fn sleep_until(bell: &Bell, progress: &AtomicU64, value: u64) {
    let began = Instant::now();
    while progress.load(Acquire) < value {
        bell.sleep(Some(BOUND), &mut || progress.load(Acquire) >= value);
        assert!(began.elapsed() < BOUND, "a sleeper was not woken at {value}");
    }
}

/// Two threads hand a number to and fro. Each publication is the last one until the other side has answered, so a wake-up that is lost is never made
/// up for; and each is made at a bell that has just fallen quiet, at about the moment when the other side falls asleep.
#[test]
fn a_quiet_bell_loses_no_wake_up() {
    let (there, back) = (Bell::new(), Bell::new());
    let (ping, pong) = (AtomicU64::new(0), AtomicU64::new(0));
    let rounds = match soaks() {
        _ if cfg!(miri) => 20,
        true => 500_000,
        false => 5_000,
    };
    let ballast: Vec<_> = (0..if cfg!(miri) { 1 } else { 1 << 21 }).map(Statistic::new).collect();
    let quiet = std::thread::scope(|scope| {
        let quiet = scope.spawn(|| {
            let mut quiet = 0;
            for round in 1..=rounds {
                sleep_until(&there, &ping, round);
                quiet += u64::from(hush(&there));
                pong.store(round, Release);
                ring(&back);
            }
            quiet
        });
        for round in 1..=rounds {
            // From the time that the other side takes to look to the time that it takes to fall asleep.
            for _ in 0..round * 7 % 509 {
                spin_loop();
            }
            // Stores that miss every cache, and keep the one behind them back for long.
            for store in 0..16 {
                let at = (round * 16 + store).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize % ballast.len();
                ballast[at].store(round, Relaxed);
            }
            ping.store(round, Release);
            ring(&there);
            // Mostly awake, or it would never come before the other side is asleep.
            for _ in 0..if round % 8 == 0 { 0 } else { 20_000 } {
                if pong.load(Acquire) >= round {
                    break;
                }
                spin_loop();
            }
            sleep_until(&back, &pong, round);
        }
        quiet.join().unwrap()
    });
    if there.may_rest() {
        assert!(quiet > rounds / 2, "only {quiet} of {rounds} rounds began with a quiet bell");
    }
}

/// The same without help from the system: ringers fence.
#[test]
fn a_bell_that_may_not_rest_is_never_quiet() {
    let bell = Bell::resting(false);
    assert!((0..2 * CALM).all(|_| !hush(&bell)));
    let bell = Bell::resting(true);
    bell.rests_until().store(u64::MAX, Relaxed);
    (0..2 * CALM).for_each(|_| ring(&bell));
    assert_eq!(word(&bell), FENCED, "before its time is over");
    bell.rests_until().store(0, Relaxed);
    (0..CALM).for_each(|_| ring(&bell));
    assert_eq!(word(&bell), QUIET);
    bell.sleep(None, &mut || true);
    assert_eq!(word(&bell), FENCED, "somebody was about to sleep");
    assert!(bell.rests_until().load(Relaxed) > 0);
}

/// A waker that counts.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Woken {
    fn take(&self) -> usize {
        self.0.swap(0, Relaxed)
    }
}

/// Each of several bells is looked at, whichever of them is quiet.
#[test]
fn a_ring_looks_at_every_bell() {
    for sleeps_at in 0..3 {
        let bells = [(); 3].map(|()| Bell::new());
        bells.iter().for_each(|bell| _ = hush(bell));
        let woken = Arc::new(Woken::default());
        // No bell but this one may be anything but quiet.
        assert!(!bells[sleeps_at].arm(1, &Waker::from(woken.clone()), &mut || false));
        bell::ring(&bells, &[0, 1, 2]);
        assert_eq!(woken.take(), 1, "bell {sleeps_at}");
        bells.iter().for_each(|bell| assert!(word(bell) < SLEEPER));
    }
}

#[test]
fn a_task_is_announced_once_and_until_it_is_woken_or_goes() {
    let bell = Bell::new();
    let [one, two] = [(); 2].map(|()| Arc::new(Woken::default()));
    let [first, second] = [&one, &two].map(|woken| Waker::from(woken.clone()));
    assert!(!bell.arm(1, &first, &mut || false));
    assert!(!bell.arm(1, &second, &mut || false));
    assert_eq!(word(&bell) / SLEEPER, 1, "one task, armed twice");
    assert!(!bell.arm(2, &first, &mut || false));
    assert_eq!(word(&bell) / SLEEPER, 2);
    bell.disarm(2);
    bell.disarm(2);
    assert_eq!(word(&bell), SLEEPER | FENCED);
    ring(&bell);
    assert_eq!((one.take(), two.take()), (0, 1), "the waker of the last call is woken, once");
    assert_eq!(word(&bell), FENCED);
    ring(&bell);
    assert_eq!((one.take(), two.take()), (0, 0));
    // A task that need not sleep is not left behind, whether or not it slept before.
    assert!(bell.arm(1, &first, &mut || true));
    assert!(!bell.arm(1, &first, &mut || false) && bell.arm(1, &second, &mut || true));
    assert_eq!(word(&bell), FENCED);
    ring(&bell);
    assert_eq!((one.take(), two.take()), (0, 0));
    assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (2, 2), "no waker is kept");
}

#[test]
fn a_sleeper_whose_time_is_over_is_announced_no_longer() {
    let bell = Bell::new();
    for limit in [Duration::ZERO, Duration::from_millis(1)] {
        assert_eq!(bell.sleep(Some(limit), &mut || false), None);
        assert_eq!((word(&bell), lock(bell.gate()).threads), (FENCED, 0));
    }
}
