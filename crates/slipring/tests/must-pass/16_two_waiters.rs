//! One thread takes the value; other threads may check whether it has come.
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
