//! All modes on the same rows in one go, a few rounds in turn, since the machine is another one
//! from second to second.

use std::time::Instant;

use anyhow::{Result, bail};
use indicatif::ProgressBar;

use super::input::Input;
use super::measure::{Job, Mode, Outcome, once};

/// Rounds; each runs every mode once, beginning with another one.
const ROUNDS: usize = 3;

/// What a round of the sequential mode should take, in seconds.
const ROUND: f64 = 1.0;

/// All runs of a mode, in the order of the rounds.
#[derive(Debug)]
pub struct Runs {
    /// The mode.
    pub mode: Mode,
    /// What each run came to.
    pub outcomes: Vec<Outcome>,
}

/// All runs of all modes.
#[derive(Debug)]
pub struct Comparison {
    /// What was done.
    pub job: Job,
    /// Who did it.
    pub modes: [Runs; Mode::ALL.len()],
}

/// Runs every mode in every round. Unless the job's number of repetitions is fixed, it takes as
/// many as keep one thread busy for a second.
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

/// How many repetitions keep one thread busy for a round.
fn calibrate(input: &Input, job: &Job) -> Result<u64> {
    let job = Job { repeat: 1, output: None, ..job.clone() };
    let (mut rows, started) = (0, Instant::now());
    // A tenth of a round, so that a small file counts, too, and the processor has woken up.
    while started.elapsed().as_secs_f64() < ROUND / 10.0 {
        rows += once(Mode::Sequential, input, &job, &ProgressBar::hidden())?.summary.rows();
    }
    let rate = rows as f64 / started.elapsed().as_secs_f64();
    let repeat = (rate * ROUND / input.rows() as f64).ceil() as u64;
    Ok(repeat.clamp(1, input.most_repeats()))
}

impl Comparison {
    /// Every run must have written the same journal and the same summary; the error names a mode
    /// that did not.
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
    fn a_mode_that_differs_is_named() {
        let header = "origin,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n";
        let rows =
            "A,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\nB,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n";
        let input = Input::from_text(format!("{header}{rows}")).unwrap();
        let wait = super::super::ring::Wait::Blocking;
        let job = Job { repeat: 3, workers: 2, capacity: 4, parcel: 1, wait, output: None };
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
