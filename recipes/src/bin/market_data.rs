//! Market data between processes: the feed publishes prices into shared memory, and a screen in
//! another process shows the newest of each symbol. Where the screen is slower, the feed keeps the
//! newest price of each symbol instead of waiting. Either process may be killed.
//!
//! ```text
//!   feed (this process) ── segment ──> screen (another process)
//! ```
//!
//! It prints:
//!
//! ```text
//! symbol 0: 99995
//! symbol 1: 99996
//! symbol 2: 99997
//! symbol 3: 99998
//! symbol 4: 99999
//! ```

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use slipring_shm::{Event, Segment};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Quote {
    symbol: u64,
    price: u64,
}

impl Event for Quote {
    const NAME: &'static str = "recipes/Quote";
    const VERSION: u32 = 1;
}

const SYMBOLS: u64 = 5;

fn screen(name: &str) -> Result<()> {
    // SAFETY: only these two processes open the segment.
    let segment = unsafe { Segment::<Quote>::open(name)?.attach()? };
    let (mut quotes, mut newest) = (segment.reader("screen")?, BTreeMap::new());
    while let Ok(batch) = quotes.batch(64) {
        newest.extend(batch.iter().map(|quote| (quote.symbol, quote.price)));
        batch.release();
        thread::sleep(Duration::from_millis(1));
    }
    newest.iter().for_each(|(symbol, price)| println!("symbol {symbol}: {price}"));
    Ok(())
}

fn main() -> Result<()> {
    if let Some(name) = std::env::args().nth(1) {
        return screen(&name);
    }
    let name = format!("market-data-{}", std::process::id());
    let segment = Segment::<Quote>::create(&name).capacity(256).reader("screen").build()?;
    // SAFETY: as in `screen`.
    let segment = unsafe { segment.attach()? };
    let mut quotes = segment.producer()?.conflate(SYMBOLS as usize, |quote, &symbol, price| {
        *quote = Quote { symbol, price };
    })?;
    let mut screen = Command::new(std::env::current_exe()?).arg(&name).spawn()?;
    for price in 0..100_000 {
        quotes.send(price % SYMBOLS, price)?;
    }
    quotes.finish()?;
    ensure!(screen.wait()?.success(), "the screen failed");
    drop(segment);
    Ok(slipring_shm::remove(&name)?)
}
