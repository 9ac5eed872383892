//! Several producers, a pool of workers, and the results in order. A server has this shape: many
//! threads send requests, a few workers handle them, and answers are written in the order of the
//! requests.
//!
//! ```text
//!   producer 0 ──┐                ┌── work-0 ──┐
//!   producer 1 ──┼── one order ───┼── work-1 ──┼── collect
//!   producer 2 ──┘                └── work-2 ──┘
//! ```
//!
//! The producers' claims put all requests in one order. Each request goes to the first free worker.
//! `collect` stands behind the pool and sees the answers in the order of the requests. No event is
//! copied and no lock is taken.
//!
//! `cargo run --release --example many_to_many` runs it; `-- --help` describes its arguments.

use std::io::{self, Write as _};
use std::thread;

use anyhow::{Result, ensure};
use clap::Parser;
use indicatif::HumanCount;
use slipring::faults::Fault;

/// Several producers, a pool of workers, and the results in order
#[derive(Parser)]
struct Args {
    /// Number of producing threads
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    producers: u16,
    /// Number of working threads
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Number of requests of each producer
    // With this maximum, no start exceeds 640 million, so the numbers of all sequences fit into 64
    // bits.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    each: u64,
    /// Send 2000 requests only, to check that it works
    #[arg(long)]
    smoke: bool,
}

/// A request for the number of steps from `start` to 1, where an even n becomes n / 2 and an odd n
/// becomes 3n + 1 (the Collatz sequence).
#[derive(Default)]
struct Request {
    producer: usize,
    start: u64,
    worker: usize,
    steps: u32,
}

fn steps(start: u64) -> u32 {
    let (mut n, mut steps) = (start, 0);
    while n > 1 {
        n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    steps
}

fn main() -> Result<()> {
    let args = Args::parse();
    let (producers, workers) = (usize::from(args.producers), usize::from(args.workers));
    let each = if args.smoke { 2000 } else { args.each };

    let (mut total, mut longest) = (0, (0, 0));
    let (mut worked, mut last) = (vec![0; workers], vec![0; producers]);
    let (mut turns, mut before) = (0, None);
    let done = slipring::ring(1024, Request::default)
        .update_pool("work", workers, |worker| {
            move |request, _| {
                request.steps = steps(request.start);
                request.worker = worker;
            }
        })
        .read("collect", |request, _| {
            // The requests of one producer stay in order: each start is greater than the previous
            // one by `producers`.
            let due = match last[request.producer] {
                0 => request.producer as u64 + 1,
                last => last + producers as u64,
            };
            if request.start != due {
                let Request { producer, start, .. } = request;
                return Err(Fault::msg(format!(
                    "producer {producer}: request {start} came instead of {due}"
                )));
            }
            last[request.producer] = request.start;
            worked[request.worker] += 1;
            total += u64::from(request.steps);
            // Of two equally long sequences, the one with the lower start counts.
            longest = longest.max((request.steps, u64::MAX - request.start));
            turns += u64::from(before.replace(request.producer) != Some(request.producer));
            Ok(())
        })
        .run_shared(|producer| {
            thread::scope(|scope| {
                let sending: Vec<_> = (0..producers)
                    .map(|number| {
                        let mut producer = producer.clone(); // a clone for each thread
                        scope.spawn(move || {
                            let starts =
                                (1 + number as u64..).step_by(producers).take(each as usize);
                            producer.publish_all(starts, |slot, start| {
                                *slot = Request { producer: number, start, ..Request::default() }
                            })
                        })
                    })
                    .collect();
                // An error is a failure of the ring, which ends all producers.
                sending
                    .into_iter()
                    .try_for_each(|thread| thread.join().expect("a producer panicked").map(drop))
            })?;
            Ok(())
        })?;

    let requests = producers as u64 * each;
    let (most, from) = (longest.0, u64::MAX - longest.1);
    // `println!` would panic where the reader has closed the pipe (`| head`).
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} requests of {producers} producers, whose requests alternate {} times",
        HumanCount(requests),
        HumanCount(turns)
    )?;
    writeln!(
        out,
        "longest sequence: {most} steps from {}; all sequences: {} steps",
        HumanCount(from),
        HumanCount(total)
    )?;
    let by_worker: Vec<String> =
        worked.iter().map(|&requests| HumanCount(requests).to_string()).collect();
    writeln!(out, "requests by worker: {}", by_worker.join("; "))?;
    writeln!(out, "\n{}", done.report)?;

    ensure!(
        worked.iter().sum::<u64>() == requests,
        "{requests} requests were sent, and the workers handled {worked:?}"
    );
    let expected = (1..=requests).map(|start| u64::from(steps(start))).sum::<u64>();
    ensure!(total == expected, "the workers counted {total} steps instead of {expected}");
    Ok(())
}
