//@ says: mismatched types
//@ says: expected `Key<Reading
//@ says: found `Key<Writing
fn main() {
    let g = slipring::Graph::new(8, || 0u64);
    let k = g.writer("w");
    let _r = g.build().unwrap().reader(k);
}
