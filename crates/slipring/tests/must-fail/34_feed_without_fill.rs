//@ writes: feed items, without saying how they fill a slot
//@ says: this method takes 2 arguments but 1 argument was supplied
//@ says: provide the argument
//@ says: /* fill */
//@ do: a closure: `|slot, item| *slot = item`
fn main() {
    slipring::ring(8, || 0u64)
        .read("print", |value, _| println!("{value}"))
        .feed(0..3)
        .unwrap();
}
