//! Tests of `queue.rs` on the real machine.
//!
//! The tests are not in `queue.rs`, because `queue_model.rs` includes that file a second time.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use crate::base::sync::{Line, Relaxed, Statistic, lock, spin_loop};
use crate::base::system::BARRIER_OMITTED;
use crate::wait::queue::{self, NOTIFIES_BEFORE_QUIET, WaitQueue};
use crate::wait::queue_state::{FENCED, QUIET, SLEEPER};

/// Time within which every wake-up comes, even on a busy machine.
pub(super) const BOUND: Duration = Duration::from_secs(20);

/// Returns whether the tests make many more rounds than usual.
pub(super) fn soaks() -> bool {
    std::env::var_os("SLIPRING_SOAK").is_some()
}

pub(super) fn notify(queue: &WaitQueue) {
    queue::notify(std::slice::from_ref(queue), &[0]);
}

pub(super) fn word(queue: &WaitQueue) -> u32 {
    queue.word().load(Relaxed) as u32
}

/// Makes a queue quiet: sets the count of notifications to one below the threshold, and notifies
/// once. Returns whether the queue is quiet.
pub(super) fn make_quiet(queue: &WaitQueue) -> bool {
    queue.quiet_after().store(0, Relaxed);
    queue.fenced_notifies().store(NOTIFIES_BEFORE_QUIET - 1, Relaxed);
    notify(queue);
    word(queue) == QUIET
}

/// A sleeper and a notifier that race in rounds. In each round the sleeper makes the queue quiet,
/// stores the round's number in `asked`, and calls [`WaitQueue::sleep`]. The notifier answers by
/// storing the number in `answered`, and notifies. The sleeper's poll loads `answered`, but always
/// reports progress, so the sleeper never falls asleep, and a round takes about a microsecond. A
/// round loses a wake-up if the poll does not see the answer, and the notification does not see the
/// sleeper.
pub(super) struct Race {
    queue: WaitQueue,
    asked: Line<AtomicU64>,
    answered: Line<AtomicU64>,
    notified_at: Line<AtomicU64>,
    /// Cache lines to which the notifier stores in each round before it stores to `answered`. These
    /// stores miss the caches, so the later one waits in the store buffer.
    ballast: Vec<Line<Statistic>>,
}

#[derive(Default, Debug)]
pub(super) struct RaceCounts {
    pub(super) rounds: u64,
    /// Number of rounds that began with a quiet queue.
    pub(super) quiet: u64,
    /// Number of rounds in which the sleeper's poll did not see the notifier's store to `answered`.
    unseen: u64,
    /// Number of lost wake-ups.
    pub(super) lost: u64,
}

/// Value of [`Race::asked`] that ends the race.
const OVER: u64 = u64::MAX;
/// Number of fenced notifications at the beginning of a round.
const UNNOTIFIED: u64 = 5;
/// Number of stores that the notifier makes to [`Race::ballast`] in each round.
const STORES: u64 = 40;

impl Race {
    /// Runs `rounds` rounds, but stops earlier after `time`, or when a wake-up is lost. If
    /// `barrier` is `false`, the sleeper omits its barrier.
    pub(super) fn run(queue: WaitQueue, rounds: u64, time: Duration, barrier: bool) -> RaceCounts {
        let word = || Line::new(AtomicU64::new(0));
        let lines = if cfg!(miri) { 1 } else { 1 << 16 };
        let ballast = (0..lines).map(|_| Line::new(Statistic::new(0))).collect();
        let race = Race { queue, asked: word(), answered: word(), notified_at: word(), ballast };
        std::thread::scope(|scope| {
            scope.spawn(|| race.run_notifier());
            BARRIER_OMITTED.set(!barrier);
            let counts = race.run_sleeper(rounds, time);
            BARRIER_OMITTED.set(false);
            race.asked.store(OVER, Release);
            counts
        })
    }

    /// Waits until `word` reaches `round`. Returns whether both threads seem to have run at the
    /// same time.
    fn wait(word: &AtomicU64, round: u64) -> bool {
        let (began, mut polls) = (Instant::now(), 0u32);
        while word.load(Acquire) < round {
            polls += 1;
            if polls.is_multiple_of(8192) {
                assert!(
                    began.elapsed() < 3 * BOUND,
                    "the other thread took no step in round {round}"
                );
                std::thread::yield_now();
            }
            spin_loop();
        }
        polls < 8192
    }

