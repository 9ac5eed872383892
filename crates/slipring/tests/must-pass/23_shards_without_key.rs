fn main() {
    slipring::ring(8, || 0u64)
        .read_shards("count", 2, |value| *value, |_shard| |_, _| ())
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
