//! One side of a journal: publishes orders to a NATS JetStream stream, through a ring.
//!
//! ```text
//! cargo run --release -p slipring-nats --example journal
//! cargo run --release -p slipring-nats --example replay -- URL    in another terminal
//! ```
//!
//! Without an address, the program finds or installs a nats-server (like `cargo xtask nats`),
//! starts it, and prints its address. The server keeps running when the program ends, and the
//! program prints how to end it. The options:
//!
//! - `--events N`: ends after N events. Default: runs until it is killed.
//! - `--rate N`: events per second, at least 1. Default: 100,000.
//!
//! Kill the program and start it again with the same address, and it continues where the stream
//! ends. While the server is away, the program waits.

#[path = "orders/mod.rs"]
mod orders;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use orders::{Order, Shown, arguments};
use slipring::{
    Graph,
    errors::{ClaimError, WaitError},
};
use slipring_nats::{Encoding, RunningSink, Server, Sink, StreamSettings};
use slipring_nats_server::Options;

fn main() -> ExitCode {
    orders::ended(run())
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = arguments()?;
    let url = match arguments.url {
        Some(url) => url,
        None => start_server()?,
    };
    let server = Server::at(url);
    println!("journal at {}", server.address()); // without a login

    let sink = Sink::to(server, orders::STREAM)
        .create(StreamSettings::new(orders::SUBJECT))
        .open(Encoding::<Order>::plain(orders::TYPE, 1))?;
    let first = sink.next_seq();
    let end = match arguments.events {
        Some(events) => first.checked_add(events).ok_or_else(|| {
            let most = u64::MAX - first;
            format!("--events {events}: at most {most} follow position {first}; say fewer")
        })?,
        None => u64::MAX,
    };
    println!("begins at {first}; acknowledged events survive: {:?}", sink.durability());
    let graph = Graph::new(1 << 16, Order::default).first_seq(first);
    let journal = graph.reader("journal");
    let ring = graph.build()?;
    let sink = sink.start(ring.reader(journal))?;
    let mut tx = ring.producer();

    let (started, mut shown) = (Instant::now(), Shown::new());
    while tx.next_seq() < end {
        // The clock sets the pace, whatever the server does.
        let due = (started.elapsed().as_secs_f64() * arguments.rate as f64) as u64;
        let due = first.saturating_add(due);
        while tx.next_seq() < due.min(end) {
            let seq = tx.next_seq();
            match tx.try_publish(|order| *order = Order::at(seq)) {
                Ok(_) => {}
                Err(ClaimError::Wait(ended)) => return Err(failed(sink, ended)),
                Err(_) => break, // the ring is full
            }
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

/// Starts a server that outlives this program, and returns its address.
fn start_server() -> std::io::Result<String> {
    let server = slipring_nats_server::Server::start(Options::new().detached())?;
    println!(
        "started a nats-server that outlives this program; end it: kill {} && rm -r {}",
        server.pid().unwrap_or_default(),
        server.dir().display()
    );
    Ok(server.url())
}

/// Returns the sink's error. The ring only reports that a stage failed.
fn failed(sink: RunningSink, ended: WaitError) -> Box<dyn std::error::Error> {
    sink.join().map_or_else(Into::into, |_| ended.into())
}

fn show(sink: &RunningSink) {
    let now = sink.counters();
    print!(
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
    orders::end_line(now.state, &now.last_doubt);
}
