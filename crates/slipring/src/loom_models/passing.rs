//! Models of waits until a stage has passed a position.
//!
//! A waiter sleeps in the queue in which the stage's followers sleep, or the producers. So the
//! models of those queues are models of the waiter, too; these show that the queue is the right
//! one, and that each end of the graph reaches a waiter that owns no handle.

use std::future::Future as _;
use std::task::{Context, Waker};

use loom::thread;

use super::task::block_on;
use super::*;
use crate::errors::{Cause, PassError, WaitError};
use crate::ring::passing::{AnyRing, Goal, PassAsync};
use Access::Read;

/// Returns the ring as an observer holds it.
fn observed(ring: &Ring) -> Arc<dyn AnyRing> {
    ring.observed().upgrade().unwrap()
}

fn goal(ring: &Arc<dyn AnyRing>, stage: &str, seq: u64) -> Goal {
    Goal::stage(ring.control(), stage, seq).unwrap()
}

/// A thread waits for the last stage, in the producers' queue.
#[test]
fn loom_a_waiter_hears_of_the_release() {
    explore(20, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        tx.publish(|event| *event = 0).unwrap();
        let releasing = thread::spawn(move || {
            rx.poll(1, |event, _| assert_eq!(*event, 0)).unwrap();
            rx
        });
        let held = observed(&ring);
        goal(&held, "s0", START).wait(&*held, None).unwrap();
        drop((releasing.join().unwrap(), tx));
    });
}

/// A task waits for a stage before a pool, whose queue wakes one worker for each event. The worker
/// sleeps there, too, and both wake.
#[test]
fn loom_a_waiter_sleeps_beside_a_worker() {
    explore(100, Some(2), || {
        let ring = ring(blocking(2), &[(Read, 0, &[]), (Access::Write, 1, &[0])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let mut worker = worker(&ring, 1, 0);
        tx.publish(|event| *event = 0).unwrap();
        let held = observed(&ring);
        let waiting = thread::spawn(move || goal(&held, "s0", START).wait(&*held, None).unwrap());
        let working = thread::spawn(move || {
            worker.batch(1).unwrap().release();
            worker
        });
        rx.poll(1, |_, _| ()).unwrap();
        drop((waiting.join().unwrap(), working.join().unwrap(), rx, tx));
    });
}

/// A task's future is dropped while the stage releases; another task wakes all the same.
#[test]
fn loom_a_task_waits_beside_one_that_goes() {
    explore(100, Some(2), || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        tx.publish(|event| *event = 0).unwrap();
        let releasing = thread::spawn(move || {
            rx.poll(1, |event, _| assert_eq!(*event, 0)).unwrap();
            rx
        });
        let held = observed(&ring);
        let mut goes = PassAsync::observed(Ok((held.clone(), goal(&held, "s0", START))));
        let _polled = std::pin::Pin::new(&mut goes)
            .poll(&mut Context::from_waker(Waker::noop()))
            .map(Result::unwrap);
        drop(goes);
        block_on("task", PassAsync::observed(Ok((held.clone(), goal(&held, "s0", START)))))
            .unwrap();
        drop((releasing.join().unwrap(), tx));
    });
}

/// The ring is closed before the awaited position.
#[test]
fn loom_a_waiter_hears_of_the_close() {
    explore(100, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let held = observed(&ring);
        let (tx, rx) = (producer(&ring), reader(&ring, 0));
        let closing = thread::spawn(move || tx.close());
        let result = goal(&held, "s0", START).wait(&*held, None);
        assert!(matches!(result, Err(PassError::NotPublished { seq: START, end: START })));
        closing.join().unwrap();
        drop(rx);
    });
}

/// The graph fails.
#[test]
fn loom_a_waiter_hears_of_the_failure() {
    explore(20, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let held = observed(&ring);
        let fails = thread::spawn(move || {
            ring.control.fail(0, Some(START), Cause::Dropped);
            ring
        });
        let result = goal(&held, "s0", START).wait(&*held, None);
        assert!(
            matches!(&result, Err(PassError::Wait(WaitError::Failed(why))) if why.seq() == Some(START)),
            "{result:?}"
        );
        drop(fails.join().unwrap());
    });
}

