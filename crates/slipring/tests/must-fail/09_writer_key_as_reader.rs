//@ writes: a reader for the key of a writer
//@ says: mismatched types
//@ says: expected `Key<Reading
//@ says: found `Key<Writing
//@ page: `ring.writer(key)`
fn main() {
    let g = slipring::Graph::new(8, || 0u64);
    let k = g.writer("w");
    let _r = g.build().unwrap().reader(k);
}
