//@ writes: ask for a batch while holding another
//@ says: cannot borrow `rx` as mutable more than once at a time
//@ page: release the first one before, ask for more events at once, or `hold` them
fn main() {
    let (_tx, mut rx) = slipring::unicast(8, || 0u64).unwrap();
    let a = rx.batch(8).unwrap();
    let b = rx.batch(8).unwrap();
    println!("{} {}", a.len(), b.len());
}
