//! Requests and answers on crossbeam's channels: the incumbent beside `request_answer.rs`.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use crossbeam_channel::{Sender, bounded};

struct Request {
    account: u32,
    amount: i64,
    answer: Sender<Result<i64, String>>,
}

const WAIT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let (tx, rx) = bounded::<Request>(256);
    let ledger = thread::spawn(move || {
        let mut balances = HashMap::new();
        for Request { account, amount, answer } in rx {
            let balance = balances.entry(account).or_insert(100);
            let result = if *balance + amount < 0 {
                Err(format!("account {account} has only {balance}"))
            } else {
                *balance += amount;
                Ok(*balance)
            };
            answer.send(result).ok();
        }
        balances.len()
    });
    let clients: Vec<_> = (0..4)
        .map(|account| {
            let tx = tx.clone();
            thread::spawn(move || -> Result<_> {
                let mut last = Ok(0);
                for amount in [-30, -60, 45, -70] {
                    let (answer, answered) = bounded(1);
                    tx.send(Request { account, amount, answer })?;
                    last = answered.recv_timeout(WAIT)?;
                }
                Ok(last)
            })
        })
        .collect();
    drop(tx);
    for (account, client) in clients.into_iter().enumerate() {
        match client.join().map_err(|_| anyhow!("a client panicked"))?? {
            Ok(balance) => println!("account {account}: {balance}"),
            Err(refusal) => println!("account {account}: refused, {refusal}"),
        }
    }
    println!("{} accounts", ledger.join().map_err(|_| anyhow!("the ledger panicked"))?);
    Ok(())
}
