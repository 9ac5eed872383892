//! The operations of slipring's rings between threads.
//!
//! Each operation has a type of events of its own. So the compiler makes the library's generic
//! functions for it alone, as in a program that has only this operation: a function with one caller
//! becomes a part of the caller, and with several it may not.
//!
//! All handles spin, so that no queue has to be notified: whether a notification needs a fence
//! depends on the system.

use std::hint::black_box;

use slipring::handles::PoolReader;
use slipring::markers::{Contiguous, Layout};
use slipring::{Graph, Producer, Publisher, Reader, SharedProducer, Wait};

use crate::operation::{LAPS, Operation, RING, laps};

/// Number of batches of ten in a lap.
const TENS: usize = RING / 10;
/// Number of events in a stream that is read by one call.
const STREAM: usize = LAPS as usize * RING;
/// Number of batches of a hundred in a lap.
const HUNDREDS: usize = RING / 100;

/// An event of the operation with the number `N`.
#[derive(Default)]
struct Event<const N: usize>(u64);

/// The two ends of a ring.
type Ends<const N: usize, L> = (Producer<Event<N>, L>, Reader<Event<N>, L>);

/// Describes an operation with one event.
const fn each(
    name: &'static str,
    symbol: &'static str,
    what: &'static str,
    run: fn(),
) -> Operation {
    Operation { name, symbol, units: RING, unit: "event", what, beside: None, run }
}

/// Describes an operation with one event of a long stream.
const fn stream(
    name: &'static str,
    symbol: &'static str,
    what: &'static str,
    run: fn(),
) -> Operation {
    Operation { units: STREAM, ..each(name, symbol, what, run) }
}

/// Describes an operation with a batch, `units` of which make a call.
const fn batch(
    name: &'static str,
    symbol: &'static str,
    units: usize,
    what: &'static str,
    run: fn(),
) -> Operation {
    Operation { name, symbol, units, unit: "batch", what, beside: None, run }
}

