//! One publication and one release, out of line, whose machine code `cargo xtask asm` reads. While
//! a bell is quiet, neither may contain a fence of the machine, and neither may look at the bell
//! before its stamp, or its frontier, is stored.

use std::hint::black_box;

use slipring::{Producer, Reader};

/// What is published, so that the code tells where.
const MARK: u64 = 0x5e_1f_9a_2b;

/// Publishes into a ring whose stage sleeps when there is nothing.
#[unsafe(no_mangle)]
#[inline(never)]
fn publish_under_a_quiet_bell(producer: &mut Producer<u64>) -> bool {
    producer.try_publish(|event| *event = MARK).is_ok()
}

/// Releases everything that was held, and wakes the producer if it sleeps.
#[unsafe(no_mangle)]
#[inline(never)]
fn release_under_a_quiet_bell(reader: &mut Reader<u64>) {
    reader.release_until(reader.next_seq());
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut producer, mut reader) = slipring::unicast(8, || 0)?;
    assert!(publish_under_a_quiet_bell(black_box(&mut producer)));
    let batch = reader.try_batch(8)?;
    assert_eq!(batch[0], MARK);
    batch.hold();
    release_under_a_quiet_bell(black_box(&mut reader));
    assert_eq!(producer.remaining(), 8);
    Ok(())
}
