//! A custom wait strategy: spin while the market is open, sleep while it is closed, in one graph
//! that runs all day.
//!
//! ```text
//!   feed ── gateway      spins while the market is open, sleeps otherwise: `OpeningHours`
//!         └ journal      sleeps while it has no events: `blocking`
//! ```
//!
//! A strategy returns the next action of a waiter. It may use any state that can be read quickly,
//! here a flag that another thread sets. Close, halt and deadlines reach a waiter under every
//! strategy.
//!
//! `cargo run --release --example opening_hours` runs it; `-- --help` describes its arguments.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use indicatif::HumanCount;
use slipring::{
    Wait,
    waiting::{WaitAction, WaitContext, WaitStrategy},
};

/// A custom wait strategy: spin while the market is open, sleep while it is closed
#[derive(Parser)]
struct Args {
    /// Number of orders by day, and again by night, one every millisecond
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    orders: u64,
    /// Send only 20 orders by day and 20 by night, to check that it works
    #[arg(long)]
    smoke: bool,
}

/// Time that a run may take beyond twice its schedule, so that a fault fails the program instead of
/// hanging it.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two orders.
const EVERY: Duration = Duration::from_millis(1);

/// Spins while the market is open, and sleeps while it is not.
#[derive(Debug, Default)]
struct OpeningHours {
    open: AtomicBool,
}

impl WaitStrategy for OpeningHours {
    fn next_action(&self, waited: &WaitContext) -> WaitAction {
        match self.open.load(Relaxed) {
            // Where threads outnumber cores, the producer may need this thread's core.
            true if waited.oversubscribed => WaitAction::Yield,
            true => WaitAction::Spin(1),
            // The opening notifies no waiter, so the strategy reads the flag every 10 ms.
            false => WaitAction::ParkFor(Duration::from_millis(10)),
        }
    }
    fn parks(&self) -> bool {
        true
    }
    fn alias(&self) -> String {
        "opening-hours".into()
    }
}

#[derive(Default)]
struct Order {
    number: u64,
    sent: Option<Instant>,
}

fn main() -> Result<()> {
    let Args { orders, smoke } = Args::parse();
    let orders = if smoke { 20 } else { orders };
    let schedule = EVERY * u32::try_from(2 * orders)?;
    let hours = Arc::new(OpeningHours::default());
    let (mut night, mut day) = (Vec::new(), Vec::new());
    let (mut journal, mut next) = (0, 0);

    let done = slipring::ring(1024, Order::default)
        .deadline(schedule * 2 + LIMIT)
        .fan_out(|beside| {
            beside
                .read("gateway", |order, _| {
                    let latency = order.sent.map_or(Duration::MAX, |sent| sent.elapsed());
                    if order.number < orders { &mut night } else { &mut day }.push(latency);
                })
                .stage_wait(Wait::Custom(hours.clone()))
                .read("journal", |order, _| {
                    journal += u64::from(order.number == next);
                    next += 1;
                })
                .stage_wait(Wait::Blocking)
        })
        .run(|feed| {
            for number in 0..2 * orders {
                if number == orders {
                    hours.open.store(true, Relaxed);
                }
                thread::sleep(EVERY);
                feed.publish(|order| *order = Order { number, sent: Some(Instant::now()) })?;
            }
            Ok(())
        })?;

    ensure!(journal == 2 * orders, "the journal saw {journal} of {} orders in order", 2 * orders);
    ensure!(
        (night.len() as u64, day.len() as u64) == (orders, orders),
        "the gateway missed orders"
    );
    // `println!` would panic where the reader has closed the pipe (`| head`).
    let mut out = io::stdout().lock();
    for (name, latencies) in [("closed", &mut night), ("open", &mut day)] {
        latencies.sort_unstable();
        let (median, worst) =
            (latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100]);
        writeln!(
            out,
            "{name:>6}: {} orders, latency median {median:.1?}, 99th percentile {worst:.1?}",
            HumanCount(orders)
        )?;
    }
    writeln!(out, "{}", done.report)?;
    Ok(())
}
