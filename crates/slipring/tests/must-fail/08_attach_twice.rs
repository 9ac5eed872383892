//@ writes: two handles of one stage
//@ says: use of moved value: `k`
//@ page: declare two stages, or a pool, or a tap that readers join
fn main() {
    let g = slipring::Graph::new(8, || 0u64);
    let k = g.updater("w");
    let ring = g.build().unwrap();
    let (_a, _b) = (ring.updater(k), ring.updater(k));
}
