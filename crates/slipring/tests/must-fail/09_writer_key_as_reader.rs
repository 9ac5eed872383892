//@ writes: a reader for the key of a writer
//@ says: mismatched types
//@ says: expected `Key<Reading
//@ says: found `Key<Updating
//@ page: `ring.updater(key)`
fn main() {
    let g = slipring::Graph::new(8, || 0u64);
    let k = g.updater("w");
    let _r = g.build().unwrap().reader(k);
}
