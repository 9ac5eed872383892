//@ writes: a handler whose last expression has a value
//@ says: a handler returns nothing or a `Result<(), _>` with an error
//@ says: not `bool`
//@ says: put the body in braces and end it with `;`: `|event, _| { ...; }`
//@ do: end it with `;` in braces
fn main() {
    let mut set = std::collections::HashSet::new();
    slipring::ring(64, || 0u64).read("dedup", |v, _| set.insert(*v)).feed(0..3, |s, i| *s = i).unwrap();
}
