fn main() {
    let graph = slipring::Graph::new(8, || 0u64);
    let _log = graph.reader("log");
    _ = graph.build();
}