    fn run_sleeper(&self, rounds: u64, time: Duration) -> RaceCounts {
        let began = Instant::now();
        let mut counts = RaceCounts::default();
        // The sleeper adjusts the delay before its poll until half of its polls see the notifier's
        // answer.
        let mut delay = 500u64;
        for round in 1..=rounds {
            counts.rounds = round;
            counts.quiet += u64::from(make_quiet(&self.queue));
            self.queue.fenced_notifies().store(UNNOTIFIED, Relaxed);
            self.asked.store(round, Release);
            // The delay loop ends at about the time when the notifier's store to `answered` reaches
            // memory.
            (0..delay + round % 16).for_each(|step| {
                std::hint::black_box(step);
            });
            let mut saw = false;
            self.queue.sleep(None, &mut || {
                saw = self.answered.load(Acquire) == round;
                true
            });
            let together = Self::wait(&self.notified_at, round);
            // A notification that finds the queue not quiet raises `fenced_notifies`, or sets it to
            // zero.
            let notified = self.queue.fenced_notifies().load(Relaxed) != UNNOTIFIED;
            delay = match saw {
                true => delay.saturating_sub(1),
                false => delay + u64::from(together),
            };
            counts.unseen += u64::from(!saw);
            counts.lost += u64::from(!saw && !notified);
            if counts.lost != 0 || (round % 64 == 0 && began.elapsed() > time) {
                break;
            }
        }
        counts
    }

    fn run_notifier(&self) {
        for round in 1.. {
            Self::wait(&self.asked, round);
            if self.asked.load(Acquire) == OVER {
                return;
            }
            for store in 0..STORES {
                let at = (round * STORES + store).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                self.ballast[at as usize % self.ballast.len()].store(round, Relaxed);
            }
            self.answered.store(round, Release);
            notify(&self.queue);
            self.notified_at.store(round, Release);
        }
    }
}

/// Sleeps until `progress` reaches `value`, without spinning.
fn sleep_until(queue: &WaitQueue, progress: &AtomicU64, value: u64) {
    let began = Instant::now();
    while progress.load(Acquire) < value {
        queue.sleep(Some(BOUND), &mut || progress.load(Acquire) >= value);
        assert!(began.elapsed() < BOUND, "the sleeper was not woken at {value}");
    }
}

/// Two threads send a number to and fro. Each thread publishes its next number only after the other
/// thread's answer, so no later publication makes up for a lost wake-up. Each publication comes
/// just after the queue became quiet, at about the moment when the other thread falls asleep.
#[test]
fn a_quiet_queue_loses_no_wake_up() {
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
                quiet += u64::from(make_quiet(&there));
                pong.store(round, Release);
                notify(&back);
            }
            quiet
        });
        for round in 1..=rounds {
            // The delay varies from round to round: the publication comes before, during or after
            // the other thread's poll.
            for _ in 0..round * 7 % 509 {
                spin_loop();
            }
            // The stores to `ballast` miss the caches, so the later store to `ping` waits in the
            // store buffer.
            for store in 0..16 {
                let at = (round * 16 + store).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize
                    % ballast.len();
                ballast[at].store(round, Relaxed);
            }
            ping.store(round, Release);
            notify(&there);
            // In most rounds, this thread spins until it sees the answer. If it slept, its next
            // publication would come too late to race with the other thread's last poll.
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
    if there.can_be_quiet() {
        assert!(quiet > rounds / 2, "only {quiet} of {rounds} rounds began with a quiet queue");
    }
}

