//@ says: borrowed data escapes outside of closure
fn main() {
    let mut kept = Vec::new();
    slipring::ring(64, String::new).read("keep", |e, _| kept.push(e)).feed(["a"], |s, t| s.push_str(t)).unwrap();
}
