//! Events are dropped together with the last owner of their ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use slipring::{Graph, errors::WaitError};

/// Counts the live events of a ring.
struct Live(Arc<AtomicUsize>);

impl Live {
    fn new(live: &Arc<AtomicUsize>) -> Live {
        live.fetch_add(1, SeqCst);
        Live(live.clone())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn counter() -> (Arc<AtomicUsize>, impl FnMut() -> Live + 'static, impl Fn() -> usize) {
    let live = Arc::new(AtomicUsize::new(0));
    let (made, seen) = (live.clone(), live.clone());
    (live, move || Live::new(&made), move || seen.load(SeqCst))
}

/// A stage drops no event. The closure that fills the slot again drops the old one.
#[test]
fn an_event_lives_until_its_slot_is_filled_again() {
    let _watched = crate::common::watched();
    let (live, make, count) = counter();
    let (mut tx, mut rx) = slipring::unicast(2, make).unwrap();
    let held = Live::new(&live);
    let mut held = Some(held);
    tx.publish(|slot| *slot = held.take().unwrap()).unwrap();
    assert_eq!(count(), 2, "the factory's first event was replaced, and dropped");
    assert_eq!(rx.poll(2, |_, _| ()).unwrap(), 1);
    assert_eq!(count(), 2);
}

#[test]
fn a_call_that_runs_the_graph_drops_all_events() {
    let _watched = crate::common::watched();
    let (_, make, count) = counter();
    slipring::ring(8, make).read("r", |_, _| ()).feed(0..3, |_, _| ()).unwrap();
    assert_eq!(count(), 0);
    let (_, make, count) = counter();
    let failed = slipring::ring(8, make).read("r", |_, _| Err("no")).feed(0..3, |_, _| ());
    assert!(failed.is_err());
    assert_eq!(count(), 0, "after a failure, too");
}

#[test]
fn events_of_a_pipeline_wait_for_its_producers_and_its_join() {
    let _watched = crate::common::watched();
    let (_, make, count) = counter();
    let (mut tx, pipeline) = slipring::ring(8, make).read("r", |_, _| ()).spawn().unwrap();
    tx.publish(|_| ()).unwrap();
    pipeline.halt();
    pipeline.join().unwrap();
    assert_eq!(count(), 8, "the producer is left");
    drop(tx);
    assert_eq!(count(), 0);
}

#[test]
fn unread_events_wait_for_the_last_handle() {
    let _watched = crate::common::watched();
    let (_, make, count) = counter();
    let graph = Graph::new(8, make);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, rx, monitor) = (ring.producer(), ring.reader(key), ring.monitor());
    tx.publish(|_| ()).unwrap();
    drop(rx);
    assert!(matches!(tx.publish(|_| ()), Err(WaitError::Failed(_))));
    drop(ring);
    assert_eq!(count(), 8, "after the last reader, and a failure");
    drop(tx);
    assert_eq!(count(), 0, "a monitor owns no ring");
    drop(monitor);

    let (_, make, count) = counter();
    let (mut tx, mut rx) = slipring::unicast(8, make).unwrap();
    tx.publish(|_| ()).unwrap();
    tx.close();
    assert_eq!(count(), 8, "after the last producer");
    assert_eq!(rx.for_each(|_, _| ()).unwrap(), 1);
    drop(rx);
    assert_eq!(count(), 0);
}

/// An event that owns a producer of its own ring keeps that ring open. Once a stage takes the
/// producer out of the event, the ring closes.
#[test]
fn a_producer_that_is_taken_out_of_its_event_lets_the_ring_close() {
    let _watched = crate::common::watched();
    type Event = Option<slipring::SharedProducer<OwnRing>>;
    struct OwnRing(Event);
    for takes in [true, false] {
        let (mut tx, pipeline) = slipring::ring(4, || OwnRing(None))
            .update("more", move |event, _| {
                if takes {
                    drop(event.0.take());
                }
            })
            .spawn_shared()
            .unwrap();
        let own = tx.clone();
        tx.publish(|slot| slot.0 = Some(own)).unwrap();
        drop(tx);
        if takes {
            pipeline.join().unwrap();
        } else {
            let still = pipeline.join_within(std::time::Duration::from_millis(20)).unwrap_err();
            assert!(still.to_string().contains("stage `more` is still running"), "{still}");
            pipeline.halt();
            pipeline.join().unwrap();
        }
    }
}
