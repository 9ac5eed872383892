//@ writes: publish after the close
//@ says: borrow of moved value: `tx`
//@ says: takes ownership of the receiver `self`, which moves `tx`
//@ page: publish first: `close` ends the stream
fn main() {
    let (mut tx, _rx) = slipring::unicast(8, || 0u64).unwrap();
    tx.close();
    tx.publish(|slot| *slot = 1).unwrap();
}
