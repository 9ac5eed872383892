//@ writes: a stage that updates events, inside a fan-out
//@ says: a stage that updates events cannot stand beside other stages
//@ says: put the updating stage before or after the `fan_out`
//@ do: declare it before or after the fan-out
fn main() {
    let mut n = 0;
    slipring::ring(64, || 0u64)
        .fan_out(|side| {
            side.read("journal", |_, _| ()).update("enrich", |v, _| {
                *v += 1;
                n += 1
            })
        })
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
