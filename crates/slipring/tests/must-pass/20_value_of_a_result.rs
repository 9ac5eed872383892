fn main() {
    slipring::ring(8, String::new)
        .read("check", |text, _| text.parse::<u64>().map(|_| ()))
        .feed(["1"], |slot, text| slot.push_str(text))
        .unwrap();
}
