//@ writes: count in a local, in the workers of a pool
//@ says: captured variable cannot escape `FnMut` closure body
//@ says: consider adding 'move' keyword before the nested closure
//@ page: an atomic, or [a state for each worker](crate::guide::worker_state); `move` would copy it
fn main() {
    let mut count = 0;
    slipring::ring(8, || 0u64)
        .read_pool("count", 2, |_worker| |_, _| count += 1)
        .feed(0..3, |s, i| *s = i)
        .unwrap();
    println!("{count}");
}