/// The operations.
pub const OPERATIONS: &[Operation] = &[
    each("publish", "count_publish", "publish one event by a closure", || {
        writes(ring(), count_publish)
    }),
    each("publish-contiguous", "count_publish_contiguous", "the same in a contiguous ring", || {
        writes(contiguous(), count_publish_contiguous)
    }),
    each("try-publish", "count_try_publish", "the same by `try_publish`", || {
        writes(ring(), count_try_publish)
    }),
    each("claim", "count_claim", "claim one slot, fill and publish it", || {
        writes(ring(), count_claim)
    }),
    batch("claim-10", "count_claim_10", TENS, "claim, fill and publish ten slots", || {
        writes(ring(), count_claim_10)
    }),
    batch("claim-100", "count_claim_100", HUNDREDS, "the same with a hundred slots", || {
        writes(ring(), count_claim_100)
    }),
    batch(
        "claim-100-contiguous",
        "count_claim_100_contiguous",
        HUNDREDS,
        "the same in a contiguous ring",
        || writes(contiguous(), count_claim_100_contiguous),
    ),
    each("poll-1", "count_poll_1", "read and release one event by `poll(1)`", || {
        reads(ring(), count_poll_1)
    }),
    each("poll-1-contiguous", "count_poll_1_contiguous", "the same in a contiguous ring", || {
        reads(contiguous(), count_poll_1_contiguous)
    }),
    each("poll-all", "count_poll_all", "read a lap by one call of `poll`", || {
        reads(ring(), count_poll_all)
    }),
    each(
        "poll-all-contiguous",
        "count_poll_all_contiguous",
        "the same in a contiguous ring",
        || reads(contiguous(), count_poll_all_contiguous),
    ),
    each("batch-1", "count_batch_1", "read and release one event by `batch(1)`", || {
        reads(ring(), count_batch_1)
    }),
    each("batch-1-contiguous", "count_batch_1_contiguous", "the same in a contiguous ring", || {
        reads(contiguous(), count_batch_1_contiguous)
    }),
    batch(
        "batch-100",
        "count_batch_100",
        HUNDREDS,
        "read and release a hundred single events by `batch(100)`",
        || reads(ring(), count_batch_100),
    ),
    batch(
        "batch-100-contiguous",
        "count_batch_100_contiguous",
        HUNDREDS,
        "the same in a contiguous ring",
        || reads(contiguous(), count_batch_100_contiguous),
    ),
    stream("for-each", "count_for_each", "read one event in `for_each`'s loop", || {
        streams(ring_of(STREAM), count_for_each)
    }),
    stream(
        "for-each-contiguous",
        "count_for_each_contiguous",
        "the same in a contiguous ring",
        || streams(contiguous_of(STREAM), count_for_each_contiguous),
    ),
    each("release", "count_release", "release one held event", || {
        let (mut tx, mut rx) = ring();
        laps(|| {
            publish(&mut tx);
            let batch = rx.batch(RING).expect("the ring is open");
            let sum = batch.iter().map(|event| event.0).sum();
            batch.hold();
            count_release(black_box(&mut rx));
            sum
        });
    }),
    each("pair", "count_pair", "publish one event, and read it by `poll(1)`", || {
        let (mut tx, mut rx) = ring();
        laps(|| count_pair(black_box(&mut tx), black_box(&mut rx)));
    }),
    each("pair-contiguous", "count_pair_contiguous", "the same in a contiguous ring", || {
        let (mut tx, mut rx) = contiguous();
        laps(|| count_pair_contiguous(black_box(&mut tx), black_box(&mut rx)));
    }),
    each(
        "many-publish",
        "count_many_publish",
        "publish one event as one of many producers",
        || {
            let (mut tx, mut rx) = shared();
            laps(|| {
                count_many_publish(black_box(&mut tx));
                drain(&mut rx)
            });
        },
    ),
    each("shared-publish", "count_shared_publish", "publish one event by `&self`", || {
        let (tx, mut rx) = shared();
        let tx = tx.into_publisher();
        laps(|| {
            count_shared_publish(black_box(&tx));
            drain(&mut rx)
        });
    }),
    each(
        "many-poll-1",
        "count_many_poll_1",
        "read one event of many producers by `poll(1)`",
        || {
            let (mut tx, mut rx) = shared();
            laps(|| {
                (0..RING as u64).for_each(|number| {
                    tx.publish(|slot| slot.0 = number).expect("the ring is open");
                });
                count_many_poll_1(black_box(&mut rx))
            });
        },
    ),
    each(
        "pool-poll-1",
        "count_pool_poll_1",
        "a pool's worker reads one event by `poll(1)`",
        || {
            let graph = graph();
            let pool = graph.pool_reader("pool", 2);
            let ring = graph.build().expect("the graph is sound");
            let (mut tx, mut workers) = (ring.producer(), ring.pool_readers(pool));
            laps(|| {
                publish(&mut tx);
                count_pool_poll_1(black_box(&mut workers[0]))
            });
        },
    ),
    each(
        "behind-poll-1",
        "count_behind_poll_1",
        "a stage behind a stage reads one event by `poll(1)`",
        || {
            let graph = graph();
            let first = graph.reader("first");
            let behind = graph.reader("behind").after(&first);
            let ring = graph.build().expect("the graph is sound");
            let (mut tx, mut first, mut behind) =
                (ring.producer(), ring.reader(first), ring.reader(behind));
            laps(|| {
                publish(&mut tx);
                drain(&mut first);
                count_behind_poll_1(black_box(&mut behind))
            });
        },
    ),
];

fn graph<const N: usize>() -> Graph<'static, Event<N>> {
    graph_of(RING)
}

fn graph_of<const N: usize>(capacity: usize) -> Graph<'static, Event<N>> {
    Graph::new(capacity, Event::default).wait(Wait::BusySpin)
}

fn ring<const N: usize>() -> (Producer<Event<N>>, Reader<Event<N>>) {
    ring_of(RING)
}

fn ring_of<const N: usize>(capacity: usize) -> (Producer<Event<N>>, Reader<Event<N>>) {
    let graph = graph_of(capacity);
    let reader = graph.reader("reader");
    let ring = graph.build().expect("the graph is sound");
    (ring.producer(), ring.reader(reader))
}

fn contiguous<const N: usize>() -> (Producer<Event<N>, Contiguous>, Reader<Event<N>, Contiguous>) {
    contiguous_of(RING)
}

