//! Each handler has a local of its own.
fn main() {
    let (mut n, mut m) = (0, 0);
    slipring::ring(64, || 0u64).fan_out(|x| x.read("a", |_, _| n += 1).read("b", |_, _| m += 1)).feed(0..3, |s, i| *s = i).unwrap();
}
