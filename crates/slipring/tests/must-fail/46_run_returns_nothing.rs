//@ writes: publish in `run`, without `Ok(())` at the end
//@ says: expected `Result<_, Fault>`, found `()`
//@ page: `Ok(())` as the last line: `run` returns its value, and stops at its error
fn main() {
    slipring::ring(8, || 0u64)
        .read("print", |value, _| println!("{value}"))
        .run(|tx| {
            tx.publish(|slot| *slot = 1)?;
        })
        .unwrap();
}
