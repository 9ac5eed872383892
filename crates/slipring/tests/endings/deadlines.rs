//! Deadlines of single calls and of graphs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Wait,
    errors::{BatchError, Cause, ClaimError},
    faults::Fault,
    stages::PRODUCER,
};

use crate::common::ends;
use crate::far_deadline;

const SOON: Duration = Duration::from_millis(60);

#[test]
fn a_call_that_times_out_loses_nothing() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("by, {wait}"), move || {
            let graph = Graph::new(2, || 0u64).wait(wait).shared();
            let (a, b) = (graph.pool_reader("a", 2), graph.reader("b"));
            let b = b.after(&a);
            let ring = graph.build().unwrap();
            let (mut tx, mut a, mut b) = (ring.producer(), ring.pool_readers(a), ring.reader(b));
            let by = Instant::now() + Duration::from_millis(5);
            let awaits = |waited: Result<usize, BatchError>, party: &str| match waited {
                Err(BatchError::TimedOut(awaited)) => assert_eq!(&*awaited, party),
                other => panic!("{other:?}"),
            };
            awaits(a[0].batch_by(1, by).map(|lent| lent.len()), PRODUCER);
            awaits(b.batch_by(1, by).map(|lent| lent.len()), "a");
            assert!(Instant::now() >= by);
            tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
            let by = Instant::now() + Duration::from_millis(5);
            let error = tx.publish_by(by, |_| ()).unwrap_err();
            assert!(matches!(&error, ClaimError::TimedOut(stage) if &**stage == "b"), "{error}");
            assert!(Instant::now() >= by);
            assert!(matches!(tx.claim_n_by(2, Instant::now()), Err(ClaimError::TimedOut(_))));
            // The handles continue.
            a[1].batch_by(1, far_deadline()).unwrap().release();
            a[0].poll(2, |_, _| ()).unwrap();
            assert_eq!(b.batch_by(5, far_deadline()).unwrap().len(), 2);
            b.poll(2, |_, _| ()).unwrap();
            assert_eq!(tx.publish_by(far_deadline(), |_| ()).unwrap(), 2);
        });
    }
}

#[test]
fn a_graphs_deadline_fails_the_waiting_stage() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("graph deadline, {wait}"), move || {
            // The producer is stuck in user code, so a stage waits until the deadline. On a busy
            // machine, the deadline may pass before the producer gets there. Then the deadline ends
            // the producer's own call, and the test repeats the run.
            let error = loop {
                let (release, is_stuck) =
                    (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
                let error = slipring::ring(4, || 0u64)
                    .wait(wait.clone())
                    .deadline(SOON)
                    .update("a", |_, _| ())
                    .read_with("b", Flag(release.clone()))
                    .run(|p| {
                        p.publish(|_| ())?;
                        is_stuck.store(true, SeqCst);
                        while !release.load(SeqCst) {
                            thread::yield_now();
                        }
                        Ok(())
                    })
                    .unwrap_err();
                if is_stuck.into_inner() {
                    break error;
                }
                assert_eq!(error.stage(), Some(PRODUCER), "{error}");
            };
            let failure = error.failure().unwrap();
            assert!(matches!(failure.cause(), Cause::Deadline(after) if *after == SOON), "{error}");
            assert!(matches!(error.stage(), Some("a" | "b")), "{error}");
            // The stage has handled the only event or, on a busy machine, has not reached it yet.
            let handled = error.report().unwrap().stage(error.stage().unwrap()).unwrap().events;
            assert_eq!((error.seq(), handled.min(1)), (Some(handled), handled), "{error}");
            assert!(error.to_string().contains("60ms"), "{error}");
            // First the test sets deadlines beyond the range of `Instant`, which never pass.
            for never in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
                let graph = slipring::ring(4, || 0u64)
                    .wait(wait.clone())
                    .deadline(never)
                    .read("r", |_, _| ());
                graph.feed(0..9, |slot, i| *slot = i).unwrap();
            }
            // The deadline of the second chain has already passed when the chain starts.
            let late = slipring::ring(4, || 0u64)
                .wait(wait)
                .deadline(Duration::ZERO)
                .read("r", |_, _| ())
                .run(|p| {
                    loop {
                        p.publish(|_| ())?;
                        thread::sleep(Duration::from_millis(5));
                    }
                    #[allow(unreachable_code)]
                    Ok(())
                });
            assert_eq!(late.unwrap_err().stage(), Some("r"));
        });
    }
}

/// A handler that sets its flag when the stage stops.
struct Flag(Arc<AtomicBool>);

impl slipring::stages::ReadHandler<u64> for Flag {
    fn event(&mut self, _: &u64, _: slipring::At) -> Result<(), Fault> {
        Ok(())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.0.store(true, SeqCst);
        Ok(())
    }
}
