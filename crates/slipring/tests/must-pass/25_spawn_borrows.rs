fn main() {
    let (log, mut back) = slipring::lend(std::sync::Mutex::new(Vec::new()));
    let (tx, pipeline) = slipring::ring(8, || 0u64)
        .read("keep", move |value, _| log.lock().unwrap().push(*value))
        .spawn()
        .unwrap();
    tx.close();
    pipeline.join().unwrap();
    let _log = back.wait().unwrap();
}
