//! The code that both sides of the journal share.
#![allow(dead_code, reason = "each side uses a part")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use slipring_nats::State;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const STREAM: &str = "ORDERS";
pub const SUBJECT: &str = "orders";
pub const TYPE: &str = "example/Order";

/// An order of 64 bytes.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Order {
    pub number: u64,
    /// Price, in hundredths.
    pub price: i64,
    pub quantity: u64,
    pub instrument: [u64; 5],
}

impl Order {
    /// Makes the order that belongs to a position. The other side makes the same order, and so
    /// notices if it has received a wrong one.
    pub fn at(seq: u64) -> Order {
        let mixed = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let instrument = [mixed, 0, 0, 0, 0];
        Order {
            number: seq,
            price: 10_000 + (mixed >> 50) as i64,
            quantity: mixed >> 58,
            instrument,
        }
    }

    /// Adds the order to a sum that depends on the sequence of the orders.
    pub fn add_to(&self, sum: u64) -> u64 {
        let words =
            self.number ^ (self.price as u64).rotate_left(17) ^ self.quantity.rotate_left(41);
        (sum.rotate_left(5) ^ words).wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Turns the result of a side into an exit code, and prints its error to stderr.
pub fn ended(result: Result<(), Box<dyn std::error::Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The arguments of both sides.
pub struct Arguments {
    pub url: Option<String>,
    pub events: Option<u64>,
    pub rate: u64,
    pub until_end: bool,
}

pub fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments { url: None, events: None, rate: 100_000, until_end: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or(format!("{word} needs a number behind it"))?;
            text.parse().map_err(|_| format!("{word} needs a whole number, and {text} is none"))
        };
        match word.as_str() {
            "--events" => arguments.events = Some(number()?),
            "--rate" => match number()? {
                0 => return Err("--rate needs a number of at least 1".into()),
                rate => arguments.rate = rate,
            },
            "--until-end" => arguments.until_end = true,
            url if !url.starts_with('-') && arguments.url.is_none() => {
                arguments.url = Some(url.to_string());
            }
            other => {
                return Err(format!(
                    "{other}: known are an address, --events N, --rate N and --until-end"
                ));
            }
        }
    }
    Ok(arguments)
}

/// Prints the end of an output line. If a side makes no progress, it also prints the reason.
pub fn end_line(state: State, why: &str) {
    match state {
        State::Publishing | State::Ended => println!(),
        _ => println!(": {why}"),
    }
}

/// Timer of an output line that is due once a second.
pub struct Shown(Instant);

impl Shown {
    pub fn new() -> Shown {
        Shown(Instant::now())
    }

    pub fn is_due(&mut self) -> bool {
        let due = self.0.elapsed() >= Duration::from_secs(1);
        if due {
            self.0 += Duration::from_secs(1);
        }
        due
    }
}
