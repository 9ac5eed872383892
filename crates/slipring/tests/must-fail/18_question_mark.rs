//@ writes: `?` in a handler, and `Ok(())` at its end
//@ says: type annotations needed
//@ says: consider specifying the generic arguments
//@ says: Ok::<(), E>(())
//@ do: end with `slipring::ok()`, or name the type of the error: `Ok::<(), ParseIntError>(())`
fn main() {
    slipring::ring(8, String::new)
        .read("parse", |text, _| {
            let number: u64 = text.parse()?;
            println!("{number}");
            Ok(())
        })
        .feed(["1"], |slot, text| slot.push_str(text))
        .unwrap();
}
