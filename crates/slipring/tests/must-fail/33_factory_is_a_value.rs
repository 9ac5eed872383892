//@ writes: a value where the factory of events belongs
//@ says: expected an `FnMut()` closure, found `u64`
//@ says: wrap the `u64` in a closure with no arguments: `|| { /* code */ }`
//@ do: a closure that makes it
fn main() {
    slipring::ring(8, 0u64)
        .read("print", |value, _| println!("{value}"))
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
