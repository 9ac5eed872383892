//! Each error of the library converts into `slipring::Error`, and loses nothing.

mod common;

use std::fmt::Debug;
use std::time::Duration;

use slipring::errors::{
    Abandoned, AwaitError, BatchError, BindError, ClaimError, ConflateError, ErrorKind, JoinError,
    ObserveError, SubscribeError, UnknownWait, WaitError,
};
use slipring::{Conflator, Error, Graph, Mirror, Wait, handles::StartAt, promise, unicast};

/// Converts the error by `?`, and checks its text and kind.
fn convert<T, X: std::error::Error + Clone + 'static>(failed: Result<T, X>) -> Error
where
    Error: From<X>,
{
    let Err(own) = failed else { panic!("the call succeeded") };
    let error = Error::from(own.clone());
    assert_eq!(error.to_string(), own.to_string());
    assert!(matches!(error.kind(), ErrorKind::Call(_)), "{error:?}");
    assert!(error.downcast_ref::<X>().is_some() && error.report().is_none());
    error
}

#[test]
fn one_question_mark_serves_every_call() {
    let _watched = crate::common::watched();
    fn main() -> Result<(), Error> {
        let wait: Wait = "adaptive:25%".parse()?;
        let (mut tx, mut rx) = unicast(2, || 0u64)?;
        tx.publish(|slot| *slot = 1)?;
        tx.try_publish(|slot| *slot = 2)?;
        rx.try_batch(8)?.release();
        let mut mirror = Mirror::new(1)?;
        let mut seen = mirror.handle().observe();
        mirror.put(0, &7u64);
        assert_eq!(seen.try_next()?.value, 7);
        let mut latest = tx.conflate(1, |slot, _key: &u8, value| *slot = value)?;
        latest.send(1, 3)?;
        latest.finish()?;
        let (promise, mut answer) = promise::<u64>();
        promise.fulfil(5)?;
        assert_eq!(answer.wait()?, 5);
        let graph = Graph::new(8, || 0u64).wait(wait);
        let (log, tap) = (graph.reader("log"), graph.tap("tap", 1));
        let ring = graph.build()?;
        ring.bind_thread("log")?;
        let (tx, mut log, tap) = (ring.producer(), ring.reader(log), ring.tap(tap));
        drop(tap.subscribe(StartAt::Now)?);
        drop(tx);
        log.for_each(|_, _| ())?;
        let (tx, pipeline) = slipring::ring(8, || 0u64).read("all", |_, _| ()).spawn()?;
        drop(tx);
        pipeline.join_within(Duration::from_secs(60))?;
        Ok(())
    }
    main().unwrap();
}

#[test]
fn the_error_of_a_call_is_kept() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = unicast(1, || 0u64).unwrap();
    let error = convert(rx.try_batch(1).map(drop));
    assert!(matches!(error.downcast_ref(), Some(BatchError::Unavailable)));
    tx.publish(|_| ()).unwrap();
    let error = convert(tx.try_publish(|_| ()));
    assert!(matches!(error.downcast_ref(), Some(ClaimError::Gated { lag: 1, .. })));
    let error = convert("naps".parse::<Wait>());
    assert!(error.downcast_ref::<UnknownWait>().is_some() && error.failure().is_none());
    let mut mirror = Mirror::<u64>::new(1).unwrap();
    convert::<_, ObserveError>(mirror.handle().observe().try_next());
    mirror.put(0, &1);
    let (promise, mut answer) = promise::<u64>();
    drop(promise);
    assert_eq!(convert(answer.wait()).downcast_ref(), Some(&AwaitError::Broken));
    let error = convert(Err::<(), _>(Abandoned(5)));
    assert_eq!(error.downcast_ref().map(|Abandoned(value)| *value), Some(5));
    let mut latest = Conflator::new(tx, 1, |slot, _key: &u8, value| *slot = value).unwrap();
    latest.send(1, 1).unwrap();
    let error = Error::from(latest.send(2, 2).unwrap_err());
    assert!(matches!(error.downcast_ref(), Some(ConflateError::Full { value: 2u64, .. })));
    drop(rx);

    let graph = Graph::new(8, || 0u64);
    let (log, tap) = (graph.reader("log"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (_tx, _log, tap) = (ring.producer(), ring.reader(log), ring.tap(tap));
    let error = convert(tap.subscribe(StartAt::At(5)).map(drop));
    assert!(matches!(error.downcast_ref(), Some(SubscribeError::NotYet { .. })), "{error}");
    let (_tx, pipeline) = slipring::ring(8, || 0u64).read("a", |_, _| ()).spawn().unwrap();
    let error = Error::from(pipeline.join_within(Duration::ZERO).unwrap_err());
    assert!(matches!(error.downcast_ref(), Some(JoinError::StillRunning { .. })));
    fn is_converted<X: Debug>()
    where
        Error: From<X>,
    {
    }
    is_converted::<BindError>();
}

#[test]
fn the_failure_of_the_graph_is_found() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64);
    let (first, second) = (graph.reader("first"), graph.reader("second"));
    let ring = graph.build().unwrap();
    let (mut tx, first, mut second) = (ring.producer(), ring.reader(first), ring.reader(second));
    drop(first); // fails the graph
    let failed: [Error; 3] = [
        tx.publish(|_| ()).unwrap_err().into(),
        tx.try_publish(|_| ()).unwrap_err().into(),
        second.try_batch(1).map(drop).unwrap_err().into(),
    ];
    for error in failed {
        assert_eq!((error.stage(), error.is_build()), (Some("first"), false), "{error}");
        assert!(matches!(error.kind(), ErrorKind::Failed(_)));
    }
    drop(tx);
    let closed = unicast(8, || 0u64).map(|(tx, mut rx)| {
        drop(tx);
        rx.batch(1).map(drop)
    });
    let closed = convert(closed.unwrap());
    assert!(matches!(closed.downcast_ref(), Some(WaitError::Closed)));
}
