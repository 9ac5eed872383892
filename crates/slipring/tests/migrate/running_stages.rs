//! Rows of MIGRATING.md on a running graph: batches, `idle`, failures and policies.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use slipring::{
    At, Error, OnFault, Wait,
    faults::{Fault, Marks, Verdict},
    reports::Done,
    stages::ReadHandler,
};

use crate::common::{Oops, PURPOSE, quiet};
use crate::{chain, each_once, pair, until};

// Batches.

#[test]
fn a_batch_has_a_largest_size() {
    let _watched = crate::common::watched();
    let (mut sizes, mut ends) = (Vec::new(), Vec::new());
    struct Ends<'a>(&'a mut Vec<u64>);
    impl ReadHandler<u64> for Ends<'_> {
        fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
            Ok(())
        }
        fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
            self.0.push(next_seq);
            Ok(())
        }
    }
    chain(64)
        .read_batch("sizes", |events, _| sizes.push(events.len()))
        .max_batch(3)
        .read_with("ends", Ends(&mut ends))
        .max_batch(4)
        .run_inline(|p| Ok(p.publish_all(0..10, |slot, i| *slot = i)?))
        .unwrap();
    assert_eq!(sizes, [3, 3, 3, 1]);
    assert!(
        ends.last() == Some(&10)
            && ends
                .iter()
                .zip([0].iter().chain(&ends))
                .all(|(end, begin)| (1..=4).contains(&(end - begin))),
        "{ends:?}"
    );
}

#[test]
fn a_batch_is_released_early() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    let mut batch = rx.try_batch(4).unwrap();
    assert!(tx.try_claim().is_err());
    batch.release_front(3);
    assert!(tx.try_claim_n(3).is_ok() && tx.try_claim_n(4).is_err());
    assert_eq!((batch.first_seq(), batch.len(), batch[0]), (3, 1, 3));
    batch.release();
    assert_eq!(tx.remaining(), 4);
    // The same holds for a stage's own loop that runs on a thread of a chain.
    let mut seen = Vec::new();
    let done = chain(8).read_by("own", |rx| {
        while let Ok(mut batch) = rx.batch(4) {
            while let Some(v) = batch.iter().next().copied() {
                seen.push(v);
                batch.release_front(1);
            }
        }
    });
    done.feed(0..100, |slot, i| *slot = i).unwrap();
    assert!(seen.into_iter().eq(0..100));
}

#[test]
fn a_batch_is_released_late() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    // The batch is held, for example because it has been written to a journal but is not yet
    // synced.
    rx.try_batch(3).unwrap().hold();
    assert_eq!((rx.next_seq(), tx.remaining()), (3, 0));
    rx.release_until(2);
    assert_eq!(tx.remaining(), 2);
    let batch = rx.try_batch(9).unwrap();
    assert_eq!((batch.first_seq(), batch.len()), (3, 1));
    batch.release();
    assert_eq!(tx.remaining(), 4);
}

/// A handler that counts its events and its calls of `idle`.
struct Idler<'a> {
    idles: &'a AtomicU64,
    seen: &'a AtomicU64,
}

impl ReadHandler<u64> for Idler<'_> {
    fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
        self.seen.fetch_add(1, SeqCst);
        Ok(())
    }
    fn idle(&mut self) -> Result<(), Fault> {
        self.idles.fetch_add(1, SeqCst);
        Ok(())
    }
}

