//! Lossy fan-out: three subscribers follow the prices, each at its own pace. A slow one misses
//! prices, learns how many, and holds nothing up.
//!
//! ```text
//!   feed ──> mirror ──> desk, risk, screen (slow)
//! ```
//!
//! It prints:
//!
//! ```text
//! desk: 10000 seen or missed, last 9999
//! risk: 10000 seen or missed, last 9999
//! screen: 10000 seen or missed, last 9999
//! ```

use std::thread;
use std::time::Duration;

use anyhow::Result;
use slipring::Mirror;

const PRICES: u64 = 10_000;

fn main() -> Result<()> {
    let mut mirror = Mirror::new(1024)?;
    let subscribers = [("desk", 0), ("risk", 0), ("screen", 5)].map(|(name, pause)| {
        let prices = mirror.handle().observe();
        thread::spawn(move || {
            let (mut seen, mut missed, mut last) = (0, 0, 0);
            for price in prices {
                (seen, missed, last) = (seen + 1, missed + price.missed, price.value);
                thread::sleep(Duration::from_millis(pause));
            }
            eprintln!("{name}: {seen} seen, {missed} missed");
            (name, seen + missed, last)
        })
    });
    for price in 0..PRICES {
        mirror.put(price, &price);
    }
    drop(mirror);
    for subscriber in subscribers {
        let (name, all, last) = subscriber.join().expect("a subscriber panicked");
        println!("{name}: {all} seen or missed, last {last}");
    }
    Ok(())
}
