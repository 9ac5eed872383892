//@ writes: read by the key of a stage
//@ says: a key or a graph only declares stages: it has no events yet
//@ says: build the graph, and take the handles from its ring: `let ring = graph.build()?;`,
//@     then `ring.producer()`, and `ring.reader(key)` for each key
//@ do: build the graph, and exchange the key
fn main() {
    let graph = slipring::Graph::new(8, || 0u64);
    let mut log = graph.reader("log");
    log.batch(8).unwrap();
}
