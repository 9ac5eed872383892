//! Measures `slipring-nats` beside other ways to write to a JetStream stream and to read it:
//! async-nats with one message for each event, the fast-ingest batches of `jetstream-extra`, and
//! hand-written loops.
//!
//! All contenders share one server with file storage on this machine. A repetition runs the
//! contenders of a question one after another, in rotating order. Each contender writes to a stream
//! of its own, which is read back and checked before its value counts. Only ratios within one run
//! mean anything.

// The print macros panic if the stream refuses a write, so these lints forbid them.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod append;
mod away;
mod bench;
mod cost;
mod latency;
mod record;
mod replay;
mod stream;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use slipring_machine::usable_cores;
use slipring_nats_server::binary;
use slipring_support::streams::{print, stdout_width};

use crate::bench::{Amounts, Bench, BenchResult, Flight};
use crate::record::{Bound, Record, Target};

/// Compares slipring-nats with other ways to write and read a JetStream stream
#[derive(Parser)]
struct Args {
    /// Measure the questions whose names contain one of these [default: all]
    questions: Vec<String>,
    /// Measure the contenders whose names contain one of these [default: all]
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Check with small amounts that everything works; the figures mean nothing
    #[arg(long)]
    smoke: bool,
    /// Number of repetitions; an outage is measured a third as often [default: 9; 1 with --smoke]
    #[arg(long, value_name = "N")]
    reps: Option<usize>,
    /// Frames in flight
    #[arg(long, value_name = "N", default_value_t = 8)]
    window: usize,
    /// Greatest length of a frame, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 511 * 1024)]
    max_frame: usize,
    /// Write every value to FILE, with one JSON line for each series
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const SPEED: &str = "append";
const REPLAY: &str = "replay";
const COST: &str = "producer at 1,000,000 events/s";
const LATENCY: &str = "latency at 10,000 events/s";
const AWAY: &str = "server away at 100,000 events/s";

const RATE: &str = "events/s";
const SINK: &str = "sink";

const MESSAGES: &str = "async-nats, a message an event";
const FAST: &str = "jetstream-extra, fast ingest";
const READY: &str = "loop, ready frames";
const SOURCE: &str = "source";
const UNDECODED: &str = "pull consumer, undecoded";
const PRODUCER: &str = "producer";
const COUNTING: &str = "counting stage";
const BARE: &str = "async-nats, bare publish";

/// The bounds that the ratios should meet.
const TARGETS: [Target; 8] = [
    target(SPEED, RATE, (SINK, MESSAGES), Bound::AtLeast(30.0)),
    target(SPEED, RATE, (SINK, FAST), Bound::AtLeast(5.0)),
    target(SPEED, RATE, (SINK, READY), Bound::AtLeast(0.9)),
    target(REPLAY, RATE, (SOURCE, UNDECODED), Bound::AtLeast(0.8)),
    target(COST, "mean ns", (SINK, COUNTING), Bound::AtMost(1.1)),
    target(COST, "median ns", (SINK, COUNTING), Bound::AtMost(1.1)),
    target(LATENCY, "p50 µs", (SINK, BARE), Bound::AtMost(1.5)),
    target(AWAY, RATE, (SINK, PRODUCER), Bound::AtLeast(5.0)),
];

const fn target(
    question: &'static str,
    metric: &'static str,
    (ours, theirs): (&'static str, &'static str),
    bound: Bound,
) -> Target {
    Target { question, metric, ours, theirs, bound }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "nats: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> BenchResult<()> {
    let program = match binary::find() {
        Ok(program) => program,
        Err(error) => return Ok(print(&mut io::stdout(), &format!("SKIPPED: {error}\n"))?),
    };
    let amounts = if args.smoke { Amounts::smoke() } else { Amounts::full() };
    let flight = Flight { window: args.window, frame: args.max_frame };
    let reps = args.reps.unwrap_or(if args.smoke { 1 } else { 9 }).max(1);
    let mut bench = Bench::start(amounts, flight)?;
    let mut record = Record::default();
    Measurement { args, bench: &mut bench, record: &mut record }.run(reps)?;
    if let Some(path) = &args.json {
        fs::write(path, record.json(&TARGETS)?)?;
    }
    let smoke = if args.smoke { "; smoke run: the figures mean nothing" } else { "" };
    let (cores, version) = (usable_cores(), binary::version(&program)?);
    let Flight { window, frame } = flight;
    let about = format!(
        "cores: {cores}; repetitions: {reps}; nats-server {version}; {window} frames of at most \
         {frame} bytes in flight{smoke}"
    );
    let tables = record.tables(&TARGETS, stdout_width());
    Ok(print(&mut io::stdout(), &format!("{about}\n\n{tables}"))?)
}

/// A contender's name, and its measurement.
type Contender<'c, T> = (&'static str, &'c dyn Fn(&mut Bench) -> BenchResult<T>);

/// Measures the questions and contenders that the arguments choose.
struct Measurement<'m> {
    args: &'m Args,
    bench: &'m mut Bench,
    record: &'m mut Record,
}

