//! Lossy fan-out on tokio's broadcast channel: the incumbent beside `fan_out.rs`.

use std::time::Duration;

use anyhow::Result;
use tokio::sync::broadcast::{self, error::RecvError};

const PRICES: u64 = 10_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (tx, _) = broadcast::channel(1024);
    let mut subscribers = Vec::new();
    for (name, pause) in [("desk", 0), ("risk", 0), ("screen", 5)] {
        let mut rx = tx.subscribe();
        subscribers.push(tokio::spawn(async move {
            let (mut seen, mut missed, mut last) = (0, 0, 0);
            loop {
                match rx.recv().await {
                    Ok(price) => (seen, last) = (seen + 1, price),
                    Err(RecvError::Lagged(count)) => missed += count,
                    Err(RecvError::Closed) => break,
                }
                if pause != 0 {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
            }
            eprintln!("{name}: {seen} seen, {missed} missed");
            (name, seen + missed, last)
        }));
    }
    for price in 0..PRICES {
        tx.send(price)?;
        if price % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    drop(tx);
    for subscriber in subscribers {
        let (name, all, last) = subscriber.await?;
        println!("{name}: {all} seen or missed, last {last}");
    }
    Ok(())
}
