//! Judges whether a running check hangs, from its output and the time that passes.
//!
//! The limit is on the time without progress, never on the total: a check that takes seven times as
//! long on a busy machine still makes progress. While tests run, only the end of a test or an
//! execution of a model counts as progress, because a hung test may print any number of lines. At
//! other times each line counts, such as the line about a crate that cargo begins to compile.

use std::{fmt::Write as _, time::Duration};

/// The time that a caller of [`Progress::pass`] waits for a line, at most.
pub const TURN: Duration = Duration::from_secs(1);
/// Longest time that is counted for one wait. A longer wait means that this process was stopped or
/// starved, and its check with it.
const AT_MOST: Duration = Duration::from_secs(2);

/// The end of the line with which a harness reports a slow test. Such a line does not count as
/// progress.
const SLOW: &str = " has been running for over ";
/// The words between a model's name and its number of executions.
const GOES_ON: &str = " goes on: ";
/// The end of a model's line about its executions, which its process prints once a minute.
pub const EXECUTIONS: &str = " executions so far";

/// Returns the line about a test that has been running for a minute, as a harness prints it.
pub fn slow(test: &str) -> String {
    format!("test {test}{SLOW}60 seconds")
}

/// Returns a line that names the model `test` and the executions that `line` reports; `None` if
/// `line` reports none.
pub fn goes_on(test: &str, line: &str) -> Option<String> {
    // The harness may have begun the same line with the test's name.
    let count = line.trim_end().strip_suffix(EXECUTIONS)?.rsplit(' ').next()?;
    Some(format!("test {test}{GOES_ON}{count}{EXECUTIONS}"))
}

/// The progress of a check.
#[derive(Debug)]
pub struct Progress {
    /// The time without progress after which the check counts as hanging.
    limit: Duration,
    /// The time since the last progress.
    quiet: Duration,
    /// The program whose tests run, as cargo prints it.
    program: Option<String>,
    /// Whether tests run.
    in_tests: bool,
    /// Tests that have been running for a minute, and have not ended.
    running: Vec<String>,
    /// The last line that was progress.
    last: String,
}

impl Progress {
    /// Begins a check.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            quiet: Duration::ZERO,
            program: None,
            in_tests: false,
            running: Vec::new(),
            last: String::new(),
        }
    }

    /// Adds `time` to the time without progress. At most one line came during `time`.
    pub fn pass(&mut self, time: Duration) {
        self.quiet += time.min(AT_MOST);
    }

    /// Reads a line of the check's output.
    pub fn read(&mut self, line: &str) {
        let line = plain(line);
        let line = line.trim();
        if self.is_progress(line) {
            self.quiet = Duration::ZERO;
            line.clone_into(&mut self.last);
        }
    }

    /// Notes what `line` reports, and returns whether that is progress.
    fn is_progress(&mut self, line: &str) -> bool {
        let starts =
            line.starts_with("Doc-tests ") || (line.starts_with("Running ") && line.ends_with(')'));
        if starts || (line.starts_with("error: ") && line.contains(", to rerun pass ")) {
            self.program = starts.then(|| line.to_owned());
            self.in_tests = false;
            self.running.clear();
        } else if line.starts_with("running ") && line.contains(" test") {
            self.in_tests = true;
        } else if line.starts_with("test result: ") {
            self.in_tests = false;
            self.running.clear();
        } else if let Some(about) = line.strip_prefix("test ") {
            if let Some((test, _)) = about.split_once(SLOW) {
                self.runs(test);
                return false;
            }
            if let Some((test, _)) = about.split_once(GOES_ON) {
                self.runs(test);
                return true;
            }
            let Some((test, _)) = about.split_once(" ... ") else { return !self.in_tests };
            self.running.retain(|running| running != test);
        } else {
            return !self.in_tests || line.ends_with(EXECUTIONS);
        }
        true
    }

    fn runs(&mut self, test: &str) {
        if self.running.iter().all(|running| running != test) {
            self.running.push(test.to_owned());
        }
    }

    /// Returns whether the time without progress has reached the limit.
    pub fn is_stuck(&self) -> bool {
        self.quiet >= self.limit
    }

    /// Returns what a user needs to know about a check that hangs. `unfinished` is the beginning of
    /// a line that the check has not finished. A harness that runs one test at a time prints the
    /// test's name there.
    pub fn report(&self, unfinished: &str) -> String {
        let Self { quiet, program, in_tests, running, last, .. } = self;
        let missing = if *in_tests { "no test ended" } else { "no line came" };
        let mut report = format!("hangs: {missing} for {} s", quiet.as_secs());
        if let Some(program) = program {
            let _ = write!(report, "\n  in: {program}");
        }
        for test in running {
            let _ = write!(report, "\n  still running: {test}");
        }
        let unfinished = plain(unfinished);
        if let Some(test) = unfinished.trim().strip_prefix("test ") {
            let test = test.split(" ...").next().unwrap_or_default();
            let _ = write!(report, "\n  still running: {test}");
        } else if *in_tests && running.is_empty() {
            report += "\n  the harness named no running test";
        }
        if !last.is_empty() {
            let _ = write!(report, "\n  last progress: {last}");
        }
        report += "\nThe check was ended with all processes that it had started. ";
        report += if *in_tests {
            "`cargo xtask test NAME`\nruns a test alone: a test that passes there was slow, not stuck."
        } else {
            "Run its command by hand\nto see what it waits for."
        };
        report
    }
}

