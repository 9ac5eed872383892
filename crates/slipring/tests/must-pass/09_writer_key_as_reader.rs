//! The key is used for what it was made for.
fn main() {
    let g = slipring::Graph::new(8, || 0u64);
    let k = g.writer("w");
    let _r = g.build().unwrap().writer(k);
}
