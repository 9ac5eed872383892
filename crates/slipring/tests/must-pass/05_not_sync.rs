//! A stage that writes has the event to itself: `Send` is enough.
use std::cell::Cell;
fn main() {
    slipring::ring(64, || Cell::new(0u64)).update("look", |_, _| ()).feed(0..3, |s, i| s.set(i)).unwrap();
}
