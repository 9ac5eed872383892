//! A feed of prices that subscribers join and leave while it runs, and an account of who saw what.
//!
//! ```text
//!   feed ── normalise ──┬── journal           sees everything
//!                       └── [prices]          a tap: whoever is there
//!                             ├── desk        there from the first price, asked to leave by another thread
//!                             ├── history     joins late, from the oldest price that is still held
//!                             └── ticker      joins late, from now on
//! ```
//!
//! Nobody stops for them. From where a subscriber joined on, it sees every price once and in order,
//! and the feed does not overwrite what it has not released. The feed pauses twice here, but only
//! so that every run tells the same story.
//!
//! `cargo run --release --example late_subscriber` runs it, `-- --help` behind that tells of its
//! arguments.

use std::io::{self, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use slipring::{Fault, StartAt, Subscription, Tap, WaitError};

/// A feed of prices that subscribers join and leave while it runs.
#[derive(Parser)]
struct Args {
    /// How many prices the feed has.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    count: u64,
    /// Send 10,000 prices only, to see that it works.
    #[arg(long)]
    smoke: bool,
}

const CAPACITY: usize = 256;
/// So much the desk wants to see before it leaves.
const ENOUGH: u64 = 100;
/// Longer than any wait here can take; past it the program fails instead of hanging.
const LIMIT: Duration = Duration::from_secs(60);

/// A price as it comes in (in hundredths), and as the subscribers get it (in full).
#[derive(Default)]
struct Quote {
    hundredths: i64,
    price: f64,
}

/// A price that goes up and down, and that everybody can work out again to check what they got.
fn hundredths(seq: u64) -> i64 {
    10_000 + (seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as i64 - 128
}

/// What a subscriber has to show in the end.
struct Seen {
    first: u64,
    count: u64,
    sum: f64,
    end: WaitError,
}

impl Seen {
    /// The position behind the last one it saw.
    fn next(&self) -> u64 {
        self.first + self.count
    }
}

/// Follows the feed until it ends or the subscriber is asked to leave.
fn follow(mut quotes: Subscription<Quote>, mut seen_so_far: impl FnMut(u64)) -> Result<Seen> {
    let first = quotes.next_seq();
    let (mut count, mut sum) = (0, 0.0);
    let end = loop {
        let batch = match quotes.batch(64) {
            Ok(batch) => batch,
            Err(end) => break end,
        };
        for (offset, quote) in batch.iter().enumerate() {
            let seq = batch.first_seq() + offset as u64;
            ensure!(seq == first + count, "after {count} prices from {first} on came price {seq}");
            ensure!(
                quote.price == hundredths(seq) as f64 / 100.0,
                "price {seq} is wrong: {}",
                quote.price
            );
            sum += quote.price;
            count += 1;
        }
        batch.release();
        seen_so_far(count);
    };
    Ok(Seen { first, count, sum, end })
    // `quotes` is dropped here. That is leaving: the feed no longer waits for this one.
}

fn main() -> Result<()> {
    let args = Args::parse();
    let count = if args.smoke { 10_000 } else { args.count };
    let tap = Tap::named("prices");
    let (mut journalled, mut journal_sum) = (0, 0.0);

    // The subscribers' threads end after the feed does, so they are spawned on a scope around it.
    let [desk, history, ticker] = thread::scope(|scope| -> Result<_> {
        let done = slipring::ring(CAPACITY, Quote::default)
            .write("normalise", |quote, _| quote.price = quote.hundredths as f64 / 100.0)
            .tap(&tap)
            .read("journal", |quote, _| {
                journalled += 1;
                journal_sum += quote.price;
            })
            .run(|feed| {
                let mut publish = |range: std::ops::Range<u64>| {
                    feed.publish_all(range, |quote, seq| quote.hundredths = hundredths(seq))
                };

                // The first is there before the first price. Another thread makes it leave when it
                // has seen enough.
                let early = tap.subscribe(StartAt::Now)?;
                let leaver = early.leaver();
                let (seen, watching) = mpsc::channel();
                let (left, leaving) = mpsc::channel::<()>();
                let desk = scope.spawn(move || {
                    // Nobody listens any more once it was asked to leave.
                    let account = follow(early, |count| _ = seen.send(count));
                    drop(left); // the subscription is gone by now
                    account
                });
                scope.spawn(move || {
                    while let Ok(count) = watching.recv_timeout(LIMIT) {
                        if count >= ENOUGH {
                            leaver.leave();
                            return;
                        }
                    }
                });
                publish(0..count / 2)?;
                if leaving.recv_timeout(LIMIT) != Err(RecvTimeoutError::Disconnected) {
                    return Err(Fault::msg("the desk was asked to leave and did not"));
                }

                // Two more join in the middle; the first of them wants the past, as far as it is
                // still there.
                let oldest = tap.subscribe(StartAt::Oldest)?;
                let now = tap.subscribe(StartAt::Now)?;
                let history = scope.spawn(move || follow(oldest, |_| ()));
                let ticker = scope.spawn(move || follow(now, |_| ()));
                publish(count / 2..count)?;
                Ok([desk, history, ticker])
            })?;
        let [desk, history, ticker] =
            done.value.map(|thread| thread.join().expect("a subscriber panicked"));
        Ok([desk.context("desk")?, history.context("history")?, ticker.context("ticker")?])
    })?;

    // Not `println!`, which panics where the reader has gone (`| head`).
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{count} prices, {journalled} in the journal, mean {:.2}",
        journal_sum / journalled as f64
    )?;
    writeln!(
        out,
        "{:<10} {:>10} {:>10} {:>10} {:>8}  ended because",
        "subscriber", "first", "last", "prices", "mean"
    )?;
    for (name, seen) in [("desk", &desk), ("history", &history), ("ticker", &ticker)] {
        let last = seen.next().checked_sub(1).context("nothing was seen")?;
        writeln!(
            out,
            "{name:<10} {:>10} {last:>10} {:>10} {:>8.2}  {}",
            seen.first,
            seen.count,
            seen.sum / seen.count as f64,
            seen.end
        )?;
    }

    ensure!(journalled == count, "{count} prices were sent and {journalled} written");
    ensure!(
        desk.first == 0 && desk.count >= ENOUGH,
        "the desk began at {} and saw {} prices",
        desk.first,
        desk.count
    );
    ensure!(
        desk.next() <= count / 2,
        "the desk left before the second half and saw {} prices",
        desk.count
    );
    ensure!(
        matches!(desk.end, WaitError::Left),
        "the desk was asked to leave, but ended because {}",
        desk.end
    );
    for (name, seen) in [("history", &history), ("ticker", &ticker)] {
        ensure!(seen.next() == count, "{name} ended at {} of {count}", seen.next());
        ensure!(
            matches!(seen.end, WaitError::Closed),
            "{name} saw the end, but ended because {}",
            seen.end
        );
    }
    let held = count / 2 - history.first;
    ensure!(
        history.first <= ticker.first && ticker.first <= count / 2,
        "history from {}, ticker from {}",
        history.first,
        ticker.first
    );
    ensure!(held <= CAPACITY as u64, "{held} prices cannot be held by {CAPACITY} slots");
    Ok(())
}
