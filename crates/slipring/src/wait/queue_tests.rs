//! Tests of `queue.rs`, outside of it because `bell_model.rs` includes that file a second time.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use crate::base::sync::{Line, Relaxed, Statistic, lock, spin_loop};
use crate::base::system::BARRIER_LEFT_OUT;
use crate::wait::queue::{self, CALM, FENCED, QUIET, SLEEPER, WaitQueue};

/// Longer than any wake-up takes on a machine that is busy with other things.
const BOUND: Duration = Duration::from_secs(20);

fn soaks() -> bool {
    std::env::var_os("SLIPRING_SOAK").is_some()
}

fn ring(queue: &WaitQueue) {
    queue::notify(std::slice::from_ref(queue), &[0]);
}

fn word(queue: &WaitQueue) -> u32 {
    queue.word().load(Relaxed)
}

/// Makes a bell as quiet as if it had been rung for nobody for long, if it may be. `true`: it is.
fn hush(queue: &WaitQueue) -> bool {
    queue.rests_until().store(0, Relaxed);
    queue.calm().store(CALM - 1, Relaxed);
    ring(queue);
    word(queue) == QUIET
}

/// Two threads in rounds. In each, the sleeper makes the bell quiet, asks, and takes the steps of
/// falling asleep; the ringer publishes an answer and rings. The sleeper only notes whether its
/// look saw the answer: nothing sleeps, so a round takes about a microsecond, and every ring is as
/// good as the last. A wake-up is lost if the look saw nothing and the ring did nothing.
struct Duel {
    queue: WaitQueue,
    asked: Line<AtomicU64>,
    answered: Line<AtomicU64>,
    notified_at: Line<AtomicU64>,
    /// Stores to it miss the caches, and keep the answer behind them in the ringer's store buffer.
    ballast: Vec<Line<Statistic>>,
}

#[derive(Default, Debug)]
struct Outcome {
    rounds: u64,
    /// Rounds that began with a quiet bell.
    quiet: u64,
    /// Answers that the sleeper's look did not see.
    unseen: u64,
    /// Wake-ups that were lost.
    lost: u64,
}

/// The last round.
const OVER: u64 = u64::MAX;
const STORES: u64 = 40;

impl Duel {
    /// Plays so many rounds, for so long, or until a wake-up is lost. `barrier`: `false` leaves it
    /// out.
    fn play(rounds: u64, time: Duration, barrier: bool) -> Outcome {
        let word = || Line(AtomicU64::new(0));
        let lines = if cfg!(miri) { 1 } else { 1 << 16 };
        let ballast = (0..lines).map(|_| Line(Statistic::new(0))).collect();
        let duel = Duel {
            queue: WaitQueue::new(),
            asked: word(),
            answered: word(),
            notified_at: word(),
            ballast,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| duel.notifies());
            BARRIER_LEFT_OUT.set(!barrier);
            let outcome = duel.sleeps(rounds, time);
            BARRIER_LEFT_OUT.set(false);
            duel.asked.0.store(OVER, Release);
            outcome
        })
    }

    /// `true`: both threads ran meanwhile.
    fn wait(word: &AtomicU64, round: u64) -> bool {
        let (began, mut polls) = (Instant::now(), 0u32);
        while word.load(Acquire) < round {
            polls += 1;
            if polls.is_multiple_of(8192) {
                assert!(began.elapsed() < 3 * BOUND, "the other thread is gone in round {round}");
                std::thread::yield_now();
            }
            spin_loop();
        }
        polls < 8192
    }

    fn sleeps(&self, rounds: u64, time: Duration) -> Outcome {
        let began = Instant::now();
        let mut outcome = Outcome::default();
        // Half of the answers are seen, half are not: so each round is near the moment that counts.
        let mut delay = 500u64;
        for round in 1..=rounds {
            outcome.rounds = round;
            outcome.quiet += u64::from(hush(&self.queue));
            let woken = lock(self.queue.gate()).woken;
            self.asked.0.store(round, Release);
            // At about the moment when the answer leaves the ringer's store buffer.
            (0..delay + round % 16).for_each(|step| {
                std::hint::black_box(step);
            });
            let mut saw = false;
            self.queue.sleep(None, &mut || {
                saw = self.answered.0.load(Acquire) == round;
                true
            });
            let together = Self::wait(&self.notified_at.0, round);
            // A ring that finds the bell not quiet wakes a sleeper, or counts a fence for none.
            let noticed =
                self.queue.calm().load(Relaxed) != 0 || lock(self.queue.gate()).woken != woken;
            delay = match saw {
                true => delay.saturating_sub(1),
                false => delay + u64::from(together),
            };
            outcome.unseen += u64::from(!saw);
            outcome.lost += u64::from(!saw && !noticed);
            if outcome.lost != 0 || (round % 64 == 0 && began.elapsed() > time) {
                break;
            }
        }
        outcome
    }

    fn notifies(&self) {
        for round in 1.. {
            Self::wait(&self.asked.0, round);
            if self.asked.0.load(Acquire) == OVER {
                return;
            }
            for store in 0..STORES {
                let at = (round * STORES + store).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                self.ballast[at as usize % self.ballast.len()].0.store(round, Relaxed);
            }
            self.answered.0.store(round, Release);
            ring(&self.queue);
            self.notified_at.0.store(round, Release);
        }
    }
}

