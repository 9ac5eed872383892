//! The first batch is released before the second is asked for.
fn main() {
    let (_tx, mut rx) = slipring::unicast(8, || 0u64).unwrap();
    let a = rx.batch(8).unwrap();
    let first = a.len();
    a.release();
    let b = rx.batch(8).unwrap();
    println!("{} {}", first, b.len());
}
