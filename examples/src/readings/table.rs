//! The comparison as text: medians of the rounds, their spread, and remarks on the noise.

use std::fmt::Write as _;
use std::time::Duration;

use indicatif::HumanCount;
use slipring_support::numbers::{duration, median};
use slipring_support::tables::markdown;

use super::compare::{Comparison, Runs};
use super::measure::{Job, JobResult};

/// Returns the table and the remarks on it. If one table is too wide for a terminal of `width`
/// characters, the result is several narrow tables.
pub fn render(
    Comparison { job, modes: runs }: &Comparison,
    rows: u64,
    cores: usize,
    width: Option<usize>,
) -> String {
    let rounds = runs.first().map_or(0, |runs| runs.outcomes.len());
    let [rows, repeat, all] = [rows, job.repeat, rows.saturating_mul(job.repeat)].map(HumanCount);
    let mut text = format!(
        "{rows} rows times {repeat} = {all} rows a run; rounds: {rounds}, figures are medians\n\
         workers: {}; rows in flight: at most {}\n\
         rows in a batch of the executor: {}; wait strategy of the ring: {}\n\n",
        job.workers,
        HumanCount(job.capacity as u64),
        job.batch,
        job.wait
    );
    let header = [
        "mode",
        "threads",
        "rows/s",
        "slowest to fastest",
        "p50",
        "p99.9",
        "CPU time",
        "cores used",
        "journal",
        "summary",
    ];
    let rows: Vec<Vec<String>> = runs.iter().map(|runs| row(runs, job).into()).collect();
    let _ = writeln!(text, "{}\n", markdown(&header.map(str::to_owned), &rows, width));
    ratios(&mut text, runs);
    remark_on_cores(&mut text, runs, job, cores);
    text
}

/// Returns the table's row of one mode.
fn row(Runs { mode, outcomes }: &Runs, job: &Job) -> [String; 10] {
    let rates: Vec<f64> = outcomes.iter().map(JobResult::rate).collect();
    let count = |rate: f64| HumanCount(rate as u64).to_string();
    let (slowest, fastest) = range(&rates);
    let figure = |of: &dyn Fn(&JobResult) -> f64| median(outcomes.iter().map(of).collect());
    let quantile = |q: f64| {
        let nanoseconds = figure(&|outcome| outcome.latency.value_at_quantile(q) as f64);
        duration(Duration::from_nanos(nanoseconds as u64))
    };
    [
        mode.to_string(),
        mode.threads(job.workers).to_string(),
        count(median(rates)),
        format!("{} to {}", count(slowest), count(fastest)),
        quantile(0.5),
        quantile(0.999),
        duration(Duration::from_secs_f64(figure(&|outcome| outcome.cpu.as_secs_f64()))),
        format!("{:.2}", figure(&cores_used)),
        checksums(outcomes, |outcome| outcome.journal),
        checksums(outcomes, |outcome| outcome.checksum),
    ]
}

fn cores_used(outcome: &JobResult) -> f64 {
    outcome.cpu.as_secs_f64() / outcome.elapsed.as_secs_f64()
}

/// Returns the common checksum of all rounds, or `differ`.
fn checksums(outcomes: &[JobResult], of: fn(&JobResult) -> u32) -> String {
    let mut all: Vec<u32> = outcomes.iter().map(of).collect();
    all.dedup();
    match all.as_slice() {
        [one] => format!("{one:08x}"),
        _ => "differ".to_owned(),
    }
}

/// Writes the speed of each mode as a ratio to the modes before it. Ratios are taken within a
/// round, because a disturbance of the machine slows all modes of a round.
fn ratios(text: &mut String, runs: &[Runs]) {
    for (i, this) in runs.iter().enumerate() {
        for that in &runs[..i] {
            let rounds = this.outcomes.iter().zip(&that.outcomes);
            let ratios: Vec<f64> = rounds.map(|(this, that)| this.rate() / that.rate()).collect();
            let (low, high) = range(&ratios);
            let remark = match ratios.len() {
                1 => "; one round shows little",
                _ if low <= 1.0 && high >= 1.0 => "; no difference beyond the noise",
                _ => "",
            };
            let (this, that, ratio) = (this.mode, that.mode, median(ratios));
            let _ = writeln!(
                text,
                "{this}: {ratio:.2} times the rows of {that} ({low:.2} to {high:.2}){remark}"
            );
        }
    }
}

/// Writes which modes have more threads than cores, and whether other processes used the cores.
fn remark_on_cores(text: &mut String, runs: &[Runs], job: &Job, cores: usize) {
    let oversubscribed: Vec<String> = (runs.iter().map(|runs| runs.mode))
        .filter(|mode| mode.threads(job.workers) > cores)
        .map(|mode| format!("{mode} ({} threads)", mode.threads(job.workers)))
        .collect();
    let _ = match oversubscribed.as_slice() {
        [] => writeln!(text, "{cores} cores: enough for the threads of every mode"),
        modes => writeln!(text, "{cores} cores: oversubscribed by {}", modes.join(" and ")),
    };
    // The sequential thread never waits, so it uses a whole core unless it does not get one.
    let sequential =
        runs.first().map_or(1.0, |runs| median(runs.outcomes.iter().map(cores_used).collect()));
    if sequential < 0.9 {
        let _ = writeln!(
            text,
            "the sequential mode got only {sequential:.2} of a core: other processes use this \
             machine, measure again"
        );
    }
    text.push_str("rows enter at full speed, so p50 and p99.9 show how full the queues were\n");
}

fn range(figures: &[f64]) -> (f64, f64) {
    let low = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let high = figures.iter().copied().fold(0.0, f64::max);
    (low, high)
}
