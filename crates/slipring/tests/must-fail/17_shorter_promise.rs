//@ says: does not live long enough
use slipring::Promise;
fn fulfil<'a>(promise: Promise<&'a str>, value: &'a str) {
    promise.fulfil(value).unwrap();
}
fn main() {
    let (promise, mut answer) = slipring::promise::<&'static str>();
    {
        let local = String::from("gone");
        fulfil(promise, &local);
    }
    println!("{}", answer.wait().unwrap());
}
