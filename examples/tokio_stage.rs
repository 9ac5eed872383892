//! Tasks of tokio where threads could stand: one fills the ring, one is a stage, beside a stage
//! that has a thread of its own.
//!
//! ```text
//!   sensor (task) ──┬── archive (thread)
//!                   └── alarm (task)
//! ```
//!
//! Both tasks live on one thread, which sleeps whenever neither has anything to do. `publish_async`
//! waits for room, `batch_async` for events; neither holds the thread. The alarm also notices
//! silence: it puts a timeout around `batch_async`. A timeout drops the future, and a future that
//! is dropped has taken no event, so nothing is lost between two of them.
//!
//! `cargo run --release --example tokio_stage` runs it, `-- --help` behind that tells of its
//! arguments.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use cpu_time::ProcessTime;
use slipring::{Graph, Producer, Reader, WaitError};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Tasks of tokio as a producer and as a stage.
#[derive(Parser)]
struct Args {
    /// How many bursts the sensor sends, with silence between them.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    bursts: u64,
    /// Send 3 bursts only, to see that it works.
    #[arg(long)]
    smoke: bool,
}

/// So many samples to a burst: far more than slots, so that the sensor has to wait for room.
const BURST: u64 = 1000;
const CAPACITY: usize = 16;
/// What the alarm calls silence.
const SILENCE: Duration = Duration::from_millis(10);
/// Longer than the alarm can take to notice; past it the program fails instead of hanging.
const LIMIT: Duration = Duration::from_secs(60);

/// What the sensor measures; anybody can work it out again.
fn sample(seq: u64) -> i64 {
    (seq * seq % 1009) as i64
}

/// Sends bursts. After each it waits until the alarm has noticed the silence.
async fn sensor(mut tx: Producer<i64>, bursts: u64, silent: Arc<Notify>) -> Result<u64> {
    let mut sent = 0;
    for _ in 0..bursts {
        for _ in 0..BURST {
            let seq = tx.publish_async(|slot| *slot = sample(sent)).await?;
            ensure!(seq == sent, "sample {sent} went to position {seq}");
            sent += 1;
        }
        timeout(LIMIT, silent.notified()).await.context("the alarm did not notice the silence")?;
    }
    Ok(sent) // the producer is dropped here, which closes the ring
}

#[derive(Default)]
struct Heard {
    count: u64,
    highest: i64,
    silences: u64,
}

/// A stage: sees every sample, in order.
async fn alarm(mut rx: Reader<i64>, silent: Arc<Notify>) -> Result<Heard> {
    let mut heard = Heard::default();
    loop {
        match timeout(SILENCE, rx.batch_async(64)).await {
            Ok(Ok(batch)) => {
                for &value in batch.iter() {
                    ensure!(value == sample(heard.count), "sample {} is {value}", heard.count);
                    heard.highest = heard.highest.max(value);
                    heard.count += 1;
                }
                batch.release();
            }
            Ok(Err(WaitError::Closed)) => return Ok(heard),
            Ok(Err(other)) => return Err(other.into()),
            Err(_elapsed) => {
                heard.silences += 1;
                silent.notify_one();
            }
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let bursts = if args.smoke { 3 } else { args.bursts };
    let (wall, cpu) = (Instant::now(), ProcessTime::now());

    // Tasks are woken where the strategy parks; that is the default, `Wait::ADAPTIVE`, and
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
    let (heard, sent) = runtime.block_on(async {
        let silent = Arc::new(Notify::new());
        let sending = tokio::spawn(sensor(tx, bursts, silent.clone()));
        // If the sensor fails it lets its producer go: the alarm sees the end of the ring then, and
        // the sensor's error is here.
        anyhow::Ok((alarm(rx, silent).await?, sending.await??))
    })?;
    let (archived, sum) = archiving.join().expect("the archive panicked")?;

    // Not `println!`, which panics where the reader has gone (`| head`).
    let mut out = io::stdout().lock();
    writeln!(out, "{sent} samples in {bursts} bursts through {CAPACITY} slots")?;
    writeln!(out, "archive (thread): {archived} samples, sum {sum}")?;
    writeln!(
        out,
        "alarm (task):     {} samples, highest {}, {} silences noticed",
        heard.count, heard.highest, heard.silences
    )?;
    writeln!(
        out,
        "{:.0} ms went by, {:.0} ms of them on a core",
        wall.elapsed().as_secs_f64() * 1e3,
        cpu.elapsed().as_secs_f64() * 1e3
    )?;
    writeln!(out, "\n{}", ring.report())?;

    ensure!(sent == bursts * BURST, "{} samples were to be sent and {sent} were", bursts * BURST);
    ensure!(
        archived == sent && heard.count == sent,
        "{sent} were sent, {archived} archived, {} heard",
        heard.count
    );
    let right: i64 = (0..sent).map(sample).sum();
    ensure!(sum == right, "the archive's sum is {sum}, where it is {right}");
    ensure!(heard.silences >= bursts, "{bursts} silences, and only {} noticed", heard.silences);
    Ok(())
}
