//@ writes: clone the only producer
//@ says: no method named `clone` found for struct `Producer
//@ page: `spawn_shared`, `run_shared` or `Graph::shared`, whose producers can be cloned
fn main() {
    let graph = slipring::Graph::new(8, || 0u64);
    let _log = graph.reader("log");
    let tx = graph.build().unwrap().producer();
    let mut other = tx.clone();
    _ = std::thread::spawn(move || other.publish(|slot| *slot = 1));
}
