//! Each key is used once.
fn main() {
    let g = slipring::Graph::new(8, || 0u64);
    let k = g.updater("w");
    let l = g.updater("x").after(&k);
    let ring = g.build().unwrap();
    let (_a, _b) = (ring.updater(k), ring.updater(l));
}
