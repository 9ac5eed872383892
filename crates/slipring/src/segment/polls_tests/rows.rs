//! For each kind of handle, the calls that the tests repeat in a loop.

use std::future::{Future, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::super::*;
use crate::consumer::markers::{Reading, sealed as delivery};
use crate::errors::{BatchError, ClaimError, PassError, WaitError};
use crate::producer::sealed as sharing;
use crate::promise::Promise;
use crate::ring::slots::{Interleaved, Layout};
use crate::{
    Conflator, Producer,
    errors::ConflateError,
    handles::Sent,
    tasks::{Selector, Waitable},
};

/// An event of 64 bytes, the size of one cell. It also serves as a block, and as the cell of an
/// empty message.
pub(super) type Event = [u64; 8];

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Done,
    Told,
    Failed,
    Closed,
}

pub(super) use Seen::{Closed, Done, Failed, Nothing, Told};

impl From<WaitError> for Seen {
    fn from(error: WaitError) -> Seen {
        match error {
            WaitError::PeerDead(_) => Told,
            WaitError::Failed(_) => Failed,
            WaitError::Closed => Closed,
            error => panic!("{error}"),
        }
    }
}

impl From<ClaimError> for Seen {
    fn from(error: ClaimError) -> Seen {
        if let ClaimError::Wait(error) = error { error.into() } else { Nothing }
    }
}

impl From<PassError> for Seen {
    fn from(error: PassError) -> Seen {
        match error {
            PassError::Wait(error) => error.into(),
            PassError::TimedOut(_) => Nothing,
            error => panic!("{error}"),
        }
    }
}

impl From<BatchError> for Seen {
    fn from(error: BatchError) -> Seen {
        if let BatchError::Wait(error) = error { error.into() } else { Nothing }
    }
}

impl From<MessageError> for Seen {
    fn from(error: MessageError) -> Seen {
        match error {
            MessageError::Claim(error) => error.into(),
            error => panic!("{error}"),
        }
    }
}

impl<T> From<ConflateError<T>> for Seen {
    fn from(error: ConflateError<T>) -> Seen {
        if let ConflateError::Wait(error) = error { error.into() } else { Nothing }
    }
}

pub(super) fn done<T, X: Into<Seen>>(result: Result<T, X>) -> Seen {
    result.map_or_else(Into::into, |_| Done)
}

/// Classifies the result of a call that returns a number of events.
pub(super) fn some(result: Result<impl TryInto<u64>, WaitError>) -> Seen {
    let count = |count: Result<u64, _>| if count.unwrap_or(1) == 0 { Nothing } else { Done };
    result.map_or_else(Into::into, |found| count(found.try_into().map_err(drop)))
}

/// Polls a future once, and drops it.
fn once<T, X: Into<Seen>>(future: impl Future<Output = Result<T, X>>) -> Seen {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => done(result),
        Poll::Pending => Nothing,
    }
}

/// Repeats one call of a handle.
pub(super) type Poller = Box<dyn FnMut() -> Seen>;

/// The name of a handle's type, the name of a call, whether the call can return a death, and a
/// function that repeats the call.
pub(super) type Row<H> = (&'static str, &'static str, bool, fn(H) -> Poller);

/// Makes a row from an expression that makes the call.
macro_rules! row {
    ($handle:ident, $call:ident, |$it:ident| $seen:expr) => {
        (stringify!($handle), stringify!($call), true, |$it| {
            #[allow(unused_mut)]
            let mut $it = $it;
            Box::new(move || $seen)
        })
    };
}

/// The time that a batch waits for more events.
const NO_TIME: Duration = Duration::ZERO;

fn now() -> Instant {
    Instant::now()
}

/// Makes sure that the first stage has an event left. Returns the stage's name, and the event's
/// position.
fn unpassed<E: Send, L: Layout, S: sharing::Sharing>(
    tx: &mut Producer<E, L, S>,
) -> (crate::stages::Name, u64) {
    if tx.remaining() == tx.capacity() {
        tx.publish(|_| ()).unwrap();
    }
    (tx.core().control.plan.name_of(0), tx.next_seq().wrapping_sub(1))
}

