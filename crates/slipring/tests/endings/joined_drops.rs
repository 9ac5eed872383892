//! Pipelines whose drop joins them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use slipring::{At, Graph, Report, errors::JoinError, faults::Fault, stages::ReadHandler};

use crate::common::{LIMIT, Oops, PURPOSE, ends};

/// Progress of the handler `Slow`: the number of events that it has handled, and whether it was
/// stopped.
#[derive(Default)]
struct Seen {
    events: AtomicU64,
    stopped: AtomicBool,
}

struct Slow(Arc<Seen>);

impl ReadHandler<u64> for Slow {
    fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
        std::thread::sleep(Duration::from_micros(200));
        self.0.events.fetch_add(1, SeqCst);
        Ok(())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.0.stopped.store(true, SeqCst);
        Ok(())
    }
}

type Ended = Result<Report, JoinError>;

/// Returns a function for `join_on_drop`, and the receiver of its results.
fn told() -> (impl FnOnce(Ended) + Send + Sync, mpsc::Receiver<Ended>) {
    let (sender, told) = mpsc::channel();
    (move |ended| sender.send(ended).unwrap(), told)
}

#[test]
fn a_drop_that_joins_waits_for_the_stages_of_a_closed_ring() {
    let _watched = crate::common::watched();
    for threads in [None, Some(1), Some(2)] {
        ends(&format!("{threads:?}"), move || {
            let (seen, (tell, told)) = (Arc::new(Seen::default()), told());
            let chain = slipring::ring(1024, || 0u64);
            let chain = if let Some(threads) = threads { chain.threads(threads) } else { chain };
            let (mut tx, pipeline) = chain.read_with("slow", Slow(seen.clone())).spawn().unwrap();
            let pipeline = pipeline.join_on_drop(LIMIT, tell);
            tx.publish_all(0..500, |slot, i| *slot = i).unwrap();
            tx.close();
            drop(pipeline);
            assert_eq!((seen.events.load(SeqCst), seen.stopped.load(SeqCst)), (500, true));
            let report = told.recv().unwrap().unwrap();
            assert_eq!(report.stage("slow").unwrap().events, 500);
            assert!(told.recv().is_err(), "told once");
        });
    }
}

/// While a producer is still open, the drop waits until the events published so far are handled.
/// This holds for every kind of ring.
#[test]
fn a_drop_that_joins_an_open_ring_waits_for_what_is_published() {
    let _watched = crate::common::watched();
    for (shared, contiguous) in [(false, false), (false, true), (true, false)] {
        ends(&format!("shared: {shared}, contiguous: {contiguous}"), move || {
            let (seen, (tell, told)) = (Arc::new(Seen::default()), told());
            let slow = Slow(seen.clone());
            // The events come in runs of several lengths, and the slow stage stands behind another
            // stage.
            macro_rules! published {
                ($chain:expr, $spawn:ident) => {{
                    let chain = $chain.read("quick", |_, _| ()).read_with("slow", slow);
                    let (mut tx, pipeline) = chain.$spawn().unwrap();
                    let pipeline = pipeline.join_on_drop(LIMIT, tell);
                    for len in [1, 7, 64, 100] {
                        tx.publish_batches(len, 0..len as u64, |slot, i| *slot = i).unwrap();
                    }
                    drop(pipeline);
                    tx
                }};
            }
            let chain = slipring::ring(1024, || 0u64);
            let open: Box<dyn std::any::Any> = match (shared, contiguous) {
                (true, _) => Box::new(published!(chain, spawn_shared)),
                (_, true) => Box::new(published!(chain.contiguous(), spawn)),
                _ => Box::new(published!(chain, spawn)),
            };
            assert_eq!((seen.events.load(SeqCst), seen.stopped.load(SeqCst)), (172, false));
            let told = told.recv().unwrap().unwrap_err();
            assert!(matches!(told, JoinError::StillRunning { left: 0, .. }), "{told}");
            drop(open);
        });
    }
}

#[test]
fn a_drop_that_joins_gives_up_at_its_limit_and_tells_what_is_left() {
    let _watched = crate::common::watched();
    ends("a stage that hangs", || {
        let (tell, told) = told();
        let (open, gate) = mpsc::channel::<()>();
        let (mut tx, pipeline) =
            slipring::ring(8, || 0u64).read("stuck", move |_, _| _ = gate.recv()).spawn().unwrap();
        let pipeline = pipeline.join_on_drop(Duration::from_millis(20), tell);
        tx.publish_all(0..5, |slot, i| *slot = i).unwrap();
        tx.close();
        drop(pipeline);
        let told = told.recv().unwrap().unwrap_err();
        let JoinError::StillRunning { stage, left } = &told else { panic!("{told}") };
        assert_eq!((&**stage, *left), ("stuck", 5));
        assert!(
            told.to_string().contains("`stuck` is still running, with 5 events left"),
            "{told}"
        );
        drop(open);
    });
}

