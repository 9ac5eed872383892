//@ says: cannot be shared between threads safely
use std::cell::Cell;
fn main() {
    slipring::ring(64, || Cell::new(0u64)).read("look", |_, _| ()).feed(0..3, |s, i| s.set(i)).unwrap();
}
