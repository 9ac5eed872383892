fn main() {
    slipring::ring(8, || 0u64)
        .read("print", |value, _| println!("{value}"))
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
