fn main() {
    let (mut tx, mut rx) = slipring::unicast(8, || 0u64).unwrap();
    tx.publish(|slot| *slot = 1).unwrap();
    rx.batch(8).unwrap().release();
}
