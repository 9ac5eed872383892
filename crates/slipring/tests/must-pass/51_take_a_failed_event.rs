use slipring::OnFault;

fn main() {
    let mut dead = Vec::new();
    slipring::ring(8, String::new)
        .update("refuse", |_, _| Err("refused"))
        .on_error_with(|failed| {
            dead.extend(failed.event().cloned());
            OnFault::skip()
        })
        .feed(["one"], |slot, text| text.clone_into(slot))
        .unwrap();
}
