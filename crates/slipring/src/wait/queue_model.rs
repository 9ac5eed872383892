//! Every state of a few bells on a machine whose cores keep stores back (queue::I4).
//!
//! The loom models know no barrier that one thread makes in another, so there no bell is quiet.
//! These models know it. **The code that they explore is `queue.rs` itself**, included here a second
//! time below the [`machine`]'s atomics, locks and barrier: a step that is changed there is changed
//! here.
//!
//! Not covered here: memory orderings (the loom models), which bells a publication rings (loom, and
//! the plan's tests), and the loads of `QuietCheck`, which are those of `ring` through a pointer.
//! `cargo xtask asm` checks that the compiled publication stores before it looks at the bell.
//!
//! Ringers publish and end, so each model ends when all is published. A sleeper that is left asleep
//! then has lost its wake-up. An announcement that is left makes each later ring fence and wake.

mod machine;

#[path = "../base/edge/announced.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "the same code on another machine")]
mod announced;
/// The edges of `queue.rs`, on the machine.
mod edge {
    pub(super) use super::announced;
}
#[path = "queue.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "the same code on another machine")]
mod queue;

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use machine::sync::{AtomicU32, Relaxed};
use machine::{Model, Program, sync, system, was_refused};
use queue::{FENCED, QUIET, WaitQueue};

/// What the parties of a model share.
struct Parties {
    /// The bells that a publication rings.
    queues: Vec<WaitQueue>,
    notifies: Vec<usize>,
    /// Publications by ringer.
    progress: Vec<AtomicU32>,
    publications: u8,
    /// Wakers of the task: it changes its waker each time.
    wakers: [Arc<Woken>; 2],
}

/// A waker's memory.
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_or(1, Relaxed);
    }
}

impl Parties {
    fn new(queues: usize, ringers: usize, publications: u8) -> Parties {
        Parties {
            queues: (0..queues).map(|_| WaitQueue::new()).collect(),
            notifies: (0..queues).collect(),
            progress: (0..ringers).map(|_| AtomicU32::new(0)).collect(),
            publications,
            wakers: [0, 1].map(|_| Arc::new(Woken(AtomicU32::new(0)))),
        }
    }

    fn sees_all(&self) -> bool {
        self.progress.iter().all(|progress| progress.load(Relaxed) == u32::from(self.publications))
    }

    /// A call: one publication.
    fn publishes(&self, ringer: usize) -> Program<'_> {
        Box::new(move |published| {
            self.progress[ringer].store(u32::from(published) + 1, Relaxed);
            queue::notify(&self.queues, &self.notifies);
            (published + 1 < self.publications).then_some(published + 1)
        })
    }

    /// A call: one sleep, as in a wait. The first `impatient` ones have a limit.
    fn sleeps(&self, queue: usize, impatient: u8) -> Program<'_> {
        Box::new(move |calls| {
            let limit = (calls < impatient).then_some(Duration::MAX);
            self.queues[queue].sleep(limit, &mut || self.sees_all());
            (!self.sees_all()).then_some(impatient.min(calls + 1))
        })
    }

    /// A call: one poll, each with another waker; two polls, then it waits to be woken.
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
            assert!(
                ready || !was_refused(),
                "a task stays asleep although its barrier was refused"
            );
            match ready {
                true => (!self.sees_all()).then_some(0),
                false => Some(call + 1),
            }
        })
    }

    /// A task that is polled once and dropped.
    fn goes_away(&self, queue: usize) -> Program<'_> {
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

    /// Nothing is announced, and nothing armed, when everybody is done.
    fn is_over(&self) {
        for (i, queue) in self.queues.iter().enumerate() {
            let word = queue.word().peek();
            assert!(matches!(word, QUIET | FENCED), "bell {i} ends with the word {word}");
            let asleep = queue.gate().peek();
            assert!(
                asleep.contains("threads: 0") && asleep.contains("tasks: []"),
                "bell {i} ends with {asleep}"
            );
        }
    }

    fn model<'m>(&'m self, threads: Vec<(&'static str, Program<'m>)>) -> Model<'m> {
        Model { threads, refuses: false, end: Some(Box::new(|| self.is_over())) }
    }
}

