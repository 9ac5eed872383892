//@ says: a stage that updates events cannot stand beside other stages
//@ says: put the updating stage before or after the `fan_out`
fn main() {
    slipring::ring(64, || 0u64)
        .fan_out(|side| side.read("journal", |_, _| ()).branch(|b| b.read("a", |_, _| ()).update_pool("b", 2, |_| |v, _| *v += 1)))
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
