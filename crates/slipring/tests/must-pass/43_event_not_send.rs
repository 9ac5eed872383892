use std::sync::Arc;
fn main() {
    slipring::ring(8, || Arc::new(0u64))
        .update("count", |_, _| ())
        .feed(0..3, |slot, i| *slot = Arc::new(i))
        .unwrap();
}
