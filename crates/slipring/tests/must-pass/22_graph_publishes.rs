fn main() {
    let graph = slipring::Graph::new(8, || 0u64);
    let _log = graph.reader("log");
    let mut tx = graph.build().unwrap().producer();
    tx.publish(|slot| *slot = 1).unwrap();
}
