//! What a comparison looks like: medians of the rounds, their spread, and how far they can be
//! trusted.

use std::fmt::Write as _;

use super::compare::{Comparison, Runs};
use super::format::{duration, thousands};
use super::measure::{Job, Outcome};

/// The middle of some figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let (low, high) = (figures.len().saturating_sub(1) / 2, figures.len() / 2);
    match figures.as_slice() {
        [] => 0.0,
        figures => (figures[low] + figures[high]) / 2.0,
    }
}

/// The table and what is to be said about it.
pub fn render(Comparison { job, modes: runs }: &Comparison, rows: u64, cores: usize) -> String {
    let mut text = String::new();
    let rounds = runs.first().map_or(0, |runs| runs.outcomes.len());
    let _ = writeln!(
        text,
        "rows: {}, times {} = {} a run; rounds: {rounds}, figures are their medians",
        thousands(rows),
        thousands(job.repeat),
        thousands(rows.saturating_mul(job.repeat))
    );
    let _ = writeln!(
        text,
        "workers: {}; rows under way: at most {}; rows in a parcel of the executor: {}; wait of the ring: {}\n",
        job.workers,
        thousands(job.capacity as u64),
        job.parcel,
        job.wait
    );
    let _ = writeln!(
        text,
        "{:<10}  {:>7}  {:>11}  {:>22}  {:>9}  {:>9}  {:>11}  {:>10}  {:>8}  {:>8}",
        "mode",
        "threads",
        "rows/s",
        "slowest to fastest",
        "p50",
        "p99.9",
        "CPU-seconds",
        "cores used",
        "journal",
        "summary"
    );
    for Runs { mode, outcomes } in runs {
        let rates: Vec<f64> = outcomes.iter().map(Outcome::rate).collect();
        let (slowest, fastest) = range(&rates);
        let figure = |of: &dyn Fn(&Outcome) -> f64| median(outcomes.iter().map(of).collect());
        let quantile = |q: f64| duration(figure(&|o| o.latency.value_at_quantile(q) as f64) as u64);
        let _ = writeln!(
            text,
            "{mode:<10}  {:>7}  {:>11}  {:>22}  {:>9}  {:>9}  {:>11.2}  {:>10.2}  {:>8}  {:>8}",
            mode.threads(job.workers),
            thousands(median(rates) as u64),
            format!("{} to {}", thousands(slowest as u64), thousands(fastest as u64)),
            quantile(0.5),
            quantile(0.999),
            figure(&|o| o.cpu.as_secs_f64()),
            figure(&cores_used),
            checksums(outcomes, |o| o.journal),
            checksums(outcomes, |o| o.checksum),
        );
    }
    text.push('\n');
    verdicts(&mut text, runs);
    cores_told(&mut text, runs, job, cores);
    text
}

fn cores_used(outcome: &Outcome) -> f64 {
    outcome.cpu.as_secs_f64() / outcome.elapsed.as_secs_f64()
}

/// The checksum all rounds of a mode agree on, or that they do not.
fn checksums(outcomes: &[Outcome], of: fn(&Outcome) -> u32) -> String {
    let mut all: Vec<u32> = outcomes.iter().map(of).collect();
    all.dedup();
    match all.as_slice() {
        [one] => format!("{one:08x}"),
        _ => "differ".to_owned(),
    }
}

/// Each mode against those before it, round by round: what disturbed a round disturbed both, more
/// or less.
fn verdicts(text: &mut String, runs: &[Runs]) {
    for (i, this) in runs.iter().enumerate() {
        for that in &runs[..i] {
            let rounds = this.outcomes.iter().zip(&that.outcomes);
            let ratios: Vec<f64> = rounds.map(|(this, that)| this.rate() / that.rate()).collect();
            let (low, high) = range(&ratios);
            let verdict = match ratios.len() {
                1 => ": one round says little",
                _ if low <= 1.0 && high >= 1.0 => ": no difference beyond the noise",
                _ => "",
            };
            let (this, that, ratio) = (this.mode, that.mode, median(ratios));
            let _ = writeln!(
                text,
                "{this} does {ratio:.2} times the rows of {that} ({low:.2} to {high:.2}){verdict}"
            );
        }
    }
}

fn cores_told(text: &mut String, runs: &[Runs], job: &Job, cores: usize) {
    let crowded: Vec<String> = (runs.iter().map(|runs| runs.mode))
        .filter(|mode| mode.threads(job.workers) > cores)
        .map(|mode| format!("{mode} ({} threads)", mode.threads(job.workers)))
        .collect();
    let _ = match crowded.as_slice() {
        [] => writeln!(text, "{cores} cores: enough for the threads of every mode"),
        crowded => {
            writeln!(
                text,
                "{cores} cores: oversubscribed by {}, whose threads wait for a core",
                crowded.join(" and ")
            )
        }
    };
    // A thread that never waits keeps a core busy, unless it does not get it.
    let alone =
        runs.first().map_or(1.0, |runs| median(runs.outcomes.iter().map(cores_used).collect()));
    if alone < 0.9 {
        let _ = writeln!(
            text,
            "one thread got only {alone:.2} of a core: this machine is busy with something else, measure again"
        );
    }
    text.push_str("rows enter as fast as they are taken: with queues, p50 and p99.9 tell how full these were\n");
}

fn range(figures: &[f64]) -> (f64, f64) {
    let low = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let high = figures.iter().copied().fold(0.0, f64::max);
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0]), 3.0);
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), 3.0);
    }
}
