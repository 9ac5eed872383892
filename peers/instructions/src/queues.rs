//! Two other rings of one producer and one consumer, `rtrb` and `ringbuf`, one event at a time.

use std::hint::black_box;

use ringbuf::HeapRb;
use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
use ringbuf::{HeapCons, HeapProd};

use crate::operation::{Operation, RING, laps};

/// The operations of both rings.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        name: "rtrb-push",
        symbol: "count_rtrb_push",
        units: RING,
        unit: "event",
        what: "rtrb: push one event",
        beside: Some("publish"),
        run: rtrb_one_by_one,
    },
    Operation {
        name: "rtrb-pop",
        symbol: "count_rtrb_pop",
        units: RING,
        unit: "event",
        what: "rtrb: pop one event",
        beside: Some("poll-1"),
        run: rtrb_one_by_one,
    },
    Operation {
        name: "rtrb-pair",
        symbol: "count_rtrb_pair",
        units: RING,
        unit: "event",
        what: "rtrb: push one event, and pop it",
        beside: Some("pair"),
        run: || {
            let (mut tx, mut rx) = rtrb::RingBuffer::new(RING);
            laps(|| count_rtrb_pair(black_box(&mut tx), black_box(&mut rx)));
        },
    },
    Operation {
        name: "ringbuf-push",
        symbol: "count_ringbuf_push",
        units: RING,
        unit: "event",
        what: "ringbuf: push one event",
        beside: Some("publish"),
        run: ringbuf_one_by_one,
    },
    Operation {
        name: "ringbuf-pop",
        symbol: "count_ringbuf_pop",
        units: RING,
        unit: "event",
        what: "ringbuf: pop one event",
        beside: Some("poll-1"),
        run: ringbuf_one_by_one,
    },
];

fn rtrb_one_by_one() {
    let (mut tx, mut rx) = rtrb::RingBuffer::new(RING);
    laps(|| {
        count_rtrb_push(black_box(&mut tx));
        count_rtrb_pop(black_box(&mut rx))
    });
}

fn ringbuf_one_by_one() {
    let (mut tx, mut rx) = HeapRb::<u64>::new(RING).split();
    laps(|| {
        count_ringbuf_push(black_box(&mut tx));
        count_ringbuf_pop(black_box(&mut rx))
    });
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_rtrb_push(tx: &mut rtrb::Producer<u64>) {
    for number in 0..RING as u64 {
        tx.push(number).expect("the ring has room");
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_rtrb_pop(rx: &mut rtrb::Consumer<u64>) -> u64 {
    (0..RING).map(|_| rx.pop().expect("there is an event")).sum()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_rtrb_pair(tx: &mut rtrb::Producer<u64>, rx: &mut rtrb::Consumer<u64>) -> u64 {
    let mut sum = 0;
    for number in 0..RING as u64 {
        tx.push(number).expect("the ring has room");
        sum += rx.pop().expect("there is an event");
    }
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_ringbuf_push(tx: &mut HeapProd<u64>) {
    for number in 0..RING as u64 {
        tx.try_push(number).expect("the ring has room");
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_ringbuf_pop(rx: &mut HeapCons<u64>) -> u64 {
    (0..RING).map(|_| rx.try_pop().expect("there is an event")).sum()
}
