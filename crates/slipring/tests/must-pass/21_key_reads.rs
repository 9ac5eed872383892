fn main() {
    let graph = slipring::Graph::new(8, || 0u64);
    let mut log = graph.reader("log");
    let ring = graph.build().unwrap();
    ring.producer().publish(|slot| *slot = 1).unwrap();
    let mut log = ring.reader(log);
    _ = log.batch(8).unwrap();
}
