//! The value is dropped on purpose.
fn main() {
    let mut set = std::collections::HashSet::new();
    slipring::ring(64, || 0u64).read("dedup", |v, _| drop(set.insert(*v))).feed(0..3, |s, i| *s = i).unwrap();
}
