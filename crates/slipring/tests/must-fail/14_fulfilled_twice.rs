//@ says: use of moved value: `promise`
//@ says: takes ownership of the receiver
fn main() {
    let (promise, mut answer) = slipring::promise();
    promise.fulfil(1).unwrap();
    promise.fulfil(2).unwrap();
    assert_eq!(answer.wait(), Ok(1));
}
