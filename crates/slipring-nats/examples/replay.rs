//! The other side of a journal: fills a ring from the stream that `journal` writes, on this machine
//! or another, and checks each order.
//!
//! ```text
//! cargo run --release -p slipring-nats --example replay -- URL
//! ```
//!
//! The program follows the stream until it is killed, and waits while the server is away. With
//! `--until-end`, it ends after the last order that the stream has when the program starts. With
//! `--events N`, it ends after N orders.

#[path = "orders/mod.rs"]
mod orders;

use std::process::ExitCode;
use std::time::Duration;

use orders::{Order, Shown, arguments};
use slipring::{
    Graph,
    errors::{BatchError, WaitError},
};
use slipring_nats::{Decoding, RunningSource, Server, Source};

fn main() -> ExitCode {
    orders::ended(run())
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = arguments()?;
    let url = arguments.url.ok_or("say the address that `journal` has printed")?;
    let mut source = Source::of(Server::at(url), orders::STREAM);
    if arguments.until_end {
        source = source.until_end();
    }
    let open = source.open()?;
    let first = open.oldest().unwrap_or(0);
    println!("replays from {first}");

    let graph = Graph::new(1 << 16, Order::default).shared().first_seq(first);
    let check = graph.reader("check");
    let ring = graph.build()?;
    let mut check = ring.reader(check);
    let source = open.start(Decoding::<Order>::plain(orders::TYPE, 1), ring.producer())?;

    let (mut count, mut sum, mut shown) = (0, 0, Shown::new());
    let end = arguments.events.unwrap_or(u64::MAX);
    let ended = loop {
        if shown.is_due() {
            show(&source, count);
        }
        let batch = match check.try_batch(4096) {
            Ok(batch) => batch,
            Err(BatchError::Wait(ended)) => break ended,
            Err(_) => {
                std::thread::sleep(Duration::from_millis(1)); // no order is available
                continue;
            }
        };
        let seqs = batch.first_seq()..;
        let left = usize::try_from(end - count).unwrap_or(usize::MAX);
        for (order, seq) in batch.iter().zip(seqs).take(left) {
            if order.number != seq {
                return Err(format!("the order at {seq} has the number {}", order.number).into());
            }
            sum = order.add_to(sum);
            count += 1;
        }
        batch.release();
        if count == end {
            source.stop();
            break WaitError::Closed;
        }
    };
    drop(check);
    let joined = source.join();
    if !matches!(ended, WaitError::Closed) {
        joined?;
        return Err(ended.into());
    }
    println!("{count} events up to {}, sum {sum:016x}", first + count);
    Ok(())
}

fn show(source: &RunningSource, count: u64) {
    let now = source.progress();
    print!("{count:>10} orders, {:>8} behind the stream  {:?}", now.lag, now.state);
    orders::end_line(now.state, &now.last_doubt);
}
