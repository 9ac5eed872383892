//@ writes: a mirror of a type that is not plain data
//@ says: `Quote` is not plain data
//@ says: derive `Clone, Copy` and zerocopy's `FromBytes, IntoBytes, Immutable`
//@ do: derive what the message lists
#[derive(Clone, Copy)]
struct Quote(u32);
fn main() {
    let mirror = slipring::Mirror::<Quote>::new(4).unwrap();
    slipring::ring(64, || 0u32).observe("mirror", mirror, |v| Quote(*v)).feed(0..3, |s, i| *s = i).unwrap();
}
