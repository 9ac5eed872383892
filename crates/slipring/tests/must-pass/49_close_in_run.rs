fn main() {
    slipring::ring(8, || 0u64)
        .read("print", |value, _| println!("{value}"))
        .run(|tx| {
            tx.publish(|slot| *slot = 1)?;
            Ok(())
        })
        .unwrap();
}
