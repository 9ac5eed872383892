//! Tokio tasks instead of threads: one task is the producer, another one is a stage, beside a stage
//! on a thread.
//!
//! ```text
//!   sensor (task) ──┬── archive (thread)
//!                   └── alarm (task)
//! ```
//!
//! Both tasks run on one thread, which sleeps while both wait. `publish_async` waits for room and
//! `batch_async` for events; neither blocks the thread. A burst keeps both tasks ready for long,
//! and yet the timers of their thread fire: after some results in a row, a future yields to the
//! runtime.
//!
//! The alarm also detects silence, by a timeout around `batch_async`. A timeout drops the future,
//! and a dropped future has taken no event, so no event is lost.
//!
//! `cargo run --release --example tokio_stage` runs it; `-- --help` describes its arguments.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use cpu_time::ProcessTime;
use indicatif::HumanCount;
use slipring::{Graph, Producer, Reader, errors::WaitError};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Tokio tasks as a producer and as a stage
#[derive(Parser)]
struct Args {
    /// Number of bursts that the sensor sends, with silence between them
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    bursts: u64,
    /// Send 3 bursts only, to check that it works
    #[arg(long)]
    smoke: bool,
}

/// Samples in a burst: many more than slots, so that the sensor waits for room.
const BURST: u64 = 1000;
const CAPACITY: usize = 16;
/// Time without a sample that counts as silence.
const SILENCE: Duration = Duration::from_millis(10);
/// Time limit for the alarm to detect silence, so that a fault fails the program.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the sample at a position, so that the alarm can check it.
fn sample(seq: u64) -> i64 {
    (seq * seq % 1009) as i64
}

/// Sends bursts. After each burst, the sensor waits until the alarm has detected the silence.
async fn sensor(mut tx: Producer<i64>, bursts: u64, silent: Arc<Notify>) -> Result<u64> {
    let mut sent = 0;
    for _ in 0..bursts {
        for _ in 0..BURST {
            let seq = tx.publish_async(|slot| *slot = sample(sent)).await?;
            ensure!(seq == sent, "sample {sent} went to position {seq}");
            sent += 1;
        }
        timeout(LIMIT, silent.notified()).await.context("the alarm did not detect the silence")?;
    }
    Ok(sent) // dropping the producer closes the ring
}

/// The alarm's results.
#[derive(Default)]
struct Observed {
    count: u64,
    highest: i64,
    silences: u64,
}

/// Runs the alarm's stage, which sees every sample in order.
async fn alarm(mut rx: Reader<i64>, silent: Arc<Notify>) -> Result<Observed> {
    let mut observed = Observed::default();
    loop {
        match timeout(SILENCE, rx.batch_async(64)).await {
            Ok(Ok(batch)) => {
                for &value in batch.iter() {
                    ensure!(
                        value == sample(observed.count),
                        "sample {} is {value}",
                        observed.count
                    );
                    observed.highest = observed.highest.max(value);
                    observed.count += 1;
                }
                batch.release();
            }
            Ok(Err(WaitError::Closed)) => return Ok(observed),
            Ok(Err(other)) => return Err(other.into()),
            Err(_elapsed) => {
                observed.silences += 1;
                silent.notify_one();
            }
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let bursts = if args.smoke { 3 } else { args.bursts };
    let (wall, cpu) = (Instant::now(), ProcessTime::now());

    // Tasks need a strategy that parks: the default `Wait::ADAPTIVE` does, and so does
    // `Wait::Blocking`.
    let graph = Graph::new(CAPACITY, || 0i64);
    let (archive, alarmed) = (graph.reader("archive"), graph.reader("alarm"));
    let ring = graph.build()?;
    let (tx, mut archive, rx) = (ring.producer(), ring.reader(archive), ring.reader(alarmed));

    let archiving = thread::Builder::new().name("archive".to_owned()).spawn(move || {
        let mut sum = 0;
        archive.for_each(|&value, _| sum += value).map(|count| (count, sum))
    })?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (observed, sent) = runtime.block_on(async {
        let silent = Arc::new(Notify::new());
        let sending = tokio::spawn(sensor(tx, bursts, silent.clone()));
        // A sensor that fails drops its producer. The alarm then sees the end of the ring, and
        // awaiting the sensor returns its error.
        anyhow::Ok((alarm(rx, silent).await?, sending.await??))
    })?;
    let (archived, sum) = archiving.join().expect("the archive panicked")?;

    // `println!` would panic where the reader has closed the pipe (`| head`).
    let mut out = io::stdout().lock();
    let count = HumanCount;
    writeln!(out, "{} samples in {} bursts through {CAPACITY} slots", count(sent), count(bursts))?;
    writeln!(out, "archive (thread): {} samples, sum {sum}", count(archived))?;
    writeln!(
        out,
        "alarm (task):     {} samples, highest {}, {} silences detected",
        count(observed.count),
        observed.highest,
        count(observed.silences)
    )?;
    writeln!(out, "elapsed {:.1?}, processor time {:.1?}", wall.elapsed(), cpu.elapsed())?;
    writeln!(out, "\n{}", ring.report())?;

    ensure!(sent == bursts * BURST, "{sent} samples were sent instead of {}", bursts * BURST);
    ensure!(
        archived == sent && observed.count == sent,
        "{sent} samples were sent, {archived} archived, {} observed",
        observed.count
    );
    let expected: i64 = (0..sent).map(sample).sum();
    ensure!(sum == expected, "the archive's sum is {sum} instead of {expected}");
    let detected = observed.silences;
    ensure!(detected >= bursts, "{detected} of {bursts} silences were detected");
    Ok(())
}