/// A queue becomes quiet after 512 notifications, unless the time in `quiet_after` lies ahead. A
/// queue without membarrier never becomes quiet.
#[test]
fn a_queue_becomes_quiet_only_if_it_can_and_after_its_pause() {
    let queue = WaitQueue::with_quiet(false);
    assert!((0..2 * NOTIFIES_BEFORE_QUIET).all(|_| !make_quiet(&queue)));
    let queue = WaitQueue::with_quiet(true);
    queue.quiet_after().store(u64::MAX, Relaxed);
    (0..2 * NOTIFIES_BEFORE_QUIET).for_each(|_| notify(&queue));
    assert_eq!(word(&queue), FENCED, "the pause is not over");
    queue.quiet_after().store(0, Relaxed);
    (0..NOTIFIES_BEFORE_QUIET).for_each(|_| notify(&queue));
    assert_eq!(word(&queue), QUIET);
    queue.sleep(None, &mut || true);
    assert_eq!(word(&queue), FENCED, "a sleeper ended the quiet");
    assert!(queue.quiet_after().load(Relaxed) > 0);
}

#[test]
fn in_a_race_the_sleeper_or_the_notifier_sees_the_other() {
    let (rounds, time) = match soaks() {
        _ if cfg!(miri) => (20, Duration::MAX),
        true => (2_000_000, Duration::from_secs(60)),
        false => (20_000, Duration::from_secs(3)),
    };
    let counts = Race::run(WaitQueue::new(), rounds, time, true);
    println!("{counts:?}");
    assert_eq!(counts.lost, 0, "{counts:?}");
    assert_eq!(counts.quiet, if WaitQueue::new().can_be_quiet() { counts.rounds } else { 0 });
}

/// Shows that a sleeper without the membarrier can lose a wake-up.
#[test]
#[ignore = "needs two cores at the same time; `cargo xtask soak` runs it"]
fn without_the_barrier_the_race_loses_a_wake_up() {
    if !WaitQueue::new().can_be_quiet()
        || std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2)
    {
        println!("skipped: the race needs membarrier and two cores");
        return;
    }
    let counts = Race::run(WaitQueue::new(), u64::MAX, Duration::from_secs(120), false);
    println!("{counts:?}");
    assert_eq!(counts.lost, 1, "the missing barrier lost no wake-up: {counts:?}");
}

/// A waker that counts its wake-ups.
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

#[test]
fn a_notification_checks_every_queue() {
    for sleeps_at in 0..3 {
        let queues = [(); 3].map(|()| WaitQueue::new());
        queues.iter().for_each(|queue| _ = make_quiet(queue));
        let woken = Arc::new(Woken::default());
        // Arming a task ends the quiet state of the task's queue, and of no other queue.
        assert!(!queues[sleeps_at].arm(1, &Waker::from(woken.clone()), &mut || false));
        queue::notify(&queues, &[0, 1, 2]);
        assert_eq!(woken.take(), 1, "queue {sleeps_at}");
        queues.iter().for_each(|queue| assert!(word(queue) < SLEEPER));
    }
}

#[test]
fn a_task_is_announced_once_until_it_is_woken_or_disarmed() {
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
    notify(&queue);
    assert_eq!((one.take(), two.take()), (0, 1), "only the last call's waker is woken");
    assert_eq!(word(&queue), FENCED);
    notify(&queue);
    assert_eq!((one.take(), two.take()), (0, 0));
    // A task whose poll succeeds leaves no announcement, even if the task was armed before.
    assert!(queue.arm(1, &first, &mut || true));
    assert!(!queue.arm(1, &first, &mut || false) && queue.arm(1, &second, &mut || true));
    assert_eq!(word(&queue), FENCED);
    notify(&queue);
    assert_eq!((one.take(), two.take()), (0, 0));
    assert_eq!(
        (Arc::strong_count(&one), Arc::strong_count(&two)),
        (2, 2),
        "the queue keeps no waker"
    );
}

#[test]
fn a_sleeper_that_times_out_withdraws_its_announcement() {
    let queue = WaitQueue::new();
    for limit in [Duration::ZERO, Duration::from_millis(1)] {
        assert_eq!(queue.sleep(Some(limit), &mut || false), None);
        assert_eq!((word(&queue), lock(queue.sleepers()).threads), (FENCED, 0));
    }
}

