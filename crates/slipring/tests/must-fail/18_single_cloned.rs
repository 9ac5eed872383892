//@ says: a `Producer` that is not a `SharedProducer` cannot be cloned
//@ says: `Graph::new(..).shared()`
fn main() {
    let graph = slipring::Graph::new(64, || 0u64);
    let ring = graph.build().unwrap();
    let producer = ring.producer();
    drop(producer.clone());
}
