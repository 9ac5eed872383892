//! Models of quiet queues: the models visit every state that a few sleepers and notifiers can reach
//! (queue::I4).
//!
//! Loom has no membarrier, and a queue becomes quiet only if a membarrier is available, so no queue
//! is quiet in the loom models. The models of this file run on a simulated machine ([`machine`]).
//! It has a membarrier, and it delays stores as cores and compilers do. **They explore `queue.rs`
//! itself**: this module compiles the file a second time, against the machine's [`sync`] and
//! [`system`], so a change of a step there also changes the models.
//!
//! The models leave three things out:
//!
//! - memory orderings, because the loom models cover them;
//! - the choice of the queues that a publication notifies, because the loom models and the plan's
//!   tests check it;
//! - the loads of `QuietCheck`, because they are the loads of `notify`, made through a pointer. In
//!   the compiled code of a publication, `cargo xtask asm` checks that the store of the progress
//!   comes before the load of the state word.
//!
//! Notifiers publish a fixed number of times, so each model ends. At the end, two things are
//! errors. A sleeper that still sleeps has lost its wake-up. An announcement without a sleeper
//! would make every later notification execute a fence and take the queue's lock.

#[path = "../base/edge/announced.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "the same code on the simulated machine")]
mod announced;
mod between_processes;
mod explore;
mod machine;
mod tasks_between_processes;
/// The ordering edges that `queue.rs` uses, compiled for the simulated machine.
mod edge {
    pub(super) use super::announced;
}
#[path = "queue.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "the same code on the simulated machine")]
mod queue;
#[path = "queue_state.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "the same code on the simulated machine")]
mod queue_state;
#[path = "reactor.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "the same code on the simulated machine")]
mod reactor;
#[path = "shared_queue.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "the same code on the simulated machine")]
mod shared_queue;
pub(crate) mod sync;
pub(crate) mod system;

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use explore::{Model, Program};
use machine::was_refused;
use queue::WaitQueue;
use queue_state::{FENCED, QUIET};
use reactor::Reactor;
use sync::{AtomicU64, Relaxed};

use crate::base::maybe_mapped;

/// The data that the threads of a model share.
struct ModelData {
    queues: Vec<WaitQueue>,
    /// Indices of the queues that a publication notifies; a publication notifies all queues of the
    /// model.
    notifies: Vec<usize>,
    /// Number of publications that each notifier has made.
    progress: Vec<AtomicU64>,
    /// Number of publications that each notifier makes.
    publications: u8,
    /// Number of publications that workers have taken.
    taken: AtomicU64,
    /// The tasks of a queue that processes share.
    reactor: Reactor,
    /// The wakers between which the task alternates.
    wakers: [Arc<Woken>; 2],
}

/// A waker that stores 1 when it is woken.
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_or(1, Relaxed);
    }
}

impl ModelData {
    fn new(queues: usize, notifiers: usize, publications: u8) -> ModelData {
        ModelData {
            queues: (0..queues).map(|_| WaitQueue::new()).collect(),
            notifies: (0..queues).collect(),
            progress: (0..notifiers).map(|_| AtomicU64::new(0)).collect(),
            publications,
            taken: AtomicU64::new(0),
            reactor: Reactor::new(),
            wakers: [0, 1].map(|_| Arc::new(Woken(AtomicU64::new(0)))),
        }
    }

    /// Returns whether the caller sees all publications.
    fn sees_all(&self) -> bool {
        self.progress.iter().all(|progress| progress.load(Relaxed) == u64::from(self.publications))
    }