/// The graph is halted while a task waits.
#[test]
fn loom_a_task_hears_of_the_halt() {
    explore(100, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let held = observed(&ring);
        let halts = thread::spawn(move || {
            ring.control.halt();
            ring
        });
        let waits = PassAsync::observed(Ok((held.clone(), goal(&held, "s0", START))));
        let result = block_on("task", waits);
        assert!(matches!(result, Err(PassError::Wait(WaitError::Halted))), "{result:?}");
        drop(halts.join().unwrap());
    });
}

/// The last owner of a ring that was never closed goes away.
#[test]
fn loom_a_waiter_hears_that_the_ring_is_gone() {
    explore(10, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let held = observed(&ring);
        let going = thread::spawn(move || drop(ring));
        let result = goal(&held, "s0", START).wait(&*held, None);
        assert!(matches!(result, Err(PassError::NotRunning)), "{result:?}");
        going.join().unwrap();
    });
}

/// One producer flushes, while another one publishes. After the flush, both last stages have
/// handled the first producer's event.
#[test]
fn loom_a_flush_meets_another_producer() {
    explore(100, Some(1), || {
        let ring = ring(shared(blocking(2)), &[(Read, 0, &[]), (Read, 0, &[])]);
        let (mut tx, mut other) = (shared_producer(&ring), shared_producer(&ring));
        let readers = [reader(&ring, 0), reader(&ring, 1)];
        let seq = tx.publish(|event| *event = 0).unwrap();
        let publishing = thread::spawn(move || {
            other.publish(|event| *event = 1).unwrap();
            other
        });
        let reading = thread::spawn(move || {
            readers.map(|mut reader| {
                (0..2).for_each(|_| reader.batch(1).unwrap().release());
                reader
            })
        });
        tx.flush().unwrap();
        let held = observed(&ring);
        for stage in ["s0", "s1"] {
            let passed = goal(&held, stage, seq).result(&*held);
            assert!(matches!(passed, Some(Ok(()))), "{stage} has not passed: {passed:?}");
        }
        drop((publishing.join().unwrap(), reading.join().unwrap(), tx));
    });
}

/// Declares a test for each twin of this file's models.
macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal, $how:expr;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("passing::", $model), $twin, $how);
            }
        )+
    };
}
twins! {
    loom_twin_notifier_unfenced_before_a_waiter: "loom_a_waiter_hears_of_the_release", "notifier-unfenced", Caught::Deadlock(&["passing"]);
    loom_twin_sleeper_blind_as_a_waiter: "loom_a_waiter_hears_of_the_release", "sleeper-blind", Caught::Deadlock(&["passing"]);
    loom_twin_tasks_unwoken_beside_a_worker: "loom_a_waiter_sleeps_beside_a_worker", "tasks-unwoken", Caught::Deadlock(&["passing"]);
    loom_twin_tasks_unwoken_beside_a_waiter_that_goes: "loom_a_task_waits_beside_one_that_goes", "tasks-unwoken", Caught::Deadlock(&["task"]);
    loom_twin_closed_unnotified_before_a_waiter: "loom_a_waiter_hears_of_the_close", "closed-unnotified", Caught::Deadlock(&["passing"]);
    loom_twin_failed_unnotified_before_a_waiter: "loom_a_waiter_hears_of_the_failure", "failed-unnotified", Caught::Deadlock(&["passing"]);
    loom_twin_gone_unnotified: "loom_a_waiter_hears_that_the_ring_is_gone", "gone-unnotified", Caught::Deadlock(&["passing"]);
    loom_twin_one_last_stage_asked: "loom_a_flush_meets_another_producer", "one-last-stage-asked", Caught::Message("has not passed");
}
