//! The writer stands before the other stages.
fn main() {
    let mut n = 0;
    slipring::ring(64, || 0u64)
        .update("enrich", |v, _| {
            *v += 1;
            n += 1
        })
        .fan_out(|side| side.read("journal", |_, _| ()))
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
