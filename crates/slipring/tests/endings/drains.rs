//! Ends for services and tasks: `drain`, `join_async`, and joins by several threads.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use slipring::errors::JoinError;
use slipring::faults::Fault;
use slipring::stages::ReadHandler;
use slipring::{At, Graph, Pipeline, Wait};

use crate::common::{LIMIT, Oops, PURPOSE, Unpark, block_on, ends, quiet};

const SHORT: Duration = Duration::from_millis(5);

fn unpark() -> (Arc<Unpark>, Waker) {
    let unpark = Unpark::new();
    (unpark.clone(), Waker::from(unpark))
}

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// A handler that waits for its gate at each event, and counts its stops.
struct Gated(mpsc::Receiver<()>, Arc<AtomicUsize>);

/// Number of events that have come to handlers with a gate.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

impl ReadHandler<u64> for Gated {
    fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
        BEGUN.fetch_add(1, SeqCst);
        let _ = self.0.recv();
        Ok(())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.1.fetch_add(1, SeqCst);
        Ok(())
    }
}

#[test]
fn a_drain_ends_with_the_last_event() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for threads in [0, 1, 2] {
            let wait = wait.clone();
            ends(&format!("drain, {wait}, {threads}"), move || {
                let chain = slipring::ring(4, || 0u64);
                let chain = match threads {
                    0 => chain.wait(wait),
                    _ => chain.threads(threads),
                };
                let (mut tx, pipeline) =
                    chain.update("w", |v, _| *v += 1).read("r", |_, _| ()).spawn().unwrap();
                let producing = thread::spawn(move || {
                    tx.publish_all(0..100, |slot, i| *slot = i).unwrap();
                });
                let report = pipeline.drain(Duration::MAX).unwrap();
                assert_eq!((report.stage("r").unwrap().events, report.halted()), (100, false));
                producing.join().unwrap();
                // A second call returns the same report, whatever its limit.
                let report = pipeline.drain(Duration::ZERO).unwrap();
                assert_eq!(report.stage("r").unwrap().events, 100);
                assert_eq!(pipeline.join().unwrap().stage("r").unwrap().events, 100);
            });
        }
    }
}

#[test]
fn a_drain_halts_at_its_limit() {
    let _watched = crate::common::watched();
    // The producer is open, and all events are handled.
    ends("an open producer", || {
        let (mut tx, pipeline) =
            slipring::ring(4, || 0u64).read("r", |_, _| ()).spawn_shared().unwrap();
        tx.publish(|_| ()).unwrap();
        // On a busy machine, the stage may not hear of the halt in time.
        match pipeline.drain(SHORT).unwrap_err() {
            error @ JoinError::Halted { left: 0, .. } => {
                let told = "was halted before stage `r` had ended, with 0 events left";
                assert!(error.to_string().contains(told), "{error}");
            }
            JoinError::Halted { stage, .. } | JoinError::StillRunning { stage, .. } => {
                assert_eq!(&*stage, "r");
            }
            other => panic!("{other}"),
        }
        assert!(tx.publish(|_| ()).is_err());
        assert!(pipeline.join().unwrap().halted());
    });
    // A stage holds events, and its handler returns only after the halt.
    ends("a slow stage", || {
        let (open, gate) = mpsc::channel();
        let stops = Arc::new(AtomicUsize::new(0));
        let (mut tx, pipeline) = slipring::ring(4, || 0u64)
            .read_with("slow", Gated(gate, stops.clone()))
            .spawn()
            .unwrap();
        tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
        tx.close();
        // On a busy machine, the stage may begin late.
        while BEGUN.load(SeqCst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        // The handler never returns meanwhile.
        let error = pipeline.drain(SHORT).unwrap_err();
        let still =
            matches!(&error, JoinError::StillRunning { stage, left: 3 } if &**stage == "slow");
        assert!(still && stops.load(SeqCst) == 0, "{error}");
        // It returns now, and the stage ends without the events that it has not begun.
        drop(open);
        let report = pipeline.join().unwrap();
        assert!(report.halted() && stops.load(SeqCst) == 1);
    });
    // The halt lets the handler return.
    ends("a stage that hears of the halt", || {
        let stops = Arc::new(AtomicUsize::new(0));
        let (open, gate) = mpsc::channel::<()>();
        let (mut tx, pipeline) = slipring::ring(4, || 0u64)
            .read_with("slow", Gated(gate, stops.clone()))
            .spawn_shared()
            .unwrap();
        tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
        let watching = thread::spawn(move || {
            while tx.publish_by(std::time::Instant::now() + SHORT, |_| ()).is_ok()
                || !matches!(tx.try_claim(), Err(error) if error.to_string().contains("halted"))
            {
            }
            drop(open);
        });
        let error = pipeline.drain(Duration::from_millis(200)).unwrap_err();
        watching.join().unwrap();
        // On a busy machine, the handler may take longer than the limit.
        match error {
            JoinError::Halted { stage, left } => {
                assert!(&*stage == "slow" && left >= 3 && stops.load(SeqCst) == 1);
            }
            other => assert!(matches!(other, JoinError::StillRunning { .. }), "{other}"),
        }
    });
}

/// The halt by one thread's drain is no success of another thread's drain.
#[test]
fn each_drain_of_a_halted_pipeline_tells_what_is_left() {
    let _watched = crate::common::watched();
    ends("two drains", || {
        let (entered, inside) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let handler = move |_: &u64, _: At| {
            entered.send(()).unwrap();
            _ = gate.recv();
        };
        let (mut tx, pipeline) = slipring::ring(8, || 0u64).read("slow", handler).spawn().unwrap();
        tx.publish_all(0..8, |slot, i| *slot = i).unwrap();
        tx.close();
        inside.recv().unwrap();
        thread::scope(|scope| {
            let long = scope.spawn(|| pipeline.drain(LIMIT));
            pipeline.halt();
            drop(open);
            for drained in [long.join().unwrap(), pipeline.drain(SHORT)] {
                let Err(JoinError::Halted { stage, left }) = drained else {
                    panic!("{drained:?}");
                };
                assert!(&*stage == "slow" && left > 0, "{left} left");
            }
        });
        assert!(pipeline.join().unwrap().halted());
    });
}

#[test]
fn a_drain_tells_of_a_failure() {
    let _watched = crate::common::watched();
    ends("a failure", || {
        let (mut tx, pipeline) =
            slipring::ring(4, || 0u64).read("r", |_, _| Err(Oops(3))).spawn().unwrap();
        while tx.publish(|_| ()).is_ok() {}
        let JoinError::Failed(error) = pipeline.drain(LIMIT).unwrap_err() else { panic!() };
        assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(3)));
    });
}

