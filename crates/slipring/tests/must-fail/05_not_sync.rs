//@ writes: a stage that reads events of a type that is not `Sync`
//@ says: cannot be shared between threads safely
//@ says: use `std::sync::RwLock` or `std::sync::atomic::AtomicU64` instead
//@ do: take the type that the compiler names, or let the stage update: an `update` stage needs no
//@     `Sync`
use std::cell::Cell;
fn main() {
    slipring::ring(64, || Cell::new(0u64)).read("look", |_, _| ()).feed(0..3, |s, i| s.set(i)).unwrap();
}
