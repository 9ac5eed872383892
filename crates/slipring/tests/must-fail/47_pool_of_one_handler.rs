//@ writes: one handler for all workers of a pool
//@ says: closure is expected to take 1 argument, but it takes 2 arguments
//@ page: a closure that makes a handler for each worker: `|_worker| |event, _| ...`
fn main() {
    slipring::ring(8, || 0u64)
        .read_pool("print", 2, |value, _| println!("{value}"))
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
