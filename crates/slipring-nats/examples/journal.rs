//! One side of a journal: publishes orders to a NATS JetStream stream, through a ring.
//!
//! ```text
//! cargo run --release -p slipring-nats --example journal
//! cargo run --release -p slipring-nats --example replay -- URL    in another terminal
//! ```
//!
//! Without an address, the program starts a nats-server of its own, which it finds or installs
//! (`cargo xtask nats`), and prints its address. Its options:
//!
//! - `--events N`: ends after N events. Unless given, it goes on until it is killed.
//! - `--rate N`: events a second, 100,000 unless given.
//!
//! Kill it and start it again with the same address: it goes on where the stream ends.

#[path = "orders/mod.rs"]
mod orders;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use orders::{Order, Shown, arguments};
use slipring::Graph;
use slipring_nats::{Encoding, RunningSink, Server, Sink, StreamSettings};

fn main() -> ExitCode {
    orders::ended(run())
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = arguments()?;
    let own = match &arguments.url {
        Some(_) => None,
        None => Some(slipring_nats_server::Server::start(Default::default())?),
    };
    let url = match (&arguments.url, &own) {
        (Some(url), _) => url.clone(),
        (None, Some(own)) => own.url(),
        (None, None) => unreachable!("a server was given or started"),
    };
    println!("journal at {url}");

    let sink = Sink::to(Server::at(url), orders::STREAM)
        .create(StreamSettings::new(orders::SUBJECT))
        .open(Encoding::<Order>::plain(orders::TYPE, 1))?;
    let first = sink.next_seq();
    println!("begins at {first}; acknowledged events survive: {:?}", sink.durability());
    let graph = Graph::new(1 << 16, Order::default).first_seq(first);
    let journal = graph.reader("journal");
    let ring = graph.build()?;
    let sink = sink.start(ring.reader(journal))?;
    let mut tx = ring.producer();

    let (started, mut shown) = (Instant::now(), Shown::new());
    let end = arguments.events.map_or(u64::MAX, |events| first + events);
    while tx.next_seq() < end {
        // The pace is that of the clock, whatever the server does.
        let due = first + (started.elapsed().as_secs_f64() * arguments.rate as f64) as u64;
        while tx.next_seq() < due.min(end) {
            let seq = tx.next_seq();
            tx.publish(|order| *order = Order::at(seq))?;
        }
        if shown.is_due() {
            show(&sink);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    tx.close();
    let counters = sink.join()?;
    let sum = (first..end).fold(0, |sum, seq| Order::at(seq).add_to(sum));
    println!("{} events up to {}, sum {sum:016x}", counters.events, counters.acknowledged);
    Ok(())
}

fn show(sink: &RunningSink) {
    let now = sink.counters();
    println!(
        "{:>10} acknowledged, {:>6} behind, {:>2} frames in flight, {:>6.1} events a frame, \
         p50 {:>6.2} ms, p99 {:>6.2} ms  {:?}",
        now.acknowledged,
        now.lag,
        now.in_flight,
        now.events as f64 / now.frames.max(1) as f64,
        now.latency_p50.as_secs_f64() * 1e3,
        now.latency_p99.as_secs_f64() * 1e3,
        now.state,
    );
}
