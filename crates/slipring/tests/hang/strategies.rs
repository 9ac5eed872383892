//! Strategies that the user writes, and that panic or give contradictory answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use slipring::{
    Graph, Wait,
    waiting::{WaitAction, WaitContext, WaitStrategy},
};

use crate::common::{PURPOSE, ends};
use crate::message;

/// A user's strategy that answers by calling functions. The function `parks` gets the number of
/// earlier calls of `parks`.
struct FnStrategy {
    idle: fn(u64) -> WaitAction,
    parks: fn(u64) -> bool,
    asked: AtomicU64,
}

impl std::fmt::Debug for FnStrategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("fn strategy")
    }
}

impl WaitStrategy for FnStrategy {
    fn next_action(&self, waited: &WaitContext) -> WaitAction {
        (self.idle)(waited.polls)
    }
    fn parks(&self) -> bool {
        (self.parks)(self.asked.fetch_add(1, SeqCst))
    }
    fn alias(&self) -> String {
        String::new()
    }
}

fn custom(idle: fn(u64) -> WaitAction, parks: fn(u64) -> bool) -> Wait {
    Wait::Custom(Arc::new(FnStrategy { idle, parks, asked: AtomicU64::new(0) }))
}

#[test]
fn a_strategy_with_inconsistent_answers_loses_no_event() {
    let _watched = crate::common::watched();
    let strategies: [(&str, Wait); 6] = [
        ("parks although `parks` is false", custom(|_| WaitAction::Park, |_| false)),
        ("`parks` is false, then true", custom(|_| WaitAction::Park, |asked| asked > 0)),
        ("`parks` is true, then false", custom(|_| WaitAction::Park, |asked| asked == 0)),
        ("sleeps for ever", custom(|_| WaitAction::Sleep(Duration::MAX), |_| false)),
        (
            "never pauses",
            custom(
                |polls| if polls % 8 == 0 { WaitAction::Yield } else { WaitAction::Spin(0) },
                |_| true,
            ),
        ),
        ("pauses long", custom(|_| WaitAction::Spin(u32::MAX), |_| false)),
    ];
    for (name, wait) in strategies {
        ends(name, move || {
            let mut sum = 0;
            let few = if name.contains("sleeps") { 3 } else { 20 };
            slipring::ring(2, || 0u64)
                .wait(wait)
                .update("a", |v, _| *v += 1)
                .read("b", |v, _| sum += v)
                .feed(0..few, |slot, i| *slot = i)
                .unwrap();
            assert_eq!(sum, few * (few + 1) / 2);
        });
    }
}

#[test]
fn a_strategy_that_panics_fails_its_stage() {
    let _watched = crate::common::watched();
    for together in [false, true] {
        let error = ends(&format!("a strategy that panics, together: {together}"), move || {
            let wait = custom(
                |polls| if polls < 5 { WaitAction::Yield } else { panic!("tired {PURPOSE}") },
                |_| true,
            );
            let chain = slipring::ring(2, || 0u64).wait(wait).update("a", |_, _| ());
            let chain = if together {
                chain.on("t").read("b", |_, _| ()).on("t")
            } else {
                chain.read("b", |_, _| ())
            };
            chain
                .run(|producer| {
                    producer.publish(|_| ())?;
                    thread::sleep(Duration::from_millis(50));
                    while producer.publish(|_| ()).is_ok() {}
                    Ok(())
                })
                .unwrap_err()
        });
        assert_eq!(message(error.failure().unwrap()), "tired on purpose");
    }
    ends("a strategy that panics, leases", || {
        let graph = Graph::new(2, || 0u64).wait(custom(|_| panic!("tired {PURPOSE}"), |_| true));
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        for _ in 0..2 {
            let caught = catch_unwind(AssertUnwindSafe(|| rx.batch(1).map(drop))).unwrap_err();
            assert_eq!(caught.downcast_ref::<String>().unwrap(), "tired on purpose");
        }
        tx.publish(|v| *v = 5).unwrap();
        let batch = rx.batch(1).unwrap();
        assert_eq!(batch[0], 5);
        batch.release();
        drop((tx, rx));
        assert_eq!(ring.report().stage("r").unwrap().events, 1);
    });
}
