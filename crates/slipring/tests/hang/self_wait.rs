//! Threads that wait for themselves, and rings that feed each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Wait,
    errors::{Cause, Failure, JoinError},
    faults::Fault,
    stages::PRODUCER,
};

use crate::common::{LIMIT, Oops, ends};

/// The graphs' deadline.
const SOON: Duration = Duration::from_millis(60);

fn is_deadline(failure: &Failure) -> bool {
    matches!(failure.cause(), Cause::Deadline(after) if *after == SOON)
}

#[test]
fn a_deadline_ends_a_thread_that_waits_for_itself() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let w = wait.clone();
        ends(&format!("publishing into one's own full ring, {wait}"), move || {
            let graph = Graph::new(2, || 0u64).wait(w).deadline(SOON);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let (mut tx, _rx) = (ring.producer(), ring.reader(key));
            let closed = loop {
                if let Err(closed) = tx.publish(|_| ()) {
                    break closed;
                }
            };
            let failure = closed.failure().unwrap();
            assert!(
                is_deadline(failure) && &**failure.stage() == PRODUCER && failure.seq() == Some(2),
                "{failure}"
            );
        });
        let w = wait.clone();
        ends(&format!("a second claim while holding one, {wait}"), move || {
            let graph = Graph::new(2, || 0u64).wait(w).shared();
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let (mut a, mut b, mut rx) = (ring.producer(), ring.producer(), ring.reader(key));
            let held = a.claim_n(2).unwrap();
            let error = b.claim_by(Instant::now() + SOON).err().unwrap();
            assert!(matches!(error, slipring::errors::ClaimError::TimedOut(_)), "{error}");
            held.publish();
            assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 2);
            b.publish_by(Instant::now() + LIMIT, |_| ()).unwrap();
        });
        let w = wait.clone();
        let error = ends(&format!("a stage that publishes into its own ring, {wait}"), move || {
            let own = Arc::new(std::sync::Mutex::new(None::<slipring::SharedProducer<u64>>));
            let theirs = own.clone();
            let (tx, pipeline) = slipring::ring(2, || 0u64)
                .wait(w)
                .read("echo", move |_, _| {
                    let mut own = theirs.lock().unwrap();
                    let own = own.as_mut().unwrap();
                    own.publish(|_| ())?;
                    own.publish(|_| ())?;
                    own.publish(|_| ()).map(drop)
                })
                .spawn_shared()
                .unwrap();
            let mut first = tx.clone();
            *own.lock().unwrap() = Some(tx);
            first.publish(|_| ()).unwrap();
            drop(first);
            let error = pipeline.join().unwrap_err();
            drop(own.lock().unwrap().take());
            error
        });
        let text = "it needs a release by stage `echo`, which only the calling thread can make";
        assert!(error.stage() == Some("echo") && error.to_string().contains(text), "{error}");
        let error =
            ends(&format!("a clone that `run_shared` is to give back, {wait}"), move || {
                slipring::ring(2, || 0u64)
                    .wait(wait)
                    .deadline(SOON)
                    .read("r", |_, _| ())
                    .run_shared(|p| Ok(p.clone()))
                    .map(drop)
                    .unwrap_err()
            });
        assert!(is_deadline(error.failure().unwrap()) && error.stage() == Some("r"), "{error}");
    }
}

#[test]
fn a_stage_that_joins_its_own_pipeline_gets_an_error() {
    let _watched = crate::common::watched();
    for shared in [false, true] {
        ends("joining oneself", move || joins_itself(shared));
    }
}

/// A stage joins its own pipeline. With `shared`, the stages share threads.
fn joins_itself(shared: bool) {
    let slot = Arc::new(std::sync::Mutex::new(None::<slipring::Pipeline>));
    let theirs = slot.clone();
    let (sender, results) = std::sync::mpsc::channel();
    let chain = slipring::ring(2, || 0u64);
    let chain = if shared { chain.threads(2) } else { chain };
    let (mut tx, pipeline) = chain
        .read("beside", |_, _| ())
        .read("r", move |_, _| {
            let pipeline = theirs.lock().unwrap().take().unwrap();
            let within = pipeline.join_within(Duration::MAX);
            sender.send((
                matches!(within, Err(JoinError::StillRunning { stage, .. }) if &*stage == "r"),
                pipeline.join().unwrap_err(),
            ))
        })
        .spawn()
        .unwrap();
    *slot.lock().unwrap() = Some(pipeline);
    tx.publish(|_| ()).unwrap();
    let (still, error) = results.recv().unwrap();
    assert!(
        still && error.stage() == Some("r") && error.to_string().contains("its own pipeline"),
        "{error}"
    );
    // The stage got an error; the graph has not failed.
    tx.close();
    assert!(results.recv().is_err());
}

#[test]
fn rings_that_feed_each_other_end_together() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let error = ends(&format!("nested rings, {wait}"), move || {
            let w = wait.clone();
            slipring::ring(2, || 0u64)
                .wait(wait)
                .read("inner", |v, _| if *v == 9 { Err(Oops(*v)) } else { Ok(()) })
                .run(|second| {
                    slipring::ring(2, || 0u64)
                        .wait(w)
                        .read("outer", |v, _| second.publish(|s| *s = *v).map(drop))
                        .feed(0.., |s, i| *s = i)
                        .map_err(Fault::from)
                        .map(drop)
                })
                .unwrap_err()
        });
        assert_eq!((error.stage(), error.seq()), (Some("inner"), Some(9)));
        assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(9)));
    }
}
