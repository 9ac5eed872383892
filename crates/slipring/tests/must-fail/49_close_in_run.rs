//@ writes: close the ring in `run`
//@ says: cannot move out of `*tx` which is behind a mutable reference
//@ page: return `Ok(())`: `run` closes the ring then
fn main() {
    slipring::ring(8, || 0u64)
        .read("print", |value, _| println!("{value}"))
        .run(|tx| {
            tx.publish(|slot| *slot = 1)?;
            tx.close();
            Ok(())
        })
        .unwrap();
}
