//! One thread takes the value; others may look whether it is there.
fn main() {
    let (promise, mut answer) = slipring::promise();
    promise.fulfil(String::from("one")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(answer.is_settled()));
        scope.spawn(|| assert!(answer.is_settled()));
    });
    std::thread::scope(|scope| {
        scope.spawn(|| answer.wait().unwrap());
    });
}