#[test]
fn a_drop_that_joins_tells_of_failures_and_halts() {
    let _watched = crate::common::watched();
    ends("failed", || {
        let (tell, told) = told();
        let (mut tx, pipeline) =
            slipring::ring(8, || 0u64).read("r", |_, _| Err(Oops(3))).spawn().unwrap();
        tx.publish(|_| ()).unwrap();
        drop(pipeline.join_on_drop(LIMIT, tell));
        let told = told.recv().unwrap().unwrap_err();
        let JoinError::Failed(error) = told else { panic!("{told}") };
        assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(3)));
    });
    ends("halted", || {
        let (tell, told) = told();
        let (_tx, pipeline) = slipring::ring(8, || 0u64).read("r", |_, _| ()).spawn().unwrap();
        pipeline.halt();
        drop(pipeline.join_on_drop(LIMIT, tell));
        assert!(told.recv().unwrap().unwrap().halted());
    });
}

/// `join` returns the outcome to its caller, so the later drop does not report it to `tell` again.
/// A panic of `tell` is contained.
#[test]
fn a_drop_that_joins_tells_once_and_survives_what_it_tells() {
    let _watched = crate::common::watched();
    ends("joined before", || {
        let (tell, told) = told();
        let (tx, pipeline) = slipring::ring(8, || 0u64).read("r", |_, _| ()).spawn().unwrap();
        drop(tx);
        pipeline.join_on_drop(LIMIT, tell).join().unwrap();
        assert!(told.recv().is_err());
    });
    ends("panics", || {
        let (tx, pipeline) = slipring::ring(8, || 0u64).read("r", |_, _| ()).spawn().unwrap();
        drop(tx);
        drop(pipeline.join_on_drop(LIMIT, |_| panic!("{PURPOSE}")));
    });
}

/// A stage cannot wait for itself to end.
#[test]
fn a_drop_on_a_thread_of_the_pipelines_own_waits_for_nothing() {
    let _watched = crate::common::watched();
    for threads in [None, Some(2)] {
        ends(&format!("{threads:?}"), move || {
            let (tell, told) = told();
            let own = Arc::new(Mutex::new(None));
            let theirs = own.clone();
            let chain = slipring::ring(8, || 0u64);
            let chain = if let Some(threads) = threads { chain.threads(threads) } else { chain };
            let (mut tx, pipeline) =
                chain.read("r", move |_, _| drop(theirs.lock().unwrap().take())).spawn().unwrap();
            *own.lock().unwrap() = Some(pipeline.join_on_drop(Duration::MAX, tell));
            tx.publish(|_| ()).unwrap();
            let told = told.recv().unwrap().unwrap_err();
            assert!(matches!(told, JoinError::StillRunning { left: 1, .. }), "{told}");
        });
    }
}

/// The drop waits only for the stages that the library runs. The program reads the other stages
/// when it likes, or not at all.
#[test]
fn a_drop_that_joins_does_not_wait_for_readers_of_the_programs_own() {
    let _watched = crate::common::watched();
    ends("an unread reader", || {
        let (seen, (tell, told)) = (Arc::new(Seen::default()), told());
        let graph = Graph::new(64, || 0u64);
        let (slow, own) = (graph.reader("slow"), graph.reader("own"));
        let ring = graph.build().unwrap();
        let unread = ring.reader(own);
        let mut handlers = ring.handlers();
        handlers.read_with(slow, Slow(seen.clone()));
        let (mut tx, pipeline) = handlers.spawn().unwrap();
        tx.publish_all(0..30, |slot, i| *slot = i).unwrap();
        // The drop has no time limit: the scenario ends only if the drop returns.
        drop(pipeline.join_on_drop(Duration::MAX, tell));
        assert_eq!(seen.events.load(SeqCst), 30);
        let told = told.recv().unwrap().unwrap_err();
        assert!(matches!(told, JoinError::StillRunning { left: 0, .. }), "{told}");
        drop((tx, unread));
    });
}

/// If several stages run on one thread, the error names the stage that has not ended.
#[test]
fn a_join_that_gives_up_names_the_stage_that_runs() {
    let _watched = crate::common::watched();
    for shared in [false, true] {
        ends(&format!("shared: {shared}"), move || {
            let (open, gate) = mpsc::channel::<()>();
            let chain = slipring::ring(8, || 0u64);
            let chain = if shared { chain.threads(1) } else { chain };
            let chain = chain.read("done", |_, _| ());
            let chain = if shared { chain } else { chain.on("t") };
            let chain = chain.read("stuck", move |_, _| _ = gate.recv());
            let chain = if shared { chain } else { chain.on("t") };
            let (mut tx, pipeline) = chain.spawn().unwrap();
            tx.publish(|_| ()).unwrap();
            tx.close();
            loop {
                let told = pipeline.join_within(Duration::from_millis(1)).unwrap_err();
                let JoinError::StillRunning { stage, left } = &told else { panic!("{told}") };
                // At first the error may also name `done`, which has not ended yet.
                if stage.as_str() == "stuck" {
                    assert_eq!(*left, 1);
                    break;
                }
            }
            drop(open);
            pipeline.join().unwrap();
        });
    }
}