    /// Returns the [`Program`] of a notifier's thread. Each call of the [`Program`] publishes once.
    fn publishes(&self, notifier: usize) -> Program<'_> {
        Box::new(move |published| {
            self.progress[notifier].store(u64::from(published) + 1, Relaxed);
            queue::notify(&self.queues, &self.notifies);
            (published + 1 < self.publications).then_some(published + 1)
        })
    }

    /// Returns the [`Program`] of a sleeper's thread, which consists of calls of
    /// [`WaitQueue::sleep`]. The first `limited` sleeps have a time limit.
    fn sleeps(&self, queue: usize, limited: u8) -> Program<'_> {
        Box::new(move |calls| {
            let limit = (calls < limited).then_some(Duration::ZERO);
            self.queues[queue].sleep(limit, &mut || self.sees_all());
            (!self.sees_all()).then_some(limited.min(calls + 1))
        })
    }

    /// Returns the [`Program`] of a pool's worker, which takes one event and ends. The first
    /// `limited` sleeps have a time limit.
    fn takes_one(&self, limited: u8) -> Program<'_> {
        let left = || {
            let taken = self.taken.load(Relaxed);
            self.progress[0].load(Relaxed) - taken
        };
        Box::new(move |calls| {
            let (queue, taken) = (&self.queues[0], self.taken.load(Relaxed));
            if taken < self.progress[0].load(Relaxed)
                && self.taken.compare_exchange(taken, taken + 1, Relaxed, Relaxed).is_ok()
            {
                if calls > 0 && left() > 0 {
                    queue::notify(&self.queues, &self.notifies);
                }
                return None;
            }
            let limit = (calls < limited).then_some(Duration::ZERO);
            queue.sleep(limit, &mut || left() > 0);
            Some(limited.min(calls) + 1)
        })
    }

    /// Returns the [`Program`] of a task. The task polls with its first waker, polls with its
    /// second waker, and then waits until the second waker is woken. After a poll that succeeds,
    /// the task begins again, or ends if it sees all publications.
    fn polls(&self, queue: usize) -> Program<'_> {
        Box::new(move |call| {
            if call == 2 {
                self.wakers[1].0.wait();
                return Some(0);
            }
            let woken = &self.wakers[usize::from(call)];
            woken.0.compare_exchange(1, 0, Relaxed, Relaxed).ok();
            let ready =
                self.queues[queue].arm(7, &Waker::from(woken.clone()), &mut || self.sees_all());
            assert!(ready || !was_refused(), "a task sleeps although its barrier was refused");
            match ready {
                true => (!self.sees_all()).then_some(0),
                false => Some(call + 1),
            }
        })
    }

    /// Returns the [`Program`] of a task that polls once and then withdraws its waker from the
    /// queue.
    fn polls_and_disarms(&self, queue: usize) -> Program<'_> {
        Box::new(move |call| match call {
            0 => {
                self.queues[queue].arm(9, Waker::noop(), &mut || self.sees_all());
                Some(1)
            }
            _ => {
                self.queues[queue].disarm(9);
                None
            }
        })
    }

    /// Asserts that no sleeper is left announced, asleep or armed.
    fn assert_empty(&self) {
        for (i, queue) in self.queues.iter().enumerate() {
            let word = queue.word().peek();
            assert!(matches!(word as u32, QUIET | FENCED), "queue {i} ends with the word {word}");
            let sleepers = queue.sleepers().peek();
            assert!(
                ["threads: 0", "permits: 0", "tasks: []"]
                    .iter()
                    .all(|part| sleepers.contains(part)),
                "queue {i} ends with {sleepers}"
            );
        }
    }

    fn model<'m>(&'m self, threads: Vec<(&'static str, Program<'m>)>) -> Model<'m> {
        Model { threads, end: Some(Box::new(|| self.assert_empty())), ..Model::default() }
    }
}

/// The number of states, or the reason why a state is wrong.
type Explored = Result<usize, String>;

fn two_notifiers(twin: &'static str) -> Explored {
    let data = ModelData::new(1, 2, 2);
    let threads = vec![
        ("first notifier", data.publishes(0)),
        ("second notifier", data.publishes(1)),
        ("sleeper", data.sleeps(0, 0)),
    ];
    data.model(threads).explore(twin)
}

/// Explores one notifier and two sleepers. The second sleeper's first sleep has a time limit.
fn two_sleepers(twin: &'static str) -> Explored {
    let data = ModelData::new(1, 1, 2);
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("first sleeper", data.sleeps(0, 0)),
        ("second sleeper", data.sleeps(0, 1)),
    ];
    data.model(threads).explore(twin)
}

