//! The operations of slipring's rings between processes, in one process.
//!
//! Invariants
//! - I1: the segment has no name, and its descriptor stays here, so only this process maps it.

use std::hint::black_box;

use slipring::segment::Seated;
use slipring_shm::messages::{MessageConsumer, MessageProducer, Messages};
use slipring_shm::{Attached, Segment};

use crate::operation::{LAPS, Operation, RING};

/// Number of messages in a lap: each takes two cells.
const MESSAGES: usize = RING / 2;
/// Length of a message, in bytes.
const LENGTH: usize = 96;

/// The operations.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        name: "message-publish",
        symbol: "count_message_publish",
        units: MESSAGES,
        unit: "message",
        what: "publish a message of 96 bytes",
        beside: None,
        run,
    },
    Operation {
        name: "message-poll",
        symbol: "count_message_poll",
        units: MESSAGES,
        unit: "message",
        what: "read a lap of such messages by `poll`",
        beside: None,
        run,
    },
];

fn run() {
    let segment = Segment::<Messages>::create_memfd("instructions")
        .capacity(RING as u64)
        .reader("reader")
        .build()
        .expect("the system has memory for a segment");
    // SAFETY: I1.
    let attached: Attached<Messages> = unsafe { segment.attach() }.expect("the segment is sound");
    let mut tx = attached.producer().expect("the producer's place is free");
    let mut rx = attached.reader("reader").expect("the reader's place is free");
    for _ in 0..LAPS {
        count_message_publish(black_box(&mut tx), black_box(&[7; LENGTH]));
        assert_eq!(count_message_poll(black_box(&mut rx)), MESSAGES * LENGTH * 7);
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_message_publish(tx: &mut MessageProducer, message: &[u8]) {
    for _ in 0..MESSAGES {
        tx.publish(1, message).expect("the ring is open");
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_message_poll(rx: &mut MessageConsumer<Seated>) -> usize {
    let mut sum = 0;
    let mut handled = 0;
    while handled < MESSAGES as u64 {
        handled += rx
            .poll(|message| sum += message.bytes.len() * usize::from(message.bytes[0]))
            .expect("the ring is open");
    }
    sum
}
