//@ writes: events with an `Rc`
//@ says: `Rc<u64>` cannot be sent between threads safely
//@ says: required by this bound in `ring`
//@ page: `Arc`: other threads handle and drop the events
use std::rc::Rc;
fn main() {
    slipring::ring(8, || Rc::new(0u64))
        .update("count", |_, _| ())
        .feed(0..3, |slot, i| *slot = Rc::new(i))
        .unwrap();
}