/// Waits for `word` to reach `value`, always asleep if there is anything to wait for.
fn sleep_until(queue: &WaitQueue, progress: &AtomicU64, value: u64) {
    let began = Instant::now();
    while progress.load(Acquire) < value {
        queue.sleep(Some(BOUND), &mut || progress.load(Acquire) >= value);
        assert!(began.elapsed() < BOUND, "a sleeper was not woken at {value}");
    }
}

/// Two threads hand a number to and fro. Each publication is the last one until the other side has
/// answered, so a wake-up that is lost is never made up for; and each is made at a bell that has
/// just fallen quiet, at about the moment when the other side falls asleep.
#[test]
fn a_quiet_bell_loses_no_wake_up() {
    let (there, back) = (WaitQueue::new(), WaitQueue::new());
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
            // From the time that the other side takes to look to the time that it takes to fall
            // asleep.
            for _ in 0..round * 7 % 509 {
                spin_loop();
            }
            // Stores that miss every cache, and keep the one behind them back for long.
            for store in 0..16 {
                let at = (round * 16 + store).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize
                    % ballast.len();
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
    let queue = WaitQueue::resting(false);
    assert!((0..2 * CALM).all(|_| !hush(&queue)));
    let queue = WaitQueue::resting(true);
    queue.rests_until().store(u64::MAX, Relaxed);
    (0..2 * CALM).for_each(|_| ring(&queue));
    assert_eq!(word(&queue), FENCED, "before its time is over");
    queue.rests_until().store(0, Relaxed);
    (0..CALM).for_each(|_| ring(&queue));
    assert_eq!(word(&queue), QUIET);
    queue.sleep(None, &mut || true);
    assert_eq!(word(&queue), FENCED, "somebody was about to sleep");
    assert!(queue.rests_until().load(Relaxed) > 0);
}

/// The steps of falling asleep and of ringing, at the same moment, many times.
#[test]
fn a_quiet_bell_and_a_sleeper_see_each_other() {
    let (rounds, time) = match soaks() {
        _ if cfg!(miri) => (20, Duration::MAX),
        true => (2_000_000, Duration::from_secs(60)),
        false => (20_000, Duration::from_secs(3)),
    };
    let outcome = Duel::play(rounds, time, true);
    println!("{outcome:?}");
    assert_eq!(outcome.lost, 0, "{outcome:?}");
    assert_eq!(outcome.quiet, if WaitQueue::new().may_rest() { outcome.rounds } else { 0 });
}

/// The twin of the above: without the barrier a wake-up is lost.
#[test]
#[ignore = "needs two cores at the same time; `cargo xtask soak` runs it"]
fn without_the_barrier_they_do_not() {
    if !WaitQueue::new().may_rest()
        || std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2)
    {
        println!("not on this machine: no barrier, or no second core");
        return;
    }
    let outcome = Duel::play(u64::MAX, Duration::from_secs(120), false);
    println!("{outcome:?}");
    assert_eq!(outcome.lost, 1, "a missing barrier went unnoticed: {outcome:?}");
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
        let queues = [(); 3].map(|()| WaitQueue::new());
        queues.iter().for_each(|queue| _ = hush(queue));
        let woken = Arc::new(Woken::default());
        // No bell but this one may be anything but quiet.
        assert!(!queues[sleeps_at].arm(1, &Waker::from(woken.clone()), &mut || false));
        queue::notify(&queues, &[0, 1, 2]);
        assert_eq!(woken.take(), 1, "bell {sleeps_at}");
        queues.iter().for_each(|queue| assert!(word(queue) < SLEEPER));
    }
}

