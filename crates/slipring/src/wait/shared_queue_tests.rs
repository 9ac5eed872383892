//! Tests of the queue that processes share, on the real machine.
//!
//! The tests with several processes start this program again: a child runs
//! [`the_part_of_a_child`], maps the memory of its parent, and plays the role that an environment
//! variable names.

use std::time::{Duration, Instant};

use super::queue_tests::{BOUND, Race, make_quiet, notify, soaks, word};
use crate::base::maybe_mapped::MaybeMapped;
use crate::base::sync::{AtomicU64, Line, Relaxed};
use crate::base::system::register_for_barriers_of_processes;
use crate::wait::queue::WaitQueue;
use crate::wait::queue_state::{EPOCH, FENCED, QUIET, QueueState, SLEEPER};
use crate::wait::reactor::{Reactor, Task};
use crate::wait::shared_queue;

/// A queue that processes could share, on the heap.
fn on_the_heap() -> WaitQueue {
    WaitQueue::between_processes(MaybeMapped::new(Line::new(QueueState::new())))
}

/// Registers this process for barriers between processes. Returns whether the system has such
/// barriers; without them, no queue becomes quiet.
fn has_barriers() -> bool {
    let registered = register_for_barriers_of_processes();
    if !registered {
        println!("skipped: the system has no membarrier of processes");
    }
    registered
}

#[test]
fn a_sleeper_whose_limit_passes_withdraws_its_announcement() {
    let queue = on_the_heap();
    for limit in [Duration::ZERO, Duration::from_millis(1)] {
        assert_eq!(queue.sleep(Some(limit), &mut || false), None);
        assert_eq!(queue.word().load(Relaxed), u64::from(FENCED), "no wake-up raised the epoch");
    }
}

/// A wake-up withdraws every announcement once, even announcements that no sleeper will withdraw.
#[test]
fn a_wake_up_takes_all_announcements_once() {
    let queue = on_the_heap();
    queue.word().fetch_add(u64::from(3 * SLEEPER), Relaxed);
    for _ in 0..2 {
        notify(&queue);
        assert_eq!(queue.word().load(Relaxed), EPOCH | u64::from(FENCED));
    }
    queue.word().store(u64::MAX, Relaxed);
    notify(&queue);
    assert_eq!(queue.word().load(Relaxed), u64::from(FENCED), "the epoch came round");
}

#[test]
fn in_a_race_between_processes_the_sleeper_or_the_notifier_sees_the_other() {
    if cfg!(miri) || !has_barriers() {
        return;
    }
    let (rounds, time) = match soaks() {
        true => (2_000_000, Duration::from_secs(60)),
        false => (20_000, Duration::from_secs(3)),
    };
    let counts = Race::run(on_the_heap(), rounds, time, true);
    println!("{counts:?}");
    assert_eq!((counts.lost, counts.quiet), (0, counts.rounds), "{counts:?}");
}

/// Shows that a sleeper without the membarrier can lose a wake-up.
#[test]
#[ignore = "needs two cores at the same time; `cargo xtask soak` runs it"]
fn without_the_barrier_of_processes_the_race_loses_a_wake_up() {
    if !has_barriers() || std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        println!("skipped: the race needs membarrier and two cores");
        return;
    }
    let counts = Race::run(on_the_heap(), u64::MAX, Duration::from_secs(120), false);
    println!("{counts:?}");
    assert_eq!(counts.lost, 1, "the missing barrier lost no wake-up: {counts:?}");
}

