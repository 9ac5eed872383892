//@ writes: change one local in two handlers
//@ says: cannot borrow `n` as mutable more than once at a time
//@ page: a local for each stage, or an atomic, or a `Mutex`
fn main() {
    let mut n = 0;
    slipring::ring(64, || 0u64).fan_out(|x| x.read("a", |_, _| n += 1).read("b", |_, _| n += 1)).feed(0..3, |s, i| *s = i).unwrap();
}
