//! A copy is kept.
fn main() {
    let mut kept = Vec::new();
    slipring::ring(64, String::new).read("keep", |e, _| kept.push(e.clone())).feed(["a"], |s, t| s.push_str(t)).unwrap();
    drop(kept);
}
