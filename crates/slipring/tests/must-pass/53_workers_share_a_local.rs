use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn main() {
    let count = AtomicU64::new(0);
    slipring::ring(8, || 0u64)
        .read_pool("count", 2, |_worker| |_, _| _ = count.fetch_add(1, Relaxed))
        .feed(0..3, |s, i| *s = i)
        .unwrap();
    println!("{}", count.into_inner());
}
