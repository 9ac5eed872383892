//@ says: cannot be sent between threads safely
//@ says: Promise<Rc<
use std::rc::Rc;
fn main() {
    let (promise, mut answer) = slipring::promise();
    std::thread::spawn(move || drop(promise.fulfil(Rc::new(1))));
    answer.wait().unwrap();
}
