fn main() {
    let graph = slipring::Graph::new(64, || 0u64).shared();
    let ring = graph.build().unwrap();
    let producer = ring.producer();
    drop(producer.clone());
}
