//! Models of a task in a queue that processes share, and of the thread that sleeps for it
//! (reactor::I1 to I4). The models explore `reactor.rs` itself. The thread's sleeps have no limit.

use std::task::Waker;
use std::time::Duration;

use super::between_processes::{fails, passes, publications};
use super::explore::Program;
use super::queue_state::{FENCED, QUIET};
use super::reactor::Task;
use super::sync::Relaxed;
use super::{Explored, ModelData};
use crate::wait::queue_tests::soaks;

impl ModelData {
    /// Returns the [`Program`] of the thread that sleeps for the tasks. The thread lingers, so that
    /// it may sleep in the queue before a task comes.
    fn sleeps_for_tasks(&self) -> Program<'_> {
        Box::new(move |_| {
            if !self.reactor.enter(true) {
                return None;
            }
            let notified = self.reactor.sleep(&self.queues[0], Duration::MAX);
            self.reactor.leave();
            notified.into_iter().for_each(|task| task.waker.wake());
            Some(0)
        })
    }

    fn arm(&self, number: u64, waker: &Waker) -> bool {
        let task = Task { number, place: (0, 0), waker: waker.clone() };
        self.reactor.arm(&self.queues[0], task, &mut || true, &mut || self.sees_all())
    }

    /// Returns the [`Program`] of a task: it polls once with each waker, and then waits until its
    /// second waker is woken. Once it sees all publications, the ring ends. In a usual run, the
    /// task polls only with its second waker.
    fn polls_a_shared_queue(&self) -> Program<'_> {
        let first = u8::from(!soaks());
        Box::new(move |call| {
            let call = call.max(first);
            if call == 3 {
                self.reactor.stop(&self.queues[0]);
                return None;
            }
            if call == 2 {
                self.wakers[1].0.wait();
                return Some(0);
            }
            let woken = &self.wakers[usize::from(call)];
            woken.0.compare_exchange(1, 0, Relaxed, Relaxed).ok();
            match self.arm(7, &Waker::from(woken.clone())) {
                true if self.sees_all() => Some(3),
                true => Some(0),
                false => Some(call + 1),
            }
        })
    }

    /// Returns the [`Program`] of a task that polls once and goes away.
    fn polls_and_leaves(&self) -> Program<'_> {
        Box::new(move |call| match call {
            0 => {
                self.arm(9, Waker::noop());
                Some(1)
            }
            _ => {
                self.reactor.disarm(&self.queues[0], 9);
                None
            }
        })
    }
}

/// Explores a task, its thread, and a notifier.
fn task(start: u64, publications: u8, twin: &'static str) -> Explored {
    let data = ModelData::between_processes(start, 1, publications);
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("task", data.polls_a_shared_queue()),
        ("thread", data.sleeps_for_tasks()),
    ];
    data.model(threads).explore(twin)
}

/// Explores a task, a task that goes away, their thread, and a notifier.
fn a_task_goes(start: u64) -> Explored {
    let data = ModelData::between_processes(start, 1, 1);
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("task", data.polls_a_shared_queue()),
        ("other task", data.polls_and_leaves()),
        ("thread", data.sleeps_for_tasks()),
    ];
    data.model(threads).explore("")
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn a_task_misses_no_notifier_of_another_process() {
    passes(1_000, |start| task(start, publications(), ""));
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn a_task_that_goes_leaves_the_other_its_wake_up() {
    // From a quiet start, the model reaches ten times as many states, which takes minutes.
    for start in if soaks() { vec![QUIET, FENCED] } else { vec![FENCED] } {
        let states = a_task_goes(u64::from(start)).unwrap_or_else(|reason| panic!("{reason}"));
        assert!(states >= 90_000, "{states} states are fewer than expected");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn every_step_of_a_task_in_a_shared_queue_is_needed() {
    for start in [u64::from(QUIET), u64::from(FENCED)] {
        for twin in [
            "process-barrier-left-out",
            "notifier-unfenced",
            "task-blind",
            "quiet-by-store",
            "same-epoch",
            "noted-ignored",
            "task-unlocked",
        ] {
            fails(task(start, 2, twin), "left asleep: ");
        }
        fails(task(start, 1, "stopped-uninterrupted"), "left asleep: ");
    }
}