#[test]
fn a_handler_is_told_that_nothing_comes() {
    let _watched = crate::common::watched();
    for wait in [Wait::YIELDING, Wait::SLEEPING, Wait::Blocking] {
        let (idles, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        chain(4)
            .wait(wait)
            .read_with("idler", Idler { idles: &idles, seen: &seen })
            .idle_every(Duration::from_millis(1))
            .run(|p| {
                for round in 1..3 {
                    let before = idles.load(SeqCst);
                    until("repeated calls of `idle`", || idles.load(SeqCst) >= before + 3);
                    p.publish(|_| ())?;
                    until("the event is handled", || seen.load(SeqCst) == round);
                }
                Ok(())
            })
            .unwrap();
    }
}

// Failures and policies.

#[test]
fn a_stage_may_go_on() {
    let _watched = crate::common::watched();
    let marks = Marks::new();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let done = chain(8)
        .update("parse", |v, _| if *v % 3 == 0 { Err(Oops(*v)) } else { Ok(()) })
        .on_error(OnFault::skip())
        .marks(&marks)
        .read("keep", |v, at| if marks.skipped(at.seq) { bad.push(*v) } else { good.push(*v) })
        .feed(0..20, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(
        (done.report.stage("parse").unwrap().skipped, done.report.stage("keep").unwrap().events),
        (7, 20)
    );
    assert!(
        bad.into_iter().eq((0..20).step_by(3))
            && good.into_iter().eq((0..20).filter(|i| i % 3 != 0))
    );
}

#[test]
fn each_stage_has_its_policy() {
    let _watched = crate::common::watched();
    quiet();
    let faults = Mutex::new(Vec::new());
    let mut panics = 1;
    let fragile = |v: &u64, _: At| {
        if *v == 3 && std::mem::take(&mut panics) == 1 {
            panic!("three {PURPOSE}")
        }
    };
    let error = chain(8)
        .on_faults(|fault| {
            faults.lock().unwrap().push((fault.stage.to_string(), fault.seq, fault.verdict))
        })
        .read("skips", |v, _| if *v == 1 { Err(Oops(1)) } else { Ok(()) })
        .on_error(OnFault::skip())
        .read("fragile", fragile)
        .on_panic(OnFault::retry(1))
        .read("strict", |v, _| if *v == 5 { Err(Oops(5)) } else { Ok(()) })
        .feed(0.., |slot, i| *slot = i)
        .unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref()),
        (Some("strict"), Some(5), Some(&Oops(5)))
    );
    let mut faults = faults.into_inner().unwrap();
    faults.sort_by(|a, b| b.0.cmp(&a.0));
    assert_eq!(
        faults,
        [
            ("skips".into(), Some(1), Verdict::Skipped),
            ("fragile".into(), Some(3), Verdict::Retried)
        ]
    );
}

#[test]
fn a_dead_letter_is_put_aside() {
    let _watched = crate::common::watched();
    let mut dead = Vec::new();
    let done = chain(8)
        .read("skips", |v, _| if *v == 1 { Err(Oops(1)) } else { Ok(()) })
        .on_error_with(|failed| {
            let error = failed.error().downcast_ref::<Oops>().map(|oops| oops.0);
            dead.push((failed.seq(), failed.event().copied(), error));
            if failed.tries() < 2 { OnFault::retry(1) } else { OnFault::skip() }
        })
        .feed(0..4, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(dead, [(Some(1), Some(1), Some(1)); 2]);
    let stage = done.report.stage("skips").unwrap();
    assert_eq!((stage.retries, stage.skipped), (1, 1));
}

#[test]
fn an_error_in_a_worker_may_be_skipped() {
    let _watched = crate::common::watched();
    let seen = Mutex::new(Vec::new());
    let worker = |_| {
        |v: &u64, _| {
            seen.lock().unwrap().push(*v);
            if *v == 20 { Err(Oops(20)) } else { Ok(()) }
        }
    };
    let done = chain(8)
        .read_pool("pool", 2, worker)
        .on_error(OnFault::skip())
        .feed(0..50, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(
        (done.report.stage("pool").unwrap().skipped, done.report.stage("pool").unwrap().events),
        (1, 50)
    );
    assert!(each_once(seen.into_inner().unwrap(), 50));
}

/// Runs eight events in batches of `batch` through a handler. `fails` says at which events the
/// handler fails, and how often. Returns the events that the handler saw, and the outcome.
fn rewound(
    fails: &[(u64, u32)],
    batch: usize,
    on: OnFault,
) -> (Vec<u64>, Result<Done<u64>, Error>) {
    let (mut seen, mut behind, mut left) =
        (Vec::new(), Vec::new(), HashMap::<_, _>::from_iter(fails.iter().copied()));
    let tries = |v: &u64, _: At| {
        seen.push(*v);
        match left.get_mut(v) {
            Some(times @ 1..) => {
                *times -= 1;
                Err(Oops(*v))
            }
            _ => Ok(()),
        }
    };
    let chain = chain(16)
        .read("tries", tries)
        .on_error(on)
        .max_batch(batch)
        .read("behind", |v, _| behind.push(*v));
    let outcome = chain.run_inline(|p| Ok(p.publish_all(0..8, |slot, i| *slot = i)?));
    // The stage behind this one gets each event once, and none is missing.
    assert!(
        behind.iter().copied().eq(0..behind.len() as u64)
            && (outcome.is_err() || behind.len() == 8)
    );
    if let Ok(done) = &outcome {
        let stage = done.report.stage("tries").unwrap();
        assert_eq!(
            (stage.retries, stage.events),
            (fails.iter().map(|(_, times)| u64::from(*times)).sum(), 8)
        );
    }
    (seen, outcome)
}

#[test]
fn a_rewind_at_the_first_event_of_a_batch() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(4, 1)], 4, OnFault::retry(1));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 2, 3, 4, 4, 5, 6, 7], true));
}

