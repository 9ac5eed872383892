//@ writes: claim a slot, and forget to publish it
//@ warns: unused `Slot` that must be used
//@ warns: a claim that is dropped publishes nothing
//@ do: `publish`
fn main() {
    let (mut tx, _rx) = slipring::unicast(8, || 0u64).unwrap();
    tx.claim().unwrap();
}
