//@ writes: keep a reference to an event after the handler
//@ says: borrowed data escapes outside of closure
//@ page: copy or clone what you keep; or take it out of the slot, in a stage that updates
//@     (`std::mem::take`)
fn main() {
    let mut kept = Vec::new();
    slipring::ring(64, String::new).read("keep", |e, _| kept.push(e)).feed(["a"], |s, t| s.push_str(t)).unwrap();
}