fn contiguous_of<const N: usize>(
    capacity: usize,
) -> (Producer<Event<N>, Contiguous>, Reader<Event<N>, Contiguous>) {
    let graph = graph_of(capacity).contiguous();
    let reader = graph.reader("reader");
    let ring = graph.build().expect("the graph is sound");
    (ring.producer(), ring.reader(reader))
}

fn shared<const N: usize>() -> (SharedProducer<Event<N>>, Reader<Event<N>>) {
    let graph = graph().shared();
    let reader = graph.reader("reader");
    let ring = graph.build().expect("the graph is sound");
    (ring.producer(), ring.reader(reader))
}

/// Makes laps with an operation that publishes. A lap's last events, which fill no batch, are
/// published one by one and not counted.
fn writes<const N: usize, L: Layout>(
    (mut tx, mut rx): Ends<N, L>,
    counted: fn(&mut Producer<Event<N>, L>),
) {
    laps(|| {
        counted(black_box(&mut tx));
        let left = RING - tx.remaining();
        for number in left..RING {
            tx.publish(|slot| slot.0 = number as u64).expect("the ring is open");
        }
        drain(&mut rx)
    });
}

/// Makes laps with an operation that reads. A lap's last events, which fill no batch, are not
/// counted.
fn reads<const N: usize, L: Layout>(
    (mut tx, mut rx): Ends<N, L>,
    counted: fn(&mut Reader<Event<N>, L>) -> u64,
) {
    laps(|| {
        publish(&mut tx);
        counted(black_box(&mut rx)) + drain(&mut rx)
    });
}

/// Runs an operation that reads a stream to its end. The stream is as long as all laps together, so
/// that the beginning of the call hardly counts: it depends on the number of cores.
fn streams<const N: usize, L: Layout>(
    (mut tx, mut rx): Ends<N, L>,
    counted: fn(&mut Reader<Event<N>, L>) -> u64,
) {
    (0..LAPS).for_each(|_| publish(&mut tx));
    drop(tx);
    assert_eq!(counted(black_box(&mut rx)), LAPS * (0..RING as u64).sum::<u64>());
}

/// Reads all events, and returns their sum.
fn drain<const N: usize, L: Layout>(rx: &mut Reader<Event<N>, L>) -> u64 {
    let mut sum = 0;
    while rx.poll(RING, |event, _| sum += event.0).expect("the ring is open") != 0 {}
    sum
}

#[inline(always)]
fn publish<const N: usize, L: Layout>(tx: &mut Producer<Event<N>, L>) {
    for number in 0..RING as u64 {
        tx.publish(|slot| slot.0 = number).expect("the ring is open");
    }
}

#[inline(always)]
fn claim_batches<const N: usize, L: Layout>(tx: &mut Producer<Event<N>, L>, len: usize) {
    let mut number = 0;
    for _ in 0..RING / len {
        let mut slots = tx.claim_n(len).expect("the ring is open");
        slots.iter_mut().for_each(|slot| {
            slot.0 = number;
            number += 1;
        });
        slots.publish();
    }
}

#[inline(always)]
fn poll_1<const N: usize, L: Layout>(rx: &mut Reader<Event<N>, L>) -> u64 {
    let mut sum = 0;
    for _ in 0..RING {
        rx.poll(1, |event, _| sum += event.0).expect("the ring is open");
    }
    sum
}

#[inline(always)]
fn batches<const N: usize, L: Layout>(rx: &mut Reader<Event<N>, L>) -> u64 {
    let mut sum = 0;
    for _ in 0..HUNDREDS {
        let batch = rx.batch(100).expect("the ring is open");
        batch.iter().for_each(|event| sum += event.0);
        batch.release();
    }
    sum
}

