//! Group commit on a mutex and condition variables: the incumbent beside `group_commit.rs`.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::sync::{Condvar, Mutex};
use std::thread;

use anyhow::Result;

const CLIENTS: u32 = 8;
const WRITES: u32 = 50;

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    /// Number of records that were handed in, and that are on the disk.
    taken: u64,
    durable: u64,
    syncs: u64,
    failed: Option<String>,
    is_closed: bool,
}

#[derive(Default)]
struct Journal {
    state: Mutex<State>,
    work: Condvar,
    synced: Condvar,
}

impl Journal {
    /// Returns once the record is on the disk.
    fn append(&self, record: &str) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.pending.extend_from_slice(record.as_bytes());
        state.taken += 1;
        let own = state.taken;
        self.work.notify_one();
        while state.durable < own && state.failed.is_none() {
            state = self.synced.wait(state).unwrap();
        }
        state.failed.as_ref().map_or(Ok(()), |error| Err(anyhow::anyhow!("{error}")))
    }
    fn run(&self, file: &mut File) {
        loop {
            let mut state = self.state.lock().unwrap();
            while state.pending.is_empty() && !state.is_closed {
                state = self.work.wait(state).unwrap();
            }
            if state.pending.is_empty() {
                return;
            }
            let (records, upto) = (std::mem::take(&mut state.pending), state.taken);
            drop(state);
            let written = file.write_all(&records).and_then(|()| file.sync_data());
            let mut state = self.state.lock().unwrap();
            match written {
                Ok(()) => (state.durable, state.syncs) = (upto, state.syncs + 1),
                Err(error) => state.failed = Some(error.to_string()),
            }
            self.synced.notify_all();
        }
    }
    fn close(&self) {
        self.state.lock().unwrap().is_closed = true;
        self.work.notify_one();
    }
}

fn main() -> Result<()> {
    let (mut file, journal) = (tempfile::tempfile()?, Journal::default());
    let mut own = file.try_clone()?;
    thread::scope(|scope| -> Result<()> {
        scope.spawn(|| journal.run(&mut own));
        let clients = (0..CLIENTS).map(|client| {
            let journal = &journal;
            scope.spawn(move || {
                (0..WRITES).try_for_each(|n| journal.append(&format!("{client} {n}\n")))
            })
        });
        let clients: Vec<_> = clients.collect();
        let done = clients.into_iter().try_for_each(|client| client.join().unwrap());
        journal.close();
        done
    })?;
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    let state = journal.state.into_inner().unwrap();
    eprintln!("{} syncs", state.syncs);
    println!("{} records acknowledged, {} in the file", state.durable, text.lines().count());
    Ok(())
}
