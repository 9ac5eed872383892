//! A promised reference is fulfilled with a reference that lives as long as promised.
use slipring::Promise;
fn fulfil<'a>(promise: Promise<&'a str>, value: &'a str) {
    promise.fulfil(value).unwrap();
}
fn main() {
    let (promise, mut answer) = slipring::promise::<&'static str>();
    {
        let local = "there";
        fulfil(promise, local);
    }
    println!("{}", answer.wait().unwrap());
}
