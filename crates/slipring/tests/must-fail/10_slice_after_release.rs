//@ writes: use an event after the release of its batch
//@ says: cannot move out of `batch` because it is borrowed
//@ page: release behind the last use, or copy the event
fn main() {
    let (_tx, mut rx) = slipring::unicast(8, || 0u64).unwrap();
    let batch = rx.batch(8).unwrap();
    let first = &batch[0];
    batch.release();
    println!("{first}");
}
