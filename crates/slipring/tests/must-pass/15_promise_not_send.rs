//! A value that other threads may own can be promised to another thread.
use std::sync::Arc;
fn main() {
    let (promise, mut answer) = slipring::promise();
    std::thread::spawn(move || drop(promise.fulfil(Arc::new(1))));
    answer.wait().unwrap();
}