/// Returns `line` without the escape sequences of colours.
fn plain(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, text)| text));
    std::iter::once(first).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);

    /// Lets `seconds` pass without a line.
    fn wait(progress: &mut Progress, seconds: u64) {
        (0..seconds).for_each(|_| progress.pass(TURN));
    }

    /// Reads `lines`, waits 599 s before each of them, and returns whether the check counts as
    /// hanging after any of them.
    fn hangs(lines: &[&str]) -> bool {
        let mut progress = Progress::new(LIMIT);
        lines.iter().any(|line| {
            wait(&mut progress, 599);
            progress.read(line);
            progress.is_stuck()
        })
    }

    #[test]
    fn a_check_that_makes_progress_may_take_any_time() {
        let mut long = vec!["   Compiling a v0.1.0"; 100];
        long.push("     Running unittests src/lib.rs (target/debug/deps/a-0)\n");
        long.push("running 100 tests\n");
        long.extend(vec!["test a::b ... ok\n"; 100]);
        long.push("test result: ok. 100 passed; 0 failed; 0 ignored\n");
        long.extend(vec!["\x1b[1m\x1b[32m   Compiling\x1b[0m b v0.1.0"; 100]);
        long.push("running 1 tests, each in a process of its own");
        long.extend(vec!["test loom_a goes on: 12 executions so far"; 100]);
        long.extend(vec!["12 executions so far"; 100]);
        assert!(!hangs(&long));
    }

    #[test]
    fn a_silent_check_hangs_at_the_limit() {
        let mut progress = Progress::new(LIMIT);
        wait(&mut progress, 599);
        assert!(!progress.is_stuck());
        wait(&mut progress, 1);
        assert!(progress.is_stuck());
        let report = progress.report("");
        assert!(report.starts_with("hangs: no line came for 600 s\n"), "{report}");
        progress.read("   Compiling a v0.1.0");
        wait(&mut progress, 600);
        assert!(progress.report("").contains("last progress: Compiling a v0.1.0"));
    }

    #[test]
    fn output_of_a_hanging_test_is_no_progress() {
        for noise in [
            "a line of a test",
            "test a::b has been running for over 60 seconds",
            "test of something, says a test",
            "",
        ] {
            assert!(hangs(&["running 2 tests", noise, noise]), "{noise}");
            let after = ["running 2 tests", "test result: ok. 2 passed; 0 failed", "x", "y"];
            assert!(!hangs(&after));
        }
    }

    #[test]
    fn a_harness_that_dies_ends_its_tests() {
        let died = ["running 2 tests", "error: test failed, to rerun pass `--lib`", "x", "y"];
        assert!(!hangs(&died));
        assert!(!hangs(&["running 2 tests", "   Doc-tests slipring", "x", "y"]));
    }

    #[test]
    fn a_process_that_was_stopped_does_not_blame_its_check() {
        let mut progress = Progress::new(LIMIT);
        progress.pass(Duration::from_secs(8 * 60 * 60));
        assert!(!progress.is_stuck());
    }

    #[test]
    fn the_report_names_the_tests_that_were_running() {
        let mut progress = Progress::new(LIMIT);
        for line in [
            "\x1b[1m\x1b[32m     Running\x1b[0m tests/early.rs (target/debug/deps/early-0)",
            "running 1 test",
            "test early has been running for over 60 seconds",
            "test result: ok. 1 passed; 0 failed",
            "\x1b[1m\x1b[32m     Running\x1b[0m unittests src/lib.rs (target/debug/deps/a-0)",
            "running 4 tests",
            "test a::slow has been running for over 60 seconds",
            "test a::stuck has been running for over 60 seconds",
            "test loom_b goes on: 7 executions so far",
            "test loom_b goes on: 9 executions so far",
            "test a::slow ... ok",
        ] {
            progress.read(line);
        }
        wait(&mut progress, 600);
        assert!(progress.is_stuck());
        let report = progress.report("");
        let expected = "hangs: no test ended for 600 s
  in: Running unittests src/lib.rs (target/debug/deps/a-0)
  still running: a::stuck
  still running: loom_b
  last progress: test a::slow ... ok
";
        assert!(report.starts_with(expected), "{report}");
        assert!(!report.contains("named no running test"), "{report}");
    }

    #[test]
    fn the_only_test_of_a_harness_is_named_by_its_unfinished_line() {
        let mut progress = Progress::new(LIMIT);
        progress.read("running 2 tests");
        assert!(progress.report("").contains("named no running test"));
        let report = progress.report("test a::b ... ");
        assert!(report.contains("  still running: a::b\n"), "{report}");
    }

    #[test]
    fn executions_of_a_model_are_passed_on() {
        let expected = Some("test loom_a goes on: 12 executions so far".to_owned());
        assert_eq!(goes_on("loom_a", "12 executions so far\n"), expected);
        assert_eq!(goes_on("loom_a", "test loom_a ... 12 executions so far\n"), expected);
        assert_eq!(goes_on("loom_a", "12 executions in 3.0s\n"), None);
    }
}