/// A queue of a pool wakes as many threads as a notification brings events, and all threads at an
/// end. The others stay announced.
#[test]
fn a_queue_of_a_pool_wakes_a_thread_for_each_event() {
    const THREADS: usize = 6;
    let queue = WaitQueue::of_pool();
    let (queues, woken) = (std::slice::from_ref(&queue), AtomicUsize::new(0));
    let asleep = || lock(queue.sleepers()).threads;
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < BOUND, "{what}");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // A sleep may end without a notification.
                while queue.sleep(None, &mut || false).is_none() {}
                woken.fetch_add(1, Relaxed);
            });
        }
        until("all fall asleep", &|| asleep() == THREADS);
        let task = Arc::new(Woken::default());
        let mut left = THREADS;
        for (events, expected) in [(0, 0), (1, 1), (2, 2), (usize::MAX, 3)] {
            assert!(!queue.arm(1, &Waker::from(task.clone()), &mut || false));
            match events {
                usize::MAX => queue::notify_all(queues),
                1 => notify(&queue),
                _ => queue::notify_up_to(queues, &[0], |_| events),
            }
            assert_eq!(task.take(), usize::from(events != 0), "{events} events wake the tasks");
            queue.disarm(1);
            left -= expected;
            assert_eq!(asleep(), left, "{events} events");
            until("the notified threads wake up", &|| woken.load(Relaxed) == THREADS - left);
            assert_eq!(word(&queue), (SLEEPER * left as u32) | FENCED);
        }
    });
}

/// A release wakes the other workers of its pool only at an end.
#[test]
fn a_release_wakes_its_own_pool_at_the_end() {
    let queues = [WaitQueue::new(), WaitQueue::of_pool()];
    let tasks = [(); 2].map(|()| Arc::new(Woken::default()));
    for (is_over, own) in [(false, 0), (true, 1)] {
        for (queue, task) in queues.iter().zip(&tasks) {
            assert!(!queue.arm(1, &Waker::from(task.clone()), &mut || false));
        }
        queue::notify_released(&queues, &[0, 1], 1, || is_over);
        assert_eq!([tasks[0].take(), tasks[1].take()], [1, own]);
        queues.iter().for_each(|queue| queue.disarm(1));
    }
}

/// A waker that panics when it is woken and when it is dropped.
static PANICS_WHEN_WOKEN: RawWakerVTable =
    RawWakerVTable::new(|data| RawWaker::new(data, &PANICS_WHEN_WOKEN), panics, panics, panics);
/// A waker that panics when it is cloned.
static PANICS_WHEN_CLONED: RawWakerVTable =
    RawWakerVTable::new(|_| resume_unwind(Box::new("a waker")), |_| (), |_| (), |_| ());

fn panics(_: *const ()) {
    resume_unwind(Box::new("a waker"));
}

fn waker_of(functions: &'static RawWakerVTable) -> ManuallyDrop<Waker> {
    // SAFETY: the functions ignore the pointer, and may be called by any thread.
    ManuallyDrop::new(unsafe { Waker::new(std::ptr::null(), functions) })
}

/// After a waker's panic no announcement is left, the lock is free, and the other tasks are woken.
/// Panics of two wakers in one call do not abort the process.
#[test]
fn a_queue_survives_wakers_that_panic() {
    let (queue, panicking) = (WaitQueue::new(), waker_of(&PANICS_WHEN_WOKEN));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    assert!(!queue.arm(1, &panicking, &mut || false));
    assert!(
        queue.arm(1, &panicking, &mut || true),
        "the call drops two wakers: the earlier one and its own"
    );
    assert!(!queue.arm(1, &panicking, &mut || false));
    queue.disarm(1);
    assert_eq!(word(&queue), FENCED);

    assert!(
        !queue.arm(1, &panicking, &mut || false)
            && !queue.arm(2, &waker, &mut || false)
            && !queue.arm(3, &panicking, &mut || false)
    );
    notify(&queue);
    assert_eq!((woken.take(), word(&queue)), (1, FENCED));

    assert!(!queue.arm(2, &waker, &mut || false));
    let panics_when_cloned = waker_of(&PANICS_WHEN_CLONED);
    for number in [1, 2] {
        assert!(
            catch_unwind(
                AssertUnwindSafe(|| queue.arm(number, &panics_when_cloned, &mut || false))
            )
            .is_err()
        );
    }
    assert_eq!(
        word(&queue) / SLEEPER,
        1,
        "only the task that was armed before, with its old waker"
    );
    notify(&queue);
    assert_eq!((woken.take(), word(&queue)), (1, FENCED));
}
