fn main() {
    slipring::ring(8, String::new)
        .read("parse", |text, _| {
            let number: u64 = text.parse()?;
            println!("{number}");
            Ok::<(), std::num::ParseIntError>(())
        })
        .feed(["1"], |slot, text| slot.push_str(text))
        .unwrap();
}