#[test]
fn a_task_is_announced_once_and_until_it_is_woken_or_goes() {
    let queue = WaitQueue::new();
    let [one, two] = [(); 2].map(|()| Arc::new(Woken::default()));
    let [first, second] = [&one, &two].map(|woken| Waker::from(woken.clone()));
    assert!(!queue.arm(1, &first, &mut || false));
    assert!(!queue.arm(1, &second, &mut || false));
    assert_eq!(word(&queue) / SLEEPER, 1, "one task, armed twice");
    assert!(!queue.arm(2, &first, &mut || false));
    assert_eq!(word(&queue) / SLEEPER, 2);
    queue.disarm(2);
    queue.disarm(2);
    assert_eq!(word(&queue), SLEEPER | FENCED);
    ring(&queue);
    assert_eq!((one.take(), two.take()), (0, 1), "the waker of the last call is woken, once");
    assert_eq!(word(&queue), FENCED);
    ring(&queue);
    assert_eq!((one.take(), two.take()), (0, 0));
    // A task that need not sleep is not left behind, whether or not it slept before.
    assert!(queue.arm(1, &first, &mut || true));
    assert!(!queue.arm(1, &first, &mut || false) && queue.arm(1, &second, &mut || true));
    assert_eq!(word(&queue), FENCED);
    ring(&queue);
    assert_eq!((one.take(), two.take()), (0, 0));
    assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (2, 2), "no waker is kept");
}

#[test]
fn a_sleeper_whose_time_is_over_is_announced_no_longer() {
    let queue = WaitQueue::new();
    for limit in [Duration::ZERO, Duration::from_millis(1)] {
        assert_eq!(queue.sleep(Some(limit), &mut || false), None);
        assert_eq!((word(&queue), lock(queue.gate()).threads), (FENCED, 0));
    }
}

/// A waker that panics when it is woken and when it is dropped.
static RUDE: RawWakerVTable =
    RawWakerVTable::new(|data| RawWaker::new(data, &RUDE), panics, panics, panics);
/// A waker that panics when it is cloned.
static SHY: RawWakerVTable =
    RawWakerVTable::new(|_| resume_unwind(Box::new("a waker")), |_| (), |_| (), |_| ());

fn panics(_: *const ()) {
    resume_unwind(Box::new("a waker"));
}

fn waker_of(functions: &'static RawWakerVTable) -> ManuallyDrop<Waker> {
    // SAFETY: the functions ignore the pointer, and may be called by any thread.
    ManuallyDrop::new(unsafe { Waker::new(std::ptr::null(), functions) })
}

/// A panic of a waker leaves no announcement, no lock, and no other task asleep; two at once do not
/// end the process.
#[test]
fn wakers_may_panic() {
    let (queue, rude) = (WaitQueue::new(), waker_of(&RUDE));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    assert!(!queue.arm(1, &rude, &mut || false));
    assert!(
        queue.arm(1, &rude, &mut || true),
        "two wakers are let go: the one before, and this one"
    );
    assert!(!queue.arm(1, &rude, &mut || false));
    queue.disarm(1);
    assert_eq!(word(&queue), FENCED);

    assert!(
        !queue.arm(1, &rude, &mut || false)
            && !queue.arm(2, &waker, &mut || false)
            && !queue.arm(3, &rude, &mut || false)
    );
    ring(&queue);
    assert_eq!((woken.take(), word(&queue)), (1, FENCED));

    assert!(!queue.arm(2, &waker, &mut || false));
    let shy = waker_of(&SHY);
    for number in [1, 2] {
        assert!(catch_unwind(AssertUnwindSafe(|| queue.arm(number, &shy, &mut || false))).is_err());
    }
    assert_eq!(word(&queue) / SLEEPER, 1, "the task that was armed before, with its old waker");
    ring(&queue);
    assert_eq!((woken.take(), word(&queue)), (1, FENCED));
}
