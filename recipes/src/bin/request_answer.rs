//! Requests and answers: clients ask a ledger, and each gets the answer to its own request.
//!
//! ```text
//!   4 clients ──ring──> ledger ──promise of each answer──> its client
//! ```
//!
//! It prints:
//!
//! ```text
//! account 0: refused, account 0 has only 55
//! account 1: refused, account 1 has only 55
//! account 2: refused, account 2 has only 55
//! account 3: refused, account 3 has only 55
//! 4 accounts
//! ```

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use slipring::Promise;
use slipring::faults::Fault;

#[derive(Default)]
struct Request {
    account: u32,
    amount: i64,
    answer: Option<Promise<Result<i64, String>>>,
}

const WAIT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let mut balances = HashMap::new();
    let done = slipring::ring(256, Request::default)
        .update("ledger", |Request { account, amount, answer }: &mut _, _| {
            let balance = balances.entry(*account).or_insert(100);
            let result = if *balance + *amount < 0 {
                Err(format!("account {account} has only {balance}"))
            } else {
                *balance += *amount;
                Ok(*balance)
            };
            answer.take().map(|answer| answer.fulfil(result));
        })
        .run_shared(|tx| {
            thread::scope(|scope| {
                let clients = [0, 1, 2, 3].map(|account| {
                    let mut tx = tx.clone();
                    scope.spawn(move || -> Result<_, Fault> {
                        let mut last = Ok(0);
                        for amount in [-30, -60, 45, -70] {
                            let mut answer = tx.ask(|request, answer| {
                                *request = Request { account, amount, answer: Some(answer) };
                            })?;
                            last = answer.wait_for(WAIT)?;
                        }
                        Ok(last)
                    })
                });
                clients
                    .into_iter()
                    .map(|client| client.join().expect("a client panicked"))
                    .collect()
            })
        })?;
    let lasts: Vec<_> = done.value;
    for (account, last) in lasts.into_iter().enumerate() {
        match last {
            Ok(balance) => println!("account {account}: {balance}"),
            Err(refusal) => println!("account {account}: refused, {refusal}"),
        }
    }
    println!("{} accounts", balances.len());
    Ok(())
}
