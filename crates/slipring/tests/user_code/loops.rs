//! Stages whose loop is user code (`read_by`, `update_by`), and moves the stage's reader away.

use std::mem::{replace, swap};
use std::sync::{Mutex, mpsc};
use std::thread;

use slipring::{
    Graph, Reader,
    errors::{BatchError, Cause, WaitError},
    stages::ReaderKey,
};

use crate::common::{Oops, PURPOSE, ends};

fn another_ring() -> (slipring::Producer<u64>, Reader<u64>) {
    slipring::unicast(4, || 0u64).unwrap()
}

/// Runs a chain whose stage `own` has the loop `run`, and returns the chain's error.
fn fails_with_loop(run: impl FnOnce(&mut Reader<u64>) + Send + 'static) -> slipring::Error {
    ends("a loop of its own", move || {
        slipring::ring(4, || 0u64)
            .read("before", |_, _| ())
            .read_by("own", run)
            .feed(0..100, |slot, i| *slot = i)
            .unwrap_err()
    })
}

#[track_caller]
fn assert_dropped(error: &slipring::Error, stage: &str) {
    assert!(
        error.stage() == Some(stage) && matches!(error.failure().unwrap().cause(), Cause::Dropped),
        "{error}"
    );
}

#[test]
fn a_reader_that_is_moved_out_of_its_loop_fails_the_graph() {
    let _watched = crate::common::watched();
    // The reader survives in a channel and does not read.
    let (sender, kept) = mpsc::channel::<Reader<u64>>();
    let error = fails_with_loop(move |rx| {
        let (_, other) = another_ring();
        sender.send(replace(rx, other)).unwrap();
    });
    assert_dropped(&error, "own");
    assert!(matches!(
        kept.recv().unwrap().try_batch(1),
        Err(BatchError::Wait(WaitError::Failed(_)))
    ));
    // A reader that another thread reads to its end fails nothing.
    ends("read on another thread", || {
        let done = slipring::ring(4, || 0u64)
            .read_by("own", |rx| {
                let (_, other) = another_ring();
                let mut own = replace(rx, other);
                thread::spawn(move || own.for_each(|_, _| ())).join().unwrap().unwrap();
            })
            .read("behind", |_, _| ())
            .feed(0..100, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(done.report.stage("behind").unwrap().events, 100);
    });
}

/// A loop's reader is swapped for a reader whose stage number is larger than the chain's.
#[test]
fn a_reader_of_a_larger_graph_in_a_loop_fails_both_graphs() {
    let _watched = crate::common::watched();
    for panics in [false, true] {
        let graph = Graph::new(4, || 0u64);
        let keys: Vec<ReaderKey> = (0..5).map(|i| graph.reader(&format!("s{i}"))).collect();
        let ring = graph.build().unwrap();
        let mut readers: Vec<Reader<u64>> = keys.into_iter().map(|key| ring.reader(key)).collect();
        let mut last = readers.pop().unwrap();
        let (sender, kept) = mpsc::channel();
        let error = fails_with_loop(move |rx| {
            swap(rx, &mut last);
            sender.send(last).unwrap();
            assert!(!panics, "swapped {PURPOSE}");
        });
        assert_eq!(error.stage(), Some("own"), "{error}");
        if panics {
            assert!(matches!(error.failure().unwrap().cause(), Cause::Panic(_)), "{error}");
            assert_eq!(error.seq(), None, "{error}");
        } else {
            assert_dropped(&error, "own");
        }
        drop(kept);
        // The loop's end dropped the swapped reader too.
        assert_eq!(
            ring.producer()
                .publish(|_| ())
                .unwrap_err()
                .failure()
                .map(|failure| failure.stage().to_string()),
            Some("s4".into())
        );
    }
}

/// A loop's reader is exchanged for the reader of a stage that skips failures. If the loop fails,
/// its own stage's policy still applies.
#[test]
fn a_failure_in_a_loop_follows_the_policy_of_the_loops_own_stage() {
    let _watched = crate::common::watched();
    for panics in [false, true] {
        ends(&format!("a foreign reader and a policy, panics: {panics}"), move || {
            let (sender, kept) = mpsc::channel();
            let skip = slipring::OnFault::skip();
            let error = slipring::ring(4, || 0u64)
                .read("lenient", |_, _| ())
                .on_error(skip)
                .on_panic(skip)
                .read_by("own", move |rx| {
                    // The reader's stage number is the number of `lenient` in this chain.
                    sender.send(replace(rx, another_ring().1)).unwrap();
                    assert!(!panics, "swapped {PURPOSE}");
                    Err(Oops(3))
                })
                .feed(0..100, |slot, i| *slot = i)
                .unwrap_err();
            assert_eq!(error.stage(), Some("own"), "{error}");
            assert!(panics || error.downcast_ref::<Oops>() == Some(&Oops(3)), "{error}");
            drop(kept);
        });
    }
    // Nested chains: both loops are stage 0 of their chain.
    ends("a foreign reader of an inner chain", || {
        let error = slipring::ring(4, || 0u64)
            .read_by("outer", |outer| {
                let inner = slipring::ring(4, || 0u64)
                    .read_by("inner", |inner| {
                        swap(outer, inner);
                        Err(Oops(4))
                    })
                    .feed(0..100, |slot, i| *slot = i);
                let inner = inner.unwrap_err();
                assert_eq!(
                    (inner.stage(), inner.downcast_ref()),
                    (Some("inner"), Some(&Oops(4))),
                    "{inner}"
                );
            })
            .feed(0..100, |slot, i| *slot = i)
            .unwrap_err();
        assert_dropped(&error, "outer");
    });
}

#[test]
fn two_loops_that_exchange_their_readers_end() {
    let _watched = crate::common::watched();
    for close in [false, true] {
        let error = ends(&format!("exchanged, read: {close}"), move || {
            let (to_b, from_a) = mpsc::channel::<Reader<u64>>();
            let (to_a, from_b) = mpsc::channel::<Reader<u64>>();
            let exchange = move |rx: &mut Reader<u64>,
                                 give: mpsc::Sender<Reader<u64>>,
                                 take: mpsc::Receiver<Reader<u64>>| {
                give.send(replace(rx, another_ring().1)).unwrap();
                *rx = take.recv().unwrap();
                if close {
                    let _ = rx.for_each(|_, _| ());
                }
            };
            slipring::ring(4, || 0u64)
                .fan_out(|side| {
                    side.read_by("a", move |rx| exchange(rx, to_b, from_b))
                        .read_by("b", move |rx| exchange(rx, to_a, from_a))
                })
                .feed(0..100, |slot, i| *slot = i)
                .map(drop)
        });
        // Either all events are read to the end, or one reader counts as dropped while the other
        // loop still reads. In both cases, nothing hangs and no wrong stage is named.
        match error {
            Ok(()) => assert!(close),
            Err(error) => assert!(matches!(error.stage(), Some("a" | "b")), "{error}"),
        }
    }
}

/// A loop may move its reader away and put it back. Only the reader that is in place when the loop
/// returns counts.
#[test]
fn only_the_reader_at_the_end_of_a_loop_counts() {
    let _watched = crate::common::watched();
    ends("swapped to and fro", || {
        slipring::ring(4, || 0u64)
            .read_by("own", |rx| {
                let (_other_tx, mut other) = another_ring();
                swap(rx, &mut other);
                let _ = other.for_each(|_, _| ());
                swap(rx, &mut other);
            })
            .feed(0..100, |slot, i| *slot = i)
            .unwrap();
    });
    let error = ends("forgotten", || {
        slipring::ring(4, || 0u64)
            .update_by("own", |rx| {
                let graph = Graph::new(4, || 0u64);
                let key = graph.updater("w");
                let ring = graph.build().unwrap();
                static LOST: Mutex<Vec<Box<dyn std::any::Any + Send>>> = Mutex::new(Vec::new());
                LOST.lock().unwrap().push(Box::new(replace(rx, ring.updater(key))));
            })
            .feed(0..100, |slot, i| *slot = i)
            .unwrap_err()
    });
    assert_dropped(&error, "own");
}