/// Whatever the words hold, no call panics and every call ends.
#[test]
fn any_words_do_no_harm() {
    let queue = on_the_heap();
    let mut random = fastrand::Rng::with_seed(0x51a7);
    let mut number = || match random.u32(..4) {
        0 => {
            [0, 1, u64::MAX, u64::MAX - 1, 0xFFFF_FFFF, 0xFFFF_FFFE, EPOCH, 511][random.usize(..8)]
        }
        _ => random.u64(..),
    };
    let mut fill = || queue.fill([(); 5].map(|()| number()));
    for _ in 0..if cfg!(miri) { 20 } else { 500 } {
        fill();
        (0..3).for_each(|_| notify(&queue));
        assert!(word(&queue) < SLEEPER, "a wake-up took the announcements");
        fill();
        let latency = queue.sleep(Some(Duration::ZERO), &mut || false);
        assert!(latency.is_none_or(|latency| latency <= Duration::from_secs(1)));
        queue.sleep(Some(Duration::MAX), &mut || true);
        // The words change while a sleeper uses them.
        fill();
        queue.sleep(Some(Duration::ZERO), &mut || {
            fill();
            false
        });
        let reactor = Reactor::new();
        let arm = |ready: bool| {
            let task = Task { number: 1, place: (0, 0), waker: std::task::Waker::noop().clone() };
            reactor.arm(&queue, task, &mut || true, &mut || ready)
        };
        assert!(arm(true) && !arm(false));
        fill();
        assert!(!arm(false));
        let _ = reactor.sleep(&queue, Duration::ZERO);
        reactor.disarm(&queue, 1);
        notify(&queue);
    }
}