/// Explores one notifier and two workers of a pool, in a queue that wakes one. Each worker takes
/// one event. The first sleep of the worker `limited` has a time limit.
fn two_workers(limited: usize, twin: &'static str) -> Explored {
    let data = ModelData { queues: vec![WaitQueue::of_pool()], ..ModelData::new(1, 1, 2) };
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("first worker", data.takes_one(u8::from(limited == 0))),
        ("second worker", data.takes_one(u8::from(limited == 1))),
    ];
    data.model(threads).explore(twin)
}

fn two_workers_the_first_limited(twin: &'static str) -> Explored {
    two_workers(0, twin)
}

fn two_workers_the_second_limited(twin: &'static str) -> Explored {
    two_workers(1, twin)
}

/// Explores a notifier, a task with two wakers, and a task that polls once and disarms.
fn two_tasks(twin: &'static str) -> Explored {
    let data = ModelData::new(1, 1, 2);
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("task", data.polls(0)),
        ("disarming task", data.polls_and_disarms(0)),
    ];
    data.model(threads).explore(twin)
}

/// Explores publications that notify two queues, each with one sleeper.
fn two_queues(twin: &'static str) -> Explored {
    let data = ModelData::new(2, 1, 2);
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("first sleeper", data.sleeps(0, 0)),
        ("second sleeper", data.sleeps(1, 0)),
    ];
    data.model(threads).explore(twin)
}

/// Explores a sleeper and a task on a system that can refuse barriers.
fn refused_barriers(twin: &'static str) -> Explored {
    let data = ModelData::new(1, 1, 2);
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("sleeper", data.sleeps(0, 0)),
        ("task", data.polls(0)),
    ];
    Model { refuses: true, ..data.model(threads) }.explore(twin)
}

/// Explores a model and asserts that it reaches at least `least` states.
fn explores(model: fn(&'static str) -> Explored, least: usize) {
    let states = model("").unwrap_or_else(|reason| panic!("{reason}"));
    println!("{states} states");
    assert!(states >= least, "{states} states are fewer than the {least} expected");
}

/// Asserts that the model fails with each twin, for a reason that contains `reason`.
fn catches(model: fn(&'static str) -> Explored, reason: &str, twins: &[&'static str]) {
    for twin in twins {
        let found = model(twin).err().unwrap_or_else(|| panic!("`{twin}` is not caught"));
        assert!(found.contains(reason), "`{twin}`: {found}");
    }
}

macro_rules! models {
    ($($test:ident: $model:ident, $least:literal;)+) => {
        $(
            #[test]
            #[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
            fn $test() {
                explores($model, $least);
            }
        )+
    };
}
models! {
    no_sleeper_misses_one_of_two_notifiers: two_notifiers, 88_000;
    neither_of_two_sleepers_is_left_asleep: two_sleepers, 38_000;
    neither_of_two_workers_is_left_asleep: two_workers_the_first_limited, 278_000;
    neither_of_two_workers_is_left_asleep_if_the_second_times_out:
        two_workers_the_second_limited, 278_000;
    neither_of_two_tasks_is_left_asleep: two_tasks, 22_000;
    neither_of_two_queues_is_missed: two_queues, 99_000;
    no_thread_sleeps_after_a_refused_barrier: refused_barriers, 48_000;
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn every_step_of_a_quiet_queue_is_needed() {
    let steps = ["barrier-left-out", "barrier-late", "notifier-unfenced", "notifier-unlocked"];
    catches(two_notifiers, "left asleep: sleeper;", &steps);
    catches(two_sleepers, "left asleep: ", &["announced-unlocked", "one-woken"]);
    catches(
        two_tasks,
        "left asleep: task;",
        &["barrier-left-out", "notifier-unfenced", "tasks-unwoken"],
    );
    catches(
        two_queues,
        "left asleep: second sleeper;",
        &["one-queue-checked", "one-queue-notified"],
    );
    catches(two_sleepers, "ends with the word", &["quiet-by-store"]);
    catches(two_workers_the_first_limited, "subtract with overflow", &["permit-left"]);
}
