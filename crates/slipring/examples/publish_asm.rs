//! One publication, out of line, whose machine code `cargo xtask asm` reads: while a bell is quiet, what a publication must not contain is a fence, and what
//! it must not do is to look at the bell before its stamp is stored.

use std::hint::black_box;

use slipring::Producer;

/// What is published, so that the code tells where.
const MARK: u64 = 0x5e_1f_9a_2b;

/// Publishes into a ring whose stage sleeps when there is nothing.
#[unsafe(no_mangle)]
#[inline(never)]
fn publish_under_a_quiet_bell(producer: &mut Producer<u64>) -> bool {
    producer.try_publish(|event| *event = MARK).is_ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut producer, mut reader) = slipring::unicast(8, || 0)?;
    assert!(publish_under_a_quiet_bell(black_box(&mut producer)));
    reader.poll(8, |&event, _| assert_eq!(event, MARK))?;
    Ok(())
}
