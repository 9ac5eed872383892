//! Rows of MIGRATING.md on channels.

use std::thread;
use std::time::Duration;

use slipring::errors::{BatchError, ClaimError, WaitError};

/// A value that can be moved only.
#[derive(Debug, PartialEq)]
struct Parcel(u64);

#[test]
fn a_value_is_moved_in_and_out() {
    let _watched = crate::common::watched();
    let mut received = Vec::new();
    slipring::ring(8, || None)
        .update("receive", |slot: &mut Option<Parcel>, _| received.extend(slot.take()))
        .feed((0..100).map(Parcel), |slot, parcel| *slot = Some(parcel))
        .unwrap();
    assert!(received.into_iter().eq((0..100).map(Parcel)));
}

#[test]
fn any_thread_sends_through_a_shared_reference() {
    let _watched = crate::common::watched();
    let (tx, pipeline) = slipring::ring(8, || 0).read("receive", |_, _| ()).spawn_shared().unwrap();
    let tx = tx.into_publisher();
    thread::scope(|scope| {
        for sender in 0..4 {
            let tx = &tx;
            scope.spawn(move || {
                (0..100).for_each(|_| _ = tx.publish(|slot| *slot = sender).unwrap())
            });
        }
    });
    drop(tx);
    assert_eq!(pipeline.join().unwrap().stage("receive").unwrap().events, 400);
}

#[test]
fn a_refused_value_stays_with_its_sender() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(1, || None).unwrap();
    let mut parcel = Some(Parcel(7));
    tx.publish(|slot| *slot = Some(Parcel(6))).unwrap();
    assert!(matches!(tx.try_publish(|slot| *slot = parcel.take()), Err(ClaimError::Gated { .. })));
    assert_eq!(parcel, Some(Parcel(7)), "the closure was not called");
    rx.poll(1, |_, _| ()).unwrap();
    tx.try_publish(|slot| *slot = parcel.take()).unwrap();
    assert_eq!(parcel, None);
}

#[test]
fn many_or_after_a_time() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(8, || 0).unwrap();
    for value in 0..3 {
        tx.publish(|slot| *slot = value).unwrap();
    }
    let batch = rx.batch_within(2, Duration::MAX).unwrap();
    assert_eq!(batch.len(), 2, "two are there at once");
    batch.release();
    assert_eq!(rx.batch_within(2, Duration::from_millis(5)).unwrap().len(), 1, "the time is over");
}

#[test]
fn an_earlier_claim_holds_back_later_events() {
    let _watched = crate::common::watched();
    let graph = slipring::Graph::new(8, || 0).shared();
    let rx = graph.reader("receive");
    let ring = graph.build().unwrap();
    let mut rx = ring.reader(rx);
    let (mut first, mut second) = (ring.producer(), ring.producer());
    let claim = first.claim().unwrap();
    second.publish(|slot| *slot = 2).unwrap();
    assert!(matches!(rx.try_batch(8), Err(BatchError::Unavailable)));
    claim.publish();
    assert_eq!(rx.try_batch(8).unwrap().len(), 2);
}

#[test]
fn a_dropped_reader_ends_the_producer() {
    let _watched = crate::common::watched();
    let (mut tx, rx) = slipring::unicast(8, || 0).unwrap();
    drop(rx);
    assert!(matches!(tx.publish(|slot| *slot = 1), Err(WaitError::Failed(_))));
}
