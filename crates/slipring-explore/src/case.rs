//! A case: a program under a schedule, as a line of a file.

use std::fmt;
use std::io::Write;

use serde::{Deserialize, Serialize};
use slipring_coherence::{Report, Schedule};

use crate::play::{Broken, play};
use crate::program::Program;
use crate::twins::Twin;

/// A program, and the schedule under which it did something remarkable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The planted defect with which it fails, and without which it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<Twin>,
    /// Its failure, in a line.
    pub found: String,
    /// The schedule.
    pub schedule: Schedule,
    /// The program.
    pub program: Program,
}

/// A line that holds no case.
#[derive(Debug, thiserror::Error)]
#[error("line {line} holds no case: {problem}")]
pub struct NotACase {
    line: usize,
    problem: serde_json::Error,
}

impl Case {
    /// Returns the cases of a file with one on each line. Lines that begin with `#` are comments.
    ///
    /// # Errors
    ///
    /// If a line holds none.
    pub fn all(text: &str) -> Result<Vec<Case>, NotACase> {
        let lines = text.lines().enumerate();
        let cases = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let read = |(number, line)| {
            serde_json::from_str(line).map_err(|problem| NotACase { line: number + 1, problem })
        };
        cases.map(read).collect()
    }

    /// Runs the case with its defect. Returns also how often the step was reached that the defect
    /// changes.
    pub fn play(&self) -> (Result<Report, Broken>, u64) {
        let planted = self.twin.map(|twin| slipring_coherence::plant(twin.name));
        let run = play(&self.program, &self.schedule);
        (run, planted.map_or(0, |planted| planted.reached()))
    }

    /// Returns the case without its defect.
    pub fn sound(&self) -> Case {
        Case { twin: None, ..self.clone() }
    }

    /// Returns how the case fails with its defect, if it holds without.
    pub fn fails(&self) -> Option<Broken> {
        let broken = self.play().0.err()?;
        let holds = self.twin.is_none() || self.sound().play().0.is_ok();
        holds.then_some(broken)
    }

    /// Runs the case under its schedule, and then under `schedules - 1` others like it. Returns the
    /// first that fails.
    pub fn find(&self, schedules: u64) -> Option<Case> {
        (0..schedules).find_map(|number| {
            let seed = self.schedule.seed.wrapping_add(number);
            let schedule = Schedule { seed, ..self.schedule.clone() };
            let case = Case { schedule, ..self.clone() };
            let found = case.fails()?.first_line().to_owned();
            Some(Case { found, ..case })
        })
    }
}

/// Runs all cases, each under so many schedules: one with a twin has to fail under one of them, any
/// other has to hold under all. Writes each case to `kept`, those of twins under the schedule with
/// which they fail now. Returns whether it was so.
pub fn run_all(cases: &[Case], schedules: u64, out: &mut dyn Write, kept: &mut dyn Write) -> bool {
    let mut wrong = 0;
    for case in cases {
        let found = case.find(schedules);
        let _ = writeln!(kept, "{}", found.as_ref().filter(|it| it.twin.is_some()).unwrap_or(case));
        match (&case.twin, found) {
            (Some(_), Some(_)) | (None, None) => {}
            (Some(twin), None) => {
                wrong += 1;
                let _ = writeln!(out, "the twin {twin} is no longer found by\n{case}");
            }
            (None, Some(found)) => {
                wrong += 1;
                let _ = writeln!(out, "{}, again:\n{found}", found.found);
            }
        }
    }
    let _ = writeln!(out, "{} cases under up to {schedules} schedules: {wrong} wrong", cases.len());
    wrong == 0
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("plain data is written without an error"))
    }
}
