//! FizzBuzz as a diamond: two stages look at every number at the same time, and a third, behind
//! both, says the word.
//!
//! ```text
//!              ┌── fizz: does 3 divide it? ──┐
//!   producer ──┤                             ├── say
//!              └── buzz: does 5 divide it? ──┘
//! ```
//!
//! Stages side by side only read: each is lent `&Event` while the other has it too. What they find
//! out they leave in atomics of the event. `Relaxed` is enough for these: `say` sees an event only
//! when both have released it, and that orders all they did.
//!
//! `cargo run --release --example fizzbuzz` runs it, `-- --help` behind that tells of its
//! arguments.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Result, ensure};
use clap::Parser;

/// FizzBuzz as a diamond of three stages.
#[derive(Parser)]
struct Args {
    /// How far to count.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    count: u64,
    /// Count to 1000 only, to see that it works.
    #[arg(long)]
    smoke: bool,
}

#[derive(Default)]
struct Event {
    number: u64,
    fizz: AtomicBool,
    buzz: AtomicBool,
}

impl Event {
    /// A slot holds what was there a lap ago, so everything is set. Nobody else has the event now:
    /// no atomic store is needed.
    fn fill(&mut self, number: u64) {
        *self = Event { number, ..Event::default() };
    }

    fn word(&self) -> Option<&'static str> {
        match (self.fizz.load(Relaxed), self.buzz.load(Relaxed)) {
            (true, true) => Some("fizzbuzz"),
            (true, false) => Some("fizz"),
            (false, true) => Some("buzz"),
            (false, false) => None,
        }
    }
}

#[derive(Default, Debug, PartialEq)]
struct Said {
    fizz: u64,
    buzz: u64,
    fizzbuzz: u64,
    numbers: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let count = if args.smoke { 1000 } else { args.count };
    let (mut said, mut first) = (Said::default(), Vec::new());

    let done = slipring::ring(1024, Event::default)
        .fan_out(|side| {
            side.read("fizz", |event, _| event.fizz.store(event.number % 3 == 0, Relaxed))
                .read("buzz", |event, _| event.buzz.store(event.number % 5 == 0, Relaxed))
        })
        .read("say", |event, _| {
            let word = event.word();
            match word {
                Some("fizzbuzz") => said.fizzbuzz += 1,
                Some("fizz") => said.fizz += 1,
                Some(_) => said.buzz += 1,
                None => said.numbers += 1,
            }
            if event.number <= 15 {
                first.push(word.map_or_else(|| event.number.to_string(), str::to_owned));
            }
        })
        .feed(1..=count, Event::fill)?;

    // Not `println!`, which panics where the reader has gone (`| head`).
    let mut out = io::stdout().lock();
    writeln!(out, "{}{}", first.join(" "), if count > 15 { " ..." } else { "" })?;
    writeln!(
        out,
        "{count} numbers: {} fizz, {} buzz, {} fizzbuzz",
        said.fizz, said.buzz, said.fizzbuzz
    )?;
    writeln!(out, "\n{}", done.report)?;

    let (threes, fives, both) = (count / 3, count / 5, count / 15);
    let right = Said {
        fizz: threes - both,
        buzz: fives - both,
        fizzbuzz: both,
        numbers: count - threes - fives + both,
    };
    ensure!(said == right, "counted {said:?}, where it is {right:?}");
    let song = "1 2 fizz 4 buzz fizz 7 8 fizz buzz 11 fizz 13 14 fizzbuzz";
    let wanted: Vec<_> = song.split(' ').take(count.min(15) as usize).collect();
    ensure!(first == wanted, "it began with {first:?}");
    Ok(())
}