/// Adds the rows of the calls that wait for a stage, for a handle in which `$inner` finds the
/// producer.
macro_rules! passing {
    ($rows:ident, $handle:ident, |$tx:ident| $inner:expr) => {
        $rows.push(row!($handle, wait_for_by, |$tx| {
            let (stage, seq) = unpassed($inner);
            done($tx.wait_for_by(&stage, seq, now()))
        }));
        $rows.push(row!($handle, flush_by, |$tx| {
            unpassed($inner);
            done($tx.flush_by(now()))
        }));
        $rows.push(row!($handle, wait_for_async, |$tx| {
            let (stage, seq) = unpassed($inner);
            once($tx.wait_for_async(&stage, seq))
        }));
        $rows.push(row!($handle, flush_async, |$tx| {
            unpassed($inner);
            once($tx.flush_async())
        }));
    };
}

pub(super) fn producers<S: sharing::Sharing>() -> Vec<Row<SegmentProducer<Event, Interleaved, S>>> {
    let mut rows: Vec<Row<SegmentProducer<Event, Interleaved, S>>> = vec![
        row!(Producer, try_publish, |tx| done(tx.try_publish(|_| ()))),
        row!(Producer, try_claim, |tx| done(tx.try_claim().map(|slot| slot.publish()))),
        row!(Producer, try_claim_n, |tx| done(tx.try_claim_n(2).map(|slots| slots.publish()))),
        row!(Producer, try_ask, |tx| done(tx.try_ask(|_, _: Promise<u64>| ()))),
        row!(Producer, publish_or_drop, |tx| tx
            .publish_or_drop(|_| ())
            .map_or_else(Into::into, |seq| seq.map_or(Nothing, |_| Done))),
        row!(Producer, publish_by, |tx| done(tx.publish_by(now(), |_| ()))),
        row!(Producer, claim_by, |tx| done(tx.claim_by(now()).map(|slot| slot.publish()))),
        row!(Producer, claim_n_by, |tx| done(tx.claim_n_by(2, now()).map(|it| it.publish()))),
        row!(Producer, ask_by, |tx| done(tx.ask_by(now(), |_, _: Promise<u64>| ()))),
        row!(Producer, publish_async, |tx| once(tx.publish_async(|_| ()))),
        row!(Producer, claim_n_async, |tx| once(async {
            tx.claim_n_async(2).await.map(|slots| slots.publish())
        })),
        row!(Producer, ask_async, |tx| once(tx.ask_async(|_, _: Promise<u64>| ()))),
        ("Producer", "remaining", false, |mut tx| {
            Box::new(move || match tx.remaining() {
                0 => Nothing,
                _ => done(tx.publish(|_| ())),
            })
        }),
        ("RawProducer", "available", false, |tx| {
            let mut tx = Some(tx.into_raw());
            Box::new(move || {
                let mut raw = tx.take().unwrap();
                let free = raw.available();
                let mut inner = raw.into_inner();
                let seen = match free {
                    0 => Nothing,
                    _ => done(inner.publish(|_| ())),
                };
                tx = Some(inner.into_raw());
                seen
            })
        }),
        ("RawProducer", "next", true, |tx| {
            let mut tx = tx.into_raw();
            Box::new(move || done(tx.next().map(|seq| tx.done(seq).unwrap())))
        }),
        ("RawProducer", "next_n", true, |tx| {
            let mut tx = tx.into_raw();
            Box::new(move || done(tx.next_n(2).map(|seq| tx.done(seq + 1).unwrap())))
        }),
        ("Waitable", "arm", true, |mut tx| {
            Box::new(move || match tx.arm(Waker::noop()) {
                true => done(tx.try_publish(|_| ())),
                false => Nothing,
            })
        }),
        ("Selector", "wait", true, |mut tx| {
            let mut selector = Selector::new();
            Box::new(move || match selector.wait(&mut [&mut tx], Some(now())) {
                Some(_) => done(tx.try_publish(|_| ())),
                None => Nothing,
            })
        }),
        ("Conflator", "send", true, |tx| {
            let mut conflator = Conflator::new(tx, 1, |_, _: &u64, _: u64| ()).unwrap();
            Box::new(move || match conflator.send(7, 7) {
                Ok(Sent::Published(_)) => Done,
                Ok(_) => Nothing,
                Err(error) => error.into(),
            })
        }),
        ("Conflator", "flush", true, |tx| {
            let mut conflator = Conflator::new(tx, 1, |_, _: &u64, _: u64| ()).unwrap();
            Box::new(move || {
                if conflator.kept() == 0 {
                    return done(conflator.send(7, 7));
                }
                match conflator.flush() {
                    Ok(0) => Done,
                    Ok(_) => Nothing,
                    Err(error) => error.into(),
                }
            })
        }),
        ("Conflator", "flush_by", true, |tx| {
            let mut conflator = Conflator::new(tx, 1, |_, _: &u64, _: u64| ()).unwrap();
            Box::new(move || {
                if conflator.kept() == 0 {
                    return done(conflator.send(7, 7));
                }
                done(conflator.flush_by(now()))
            })
        }),
    ];
    passing!(rows, Producer, |tx| &mut tx);
    rows
}

