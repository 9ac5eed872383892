//! Making a failing case smaller: fewer steps and lies, and simpler options.
//!
//! Invariants
//! - I1: each change is kept only if the smaller case fails as well.

use std::time::{Duration, Instant};

use super::case::Case;
use super::play::play;

/// Greatest number of runs.
const RUNS: usize = 3000;
/// Time after which no smaller case is tried.
const TIME: Duration = Duration::from_secs(20);

/// Returns a smaller case that fails.
pub fn shrink(case: Case) -> Case {
    let mut shrinking = Shrinking { case, runs: 0, begun: Instant::now() };
    loop {
        let before = shrinking.case.clone();
        shrinking.steps();
        shrinking.lies();
        shrinking.options();
        if shrinking.case == before {
            return before;
        }
    }
}

struct Shrinking {
    case: Case,
    runs: usize,
    begun: Instant,
}

impl Shrinking {
    /// Keeps `case` if it fails (I1).
    fn keep(&mut self, case: Case) -> bool {
        self.runs += 1;
        if self.runs > RUNS || self.begun.elapsed() > TIME || case == self.case {
            return false;
        }
        let Some(found) = play(&case, false).broken else { return false };
        self.case = Case { found, ..case };
        true
    }

    /// Leaves out steps, many at once first, and the time between steps.
    fn steps(&mut self) {
        let mut length = self.case.steps.len();
        while length > 0 {
            let mut at = 0;
            while at < self.case.steps.len() {
                let mut case = self.case.clone();
                case.steps.drain(at..(at + length).min(case.steps.len()));
                if !self.keep(case) {
                    at += length;
                }
            }
            length /= 2;
        }
        for at in 0..self.case.steps.len() {
            let mut case = self.case.clone();
            case.steps[at].0 = 0;
            self.keep(case);
        }
    }

    /// Leaves out lies.
    fn lies(&mut self) {
        let last = self.case.lies.keys().copied().collect::<Vec<u64>>();
        for (share, number) in (1..).zip(last.iter()) {
            let mut case = self.case.clone();
            let rest = case.lies.split_off(number);
            if share < last.len() && !rest.is_empty() && self.keep(case) {
                break;
            }
        }
        for number in last {
            let mut case = self.case.clone();
            case.lies.remove(&number);
            self.keep(case);
        }
    }

    fn options(&mut self) {
        let changes: [fn(&mut Case); 8] = [
            |case| case.windows = vec![1],
            |case| case.windows = vec![2],
            |case| case.frame_events = 1,
            |case| case.linger_ms = 0,
            |case| case.latency_ms = 1,
            |case| case.read_ms = 1,
            |case| case.source_slots = 23,
            |case| case.ack_ms = 300,
        ];
        for change in changes {
            let mut case = self.case.clone();
            change(&mut case);
            self.keep(case);
        }
    }
}
