//! The event is copied out before the release.
fn main() {
    let (_tx, mut rx) = slipring::unicast(8, || 0u64).unwrap();
    let batch = rx.batch(8).unwrap();
    let first = batch[0];
    batch.release();
    println!("{first}");
}
