//! FizzBuzz as a diamond: two stages examine every number in parallel, and a third stage behind
//! both counts the words.
//!
//! ```text
//!              ┌── fizz: does 3 divide it? ──┐
//!   producer ──┤                             ├── count
//!              └── buzz: does 5 divide it? ──┘
//! ```
//!
//! Parallel stages share an event, so each gets `&Event` and stores its result in an atomic field.
//! `Relaxed` is enough for these: `count` sees an event only after both stages have released it,
//! and the release orders their stores.
//!
//! `cargo run --release --example fizzbuzz` runs it; `-- --help` describes its arguments.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Result, ensure};
use clap::Parser;
use indicatif::HumanCount;

/// FizzBuzz as a diamond of three stages
#[derive(Parser)]
struct Args {
    /// Count to N
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    count: u64,
    /// Count to 1000 only, to check that it works
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
    /// Sets every field, because the slot still holds an event of an earlier lap. The producer owns
    /// the event exclusively, so it needs no atomic store.
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

/// How many numbers got each word, and how many got none.
#[derive(Default, Debug, PartialEq)]
struct Counts {
    fizz: u64,
    buzz: u64,
    fizzbuzz: u64,
    numbers: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let count = if args.smoke { 1000 } else { args.count };
    let (mut counts, mut first) = (Counts::default(), Vec::new());

    let done = slipring::ring(1024, Event::default)
        .fan_out(|side| {
            side.read("fizz", |event, _| event.fizz.store(event.number % 3 == 0, Relaxed))
                .read("buzz", |event, _| event.buzz.store(event.number % 5 == 0, Relaxed))
        })
        .read("count", |event, _| {
            let word = event.word();
            match word {
                Some("fizzbuzz") => counts.fizzbuzz += 1,
                Some("fizz") => counts.fizz += 1,
                Some(_) => counts.buzz += 1,
                None => counts.numbers += 1,
            }
            if event.number <= 15 {
                first.push(word.map_or_else(|| event.number.to_string(), str::to_owned));
            }
        })
        .feed(1..=count, Event::fill)?;

    // `println!` would panic where the reader has closed the pipe (`| head`).
    let mut out = io::stdout().lock();
    writeln!(out, "{}{}", first.join(" "), if count > 15 { " ..." } else { "" })?;
    writeln!(
        out,
        "{} numbers: {} fizz, {} buzz, {} fizzbuzz",
        HumanCount(count),
        HumanCount(counts.fizz),
        HumanCount(counts.buzz),
        HumanCount(counts.fizzbuzz)
    )?;
    writeln!(out, "\n{}", done.report)?;

    let (threes, fives, both) = (count / 3, count / 5, count / 15);
    let expected = Counts {
        fizz: threes - both,
        buzz: fives - both,
        fizzbuzz: both,
        numbers: count - threes - fives + both,
    };
    ensure!(counts == expected, "counted {counts:?} instead of {expected:?}");
    let words = "1 2 fizz 4 buzz fizz 7 8 fizz buzz 11 fizz 13 14 fizzbuzz";
    let expected: Vec<_> = words.split(' ').take(count.min(15) as usize).collect();
    ensure!(first == expected, "the first words are {first:?} instead of {expected:?}");
    Ok(())
}
