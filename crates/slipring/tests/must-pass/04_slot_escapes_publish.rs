//! A copy is kept.
fn main() {
    let (mut tx, _rx) = slipring::unicast(8, String::new).unwrap();
    let mut kept = None;
    tx.publish(|slot| kept = Some(slot.clone())).unwrap();
    drop(kept);
}
