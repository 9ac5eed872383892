//! A case: a program under a schedule, as a line of a file.

use std::fmt;
use std::io::Write;

use serde::{Deserialize, Serialize};
use slipring_coherence::Schedule;

use crate::play::play;
use crate::program::Program;

/// A program, and the schedule under which it did something remarkable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The planted defect with which it fails. Without one, it must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<String>,
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

    /// Runs the case under its schedule, and then under others like it. Returns what the first run
    /// found that failed.
    fn find(&self, schedules: u64) -> Option<Case> {
        let _planted = self.twin.clone().map(|twin| slipring_coherence::plant(twin.leak()));
        for number in 0..schedules {
            let seed = self.schedule.seed.wrapping_add(number);
            let schedule = Schedule { seed, ..self.schedule.clone() };
            if let Err(broken) = play(&self.program, &schedule) {
                let found = broken.first_line().to_owned();
                return Some(Case { found, schedule, ..self.clone() });
            }
        }
        None
    }
}

/// Runs all cases, each under so many schedules: one with a twin has to fail under one of them, any
/// other has to hold under all. Returns whether it was so.
pub fn run_all(cases: &[Case], schedules: u64, out: &mut dyn Write) -> bool {
    let mut wrong = 0;
    for case in cases {
        match (&case.twin, case.find(schedules)) {
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
