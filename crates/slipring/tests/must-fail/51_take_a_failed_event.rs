//@ writes: take the failed event out, in `on_error_with`
//@ says: types differ in mutability
//@ page: `cloned()`: the closure sees the event, and cannot change it
use slipring::OnFault;

fn main() {
    let mut dead = Vec::new();
    slipring::ring(8, String::new)
        .update("refuse", |_, _| Err("refused"))
        .on_error_with(|failed| {
            dead.extend(failed.event().map(|text| std::mem::take(text)));
            OnFault::skip()
        })
        .feed(["one"], |slot, text| text.clone_into(slot))
        .unwrap();
}
