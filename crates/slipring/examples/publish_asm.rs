//! One publication and one release, out of line, whose machine code `cargo xtask asm` reads. At a
//! quiet wait queue, neither of the two executes a fence instruction. The publication loads the
//! queue's word only after it has stored its stamp, and the release only after it has stored its
//! frontier.

use std::hint::black_box;

use slipring::{Producer, Reader};

/// The published value, which marks the publication in the machine code.
const MARK: u64 = 0x5e_1f_9a_2b;

/// Publishes into a ring whose stage sleeps when it has no event.
#[unsafe(no_mangle)]
#[inline(never)]
fn publish_at_a_quiet_queue(producer: &mut Producer<u64>) -> bool {
    producer.try_publish(|event| *event = MARK).is_ok()
}

/// Releases all held events, and wakes the producer if it sleeps.
#[unsafe(no_mangle)]
#[inline(never)]
fn release_at_a_quiet_queue(reader: &mut Reader<u64>) {
    reader.release_until(reader.next_seq());
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut producer, mut reader) = slipring::unicast(8, || 0)?;
    assert!(publish_at_a_quiet_queue(black_box(&mut producer)));
    let batch = reader.try_batch(8)?;
    assert_eq!(batch[0], MARK);
    batch.hold();
    release_at_a_quiet_queue(black_box(&mut reader));
    assert_eq!(producer.remaining(), 8);
    Ok(())
}
