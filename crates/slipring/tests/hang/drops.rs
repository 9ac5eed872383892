//! Captures, events and payloads whose drops panic.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use slipring::{
    Wait,
    errors::{BuildError, ErrorKind, WaitError},
};

use crate::CAPACITY;
use crate::common::{Bomb, Fragile, PURPOSE, ends};

#[test]
fn two_stages_that_panic_at_once_give_one_error() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for producer_too in [false, true] {
            let name = format!("two at once, {wait}, producer too: {producer_too}");
            let wait = wait.clone();
            let error = ends(&name, move || {
                let (a, b) = (Fragile(true), Fragile(true));
                let met = Arc::new(AtomicU64::new(0));
                let meet = move || {
                    met.fetch_add(1, SeqCst);
                    while met.load(SeqCst) < 2 {
                        thread::yield_now();
                    }
                };
                let (one, other) = (meet.clone(), meet);
                slipring::ring(CAPACITY, || (0u64, Fragile(true)))
                    .wait(wait)
                    .fan_out(|side| {
                        let side = side.read("one", move |_, _| {
                            let _captured = &a;
                            one();
                            panic_any(Bomb)
                        });
                        side.read("other", move |_, _| {
                            let _captured = &b;
                            other();
                            panic!("too {PURPOSE}")
                        })
                    })
                    .run(|producer| {
                        while producer.publish(|_| ()).is_ok() {}
                        if producer_too {
                            panic_any(Bomb);
                        }
                        Ok(Fragile(true))
                    })
                    .map(drop)
                    .unwrap_err()
            });
            assert!(matches!(error.stage(), Some("one" | "other")), "{error}");
            assert_eq!(error.seq(), Some(0));
        }
    }
}

/// A chain that fails to build drops each capture, and reports the build error.
#[test]
fn captures_that_panic_on_drop_do_not_hide_a_build_error() {
    let _watched = crate::common::watched();
    let capacity = |capacity| {
        let (a, b, c, d) = (Fragile(true), Fragile(true), Fragile(true), Fragile(true));
        let factory = move || {
            let _ = &a;
        };
        slipring::ring(capacity, factory)
            .on_thread_start(move |_| {
                let _ = &d;
            })
            .update("b", move |_, _| {
                let _ = &b;
            })
            .update_pool("p", 2, |worker| {
                let own = Fragile(true);
                assert!(worker == 0, "no second worker {PURPOSE}");
                move |_, _| {
                    let _ = &own;
                }
            })
            .update("c", move |_, _| {
                let _ = &c;
            })
    };
    let error =
        ends("fragile, bad capacity", move || capacity(3).feed(0..1, |_, _| ()).unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Capacity { asked: 3 })), "{error}");
    let error = ends("fragile, bad worker", move || capacity(4).feed(0..1, |_, _| ()).unwrap_err());
    assert!(
        matches!(error.kind(), ErrorKind::Build(BuildError::WorkerFactory { worker: 1, .. })),
        "{error}"
    );
}

#[test]
fn a_factory_that_panics_drops_its_events_although_their_drops_panic() {
    let _watched = crate::common::watched();
    let error = ends("bombs in the factory", || {
        struct Worse;
        impl Drop for Worse {
            fn drop(&mut self) {
                panic_any(Bomb);
            }
        }
        let mut made = 0;
        let factory = move || {
            made += 1;
            if made == 4 {
                panic_any(Bomb);
            }
            Worse
        };
        slipring::unicast(8, factory).err().unwrap()
    });
    assert!(
        matches!(error.kind(), ErrorKind::Build(BuildError::Factory { index: 3, .. })),
        "{error}"
    );
}

/// Several events whose drops panic are dropped with the last handle. The program does not abort,
/// and at most one panic reaches the user.
#[test]
fn events_that_panic_on_drop_do_not_abort() {
    let _watched = crate::common::watched();
    ends("fragile events, leases", || {
        let (tx, mut rx) = slipring::unicast(8, || Fragile(true)).unwrap();
        drop(tx);
        assert!(matches!(
            rx.try_batch(1),
            Err(slipring::errors::BatchError::Wait(WaitError::Closed))
        ));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(rx))).is_err());
    });
    ends("fragile events, while unwinding", || {
        let caught = catch_unwind(|| {
            let _ends = slipring::unicast(8, || Fragile(true)).unwrap();
            panic!("first {PURPOSE}");
        });
        assert!(caught.is_err());
    });
    ends("fragile events, a pipeline that is not joined", || {
        struct Worse(std::sync::mpsc::Sender<()>);
        impl Drop for Worse {
            fn drop(&mut self) {
                let _ = self.0.send(());
                panic_any(Bomb);
            }
        }
        let (sender, dropped) = std::sync::mpsc::channel();
        let (tx, pipeline) =
            slipring::ring(4, move || std::sync::Mutex::new(Worse(sender.clone())))
                .read("r", |_, _| ())
                .spawn()
                .unwrap();
        drop(pipeline);
        drop(tx);
        assert_eq!(dropped.iter().count(), 4);
        thread::sleep(Duration::from_millis(20)); // time for an abort
    });
    ends("fragile events and a fragile error", || {
        #[derive(Debug)]
        struct Grudge;
        impl std::fmt::Display for Grudge {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("grudge")
            }
        }
        impl std::error::Error for Grudge {}
        impl Drop for Grudge {
            fn drop(&mut self) {
                panic!("grudge {PURPOSE}");
            }
        }
        let (mut tx, pipeline) =
            slipring::ring(4, || Fragile(true)).read("r", |_, _| Err(Grudge)).spawn().unwrap();
        tx.publish(|_| ()).unwrap();
        while tx.publish(|_| ()).is_ok() {}
        drop(pipeline);
        // The last handle drops the events, on this thread or on the stage's thread. The stage's
        // thread catches the panic. The sleep leaves time for an abort.
        drop(catch_unwind(AssertUnwindSafe(|| drop(tx))));
        thread::sleep(Duration::from_millis(20));
    });
}
