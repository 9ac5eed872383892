//@ says: borrowed data escapes outside of closure
fn main() {
    let (mut tx, _rx) = slipring::unicast(8, String::new).unwrap();
    let mut kept = None;
    tx.publish(|slot| kept = Some(slot)).unwrap();
}
