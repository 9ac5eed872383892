//@ writes: a closure for `on_error`
//@ says: expected `OnFault`, found closure
//@ page: `on_error_with`, or the policy itself: `OnFault::skip()`
use slipring::OnFault;

fn main() {
    slipring::ring(8, || 0u64)
        .read("even", |value, _| if value % 2 == 0 { Ok(()) } else { Err("odd") })
        .on_error(|_failed| OnFault::skip())
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