#[inline(always)]
fn pair<const N: usize, L: Layout>(
    tx: &mut Producer<Event<N>, L>,
    rx: &mut Reader<Event<N>, L>,
) -> u64 {
    let mut sum = 0;
    for number in 0..RING as u64 {
        tx.publish(|slot| slot.0 = number).expect("the ring is open");
        rx.poll(1, |event, _| sum += event.0).expect("the ring is open");
    }
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_publish(tx: &mut Producer<Event<1>>) {
    publish(tx);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_publish_contiguous(tx: &mut Producer<Event<2>, Contiguous>) {
    publish(tx);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_try_publish(tx: &mut Producer<Event<3>>) {
    for number in 0..RING as u64 {
        tx.try_publish(|slot| slot.0 = number).expect("the ring has room");
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_claim(tx: &mut Producer<Event<4>>) {
    for number in 0..RING as u64 {
        let mut slot = tx.claim().expect("the ring is open");
        slot.0 = number;
        slot.publish();
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_claim_10(tx: &mut Producer<Event<5>>) {
    claim_batches(tx, 10);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_claim_100(tx: &mut Producer<Event<6>>) {
    claim_batches(tx, 100);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_claim_100_contiguous(tx: &mut Producer<Event<7>, Contiguous>) {
    claim_batches(tx, 100);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_poll_1(rx: &mut Reader<Event<8>>) -> u64 {
    poll_1(rx)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_poll_1_contiguous(rx: &mut Reader<Event<9>, Contiguous>) -> u64 {
    poll_1(rx)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_poll_all(rx: &mut Reader<Event<10>>) -> u64 {
    let mut sum = 0;
    rx.poll(RING, |event, _| sum += event.0).expect("the ring is open");
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_poll_all_contiguous(rx: &mut Reader<Event<11>, Contiguous>) -> u64 {
    let mut sum = 0;
    rx.poll(RING, |event, _| sum += event.0).expect("the ring is open");
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_batch_1(rx: &mut Reader<Event<12>>) -> u64 {
    let mut sum = 0;
    for _ in 0..RING {
        let batch = rx.batch(1).expect("the ring is open");
        sum += batch[0].0;
        batch.release();
    }
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_batch_1_contiguous(rx: &mut Reader<Event<13>, Contiguous>) -> u64 {
    let mut sum = 0;
    for _ in 0..RING {
        let batch = rx.batch(1).expect("the ring is open");
        sum += batch[0].0;
        batch.release();
    }
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_batch_100(rx: &mut Reader<Event<14>>) -> u64 {
    batches(rx)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_batch_100_contiguous(rx: &mut Reader<Event<15>, Contiguous>) -> u64 {
    batches(rx)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_for_each(rx: &mut Reader<Event<16>>) -> u64 {
    let mut sum = 0;
    rx.for_each(|event, _| sum += event.0).expect("the stream ended without a failure");
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_for_each_contiguous(rx: &mut Reader<Event<17>, Contiguous>) -> u64 {
    let mut sum = 0;
    rx.for_each(|event, _| sum += event.0).expect("the stream ended without a failure");
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_release(rx: &mut Reader<Event<18>>) {
    let end = rx.next_seq();
    for seq in end - RING as u64..end {
        rx.release_until(seq + 1);
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_pair(tx: &mut Producer<Event<19>>, rx: &mut Reader<Event<19>>) -> u64 {
    pair(tx, rx)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_pair_contiguous(
    tx: &mut Producer<Event<20>, Contiguous>,
    rx: &mut Reader<Event<20>, Contiguous>,
) -> u64 {
    pair(tx, rx)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_many_publish(tx: &mut SharedProducer<Event<21>>) {
    for number in 0..RING as u64 {
        tx.publish(|slot| slot.0 = number).expect("the ring is open");
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_shared_publish(tx: &Publisher<Event<22>>) {
    for number in 0..RING as u64 {
        tx.publish(|slot| slot.0 = number).expect("the ring is open");
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_many_poll_1(rx: &mut Reader<Event<23>>) -> u64 {
    // With a sum as in `poll_1`, the compiler would make this function and `count_poll_1` one.
    let mut sum = u64::MAX;
    for _ in 0..RING {
        rx.poll(1, |event, _| sum = sum.wrapping_add(event.0)).expect("the ring is open");
    }
    sum.wrapping_add(1)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_pool_poll_1(rx: &mut PoolReader<Event<24>>) -> u64 {
    let mut sum = 0;
    for _ in 0..RING {
        rx.poll(1, |event, _| sum += event.0).expect("the ring is open");
    }
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_behind_poll_1(rx: &mut Reader<Event<25>>) -> u64 {
    // As in `count_many_poll_1`, another sum keeps the compiler from making two functions one.
    let mut sum = 0u64;
    for _ in 0..RING {
        rx.poll(1, |event, _| sum = sum.wrapping_sub(event.0)).expect("the ring is open");
    }
    sum.wrapping_neg()
}
