//! Runs all modes on the same rows, interleaved in rounds, because the speed of a machine changes
//! from second to second.

use std::time::Instant;

use anyhow::{Result, bail};
use indicatif::ProgressBar;

use super::input::Input;
use super::measure::{Job, JobResult, Mode, once};

/// Number of rounds. Each round runs every mode once, and each begins with a different mode.
const ROUNDS: usize = 3;

/// Length of a run of the sequential mode, in seconds.
const RUN_SECONDS: f64 = 1.0;

/// All runs of a mode, in the order of the rounds.
#[derive(Debug)]
pub struct Runs {
    /// Mode of the runs.
    pub mode: Mode,
    /// Results of the runs.
    pub outcomes: Vec<JobResult>,
}

/// All runs of all modes.
#[derive(Debug)]
pub struct Comparison {
    /// Job that every run did.
    pub job: Job,
    /// Runs by mode.
    pub modes: [Runs; Mode::ALL.len()],
}

/// Runs every mode in every round. Unless the number of repetitions is fixed, chooses the number
/// that keeps one thread busy for `RUN_SECONDS`.
pub fn all(
    input: &Input,
    job: &Job,
    fixed: bool,
    smoke: bool,
    bar: &ProgressBar,
) -> Result<Comparison> {
    let rounds = if smoke { 1 } else { ROUNDS };
    let mut job = job.clone();
    if !fixed && !smoke {
        job.repeat = calibrate(input, &job)?;
    }
    bar.set_length(input.total(job.repeat)?.saturating_mul((rounds * Mode::ALL.len()) as u64));

    let mut modes = Mode::ALL.map(|mode| Runs { mode, outcomes: Vec::new() });
    for round in 0..rounds {
        for turn in 0..modes.len() {
            let runs = &mut modes[(round + turn) % Mode::ALL.len()];
            bar.set_message(runs.mode.to_string());
            runs.outcomes.push(once(runs.mode, input, &job, bar)?);
        }
    }
    bar.finish_and_clear();
    Ok(Comparison { job, modes })
}

/// Returns the number of repetitions that keep one thread busy for `RUN_SECONDS`.
fn calibrate(input: &Input, job: &Job) -> Result<u64> {
    let job = Job { repeat: 1, output: None, ..job.clone() };
    let (mut rows, started) = (0, Instant::now());
    // The runs repeat for a tenth of `RUN_SECONDS`, so that a small file gives a rate, too, and the
    // processor reaches its full clock rate.
    while started.elapsed().as_secs_f64() < RUN_SECONDS / 10.0 {
        rows += once(Mode::Sequential, input, &job, &ProgressBar::hidden())?.summary.rows();
    }
    let rate = rows as f64 / started.elapsed().as_secs_f64();
    let repeat = (rate * RUN_SECONDS / input.rows() as f64).ceil() as u64;
    Ok(repeat.clamp(1, input.max_repeats()))
}

impl Comparison {
    /// Fails unless every run wrote the same journal and the same summary. The error names a mode
    /// that differs.
    pub fn agree(&self) -> Result<()> {
        let first = &self.modes[0];
        let expected = &first.outcomes[0];
        for Runs { mode, outcomes } in &self.modes {
            for outcome in outcomes {
                if outcome.journal != expected.journal {
                    let (a, b) = (outcome.journal, expected.journal);
                    bail!(
                        "the journal of {mode} differs from that of {}: checksum {a:08x}, not {b:08x}",
                        first.mode
                    );
                }
                if outcome.text != expected.text {
                    let (a, b) = (outcome.checksum, expected.checksum);
                    bail!(
                        "the summary of {mode} differs from that of {}: checksum {a:08x}, not {b:08x}",
                        first.mode
                    );
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_mode_that_differs() {
        let header = "origin,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n";
        let rows =
            "A,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\nB,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n";
        let input = Input::from_text(format!("{header}{rows}")).unwrap();
        let wait = super::super::ring::Wait::Blocking;
        let job = Job { repeat: 3, workers: 2, capacity: 4, batch: 1, wait, output: None };
        let run = |mode| once(mode, &input, &job, &ProgressBar::hidden()).unwrap();
        let modes = Mode::ALL.map(|mode| Runs { mode, outcomes: vec![run(mode), run(mode)] });
        let mut runs = Comparison { job: job.clone(), modes };
        runs.agree().unwrap();

        runs.modes[1].outcomes[1].text.push('x');
        let error = runs.agree().unwrap_err().to_string();
        assert!(
            error.starts_with("the summary of executor differs from that of sequential: "),
            "{error}"
        );
        runs.modes[1].outcomes[0].journal ^= 1;
        let error = runs.agree().unwrap_err().to_string();
        assert!(
            error.starts_with("the journal of executor differs from that of sequential: checksum "),
            "{error}"
        );
    }
}