pub(super) fn block_producers<S: sharing::Sharing>() -> Vec<Row<BlockProducer<S>>> {
    let mut rows: Vec<Row<BlockProducer<S>>> = vec![
        row!(BlockProducer, try_publish, |tx| done(tx.try_publish(|_| ()))),
        row!(BlockProducer, publish_by, |tx| done(tx.publish_by(now(), |_| ()))),
        row!(BlockProducer, try_claim_n, |tx| done(tx.try_claim_n(2).map(|it| it.publish()))),
        row!(BlockProducer, claim_n_by, |tx| done(tx.claim_n_by(2, now()).map(|it| it.publish()))),
        ("BlockProducer", "remaining", false, |mut tx| {
            Box::new(move || match tx.remaining() {
                0 => Nothing,
                _ => done(tx.publish(|_| ())),
            })
        }),
        ("RawBlockProducer", "try_claim", true, |tx| {
            let mut tx = tx.into_raw();
            Box::new(move || done(tx.try_claim(1).map(|seq| tx.done(seq).unwrap())))
        }),
        ("RawBlockProducer", "claim_by", true, |tx| {
            let mut tx = tx.into_raw();
            Box::new(move || done(tx.claim_by(1, now()).map(|seq| tx.done(seq).unwrap())))
        }),
    ];
    passing!(rows, BlockProducer, |tx| tx.producer());
    rows
}

pub(super) fn message_producers<S: sharing::Sharing>() -> Vec<Row<MessageProducer<S>>> {
    let mut rows: Vec<Row<MessageProducer<S>>> = vec![
        row!(MessageProducer, try_publish, |tx| done(tx.try_publish(0, &[]))),
        row!(MessageProducer, publish_by, |tx| done(tx.publish_by(now(), 0, &[]))),
    ];
    passing!(rows, MessageProducer, |tx| tx.producer());
    rows
}

pub(super) fn copying_producers<S: sharing::Sharing>() -> Vec<Row<CopyingProducer<Event, S>>> {
    const EVENTS: [Event; 2] = [[0; 8]; 2];
    let mut rows: Vec<Row<CopyingProducer<Event, S>>> = vec![
        row!(CopyingProducer, try_publish, |tx| done(tx.try_publish(&EVENTS[0]))),
        row!(CopyingProducer, publish_by, |tx| done(tx.publish_by(now(), &EVENTS[0]))),
        row!(CopyingProducer, try_publish_batch, |tx| done(tx.try_publish_batch(&EVENTS))),
        row!(CopyingProducer, publish_batch_by, |tx| done(tx.publish_batch_by(now(), &EVENTS))),
        ("CopyingProducer", "remaining", false, |mut tx| {
            Box::new(move || match tx.remaining() {
                0 => Nothing,
                _ => done(tx.publish(&EVENTS[0])),
            })
        }),
    ];
    passing!(rows, CopyingProducer, |tx| tx.producer());
    rows
}

