fn main() {
    let mut seen = Vec::new();
    slipring::ring(8, || 0u64)
        .read("keep", |value, _| seen.push(*value))
        .feed(0..3, |slot, i| *slot = i)
        .unwrap();
    println!("{}", seen.len());
}
