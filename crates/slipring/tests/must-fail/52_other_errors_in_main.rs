//@ writes: `?` on an error of the system, in a function that returns `slipring::Error`
//@ says: `?` couldn't convert the error to `slipring::Error`
//@ page: `Box<dyn std::error::Error>` as the function's error
fn main() -> Result<(), slipring::Error> {
    let text = std::fs::read_to_string("lines.txt")?;
    slipring::ring(8, String::new)
        .read("print", |line, _| println!("{line}"))
        .feed(text.lines(), |slot, line| line.clone_into(slot))?;
    Ok(())
}
