//! A chain is started repeatedly with the same monitors, taps and pools. They own no event of a
//! run, and no run depends on them.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use common::ends;
use slipring::{Monitor, Pool, Tap, errors::BuildError, handles::StartAt};

fn runs() -> u64 {
    match std::env::var_os("SLIPRING_SOAK") {
        _ if cfg!(miri) => 20,
        None => 4_000,
        Some(_) => 100_000,
    }
}

/// A value that records the thread that drops it.
struct Witness(Arc<Mutex<Vec<ThreadId>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(thread::current().id());
    }
}

#[test]
fn a_report_at_the_end_of_a_run_does_not_delay_the_drop_of_its_events() {
    let _watched = crate::common::watched();
    ends("monitor", || {
        let (monitor, over, dropped) =
            (Monitor::new(), AtomicBool::new(false), Arc::new(Mutex::new(Vec::new())));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    drop(monitor.report());
                }
            });
            for run in 0..runs() {
                let chain = slipring::ring(1, || Witness(dropped.clone())).monitor(&monitor);
                let done = chain.run_inline(|p| Ok(p.publish(|_| ())?));
                assert!(done.is_ok(), "run {run}: {}", done.err().unwrap());
                let dropped = std::mem::take(&mut *dropped.lock().unwrap());
                assert_eq!(dropped, [thread::current().id()], "run {run}");
            }
            over.store(true, SeqCst);
        });
    });
}

#[test]
fn members_that_join_at_the_end_of_a_run_do_not_block_the_next_run() {
    let _watched = crate::common::watched();
    ends("tap and pool", || {
        let (tap, pool) = (Tap::new(), Pool::reading(8));
        let (over, joined, refused) =
            (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            let count = |success: bool| {
                if success { joined.fetch_add(1, SeqCst) } else { refused.fetch_add(1, SeqCst) }
            };
            let (tap, pool, over) = (&tap, &pool, &over);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    count(tap.subscribe(StartAt::Now).is_ok());
                    count(
                        tap.subscribe(StartAt::Oldest)
                            .is_ok_and(|kept| kept.leave_handle().leave()),
                    );
                }
            });
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    drop(pool.join());
                }
            });
            for run in 0..runs() / 8 {
                let chain = slipring::ring(8, || 0u64)
                    .tap(tap)
                    .read_pool("p", 1, |_| |_: &u64, _| ())
                    .open(pool);
                let done = chain.run(|p| Ok(p.publish(|_| ())?));
                assert!(done.is_ok(), "run {run}: {}", done.err().unwrap());
            }
            over.store(true, SeqCst);
        });
        assert!(refused.load(SeqCst) != 0);
    });
}

#[test]
fn a_subscription_that_outlives_its_run_keeps_the_events_and_frees_the_tap() {
    let _watched = crate::common::watched();
    ends("outlives", || {
        let (tap, dropped) = (Tap::new(), Arc::new(Mutex::new(Vec::new())));
        let chain = || slipring::ring(4, || Witness(dropped.clone())).tap(&tap);
        let mut late = chain()
            .run(|p| {
                let late = tap.subscribe(StartAt::Now)?;
                p.publish(|_| ())?;
                Ok(late)
            })
            .unwrap()
            .value;
        assert!(dropped.lock().unwrap().is_empty(), "the subscription may still read the events");
        assert!(matches!(
            tap.subscribe(StartAt::Now),
            Err(slipring::errors::SubscribeError::NotRunning)
        ));
        let batch = late.batch(1).unwrap();
        chain().run(|p| Ok(p.publish(|_| ())?)).unwrap();
        assert_eq!((dropped.lock().unwrap().len(), batch.len()), (4, 1));
        drop(late);
        assert_eq!(dropped.lock().unwrap().len(), 8);
    });
}

#[test]
fn a_tap_belongs_to_one_running_graph_at_a_time() {
    let _watched = crate::common::watched();
    ends("two places", || {
        let tap = Tap::new();
        slipring::ring(4, || 0u64)
            .tap(&tap)
            .run(|_| {
                let error = slipring::ring(4, || 0u64).tap(&tap).run(|_| Ok(())).unwrap_err();
                assert!(error.to_string().contains("already stands in a running graph"), "{error}");
                // The refusal does not affect the graph that has the tap.
                assert!(tap.subscribe(StartAt::Now).is_ok());
                Ok(())
            })
            .unwrap();
        slipring::ring(4, || 0u64).tap(&tap).run(|_| Ok(())).unwrap();
        let (tx, pipeline) = slipring::ring(4, || 0u64).tap(&tap).spawn().unwrap();
        let error = slipring::ring(4, || 0u64).tap(&tap).run(|_| Ok(())).unwrap_err();
        assert!(
            matches!(
                error.kind(),
                slipring::errors::ErrorKind::Build(BuildError::Declaration { .. })
            ),
            "{error}"
        );
        drop(tx);
        pipeline.join().unwrap();
        slipring::ring(4, || 0u64).tap(&tap).run(|_| Ok(())).unwrap();
    });
}
