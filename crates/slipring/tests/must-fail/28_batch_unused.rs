//@ writes: take a batch, and forget to release it
//@ warns: unused `Batch` that must be used
//@ warns: a batch that is dropped is lent again: give its events back by `release`
//@ do: `release`
fn main() {
    let (mut tx, mut rx) = slipring::unicast(8, || 0u64).unwrap();
    tx.publish(|slot| *slot = 1).unwrap();
    rx.batch(8).unwrap();
}
