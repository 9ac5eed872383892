//@ writes: state in an `Rc`, in a handler
//@ says: `Rc<RefCell<Vec<u64>>>` cannot be sent between threads safely
//@ says: within this `{closure
//@ page: let the handler borrow a local (`run`, `feed`), or take `Arc` and `Mutex`
use std::cell::RefCell;
use std::rc::Rc;
fn main() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let kept = seen.clone();
    slipring::ring(8, || 0u64)
        .read("keep", move |value, _| kept.borrow_mut().push(*value))
        .feed(0..3, |slot, i| *slot = i)
        .unwrap();
    println!("{}", seen.borrow().len());
}