type Explored = Result<usize, String>;

fn two_ringers(twin: &'static str) -> Explored {
    let parties = Parties::new(1, 2, 2);
    let threads = vec![
        ("first ringer", parties.publishes(0)),
        ("second ringer", parties.publishes(1)),
        ("sleeper", parties.sleeps(0, 0)),
    ];
    parties.model(threads).explore(twin)
}

/// The second sleeper's time is over once.
fn two_sleepers(twin: &'static str) -> Explored {
    let parties = Parties::new(1, 1, 2);
    let threads = vec![
        ("ringer", parties.publishes(0)),
        ("first sleeper", parties.sleeps(0, 0)),
        ("second sleeper", parties.sleeps(0, 1)),
    ];
    parties.model(threads).explore(twin)
}

/// A task with two wakers, and one that is polled once and dropped.
fn two_tasks(twin: &'static str) -> Explored {
    let parties = Parties::new(1, 1, 2);
    let threads = vec![
        ("ringer", parties.publishes(0)),
        ("task", parties.polls(0)),
        ("fickle task", parties.goes_away(0)),
    ];
    parties.model(threads).explore(twin)
}

/// One publication rings two bells, with a sleeper at each.
fn two_bells(twin: &'static str) -> Explored {
    let parties = Parties::new(2, 1, 2);
    let threads = vec![
        ("ringer", parties.publishes(0)),
        ("first sleeper", parties.sleeps(0, 0)),
        ("second sleeper", parties.sleeps(1, 0)),
    ];
    parties.model(threads).explore(twin)
}

/// Barriers may be refused.
fn refused(twin: &'static str) -> Explored {
    let parties = Parties::new(1, 1, 2);
    let threads = vec![
        ("ringer", parties.publishes(0)),
        ("sleeper", parties.sleeps(0, 0)),
        ("task", parties.polls(0)),
    ];
    Model { refuses: true, ..parties.model(threads) }.explore(twin)
}

fn explores(model: fn(&'static str) -> Explored, least: usize) {
    let states = model("").unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{states} states");
    assert!(states >= least, "{states} states are fewer than the {least} that this model has");
}

/// Each twin is caught, and for this reason.
fn catches(model: fn(&'static str) -> Explored, reason: &str, twins: &[&'static str]) {
    for twin in twins {
        let wrong = model(twin).err().unwrap_or_else(|| panic!("`{twin}` is not caught"));
        assert!(wrong.contains(reason), "`{twin}`: {wrong}");
    }
}

macro_rules! models {
    ($($test:ident: $model:ident, $least:literal;)+) => {
        $(
            #[test]
            #[cfg_attr(miri, ignore = "an hour's worth of states, and nothing in them that is unsafe")]
            fn $test() {
                explores($model, $least);
            }
        )+
    };
}
models! {
    nothing_sleeps_through_one_of_two_ringers: two_ringers, 120_000;
    neither_of_two_sleepers_is_left_asleep: two_sleepers, 39_000;
    no_task_is_left_asleep: two_tasks, 23_000;
    neither_of_two_bells_is_missed: two_bells, 122_000;
    nothing_sleeps_where_the_barrier_is_refused: refused, 65_000;
}

#[test]
#[cfg_attr(miri, ignore = "an hour's worth of states, and nothing in them that is unsafe")]
fn every_step_of_a_quiet_bell_is_needed() {
    let steps = ["barrier-left-out", "barrier-late", "notifier-unfenced", "notifier-unlocked"];
    catches(two_ringers, "left asleep: sleeper;", &steps);
    catches(two_sleepers, "left asleep: ", &["announced-unlocked", "one-woken"]);
    catches(
        two_tasks,
        "left asleep: task;",
        &["barrier-left-out", "notifier-unfenced", "tasks-unwoken"],
    );
    catches(
        two_bells,
        "left asleep: second sleeper;",
        &["one-queue-checked", "one-queue-notified"],
    );
    catches(two_sleepers, "ends with the word", &["quiet-by-store"]);
}
