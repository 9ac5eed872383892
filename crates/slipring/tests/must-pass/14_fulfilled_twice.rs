//! Each promise has one value.
fn main() {
    let (promise, mut answer) = slipring::promise();
    promise.fulfil(1).unwrap();
    assert_eq!(answer.wait(), Ok(1));
}
