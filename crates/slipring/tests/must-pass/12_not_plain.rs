//! Integers are plain data, and so are arrays of them.
type Quote = [u32; 1];
fn main() {
    let mirror = slipring::Mirror::<Quote>::new(4).unwrap();
    slipring::ring(64, || 0u32).observe("mirror", mirror, |v| [*v]).feed(0..3, |s, i| *s = i).unwrap();
}
