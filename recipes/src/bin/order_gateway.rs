//! An order gateway: three sessions publish; journal and replication run side by side, then the
//! business logic, then the output, which is flushed at the end of a batch. The end drains.
//!
//! ```text
//!   session 0 ─┐      ┌─> journal ─┐
//!   session 1 ─┼─ring─┤            ├─> logic ──> output
//!   session 2 ─┘      └─> replica ─┘
//! ```
//!
//! It prints:
//!
//! ```text
//! session 0: accepted 823 of 1000, replica d7187764
//! session 1: accepted 819 of 1000, replica 17877ab8
//! session 2: accepted 817 of 1000, replica d9c9a21d
//! journal: 26388 bytes
//! ```

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::thread;

use anyhow::Result;
use crc32fast::Hasher;
use slipring::At;
use slipring::faults::Fault;
use slipring::stages::ReadHandler;

const SESSIONS: usize = 3;
const ORDERS: u32 = 1000;
const LIMIT: u32 = 40_000;

#[derive(Default)]
struct Order {
    session: usize,
    number: u32,
    quantity: u32,
    accepted: bool,
}

impl Order {
    fn line(&self) -> String {
        format!("{},{},{}\n", self.session, self.number, self.quantity)
    }
}

/// Writes each order to a file, and flushes at the end of a batch.
struct Journal {
    file: BufWriter<File>,
    bytes: usize,
}

impl ReadHandler<Order> for Journal {
    fn event(&mut self, order: &Order, _: At) -> Result<(), Fault> {
        let line = order.line();
        self.bytes += line.len();
        Ok(self.file.write_all(line.as_bytes())?)
    }
    fn batch_end(&mut self, _: u64) -> Result<(), Fault> {
        Ok(self.file.flush()?)
    }
}

/// Answers the sessions, and flushes the answers at the end of a batch.
#[derive(Default)]
struct Output {
    pending: Vec<usize>,
    accepted: [u32; SESSIONS],
    answered: [u32; SESSIONS],
}

impl ReadHandler<Order> for Output {
    fn event(&mut self, order: &Order, _: At) -> Result<(), Fault> {
        self.accepted[order.session] += u32::from(order.accepted);
        self.pending.push(order.session);
        Ok(())
    }
    fn batch_end(&mut self, _: u64) -> Result<(), Fault> {
        self.pending.drain(..).for_each(|session| self.answered[session] += 1);
        Ok(())
    }
}

fn main() -> Result<()> {
    let mut journal = Journal { file: BufWriter::new(tempfile::tempfile()?), bytes: 0 };
    let mut replica: [Hasher; SESSIONS] = Default::default();
    let mut exposure = [0; SESSIONS];
    let mut output = Output::default();
    slipring::ring(1024, Order::default)
        .fan_out(|side| {
            side.read_with("journal", &mut journal)
                .read("replica", |order, _| replica[order.session].update(order.line().as_bytes()))
        })
        .update("logic", |order, _| {
            let exposure = &mut exposure[order.session];
            order.accepted = *exposure + order.quantity <= LIMIT; // within the session's limit
            *exposure += if order.accepted { order.quantity } else { 0 };
        })
        .read_with("output", &mut output)
        .run_shared(|tx| {
            thread::scope(|scope| {
                for session in 0..SESSIONS {
                    let mut tx = tx.clone();
                    scope.spawn(move || {
                        tx.publish_all(0..ORDERS, |order, number| {
                            let quantity = 1 + (number * 7 + session as u32 * 13) % 97;
                            *order = Order { session, number, quantity, accepted: false };
                        })
                    });
                }
            });
            Ok(())
        })?;
    for (session, replica) in replica.into_iter().enumerate() {
        let (accepted, answered) = (output.accepted[session], output.answered[session]);
        let replica = replica.finalize();
        println!("session {session}: accepted {accepted} of {answered}, replica {replica:08x}");
    }
    println!("journal: {} bytes", journal.bytes);
    Ok(())
}
