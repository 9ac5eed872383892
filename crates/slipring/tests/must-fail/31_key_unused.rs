//@ writes: declare a stage of a graph, and drop its key
//@ warns: unused `Key` that must be used
//@ warns: a graph whose keys are not kept cannot be built: no thread could work on the stage
//@ do: keep the key, and exchange it
fn main() {
    let graph = slipring::Graph::new(8, || 0u64);
    graph.reader("log");
    _ = graph.build();
}
