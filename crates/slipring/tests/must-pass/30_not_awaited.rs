async fn send(mut tx: slipring::Producer<u64>) {
    tx.publish_async(|slot| *slot = 1).await.unwrap();
}
fn main() {
    let (tx, _rx) = slipring::unicast(8, || 0u64).unwrap();
    drop(send(tx));
}
