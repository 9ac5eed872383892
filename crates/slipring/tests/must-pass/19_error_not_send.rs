use std::error::Error;
fn check(value: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
    if value > 3 { Err("large".into()) } else { Ok(()) }
}
fn main() {
    slipring::ring(8, || 0u64)
        .read("check", |value, _| check(*value))
        .feed(0..3, |slot, i| *slot = i)
        .unwrap();
}
