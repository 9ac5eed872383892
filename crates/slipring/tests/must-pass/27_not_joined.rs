fn main() {
    let (_, pipeline) = slipring::ring(8, || 0u64).read("print", |value, _| println!("{value}")).spawn().unwrap();
    pipeline.join().unwrap();
}
