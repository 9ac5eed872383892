fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("lines.txt")?;
    slipring::ring(8, String::new)
        .read("print", |line, _| println!("{line}"))
        .feed(text.lines(), |slot, line| line.clone_into(slot))?;
    Ok(())
}
