//! Several producers, a pool of workers, and the results in order: the shape of a server whose
//! clients send requests from many threads, whose work is shared among a few, and whose answers are
//! written as the requests came.
//!
//! ```text
//!   producer 0 ──┐                ┌── work-0 ──┐
//!   producer 1 ──┼── one order ───┼── work-1 ──┼── collect
//!   producer 2 ──┘                └── work-2 ──┘
//! ```
//!
//! The producers' claims put all requests in one order. Each request goes to one worker, whoever is
//! free; `collect` stands behind the pool and sees the answers in the order of the requests,
//! however they were worked out. No event is copied and no lock is taken.
//!
//! `cargo run --release --example many_to_many` runs it, `-- --help` behind that tells of its
//! arguments.

use std::io::{self, Write as _};
use std::thread;

use anyhow::{Result, ensure};
use clap::Parser;
use slipring::Fault;

/// Several producers, a pool of workers, and the results in order.
#[derive(Parser)]
struct Args {
    /// How many threads send.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    producers: u16,
    /// How many threads work.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// How many requests each producer sends.
    // The starts are 640 million at most then, and no way to 1 from there leaves 64 bits.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    each: u64,
    /// Send 2000 requests only, to see that it works.
    #[arg(long)]
    smoke: bool,
}

/// How many steps does it take from `start` to 1, halving what is even and taking 3n + 1 of what is
/// odd?
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
        .write_pool("work", workers, |worker| {
            move |request, _| {
                request.steps = steps(request.start);
                request.worker = worker;
            }
        })
        .read("collect", |request, _| {
            // What one producer sent stays in its order; here its starts go up in steps of
            // `producers`.
            let due = match last[request.producer] {
                0 => request.producer as u64 + 1,
                last => last + producers as u64,
            };
            if request.start != due {
                let Request { producer, start, .. } = request;
                return Err(Fault::msg(format!(
                    "producer {producer} sent {due} next, and here is {start}"
                )));
            }
            last[request.producer] = request.start;
            worked[request.worker] += 1;
            total += u64::from(request.steps);
            // of two as long, the one that starts lower
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
                // A panic in one of them is passed on by the scope; an error is the ring's, and
                // ends them all.
                sending
                    .into_iter()
                    .try_for_each(|thread| thread.join().expect("a producer panicked").map(drop))
            })?;
            Ok(())
        })?;

    let requests = producers as u64 * each;
    let (most, from) = (longest.0, u64::MAX - longest.1);
    // Not `println!`, which panics where the reader has gone (`| head`).
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{requests} requests of {producers} producers, who took {turns} turns in the ring"
    )?;
    writeln!(
        out,
        "the longest way to 1 begins at {from} and takes {most} steps; all ways together take {total}"
    )?;
    writeln!(out, "requests per worker: {worked:?}")?;
    writeln!(out, "\n{}", done.report)?;

    ensure!(
        worked.iter().sum::<u64>() == requests,
        "{requests} requests were sent, and the workers had {worked:?}"
    );
    let alone = (1..=requests).map(|start| u64::from(steps(start))).sum::<u64>();
    ensure!(total == alone, "all ways together take {alone} steps, and the workers found {total}");
    Ok(())
}