/// A time that lies far ahead, which another clock must have set, does not keep a queue from
/// becoming quiet.
#[test]
fn a_time_of_another_clock_is_ignored() {
    let queue = on_the_heap();
    queue.fill([u64::from(FENCED), 0, 511, u64::MAX, u64::MAX]);
    notify(&queue);
    assert_eq!(word(&queue), QUIET);
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod processes {
    use std::ffi::{c_int, c_void};
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command, Stdio};
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::{Acquire, Release};

    use super::*;

    /// The words that a parent and its child share. Fresh memory is zero: both queues are quiet.
    #[repr(C)]
    struct Words {
        there: Line<QueueState>,
        back: Line<QueueState>,
        ping: Line<AtomicU64>,
        pong: Line<AtomicU64>,
        /// Number of rounds that began with a quiet queue.
        quiet: Line<AtomicU64>,
    }

    unsafe extern "C" {
        fn mmap(
            at: *mut c_void,
            len: usize,
            prot: c_int,
            flags: c_int,
            file: c_int,
            offset: i64,
        ) -> *mut c_void;
        fn munmap(at: *mut c_void, len: usize) -> c_int;
    }

    /// A file's words, mapped.
    struct Mapped(NonNull<Words>);

    // SAFETY: the words are atomic, and the address is valid in all threads.
    unsafe impl Send for Mapped {}
    // SAFETY: as above.
    unsafe impl Sync for Mapped {}

    impl Mapped {
        fn of(file: &File) -> Arc<Mapped> {
            const READ_AND_WRITE: c_int = 3;
            const SHARED: c_int = 1;
            file.set_len(size_of::<Words>() as u64).unwrap();
            let (len, file) = (size_of::<Words>(), file.as_raw_fd());
            // SAFETY: the kernel chooses free addresses.
            let at = unsafe { mmap(std::ptr::null_mut(), len, READ_AND_WRITE, SHARED, file, 0) };
            assert_ne!(at.addr(), usize::MAX, "{}", std::io::Error::last_os_error());
            Arc::new(Mapped(NonNull::new(at.cast()).unwrap()))
        }

        fn words(&self) -> &Words {
            // SAFETY: the mapping is large enough, and any bits are valid atomic words.
            unsafe { self.0.as_ref() }
        }

        /// Returns a queue over a state that lies in this mapping.
        fn queue(self: &Arc<Self>, state: fn(&Words) -> &Line<QueueState>) -> WaitQueue {
            // SAFETY: the `Arc` keeps the mapping, and all processes change it by atomic accesses.
            let state = unsafe { MaybeMapped::mapped(state(self.words()).into(), self.clone()) };
            WaitQueue::between_processes(state)
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: nothing borrows the mapping any more.
            unsafe { munmap(self.0.as_ptr().cast(), size_of::<Words>()) };
        }
    }

    /// Name of the environment variable that tells a child its role, and the file in which its
    /// parent's words lie.
    const ROLE: &str = "SLIPRING_SHARED_QUEUE_ROLE";

    /// A child process. A drop of the value kills the child if it still runs.
    struct Player(Child);

    impl Player {
        /// Kills the child, and waits until it is gone.
        fn kill(mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }

        /// Waits until the child's test has passed.
        fn ends_well(mut self) {
            let status = wait_for("the child's end", || self.0.try_wait().unwrap());
            assert!(status.success(), "the child failed");
        }
    }

    impl Drop for Player {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Calls `poll` until it returns a value.
    fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(value) = poll() {
                return value;
            }
            assert!(began.elapsed() < 3 * BOUND, "waited in vain for {what}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Maps new words, and starts a child that plays `role` with them.
    fn start(role: &str) -> (Arc<Mapped>, Player) {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("slipring-queue-{id}-{role}"));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.unwrap();
        std::fs::remove_file(&path).unwrap();
        let mapped = Mapped::of(&file);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "wait::shared_queue_tests::processes::the_part_of_a_child"])
            .env(ROLE, format!("{role} /proc/{id}/fd/{}", file.as_raw_fd()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The child opens the file through its parent's descriptor, and then stores 1.
        let player = Player(child);
        wait_for("the child's start", || (mapped.words().quiet.load(Acquire) != 0).then_some(()));
        mapped.words().quiet.store(0, Release);
        (mapped, player)
    }

    /// Sleeps until `progress` reaches `value`. The limit of each sleep is longer than the test
    /// waits, so a lost wake-up fails the test.
    fn sleep_until(state: &QueueState, progress: &AtomicU64, value: u64) {
        let began = Instant::now();
        while progress.load(Acquire) < value {
            shared_queue::sleep(state, BOUND, &mut || progress.load(Acquire) >= value);
            assert!(began.elapsed() < BOUND, "the sleeper was not woken at {value}");
        }
    }

    fn rounds() -> u64 {
        if soaks() { 500_000 } else { 5_000 }
    }

    /// Plays a child's role. In a process that is not a child, the test passes at once.
    #[test]
    fn the_part_of_a_child() {
        let Ok(role) = std::env::var(ROLE) else { return };
        let (role, path) = role.split_once(' ').unwrap();
        let mapped = Mapped::of(&File::options().read(true).write(true).open(path).unwrap());
        let words = mapped.words();
        register_for_barriers_of_processes();
        words.quiet.store(1, Release);
        wait_for("the parent", || (words.quiet.load(Acquire) == 0).then_some(()));
        match role {
            "answers" => answers(&mapped),
            "sleeps" => sleep_until(&words.there, &words.ping, 1),
            "dies-waking" => {
                // The wake-up must come after the sleeper's barrier. If it came earlier, the queue
                // would stay unfenced.
                let is_fenced = |word: u32| word >= SLEEPER && word & FENCED != 0;
                wait_for("the sleeper", || is_fenced(words.there.load()).then_some(()));
                words.ping.store(1, Release);
                // This is the first half of a wake-up: it raises the epoch, and does not wake the
                // futex.
                let raise = |word| Some((word & !0xFFFF_FFFE) + EPOCH);
                words.there.word.fetch_update(Relaxed, Relaxed, raise).unwrap();
                words.pong.store(1, Release);
                wait_for("the end by the parent", || None)
            }
            "notifies" => {
                let there = mapped.queue(|words| &words.there);
                for progress in 1.. {
                    words.ping.store(progress, Release);
                    notify(&there);
                    if progress % 64 == 0 {
                        make_quiet(&there);
                    }
                }
            }
            other => panic!("no role {other}"),
        }
    }

    /// Answers each number in `ping` with the same number in `pong`. Before each answer, makes the
    /// queue quiet.
    fn answers(mapped: &Arc<Mapped>) {
        let words = mapped.words();
        let [there, back] = [mapped.queue(|words| &words.there), mapped.queue(|words| &words.back)];
        for round in 1..=rounds() {
            sleep_until(&words.there, &words.ping, round);
            let quiet = make_quiet(&there);
            words.quiet.fetch_add(u64::from(quiet), Relaxed);
            words.pong.store(round, Release);
            notify(&back);
        }
    }

    /// Two processes send a number back and forth. No later publication makes up for a lost
    /// wake-up, and no limit ends a sleep before the test fails.
    #[test]
    fn two_processes_lose_no_wake_up() {
        if !has_barriers() {
            return;
        }
        let (mapped, child) = start("answers");
        let words = mapped.words();
        let there = mapped.queue(|words| &words.there);
        for round in 1..=rounds() {
            // The delay varies from round to round: the publication comes before, during or after
            // the other process's poll.
            (0..round * 7 % 509).for_each(|_| std::hint::spin_loop());
            words.ping.store(round, Release);
            notify(&there);
            sleep_until(&words.back, &words.pong, round);
        }
        child.ends_well();
        let quiet = words.quiet.load(Relaxed);
        assert!(quiet > rounds() / 2, "only {quiet} rounds began with a quiet queue");
        assert!(words.there.load() < SLEEPER && words.back.load() < SLEEPER);
    }

    #[test]
    fn the_next_wake_up_takes_the_announcement_of_a_killed_sleeper() {
        let (mapped, child) = start("sleeps");
        let (words, there) = (mapped.words(), mapped.queue(|words| &words.there));
        wait_for("the announcement", || (word(&there) == SLEEPER | FENCED).then_some(()));
        child.kill();
        assert_eq!(word(&there), SLEEPER | FENCED, "the dead sleeper's announcement is left");
        // A living sleeper withdraws only its own announcement.
        there.sleep(Some(Duration::ZERO), &mut || false);
        assert_eq!(word(&there), SLEEPER | FENCED);
        notify(&there);
        assert_eq!(words.there.word.load(Relaxed), EPOCH | u64::from(FENCED));
    }

    /// The notifier dies between raising the epoch and waking the sleepers.
    #[test]
    fn a_killed_notifier_costs_one_limit() {
        let (mapped, child) = start("dies-waking");
        let words = mapped.words();
        let limit = Duration::from_millis(500);
        let mut ready = || words.ping.load(Acquire) == 1;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for("the raised epoch", || (words.pong.load(Acquire) == 1).then_some(()));
                child.kill();
            });
            let mut sleeps = 0;
            while !ready() {
                let announced = words.there.word.load(Relaxed);
                shared_queue::sleep(&words.there, limit, &mut ready);
                // Only a sleep during which the epoch was raised counts. If a sleep reached its
                // limit before that, the death did not cause it.
                sleeps += u64::from(words.there.word.load(Relaxed) >> 32 != announced >> 32);
            }
            assert!(sleeps <= 1, "{sleeps} sleeps after the death");
        });
        assert_eq!(words.there.word.load(Relaxed), EPOCH | u64::from(FENCED));
    }

    /// A notifier is killed at any step of its notifications. Afterwards the queue works as before.
    #[test]
    fn a_queue_works_after_its_notifier_was_killed() {
        if !has_barriers() {
            return;
        }
        for round in 0..if soaks() { 500 } else { 10 } {
            let (mapped, child) = start("notifies");
            let (words, there) = (mapped.words(), mapped.queue(|words| &words.there));
            let mut seen = 0;
            for _ in 0..100 + 37 * round {
                let limit = Duration::from_millis(20);
                there.sleep(Some(limit), &mut || words.ping.load(Acquire) != seen);
                seen = words.ping.load(Acquire);
            }
            child.kill();
            let last = words.ping.load(Acquire);
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| sleep_until(&words.there, &words.ping, last + 1));
                wait_for("the announcement", || (word(&there) >= SLEEPER).then_some(()));
                words.ping.store(last + 1, Release);
                notify(&there);
                sleeper.join().unwrap();
            });
            assert!(word(&there) < SLEEPER);
        }
    }
}
