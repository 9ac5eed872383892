//! The key is exchanged for the handle of its own kind.
fn main() {
    let g = slipring::Graph::new(8, || 0u64);
    let k = g.updater("w");
    let _r = g.build().unwrap().updater(k);
}
