//! One run of one mode, and its result.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use cpu_time::ProcessTime;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use super::input::Input;
use super::ring::{self, Wait};
use super::stages::Stages;
use super::summary::Summary;
use super::{executor, sequential};

/// Default for the maximum number of rows in flight in a job.
pub const CAPACITY: usize = 1 << 12;

/// A way to run the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// One thread.
    Sequential,
    /// An executor: a queue for each worker, and a thread that merges the queues.
    Executor,
    /// A ring whose stages have a thread each.
    Slipring,
    /// A ring whose stages share as many threads as there are cores.
    SlipringShared,
    /// The ring of `SlipringShared`, built as a graph.
    SlipringGraph,
}

impl Mode {
    /// All modes, the baseline first.
    pub const ALL: [Self; 5] = [
        Self::Sequential,
        Self::Executor,
        Self::Slipring,
        Self::SlipringShared,
        Self::SlipringGraph,
    ];

    /// Returns the number of threads, the producer's included.
    pub fn threads(self, workers: usize) -> usize {
        match self {
            Self::Sequential => 1,
            Self::Executor => workers + 2,
            Self::Slipring => workers + 4,
            // The producer's thread is one of these threads. There are at least two of them.
            Self::SlipringShared | Self::SlipringGraph => cores().min(workers + 3).max(2),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sequential => "sequential",
            Self::Executor => "executor",
            Self::Slipring => "slipring",
            Self::SlipringShared => "slipring-shared",
            Self::SlipringGraph => "slipring-graph",
        })
    }
}

/// Returns the number of cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The parameters of a run, for all modes.
#[derive(Clone, Debug)]
pub struct Job {
    /// Number of repetitions of the data. Each repetition has later times than the previous one.
    pub repeat: u64,
    /// Number of parsing threads.
    pub workers: usize,
    /// Maximum number of rows in flight: the ring's slots, or the executor's rows.
    pub capacity: usize,
    /// Number of rows in a batch of the executor.
    pub batch: usize,
    /// Wait strategy of the ring's threads.
    pub wait: Wait,
    /// File of the journal.
    pub output: Option<PathBuf>,
}

/// The result of a run.
#[derive(Debug)]
pub struct JobResult {
    /// Time from the first record to the end of the journal, with starting and joining threads.
    pub elapsed: Duration,
    /// Processor time of all threads during `elapsed`.
    pub cpu: Duration,
    /// Times from a row's entry to its lines in the journal, in nanoseconds.
    pub latency: Histogram<u64>,
    /// CRC-32 of the journal.
    pub journal: u32,
    /// CRC-32 of the summary's text.
    pub checksum: u32,
    /// Text of the summary.
    pub text: String,
    /// Summary of all rows.
    pub summary: Summary,
    /// Report of the ring, if the mode has one.
    pub report: Option<String>,
}

impl JobResult {
    /// Returns the rows per second.
    pub fn rate(&self) -> f64 {
        self.summary.rows() as f64 / self.elapsed.as_secs_f64()
    }
}

/// Runs a job in a mode.
pub fn once(mode: Mode, input: &Input, job: &Job, bar: &ProgressBar) -> Result<JobResult> {
    let (feed, schema) = (input.feed(job.repeat, bar)?, input.schema());
    let mut stages = Stages::start(job.output.as_deref())?;

    let executor =
        executor::Size { workers: job.workers, capacity: job.capacity, batch: job.batch };
    let Job { workers, capacity, wait, .. } = job.clone();
    let ring = ring::Settings { workers, capacity, wait };
    let (started, cpu) = (Instant::now(), ProcessTime::now());
    let report = match mode {
        Mode::Sequential => sequential::run(feed, schema, &mut stages).map(|()| None),
        Mode::Executor => executor::run(feed, schema, executor, &mut stages).map(|()| None),
        Mode::Slipring => ring::run(feed, schema, &ring, false, &mut stages).map(Some),
        Mode::SlipringShared => ring::run(feed, schema, &ring, true, &mut stages).map(Some),
        Mode::SlipringGraph => ring::run_graph(feed, schema, &ring, &mut stages).map(Some),
    }?;
    stages.journal.flush()?;
    let (elapsed, cpu) = (started.elapsed(), cpu.elapsed());

    let Stages { journal, summary, .. } = stages;
    let text = summary.render();
    Ok(JobResult {
        elapsed,
        cpu,
        latency: journal.latency().clone(),
        journal: journal.checksum(),
        checksum: crc32fast::hash(text.as_bytes()),
        text,
        summary,
        report,
    })
}
