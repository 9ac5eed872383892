//@ writes: an event with a `String`, between processes
//@ says: `String` cannot lie in a segment
//@ says: a `String`, a `Vec` or another pointer means nothing in another process: take an array
//@     such as `[u8; 64]`, or `Segment::<Messages>` for byte strings of any length
//@ do: an array of bytes, or `Messages`
fn main() {
    _ = slipring_shm::Segment::<String>::create("lines");
}
