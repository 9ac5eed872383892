//@ writes: handlers that borrow, in a chain that outlives the call
//@ says: closure may outlive the current function, but it borrows `log`
//@ says: use the `move` keyword
//@ do: `run` and `feed`, whose handlers borrow; or `slipring::lend`: `move` alone copies numbers
fn main() {
    let log = std::sync::Mutex::new(Vec::new());
    let (tx, pipeline) = slipring::ring(8, || 0u64)
        .read("keep", |value, _| log.lock().unwrap().push(*value))
        .spawn()
        .unwrap();
    tx.close();
    pipeline.join().unwrap();
}
