//@ writes: a handler that returns a `Result` with a value
//@ says: a handler returns nothing or a `Result<(), _>` with an error
//@ says: map the value of a `Result`: `.map(|_| ())`
//@ do: map the value
fn main() {
    slipring::ring(8, String::new)
        .read("check", |text, _| text.parse::<u64>())
        .feed(["1"], |slot, text| slot.push_str(text))
        .unwrap();
}
