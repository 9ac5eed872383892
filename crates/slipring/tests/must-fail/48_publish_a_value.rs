//@ writes: publish a value
//@ says: expected a `FnOnce(&mut u64)` closure, found `{integer}`
//@ page: a closure that fills the slot: `|slot| *slot = 7`
fn main() {
    let (mut tx, _rx) = slipring::unicast(8, || 0u64).unwrap();
    tx.publish(7).unwrap();
}
