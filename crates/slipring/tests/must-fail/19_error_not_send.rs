//@ writes: a handler that returns a `Box<dyn Error>`
//@ says: a handler returns nothing or a `Result<(), _>` with an error
//@ says: an error must be a `String`, a `&str`, a `Box<dyn Error + Send + Sync>`, or a type
//@     that implements `std::error::Error` and is `Send + Sync + 'static`
//@ do: add `Send + Sync`
use std::error::Error;
fn check(value: u64) -> Result<(), Box<dyn Error>> {
    if value > 3 { Err("large".into()) } else { Ok(()) }
}
fn main() {
    slipring::ring(8, || 0u64)
        .read("check", |value, _| check(*value))
        .feed(0..3, |slot, i| *slot = i)
        .unwrap();
}
