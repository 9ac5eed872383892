//! Failures: the stage, the position and the user's own error reach every handle.

use std::sync::mpsc;
use std::thread;

use slipring::{
    Error, Graph, Report, Wait,
    errors::{BatchError, Cause, ClaimError, ErrorKind, Failure, JoinError, WaitError},
    faults::Fault,
    stages::PRODUCER,
};

use crate::common::{Fragile, Oops, PURPOSE, ends};

#[test]
fn a_dropped_reader_fails_the_graph() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("dropped reader, {wait}"), move || {
            let graph = Graph::new(4, || 0u64).wait(wait);
            let (a, b) = (graph.reader("a"), graph.reader("b"));
            let ring = graph.build().unwrap();
            let (mut tx, mut a, mut b) = (ring.producer(), ring.reader(a), ring.reader(b));
            tx.publish(|_| ()).unwrap();
            b.poll(1, |_, _| ()).unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(move || a.for_each(|_, _| ()).unwrap_err());
                let full =
                    scope.spawn(move || tx.publish_all(0.., |slot, i| *slot = i).unwrap_err());
                drop(b);
                for closed in [waiting.join().unwrap(), full.join().unwrap()] {
                    let failure = closed.failure().unwrap();
                    assert_eq!((&**failure.stage(), failure.seq()), ("b", Some(1)));
                    assert!(matches!(failure.cause(), Cause::Dropped));
                }
            });
        });
    }
    // After the end, dropping a reader is no failure.
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    tx.publish(|_| ()).unwrap();
    tx.close();
    rx.for_each(|_, _| ()).unwrap();
}

#[test]
fn an_error_carries_the_users_own_error() {
    let _watched = crate::common::watched();
    fn carried<T: std::error::Error + Send + Sync + 'static>() {}
    carried::<Error>();
    carried::<WaitError>();
    carried::<ClaimError>();
    carried::<BatchError>();
    carried::<JoinError>();
    carried::<slipring::errors::BuildError>();
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Fault>();
    shared::<Failure>();
    shared::<Report>();

    let failed = || {
        slipring::ring(8, || 0u64)
            .read("r", |_, at| if at.seq == 5 { Err(Oops(5)) } else { Ok(()) })
    };
    let error = failed().feed(0..9, |slot, i| *slot = i).unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref::<Oops>()),
        (Some("r"), Some(5), Some(&Oops(5)))
    );
    assert!(error.downcast_ref::<std::fmt::Error>().is_none());
    let text = error.to_string();
    assert!(text.contains("`r`") && text.contains("event 5"), "{text}");
    assert_eq!(error.report().unwrap().stage("r").unwrap().events, 5);
    // The message already contains the user's error, so `source` returns `None`.
    assert!(text.contains("oops 5") && std::error::Error::source(&error).is_none(), "{text}");
    // The error can be boxed, as `main` returns it, and passes through `?` in another chain's
    // producer.
    let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
    assert!(boxed.downcast_ref::<Error>().is_some());
    let outer = slipring::ring(8, || 0u64)
        .run(|_| {
            failed().feed(0..9, |slot, i| *slot = i)?;
            Ok(())
        })
        .unwrap_err();
    assert_eq!(outer.stage(), Some(PRODUCER));
    let inner: &Error = outer.downcast_ref().unwrap();
    assert_eq!(inner.downcast_ref::<Oops>(), Some(&Oops(5)));
    // A stage may also return a boxed error, or an error made from a text.
    let boxed = |text: &'static str| {
        slipring::ring(8, || 0u64).run(move |_| Err::<(), _>(Fault::msg(text))).unwrap_err()
    };
    assert!(
        boxed("plain").failure().unwrap().to_string().contains("plain")
            || boxed("plain").to_string().contains("plain")
    );
    let error = slipring::ring(8, || 0u64)
        .read("r", |_, _| Err::<(), Box<dyn std::error::Error + Send + Sync>>(Box::new(Oops(1))))
        .feed(0..1, |_, _| ())
        .unwrap_err();
    assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(1)));
}

#[test]
fn stages_behind_a_failure_see_an_ordered_prefix() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("after a failure, {wait}"), move || {
            let mut seen = Vec::new();
            let error = slipring::ring(8, || 0u64)
                .wait(wait)
                .update_pool("pool", 2, |_| {
                    |v, at| {
                        *v += 1;
                        if at.seq == 20 { Err(Oops(20)) } else { Ok(()) }
                    }
                })
                .read("r", |v, _| seen.push(*v))
                .feed(0.., |slot, i| *slot = i)
                .unwrap_err();
            assert_eq!((error.stage(), error.seq()), (Some("pool"), Some(20)));
            assert!(seen.len() <= 20 && seen.iter().copied().eq(1..=seen.len() as u64), "{seen:?}");
        });
    }
}

#[test]
fn events_that_panic_on_drop_are_an_error_of_their_own() {
    let _watched = crate::common::watched();
    let dropped = |error: Error| {
        assert!(
            matches!(error.kind(), ErrorKind::EventDrop(message) if message.contains(PURPOSE)),
            "{error}"
        );
        assert!(error.report().is_some() && error.stage().is_none());
    };
    let ring = || slipring::ring(4, || Fragile(true)).update("w", |_, _| ());
    ends("fragile events", move || {
        dropped(ring().feed(0..9, |_, _| ()).unwrap_err());
        dropped(ring().run_shared(|p| Ok(p.clone().capacity())).unwrap_err());
        dropped(ring().run_inline(|_| Ok(Fragile(true))).map(drop).unwrap_err());
        let (tx, pipeline) = ring().spawn().unwrap();
        tx.close();
        dropped(pipeline.join().unwrap_err());
        // A failure takes precedence.
        let error = slipring::ring(4, || Fragile(true))
            .read_pool("p", 1, |_| |_: &Fragile, _| Err(Oops(0)));
        assert_eq!(error.feed(0..9, |_, _| ()).unwrap_err().stage(), Some("p"));
    });
}

/// A destructor that runs while its thread unwinds may run rings of its own, and may call
/// `Producer::close`.
#[test]
fn a_destructor_may_use_rings_while_its_thread_unwinds() {
    let _watched = crate::common::watched();
    struct Flush(Option<slipring::Producer<u64>>, mpsc::Sender<Result<u64, String>>);
    impl Drop for Flush {
        fn drop(&mut self) {
            assert!(thread::panicking());
            let mut sum = 0;
            let done = slipring::ring(4, || 0u64)
                .read("r", |v, _| sum += v)
                .feed(0..9, |slot, i| *slot = i);
            self.1.send(done.map(|_| sum).map_err(|error| error.to_string())).unwrap();
            let mut tx = self.0.take().unwrap();
            tx.publish(|slot| *slot = 7).unwrap();
            tx.close();
        }
    }
    ends("rings in destructors", || {
        let (tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
        let (sender, receiver) = mpsc::channel();
        let panicked = thread::spawn(move || {
            let _flush = Flush(Some(tx), sender);
            panic!("unwinding {PURPOSE}");
        });
        assert_eq!(receiver.recv().unwrap().unwrap(), 36);
        assert_eq!(rx.for_each(|v, _| assert_eq!(*v, 7)).unwrap(), 1);
        assert!(panicked.join().is_err());
    });
}
