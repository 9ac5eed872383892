//@ says: cannot borrow `answer` as mutable more than once at a time
fn main() {
    let (promise, mut answer) = slipring::promise();
    promise.fulfil(String::from("one")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| answer.wait().unwrap());
        scope.spawn(|| answer.wait().unwrap());
    });
}
