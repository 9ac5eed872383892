//! A telemetry agent on tokio's channel and tokio-stream: the incumbent beside
//! `telemetry_agent.rs`.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

const SENSORS: u64 = 4;

struct Record {
    sensor: u64,
    value: u64,
}

#[derive(Default)]
struct Metrics {
    published: AtomicU64,
    sent: AtomicU64,
    batches: AtomicU64,
}

/// Sends a batch to the collector, which here only adds up the values.
async fn send(batch: &[Record], sums: &mut [u64]) {
    tokio::time::sleep(Duration::from_millis(1)).await;
    for record in batch {
        sums[record.sensor as usize] += record.value;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let count = std::env::args().nth(1).map_or(Ok(2500), |count| count.parse())?;
    let stop = Arc::new(AtomicBool::new(false));
    let metrics = Arc::new(Metrics::default());
    let (tx, rx) = mpsc::channel(4096);
    for sensor in 0..SENSORS {
        let (tx, stop, metrics) = (tx.clone(), stop.clone(), metrics.clone());
        tokio::spawn(async move {
            for value in 0..count {
                if stop.load(Relaxed) || tx.send(Record { sensor, value }).await.is_err() {
                    break;
                }
                metrics.published.fetch_add(1, Relaxed);
            }
        });
    }
    drop(tx);
    let watched = metrics.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            eprintln!("{} records sent", watched.sent.load(Relaxed));
        }
    });
    let interrupted = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.store(true, Relaxed);
        }
    });
    let mut sums = [0; SENSORS as usize];
    let mut batches = pin!(ReceiverStream::new(rx).chunks_timeout(1000, Duration::from_millis(50)));
    while let Some(batch) = batches.next().await {
        send(&batch, &mut sums).await;
        metrics.sent.fetch_add(batch.len() as u64, Relaxed);
        metrics.batches.fetch_add(1, Relaxed);
    }
    let [published, sent, batches] =
        [&metrics.published, &metrics.sent, &metrics.batches].map(|metric| metric.load(Relaxed));
    eprintln!("{batches} batches");
    println!("sent {sent} of {published} records, sums {sums:?}");
    if stop.load(Relaxed) {
        println!("stopped by Ctrl-C");
    }
    Ok(())
}
