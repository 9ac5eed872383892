use slipring::OnFault;

fn main() {
    slipring::ring(8, || 0u64)
        .read("even", |value, _| if value % 2 == 0 { Ok(()) } else { Err("odd") })
        .on_error_with(|_failed| OnFault::skip())
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
