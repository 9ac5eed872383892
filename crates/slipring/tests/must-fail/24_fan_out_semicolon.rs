//@ writes: stages side by side, each in a statement
//@ says: remove this semicolon to return this value
//@ do: leave the last `;` out
fn main() {
    slipring::ring(8, || 0u64)
        .fan_out(|side| {
            side.read("count", |_, _| ()).read("sum", |_, _| ());
        })
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
