fn main() {
    let (mut tx, _rx) = slipring::unicast(8, || 0u64).unwrap();
    tx.publish(|slot| *slot = 7).unwrap();
}