#[test]
fn a_rewind_in_the_middle_of_a_batch() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(6, 1)], 4, OnFault::retry(1));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7], true));
}

#[test]
fn a_rewind_at_the_last_event_of_a_batch() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(7, 1)], 4, OnFault::retry(1));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7], true));
}

#[test]
fn rewinds_repeat() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(1, 3)], 4, OnFault::retry(3));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7], true));
    // Several events of one batch fail.
    let (seen, done) = rewound(&[(0, 1), (2, 1), (3, 1)], 4, OnFault::retry(3));
    assert_eq!((seen, done.is_ok()), (vec![0, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7], true));
}

#[test]
fn a_rewind_of_a_batch_of_one() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(3, 2), (7, 1)], 1, OnFault::retry(2));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 7], true));
}

#[test]
fn rewinds_come_to_an_end() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(5, 9)], 4, OnFault::retry(2));
    let error = done.unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref()),
        (Some("tries"), Some(5), Some(&Oops(5)))
    );
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 4, 5, 4, 5]);
}

#[test]
fn rewinds_may_end_with_a_skip() {
    let _watched = crate::common::watched();
    let mut seen = Vec::new();
    let always = |v: &u64, _: At| {
        seen.push(*v);
        if *v == 1 { Err(Oops(1)) } else { Ok(()) }
    };
    let on = OnFault::retry(1).pause(Duration::from_millis(1)).then_skip();
    let done = chain(8)
        .read("r", always)
        .on_error(on)
        .max_batch(1)
        .feed(0..4, |slot, i| *slot = i)
        .unwrap();
    let stage = done.report.stage("r").unwrap();
    assert_eq!((seen, stage.retries, stage.skipped, stage.events), (vec![0, 1, 1, 2, 3], 1, 1, 4));
}

#[test]
fn a_handler_of_batches_is_rewound_too() {
    let _watched = crate::common::watched();
    let (mut calls, mut failed) = (Vec::new(), false);
    let tries = |events: &slipring::handles::Events<'_, u64>, first| {
        calls.push((first, events.len()));
        if first == 4 && !std::mem::replace(&mut failed, true) { Err(Oops(4)) } else { Ok(()) }
    };
    let chain = chain(16).read_batch("r", tries).on_error(OnFault::retry(1));
    chain.run_inline(|p| Ok(p.publish_all(0..8, |slot, i| *slot = i)?)).unwrap();
    assert_eq!(calls, [(0, 4), (4, 4), (4, 4)]);
}
