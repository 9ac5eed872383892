use std::cell::Cell;

fn main() {
    let (_tx, rx) = slipring::unicast(4, || Cell::new(0u64)).unwrap();
    let rx = rx.into_raw();
    std::thread::scope(|s| {
        s.spawn(move || rx.at(0).map(|cell| cell.set(1)));
    });
}
