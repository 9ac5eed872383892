//! Group commit: clients append to a journal, and each is answered once its record is on the disk.
//! One sync covers the records that came while the previous one ran.
//!
//! ```text
//!   8 clients ──ring──> journal: one write and one sync for each batch
//! ```
//!
//! It prints:
//!
//! ```text
//! 400 records acknowledged, 400 in the file
//! ```

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::thread;

use anyhow::Result;

const CLIENTS: u32 = 8;
const WRITES: u32 = 50;

fn main() -> Result<()> {
    let mut file = tempfile::tempfile()?;
    let (mut own, mut syncs): (File, u32) = (file.try_clone()?, 0);
    let done = slipring::ring(256, String::new)
        .read_batch("journal", |records, _| {
            let text: String = records.iter().map(String::as_str).collect();
            own.write_all(text.as_bytes())?;
            syncs += 1;
            own.sync_data()
        })
        .run_shared(|tx| {
            thread::scope(|scope| {
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|client| {
                        let mut tx = tx.clone();
                        scope.spawn(move || {
                            for n in 0..WRITES {
                                let seq = tx.publish(|text| *text = format!("{client} {n}\n"))?;
                                tx.wait_for("journal", seq)?; // now the record is durable
                            }
                            slipring::ok()
                        })
                    })
                    .collect();
                clients.into_iter().try_for_each(|client| client.join().unwrap())
            })
        })?;
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    eprintln!("{syncs} syncs");
    let durable = done.report.stage("journal").unwrap().events;
    println!("{durable} records acknowledged, {} in the file", text.lines().count());
    Ok(())
}