/// A stage that drains its own pipeline, or awaits its end, gets an error, and halts nothing.
#[test]
fn a_stage_does_not_wait_for_its_own_end() {
    let _watched = crate::common::watched();
    for threads in [0, 2] {
        ends("an own end", move || {
            let slot = Arc::new(Mutex::new(None::<Arc<Pipeline>>));
            let theirs = slot.clone();
            let (sender, results) = mpsc::channel();
            let chain = slipring::ring(2, || 0u64);
            let chain = if threads == 0 { chain } else { chain.threads(threads) };
            let (mut tx, pipeline) = chain
                .read("r", move |_, _| {
                    let pipeline = theirs.lock().unwrap().clone().unwrap();
                    let drained = pipeline.drain(Duration::MAX);
                    let joined = block_on(pipeline.join_async()).unwrap_err();
                    sender.send((drained, joined.to_string())).unwrap();
                })
                .spawn()
                .unwrap();
            let pipeline = Arc::new(pipeline);
            *slot.lock().unwrap() = Some(pipeline.clone());
            for _ in 0..2 {
                tx.publish(|_| ()).unwrap(); // also behind the refused drain
                let (drained, joined) = results.recv().unwrap();
                assert!(matches!(drained, Err(JoinError::StillRunning { .. })), "{drained:?}");
                assert!(joined.contains("its own pipeline"), "{joined}");
            }
            tx.close();
            assert_eq!(pipeline.join().unwrap().stage("r").unwrap().events, 2);
            slot.lock().unwrap().take();
        });
    }
}

