fn main() {
    let (mut tx, _rx) = slipring::unicast(8, || 0u64).unwrap();
    tx.claim().unwrap().publish();
}
