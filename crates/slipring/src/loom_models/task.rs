//! Models of tasks: a waker that a future leaves in a wait queue is woken, and no wake-up is lost.
//!
//! The models have one producer, one or two readers and one event, on rings of one slot with
//! `Wait::Blocking`.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use loom::thread;

use super::*;
use crate::base::name::PRODUCER;
use crate::base::sync::{Condvar, Mutex};
use Access::Read;

/// The waker of [`block_on`]: a flag, and the condition variable on which `block_on` sleeps. If
/// several wake-ups come before the next poll, together they end a single sleep.
struct Woken(Mutex<bool>, Condvar);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

/// Polls `future` to its end, and lists `party` as asleep between polls.
pub(super) fn block_on<F: Future>(party: &str, future: F) -> F::Output {
    let woken = Arc::new(Woken(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(woken.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        let _asleep = crate::base::model_hooks::asleep(party);
        let mut flag = woken.0.lock().unwrap();
        while !*flag {
            flag = woken.1.wait(flag).unwrap();
        }
        *flag = false;
    }
}

/// Shows that a task that waits for an event wakes when a thread publishes the event.
#[test]
fn loom_a_task_reads() {
    explore(100, None, || {
        let ring = ring(blocking(1), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let publishing = thread::spawn(move || {
            tx.publish(|event| *event = 0).unwrap();
            tx
        });
        let batch = block_on("s0", rx.batch_async(1)).unwrap();
        assert_eq!(batch[0], 0);
        batch.release();
        drop((publishing.join().unwrap(), rx));
    });
}

#[test]
fn loom_twin_task_unfenced() {
    caught("task::loom_a_task_reads", "task-unfenced", Caught::Deadlock(&["s0"]));
}

#[test]
fn loom_twin_notifier_unfenced_before_a_task() {
    caught("task::loom_a_task_reads", "notifier-unfenced", Caught::Deadlock(&["s0"]));
}

#[test]
fn loom_twin_task_blind() {
    caught("task::loom_a_task_reads", "task-blind", Caught::Deadlock(&["s0"]));
}

#[test]
fn loom_twin_tasks_unwoken() {
    caught("task::loom_a_task_reads", "tasks-unwoken", Caught::Deadlock(&["s0"]));
}

/// Shows that a task that waits for room wakes when a thread releases a slot.
#[test]
fn loom_a_task_publishes() {
    explore(100, None, || {
        let ring = ring(blocking(1), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        tx.publish(|event| *event = 0).unwrap();
        let releasing = thread::spawn(move || {
            rx.poll(1, |event, _| assert_eq!(*event, 0)).unwrap();
            rx
        });
        block_on(PRODUCER, tx.publish_async(|event| *event = 1)).unwrap();
        drop((releasing.join().unwrap(), tx));
    });
}

#[test]
fn loom_twin_leaf_unnotified_before_a_task() {
    caught("task::loom_a_task_publishes", "leaf-unnotified", Caught::Deadlock(&["producer"]));
}

/// Two tasks wait in one wait queue. Shows that a publication wakes the first, even if the future
/// of the second is dropped during its wait.
#[test]
fn loom_a_task_goes_away() {
    explore(400, Some(2), || {
        let ring = ring(blocking(1), &[(Read, 0, &[]), (Read, 0, &[])]);
        let (mut tx, mut stays, mut goes) = (producer(&ring), reader(&ring, 0), reader(&ring, 1));
        let publishing = thread::spawn(move || {
            tx.publish(|event| *event = 0).unwrap();
            tx
        });
        let going = thread::spawn(move || {
            let polled =
                pin!(goes.batch_async(1)).poll(&mut Context::from_waker(Waker::noop())).is_ready();
            (polled, goes)
        });
        block_on("s0", stays.batch_async(1)).unwrap().release();
        drop((publishing.join().unwrap(), going.join().unwrap(), stays));
    });
}

#[test]
fn loom_twin_tasks_unwoken_beside_one_that_goes() {
    caught("task::loom_a_task_goes_away", "tasks-unwoken", Caught::Deadlock(&["s0"]));
}
