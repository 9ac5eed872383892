//! Each key is used once.
fn main() {
    let g = slipring::Graph::new(8, || 0u64);
    let k = g.writer("w");
    let l = g.writer("x").after(&k);
    let ring = g.build().unwrap();
    let (_a, _b) = (ring.writer(k), ring.writer(l));
}
