//@ says: a handler returns nothing or a `Result
//@ says: not `bool`
//@ says: put the body in braces and end it with `;`: `|event, _| { ...; }`
fn main() {
    let mut set = std::collections::HashSet::new();
    slipring::ring(64, || 0u64).read("dedup", |v, _| set.insert(*v)).feed(0..3, |s, i| *s = i).unwrap();
}
