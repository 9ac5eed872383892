fn main() {
    slipring::ring(8, || 0u64)
        .update("double", |value, _| *value *= 2)
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
