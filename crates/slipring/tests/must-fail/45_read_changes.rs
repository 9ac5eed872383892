//@ writes: change an event in a stage that reads
//@ says: cannot assign to `*value`, which is behind a `&` reference
//@ page: `update` instead of `read`
fn main() {
    slipring::ring(8, || 0u64)
        .read("double", |value, _| *value *= 2)
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
