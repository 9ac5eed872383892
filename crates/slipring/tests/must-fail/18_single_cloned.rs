//@ writes: clone the only producer
//@ says: a `Producer` that is not a `SharedProducer` cannot be cloned
//@ says: several producers need `spawn_shared`, `run_shared`, or a graph `Graph::new(..).shared()`
//@ do: `spawn_shared`, `run_shared` or `Graph::shared`: their producers can be cloned
fn main() {
    let graph = slipring::Graph::new(8, || 0u64);
    let _log = graph.reader("log");
    let tx = graph.build().unwrap().producer();
    let mut other = tx.clone();
    _ = std::thread::spawn(move || other.publish(|slot| *slot = 1));
}
