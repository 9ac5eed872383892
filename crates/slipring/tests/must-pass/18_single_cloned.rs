fn main() {
    let graph = slipring::Graph::new(8, || 0u64).shared();
    let _log = graph.reader("log");
    let tx = graph.build().unwrap().producer();
    let mut other = tx.clone();
    _ = std::thread::spawn(move || other.publish(|slot| *slot = 1));
}
