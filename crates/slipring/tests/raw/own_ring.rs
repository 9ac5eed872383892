//! Handlers that publish into a ring whose events they hold.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Wait,
    errors::{ClaimError, ErrorKind, WaitError},
    handles::StartAt,
};

/// Runs a chain whose stage publishes into its own ring until the ring is full. Returns the error
/// of the chain and the error of the publication.
fn publish_into_own_ring(
    shards: bool,
    pool: bool,
    wait: Wait,
) -> (slipring::Error, Option<WaitError>) {
    let error_of_publish = Mutex::new(None);
    let producer = Mutex::new(None);
    let full = AtomicBool::new(false);
    let publish = |_: &u64, _: slipring::At| {
        while producer.lock().unwrap().is_none() {
            thread::yield_now();
        }
        let mut guard = producer.lock().unwrap();
        let tx: &mut slipring::SharedProducer<u64> = guard.as_mut().unwrap();
        loop {
            if let Err(closed) = tx.publish(|slot| *slot = 1) {
                error_of_publish.lock().unwrap().get_or_insert(closed.clone());
                full.store(true, Relaxed);
                return Err(closed);
            }
        }
    };
    let chain = slipring::ring(8, || 0u64).wait(wait).deadline(Duration::from_secs(60));
    let chain = match (shards, pool) {
        (true, _) => chain.read_shards("own", 2, |v| *v, |_| publish),
        (_, true) => chain.read_pool("own", 2, |_| publish),
        _ => chain.read("own", publish),
    };
    let error = chain
        .read("behind", |_, _| ())
        .run_shared(|tx| {
            *producer.lock().unwrap() = Some(tx.clone());
            tx.publish(|slot| *slot = 0)?;
            Ok(())
        })
        .unwrap_err();
    producer.lock().unwrap().take();
    (error, error_of_publish.into_inner().unwrap())
}

#[test]
fn a_handler_that_publishes_into_its_own_full_ring_gets_an_error() {
    let _watched = crate::common::watched();
    for (shards, pool) in [(false, false), (true, false), (false, true)] {
        for wait in [Wait::Blocking, Wait::YIELDING] {
            let (error, publishing) = publish_into_own_ring(shards, pool, wait);
            let publishing = publishing.expect("an error of `publish`");
            assert!(
                matches!(&publishing, WaitError::WaitsForItself(stage) if stage.as_str() == "own"),
                "{publishing}"
            );
            assert!(matches!(error.kind(), ErrorKind::Failed(_)), "{error}");
        }
    }
    // A closure that is passed to a handle's `for_each` gets the same error. After that call has
    // returned, the thread no longer gets it.
    let (tx, mut rx) = slipring::unicast(2, || 0u64).unwrap();
    let mut tx = tx;
    tx.publish(|_| ()).unwrap();
    let mut outcome = None;
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rx.for_each(|_, _| {
            while outcome.is_none() {
                outcome = tx.publish(|_| ()).err();
            }
            panic!("out of the loop");
        })
    }));
    let outcome = outcome.unwrap();
    assert!(matches!(outcome, WaitError::WaitsForItself(_)), "{outcome}");
    assert!(outcome.to_string().contains("wait for ever"), "{outcome}");
    assert!(
        matches!(
            tx.publish_by(Instant::now() + Duration::from_millis(1), |_| ()),
            Err(ClaimError::TimedOut(_))
        ),
        "after `for_each` the call waits"
    );
}

#[test]
fn a_handler_may_wait_for_room_in_another_ring() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(2, || 0u64).unwrap();
    let count = if cfg!(miri) { 20 } else { 2_000 };
    let sum = thread::scope(|s| {
        let reading = s.spawn(move || {
            let mut sum = 0;
            rx.for_each(|v, _| sum += v).unwrap();
            sum
        });
        slipring::ring(2, || 0u64)
            .read("forward", move |v, _| tx.publish(|slot| *slot = *v).map(drop))
            .feed(0..count, |slot, i| *slot = i)
            .unwrap();
        reading.join().unwrap()
    });
    assert_eq!(sum, count * (count - 1) / 2);
}

#[test]
fn a_member_that_publishes_into_its_own_full_ring_gets_an_error() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (mut tx, end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let reading = thread::spawn(move || {
        let mut end = end;
        end.for_each(|_, _| ())
    });
    let mut late = tap.subscribe(StartAt::Now).unwrap();
    tx.publish(|_| ()).unwrap();
    let mut outcome = None;
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        late.for_each(|_, _| {
            while outcome.is_none() {
                outcome = tx.publish(|_| ()).err();
            }
            panic!("out of the loop");
        })
    }));
    assert!(
        matches!(&outcome, Some(WaitError::WaitsForItself(stage)) if stage.as_str() == "tap"),
        "{outcome:?}"
    );
    drop((late, tx));
    reading.join().unwrap().unwrap();
}
