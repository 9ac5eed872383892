//! A telemetry agent on tokio: sensors publish records, and a task sends them to a collector, up to
//! 1,000 at a time, or those that came within 50 ms. Ctrl-C stops the sensors, and the rest is
//! sent. The metrics come from the ring's report.
//!
//! ```text
//!   4 sensors (tasks) ──ring──> upload (task): 1,000 records or 50 ms
//! ```
//!
//! It prints:
//!
//! ```text
//! sent 10000 of 10000 records, sums [3123750, 3123750, 3123750, 3123750]
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use slipring::Graph;
use slipring::errors::WaitError;
use tokio::time::sleep;

const SENSORS: usize = 4;

#[derive(Default)]
struct Record {
    sensor: usize,
    value: u64,
}

/// Sends a batch to the collector, which here only adds up the values.
async fn send(batch: &[&Record], sums: &mut [u64]) {
    sleep(Duration::from_millis(1)).await;
    for record in batch {
        sums[record.sensor] += record.value;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(2500), |count| count.parse())?;
    let stop = Arc::new(AtomicBool::new(false));
    let graph = Graph::new(4096, Record::default).shared();
    let upload = graph.reader("upload");
    let ring = graph.build()?;
    let (tx, mut records, monitor) = (ring.producer(), ring.reader(upload), ring.monitor());
    for sensor in 0..SENSORS {
        let (mut tx, stop) = (tx.clone(), stop.clone());
        tokio::spawn(async move {
            for value in (0..count).take_while(|_| !stop.load(Relaxed)) {
                tx.publish_async(|record| *record = Record { sensor, value }).await?;
            }
            Ok::<_, WaitError>(())
        });
    }
    drop((ring, tx));
    let watched = monitor.clone();
    tokio::spawn(async move {
        while let Some(report) = watched.report() {
            sleep(Duration::from_secs(1)).await;
            eprintln!("{report}");
        }
    });
    let interrupted = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.store(true, Relaxed);
        }
    });
    let mut sums = [0; SENSORS];
    let time = Duration::from_millis(50);
    while let Ok(batch) = records.batch_within_async(1000, time, sleep).await {
        send(&batch.iter().collect::<Vec<_>>(), &mut sums).await;
        batch.release();
    }
    let report = monitor.report().expect("the reader is still there");
    let (sent, published) = (report.stage("upload").unwrap().events, report.producer().events);
    println!("sent {sent} of {published} records, sums {sums:?}");
    if stop.load(Relaxed) {
        println!("stopped by Ctrl-C");
    }
    Ok(())
}
