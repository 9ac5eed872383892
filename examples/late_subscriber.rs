//! A feed of prices that subscribers join and leave while it runs.
//!
//! ```text
//!   feed ── normalise ──┬── journal           sees every price
//!                       └── [prices]          a tap, where subscribers join
//!                             ├── desk        joins first; another thread makes it leave
//!                             ├── history     joins late, from the oldest price in the ring
//!                             └── ticker      joins late, from the next price
//! ```
//!
//! Joining and leaving does not stop the feed. From its first price on, a subscriber sees every
//! price once and in order: the feed does not overwrite a price that a subscriber has not released.
//! The feed waits at one point, but only so that every run has the same result.
//!
//! `cargo run --release --example late_subscriber` runs it; `-- --help` describes its arguments.

use std::io::{self, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanCount;
use slipring::{
    Tap,
    errors::WaitError,
    faults::Fault,
    handles::{StartAt, Subscription},
};

/// A feed of prices that subscribers join and leave while it runs
#[derive(Parser)]
struct Args {
    /// Publish N prices
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    count: u64,
    /// Publish 10,000 prices only, to check that it works
    #[arg(long)]
    smoke: bool,
}

const CAPACITY: usize = 256;
/// Number of prices after which the desk is asked to leave.
const ENOUGH: u64 = 100;
/// Time limit for every wait, so that a fault fails the program instead of hanging it.
const LIMIT: Duration = Duration::from_secs(60);

/// A price as published by the feed, and as computed by the first stage.
#[derive(Default)]
struct Quote {
    hundredths: i64,
    price: f64,
}

/// Returns the price at a position, so that subscribers can check it.
fn hundredths(seq: u64) -> i64 {
    10_000 + (seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as i64 - 128
}

/// The prices that a subscriber saw.
struct Seen {
    /// Position of the first price.
    first: u64,
    count: u64,
    sum: f64,
    /// Reason of the end.
    end: WaitError,
}

impl Seen {
    /// Returns the position after the last price.
    fn next(&self) -> u64 {
        self.first + self.count
    }
}

/// Follows the feed until the feed ends or another thread makes the subscriber leave.
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
            ensure!(seq == first + count, "price {} is missing before {seq}", first + count);
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
    // Dropping `quotes` leaves the tap: the feed no longer waits for this subscriber.
}

fn main() -> Result<()> {
    let args = Args::parse();
    let count = if args.smoke { 10_000 } else { args.count };
    let tap = Tap::named("prices");
    let (mut journalled, mut journal_sum) = (0, 0.0);

    // The subscribers' threads outlive the feed, so their scope encloses it.
    let [desk, history, ticker] = thread::scope(|scope| -> Result<_> {
        let done = slipring::ring(CAPACITY, Quote::default)
            .update("normalise", |quote, _| quote.price = quote.hundredths as f64 / 100.0)
            .tap(&tap)
            .read("journal", |quote, _| {
                journalled += 1;
                journal_sum += quote.price;
            })
            .run(|feed| {
                let mut publish = |range: std::ops::Range<u64>| {
                    feed.publish_all(range, |quote, seq| quote.hundredths = hundredths(seq))
                };

                // The desk joins before the first price. Another thread makes it leave.
                let early = tap.subscribe(StartAt::Now)?;
                let leaver = early.leave_handle();
                let (seen, watching) = mpsc::channel();
                let (left, leaving) = mpsc::channel::<()>();
                let desk = scope.spawn(move || {
                    // Sending fails after the other thread has made the desk leave.
                    let account = follow(early, |count| _ = seen.send(count));
                    drop(left); // after `follow` has dropped the subscription
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

                // Two more subscribers join in the middle. The first one starts at the oldest price
                // in the ring.
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

    // `println!` would panic where the reader has closed the pipe (`| head`).
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} prices, {} in the journal, mean {:.2}\n",
        HumanCount(count),
        HumanCount(journalled),
        journal_sum / journalled as f64
    )?;
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["subscriber", "first", "last", "prices", "mean", "reason of the end"]);
    for (name, seen) in [("desk", &desk), ("history", &history), ("ticker", &ticker)] {
        let last = seen.next().checked_sub(1).context("a subscriber saw no price")?;
        let [first, last, prices] =
            [seen.first, last, seen.count].map(|number| HumanCount(number).to_string());
        let mean = format!("{:.2}", seen.sum / seen.count as f64);
        table.add_row([name, &first, &last, &prices, &mean, &seen.end.to_string()]);
    }
    for column in table.column_iter_mut().skip(1).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(out, "{table}")?;

    ensure!(journalled == count, "{count} prices were published and {journalled} journalled");
    ensure!(
        desk.first == 0 && desk.count >= ENOUGH,
        "the desk must see at least {ENOUGH} prices from 0 on, not {} from {} on",
        desk.count,
        desk.first
    );
    ensure!(
        desk.next() <= count / 2,
        "the desk must leave in the first half, but it saw {} prices",
        desk.count
    );
    ensure!(
        matches!(desk.end, WaitError::Left),
        "the desk must end by leaving, not by: {}",
        desk.end
    );
    for (name, seen) in [("history", &history), ("ticker", &ticker)] {
        ensure!(seen.next() == count, "{name} saw {} of {count} prices", seen.next());
        ensure!(
            matches!(seen.end, WaitError::Closed),
            "{name} must end with the feed, not by: {}",
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
    ensure!(held <= CAPACITY as u64, "a ring of {CAPACITY} slots cannot hold {held} prices");
    Ok(())
}
