//! Models of an answer to a request: a thread or a task waits for a promise, and learns that the
//! promise's graph has ended.
//!
//! The events of a model's ring are numbers, so the models keep the promise beside the ring. The
//! asker does not own the ring: other threads of a model drop the last handles.

use std::task::{Poll, Waker};

use loom::thread;

use super::promise::{Alarm, poll};
use super::*;
use crate::errors::{AwaitError, Cause, WaitError};
use crate::promise::{Awaited, Promise};
use Access::Read;

/// Publishes a request, and returns both halves of its promise.
fn ask(tx: &mut Producer<u64>) -> (Promise<u64>, Awaited<u64>) {
    let mut kept = None;
    let awaited = tx.ask(|_, promise| kept = Some(promise)).unwrap();
    (kept.unwrap(), awaited)
}

/// Waits as a task that is polled again only if it is woken.
fn wait_as_task(awaited: &mut Awaited<u64>) -> Result<u64, AwaitError> {
    loop {
        let alarm = Alarm::new();
        match poll(awaited, &Waker::from(alarm.clone())) {
            Poll::Ready(result) => return result,
            Poll::Pending => alarm.sleep(),
        }
    }
}

const HALTED: Result<u64, AwaitError> = Err(AwaitError::Wait(WaitError::Halted));

/// The graph fails while a thread goes to sleep. The thread's wait returns the whole failure, with
/// its position.
#[test]
fn loom_a_thread_hears_of_a_failure() {
    explore(1_000, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let mut tx = producer(&ring);
        let (promise, mut awaited) = ask(&mut tx);
        let fails = thread::spawn(move || ring.control.fail(0, Some(START), Cause::Dropped));
        let result = awaited.wait();
        assert!(
            matches!(&result, Err(AwaitError::Wait(WaitError::Failed(failure)))
            if failure.seq() == Some(START)),
            "{result:?}"
        );
        fails.join().unwrap();
        drop(promise);
    });
}

/// The graph is halted while a task goes to sleep. The task's wait returns the halt.
#[test]
fn loom_a_task_hears_of_a_halt() {
    explore(1_000, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let mut tx = producer(&ring);
        let (promise, mut awaited) = ask(&mut tx);
        let halts = thread::spawn(move || ring.control.halt());
        assert_eq!(wait_as_task(&mut awaited), HALTED);
        halts.join().unwrap();
        drop(promise);
    });
}

/// A producer publishes the ring's first request while another thread halts the graph.
#[test]
fn loom_a_halt_meets_the_first_request() {
    explore(500, Some(3), || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let mut tx = producer(&ring);
        let halts = thread::spawn(move || ring.control.halt());
        let mut kept = None;
        if let Ok(mut awaited) = tx.ask(|_, promise: Promise<u64>| kept = Some(promise)) {
            assert_eq!(awaited.wait(), HALTED);
        }
        halts.join().unwrap();
    });
}

/// One thread fulfils the promise while another halts the graph. The asker gets the value or the
/// halt; after a halt, a second call returns the value.
#[test]
fn loom_a_value_meets_a_halt() {
    explore(500, Some(3), || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let mut tx = producer(&ring);
        let (promise, mut awaited) = ask(&mut tx);
        let fulfils = thread::spawn(move || promise.fulfil(7).unwrap());
        // loom refuses to wake a thread that is joining another one. So the asker, which may be
        // woken twice, joins no thread.
        let asks = thread::spawn(move || (awaited.wait(), awaited));
        ring.control.halt();
        fulfils.join().unwrap();
        let (first, mut awaited) = asks.join().unwrap();
        if first != Ok(7) {
            assert_eq!((first, awaited.try_take()), (HALTED, Ok(Some(7))));
        }
    });
}

/// A task gives up its wait while the graph is halted. The task's waker is freed all the same.
#[test]
fn loom_an_answer_is_dropped_at_a_halt() {
    explore(10, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let mut tx = producer(&ring);
        let (promise, mut awaited) = ask(&mut tx);
        let alarm = Alarm::new();
        assert!(poll(&mut awaited, &Waker::from(alarm.clone())).is_pending());
        let halts = thread::spawn(move || ring.control.halt());
        drop(awaited);
        halts.join().unwrap();
        drop(promise);
        assert_eq!(Arc::strong_count(&alarm), 1, "a waker is kept");
    });
}

/// The ring is closed. The asker sleeps until the last stage has released the request and left.
#[test]
fn loom_an_asker_hears_that_the_ring_is_drained() {
    explore(100, Some(2), || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let (promise, mut awaited) = ask(&mut tx);
        tx.close();
        let drains = thread::spawn(move || {
            assert_eq!(available(rx.try_batch(2)).map(|batch| batch.release()), Some(()));
            drop(rx);
        });
        let closed = Err(AwaitError::Wait(WaitError::Closed));
        assert_eq!(wait_as_task(&mut awaited), closed);
        drains.join().unwrap();
        drop(ring);
        // The asker still learns how the ring ended, although the ring is gone.
        assert_eq!(awaited.wait(), closed);
        drop(promise);
    });
}

/// Declares a test for each twin of this file's models.
macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal, $how:expr;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("asked::", $model), $twin, $how);
            }
        )+
    };
}
twins! {
    loom_twin_askers_unnotified: "loom_a_thread_hears_of_a_failure", "askers-unnotified", Caught::Deadlock(&["awaited"]);
    loom_twin_askers_unnotified_tasks: "loom_a_task_hears_of_a_halt", "askers-unnotified", Caught::Deadlock(&["task"]);
    loom_twin_askers_unstirred: "loom_a_thread_hears_of_a_failure", "askers-unstirred", Caught::Deadlock(&["awaited"]);
    loom_twin_asker_blind: "loom_a_thread_hears_of_a_failure", "task-blind", Caught::Deadlock(&["awaited"]);
    loom_twin_asker_unfenced: "loom_a_halt_meets_the_first_request", "asker-unfenced", Caught::Deadlock(&["awaited"]);
    loom_twin_drained_unnotified: "loom_an_asker_hears_that_the_ring_is_drained", "drained-unnotified", Caught::Deadlock(&["task"]);
}