#[test]
fn a_task_awaits_the_end() {
    let _watched = crate::common::watched();
    for threads in [0, 1, 2] {
        ends("an awaited end", move || {
            let chain = slipring::ring(4, || 0u64);
            let chain = if threads == 0 { chain } else { chain.threads(threads) };
            let (mut tx, pipeline) = chain
                .update("w", |_, _| ())
                .read_pool("p", 2, |_| |_, _| ())
                .read("r", |_, _| ())
                .spawn()
                .unwrap();
            let producing = thread::spawn(move || {
                thread::sleep(SHORT);
                tx.publish_all(0..100, |slot, i| *slot = i).unwrap();
            });
            let report = block_on(pipeline.join_async()).unwrap();
            assert_eq!(report.stage("r").unwrap().events, 100);
            producing.join().unwrap();
            // A later future is done at its first poll.
            let (_, waker) = unpark();
            assert!(poll(pin!(pipeline.join_async()), &waker).is_ready());
            assert_eq!(pipeline.join().unwrap().stage("r").unwrap().events, 100);
            assert!(block_on(pipeline.join_async()).is_ok());
        });
    }
    ends("an awaited failure", || {
        let (mut tx, pipeline) =
            slipring::ring(4, || 0u64).read("r", |_, _| Err(Oops(3))).spawn().unwrap();
        tx.publish(|_| ()).unwrap();
        let error = block_on(pipeline.join_async()).unwrap_err();
        assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(3)));
    });
    ends("an awaited halt", || {
        let (_tx, pipeline) = slipring::ring(4, || 0u64).read("r", |_, _| ()).spawn().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(SHORT);
                pipeline.halt();
            });
            assert!(block_on(pipeline.join_async()).unwrap().halted());
        });
    });
}

#[test]
fn a_dropped_future_leaves_no_waker() {
    let _watched = crate::common::watched();
    quiet();
    ends("dropped futures", || {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("woken {PURPOSE}");
            }
        }
        let (tx, pipeline) = slipring::ring(4, || 0u64).read("r", |_, _| ()).spawn().unwrap();
        let [(first, one), (second, two), (third, three)] = [unpark(), unpark(), unpark()];
        {
            let mut dropped = pin!(pipeline.join_async());
            assert!(poll(dropped.as_mut(), &one).is_pending());
            assert!(poll(dropped.as_mut(), &one).is_pending());
        }
        drop(one);
        assert_eq!(Arc::strong_count(&first), 1, "the waker is gone");
        // Only the last waker of a future is woken, and a waker that panics holds up no other.
        let panics = Waker::from(Arc::new(Panics));
        let mut panicking = pin!(pipeline.join_async());
        assert!(poll(panicking.as_mut(), &panics).is_pending());
        let mut moved = pin!(pipeline.join_async());
        assert!(poll(moved.as_mut(), &two).is_pending());
        assert!(poll(moved.as_mut(), &three).is_pending());
        drop(tx);
        while third.wakes() == 0 {
            thread::park();
        }
        assert_eq!((first.wakes(), second.wakes()), (0, 0));
        assert!(poll(moved.as_mut(), &three).is_ready());
        assert!(poll(panicking.as_mut(), &panics).is_ready());
        pipeline.join().unwrap();
    });
}

/// Stages that the user runs by handles are no part of the pipeline.
#[test]
fn handles_of_other_stages_outlive_a_drain() {
    let _watched = crate::common::watched();
    ends("a drain beside handles", || {
        let graph = Graph::new(8, || 0u64);
        let (first, own) = (graph.reader("first"), graph.reader("own"));
        let ring = graph.build().unwrap();
        let mut own = ring.reader(own);
        let mut handlers = ring.handlers();
        handlers.read(first, |_, _| ());
        let (mut tx, pipeline) = handlers.spawn().unwrap();
        tx.publish_all(0..8, |slot, i| *slot = i).unwrap();
        tx.close();
        assert_eq!(pipeline.drain(LIMIT).unwrap().stage("first").unwrap().events, 8);
        assert!(block_on(pipeline.join_async()).is_ok());
        pipeline.join().unwrap();
        assert_eq!(own.for_each(|_, _| ()).unwrap(), 8);
    });
}

#[test]
fn several_threads_join_one_pipeline() {
    let _watched = crate::common::watched();
    ends("several joins", || {
        let (mut tx, pipeline) = slipring::ring(4, || 0u64).read("r", |_, _| ()).spawn().unwrap();
        thread::scope(|scope| {
            let join = || pipeline.join().unwrap().stage("r").unwrap().events;
            let joins: Vec<_> = (0..3).map(|_| scope.spawn(join)).collect();
            tx.publish_all(0..10, |slot, i| *slot = i).unwrap();
            tx.close();
            joins.into_iter().for_each(|join| assert_eq!(join.join().unwrap(), 10));
        });
        pipeline.halt(); // too late
        assert_eq!(pipeline.join().unwrap().stage("r").unwrap().events, 10);
        assert_eq!(format!("{pipeline:?}"), r#"["r"]"#);
    });
}
