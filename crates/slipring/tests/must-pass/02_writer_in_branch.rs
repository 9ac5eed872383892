//! The pool only reads.
fn main() {
    slipring::ring(64, || 0u64)
        .fan_out(|side| side.read("journal", |_, _| ()).branch(|b| b.read("a", |_, _| ()).read_pool("b", 2, |_| |_, _| ())))
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