impl Measurement<'_> {
    fn is_asked(&self, question: &str) -> bool {
        let parts = &self.args.questions;
        parts.is_empty() || parts.iter().any(|part| question.contains(part))
    }

    /// Measures one contender, unless the arguments leave it out.
    fn contender(
        &mut self,
        question: &'static str,
        name: &'static str,
        run: impl FnOnce(&mut Bench) -> BenchResult<Vec<(&'static str, f64)>>,
    ) -> BenchResult<()> {
        let parts = &self.args.only;
        if !parts.is_empty() && !parts.iter().any(|part| name.contains(part)) {
            return Ok(());
        }
        let _ = writeln!(io::stderr(), "{question}: {name}");
        let values = run(self.bench).map_err(|why| format!("{question}: {name}: {why}"))?;
        for (metric, value) in values {
            self.record.add(question, name, metric, value);
        }
        Ok(())
    }

    fn run(mut self, reps: usize) -> BenchResult<()> {
        // Outages are measured first, because memory that other contenders leave to the allocator
        // would hide the growth of memory.
        for _ in 0..if self.is_asked(AWAY) { reps.div_ceil(3) } else { 0 } {
            self.contender(AWAY, SINK, away::measure)?;
            self.record.add(AWAY, PRODUCER, RATE, away::RATE as f64);
        }
        let frames = match self.is_asked(SPEED) {
            true => append::ready_frames(self.bench)?,
            false => Vec::new(),
        };
        let replayed = match self.is_asked(REPLAY) {
            true => append::stream_of_frames(self.bench)?,
            false => String::new(),
        };
        if !replayed.is_empty() {
            replay::undecoded(self.bench, &replayed)?; // into the system's memory
        }
        for rep in 0..reps {
            let _ = writeln!(io::stderr(), "repetition {} of {reps}", rep + 1);
            self.question(
                rep,
                SPEED,
                &[
                    (SINK, &append::sink),
                    (READY, &|bench| append::ready(bench, &frames)),
                    (MESSAGES, &append::messages),
                    (FAST, &append::fast_ingest),
                ],
                |rate| vec![(RATE, rate)],
            )?;
            self.question(
                rep,
                REPLAY,
                &[
                    (SOURCE, &|bench| replay::source(bench, &replayed)),
                    (UNDECODED, &|bench| replay::undecoded(bench, &replayed)),
                ],
                |rate| vec![(RATE, rate)],
            )?;
            self.question(
                rep,
                COST,
                &[(SINK, &cost::sink), (COUNTING, &cost::counting)],
                |cost| vec![("mean ns", cost.mean), ("median ns", cost.median)],
            )?;
            self.question(
                rep,
                LATENCY,
                &[(SINK, &latency::sink), (BARE, &latency::bare)],
                |latency| vec![("p50 µs", latency.p50), ("p99 µs", latency.p99)],
            )?;
        }
        Ok(())
    }

    /// Measures the contenders of a question one after another. Each repetition begins with another
    /// contender.
    fn question<T>(
        &mut self,
        rep: usize,
        question: &'static str,
        contenders: &[Contender<'_, T>],
        values: impl Fn(T) -> Vec<(&'static str, f64)>,
    ) -> BenchResult<()> {
        if !self.is_asked(question) {
            return Ok(());
        }
        for turn in 0..contenders.len() {
            let (name, run) = contenders[(turn + rep) % contenders.len()];
            self.contender(question, name, |bench| Ok(values(run(bench)?)))?;
        }
        Ok(())
    }
}
