//@ writes: publish into a graph that is not built
//@ says: a key or a graph only declares stages: it has no events yet
//@ says: build the graph, and take the handles from its ring: `let ring = graph.build()?;`,
//@     then `ring.producer()`, and `ring.reader(key)` for each key
//@ do: build the graph, and take its producer
fn main() {
    let graph = slipring::Graph::new(8, || 0u64);
    let _log = graph.reader("log");
    let mut tx = graph.producer();
    tx.publish(|slot| *slot = 1).unwrap();
}