pub(super) fn consumers<C: delivery::Delivery>() -> Vec<Row<SegmentConsumer<Event, Reading, C>>> {
    vec![
        row!(Consumer, try_batch, |rx| done(rx.try_batch(1).map(|batch| batch.release()))),
        row!(Consumer, poll, |rx| some(rx.poll(1, |_, _| ()).map(|it| it as u64))),
        row!(Consumer, batch_by, |rx| done(rx.batch_by(1, now()).map(|batch| batch.release()))),
        row!(Consumer, batch_async, |rx| once(async {
            rx.batch_async(1).await.map(|batch| batch.release())
        })),
        row!(Consumer, batch_within_by, |rx| done(
            rx.batch_within_by(2, NO_TIME, now()).map(|batch| batch.release())
        )),
        row!(Consumer, batch_within_async, |rx| once(async {
            rx.batch_within_async(2, NO_TIME, ready).await.map(|batch| batch.release())
        })),
        #[cfg(feature = "stream")]
        ("Consumer", "into_stream", true, |rx| {
            let mut stream = rx.into_stream(|event, _| *event);
            Box::new(move || {
                let mut context = Context::from_waker(Waker::noop());
                match futures_core::Stream::poll_next(pin!(&mut stream), &mut context) {
                    Poll::Ready(Some(item)) => done(item),
                    Poll::Ready(None) => Closed,
                    Poll::Pending => Nothing,
                }
            })
        }),
        #[cfg(feature = "stream")]
        ("Consumer", "into_chunks_within", true, |rx| {
            let mut stream = rx.into_chunks_within(2, NO_TIME, ready, |event, _| *event);
            Box::new(move || {
                let mut context = Context::from_waker(Waker::noop());
                match futures_core::Stream::poll_next(pin!(&mut stream), &mut context) {
                    Poll::Ready(Some(chunk)) => done(chunk),
                    Poll::Ready(None) => Closed,
                    Poll::Pending => Nothing,
                }
            })
        }),
        ("RawConsumer", "next", true, |rx| {
            let mut rx = rx.into_raw();
            Box::new(move || done(rx.next().map(|seq| rx.done(seq).unwrap())))
        }),
        ("RawConsumer", "available", true, |rx| {
            let mut rx = rx.into_raw();
            Box::new(move || done(rx.available(1).map(|it| rx.done(it.last_seq()).unwrap())))
        }),
        ("Waitable", "arm", true, |mut rx| {
            Box::new(move || match rx.arm(Waker::noop()) {
                true => some(rx.poll(1, |_, _| ()).map(|it| it as u64)),
                false => Nothing,
            })
        }),
        ("Selector", "wait", true, |mut rx| {
            let mut selector = Selector::new();
            Box::new(move || match selector.wait(&mut [&mut rx], Some(now())) {
                Some(_) => some(rx.poll(1, |_, _| ()).map(|it| it as u64)),
                None => Nothing,
            })
        }),
    ]
}

pub(super) fn block_consumers<C: delivery::Delivery>() -> Vec<Row<BlockConsumer<Reading, C>>> {
    vec![
        row!(BlockConsumer, try_batch, |rx| done(rx.try_batch(1).map(|batch| batch.release()))),
        row!(BlockConsumer, batch_by, |rx| done(rx.batch_by(1, now()).map(|it| it.release()))),
        row!(BlockConsumer, batch_within_by, |rx| done(
            rx.batch_within_by(2, NO_TIME, now()).map(|batch| batch.release())
        )),
        row!(BlockConsumer, poll, |rx| some(rx.poll(1, |_, _| ()))),
        ("RawBlockConsumer", "available", true, |rx| {
            let mut rx = rx.into_raw();
            Box::new(move || done(rx.available(1).map(|it| rx.done(it.last_seq()).unwrap())))
        }),
        ("RawBlockConsumer", "wait_by", true, |rx| {
            let mut rx = rx.into_raw();
            Box::new(move || done(rx.wait_by(1, now()).map(|it| rx.done(it.last_seq()).unwrap())))
        }),
    ]
}

pub(super) fn message_consumers<C: delivery::Delivery>() -> Vec<Row<MessageConsumer<C>>> {
    vec![
        row!(MessageConsumer, try_batch, |rx| done(rx.try_batch().map(|batch| batch.release()))),
        row!(MessageConsumer, batch_by, |rx| done(rx.batch_by(now()).map(|it| it.release()))),
        row!(MessageConsumer, batch_within_by, |rx| done(
            rx.batch_within_by(2, NO_TIME, now()).map(|batch| batch.release())
        )),
        row!(MessageConsumer, poll, |rx| some(rx.poll(|_| ()))),
    ]
}

pub(super) fn copying_consumers<C: delivery::Delivery>()
-> Vec<Row<CopyingConsumer<Event, Reading, C>>> {
    fn buffer() -> [Event; 1] {
        [[0; 8]]
    }
    vec![
        row!(CopyingConsumer, try_next, |rx| done(rx.try_next())),
        row!(CopyingConsumer, next_by, |rx| done(rx.next_by(now()))),
        row!(CopyingConsumer, try_read_batch, |rx| done(rx.try_read_batch(&mut buffer()))),
        row!(CopyingConsumer, read_batch_by, |rx| done(rx.read_batch_by(now(), &mut buffer()))),
        row!(CopyingConsumer, read_batch_within_by, |rx| done(rx.read_batch_within_by(
            NO_TIME,
            now(),
            &mut buffer()
        ))),
    ]
}
