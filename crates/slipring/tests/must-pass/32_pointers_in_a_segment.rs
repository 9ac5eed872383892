fn main() {
    _ = slipring_shm::Segment::<slipring_shm::messages::Messages>::create("lines");
}
