//! One run of one mode, and what it came to.

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
use super::summary::Summary;
use super::work::Work;
use super::{executor, sequential};

/// Rows under way at most, unless a job says otherwise.
pub const CAPACITY: usize = 1 << 12;

/// A way to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// One thread.
    Sequential,
    /// A queue per worker and a thread that merges.
    Executor,
    /// A ring.
    Slipring,
}

impl Mode {
    /// All ways, the baseline first.
    pub const ALL: [Self; 3] = [Self::Sequential, Self::Executor, Self::Slipring];

    /// How many threads it takes, the producer's included.
    pub fn threads(self, workers: usize) -> usize {
        match self {
            Self::Sequential => 1,
            Self::Executor => workers + 2,
            Self::Slipring => workers + 4,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sequential => "sequential",
            Self::Executor => "executor",
            Self::Slipring => "slipring",
        })
    }
}

/// What is to be done, whatever the mode.
#[derive(Clone, Debug)]
pub struct Job {
    /// How often the data is taken, each time shifted further.
    pub repeat: u64,
    /// Threads that parse.
    pub workers: usize,
    /// Rows under way at most: the ring's slots, the executor's rows.
    pub capacity: usize,
    /// Rows in a parcel of the executor.
    pub parcel: usize,
    /// How the ring's threads wait.
    pub wait: Wait,
    /// Where the journal goes.
    pub output: Option<PathBuf>,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// From the first line to the end of the journal, threads started and joined included.
    pub elapsed: Duration,
    /// What all threads together used of the processors in that time.
    pub cpu: Duration,
    /// Nanoseconds from a row's entry to its lines in the journal.
    pub latency: Histogram<u64>,
    /// CRC-32 of the journal.
    pub journal: u32,
    /// CRC-32 of the summary's text.
    pub checksum: u32,
    /// The summary's text.
    pub text: String,
    /// The summary.
    pub summary: Summary,
    /// What the ring reports, if there was one.
    pub report: Option<String>,
}

impl Outcome {
    /// Rows per second.
    pub fn rate(&self) -> f64 {
        self.summary.rows() as f64 / self.elapsed.as_secs_f64()
    }
}

/// Runs a job in a mode.
pub fn once(mode: Mode, input: &Input, job: &Job, bar: &ProgressBar) -> Result<Outcome> {
    let (feed, columns) = (input.feed(job.repeat, bar)?, input.columns());
    let mut work = Work::start(job.output.as_deref())?;

    let executor =
        executor::Size { workers: job.workers, capacity: job.capacity, parcel: job.parcel };
    let (started, cpu) = (Instant::now(), ProcessTime::now());
    let report = match mode {
        Mode::Sequential => sequential::run(feed, columns, &mut work).map(|()| None),
        Mode::Executor => executor::run(feed, columns, executor, &mut work).map(|()| None),
        Mode::Slipring => {
            ring::run(feed, columns, job.workers, job.capacity, job.wait.clone(), &mut work)
                .map(Some)
        }
    }?;
    work.journal.finish()?;
    let (elapsed, cpu) = (started.elapsed(), cpu.elapsed());

    let Work { journal, summary, .. } = work;
    let text = summary.render();
    Ok(Outcome {
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
