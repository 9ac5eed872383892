//@ writes: shards, without saying by which key
//@ says: cannot be the key of a shard
//@ says: give first a closure that returns the key of an event, such as `|event|
//@     event.account`, and then the closure that makes a handler for each shard: `|_shard| |event,
//@     _| ...`
//@ do: give the key first, then the handlers
fn main() {
    slipring::ring(8, || 0u64)
        .read_shards("count", 2, |_shard| |_, _| ())
        .feed(0..3, |s, i| *s = i)
        .unwrap();
}
