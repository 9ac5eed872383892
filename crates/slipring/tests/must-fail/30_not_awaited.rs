//@ writes: publish in a task, and forget to await
//@ warns: unused `PublishAsync` that must be used
//@ warns: futures do nothing unless they are awaited
//@ do: `.await`
async fn send(mut tx: slipring::Producer<u64>) {
    tx.publish_async(|slot| *slot = 1);
}
fn main() {
    let (tx, _rx) = slipring::unicast(8, || 0u64).unwrap();
    drop(send(tx));
}
