//! A run of several checks, each announced and timed, with a summary at the end.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use crate::{
    command::{Call, Tally},
    say::say,
    workspace,
};

/// The time without progress after which a call hangs. The limit is not on the total time, because
/// that depends on what else the machine does.
pub const LIMIT: Duration = Duration::from_secs(10 * 60);
/// The time after which the watchdog of a slow test ends the test. In `watchdog.rs`, tests under
/// Miri and soak tests get this time.
pub const SLOW_TEST: Duration = Duration::from_secs(2 * 60 * 60);

/// The reason why a step did not pass.
#[derive(Debug)]
pub enum Trouble {
    /// The check found something.
    Failed(String),
    /// The check needs a tool that is not installed.
    Missing {
        /// The tool.
        what: String,
        /// The command that installs it.
        install: String,
    },
}

impl Trouble {
    /// Reports a missing tool.
    pub fn missing(what: impl Into<String>, install: impl Into<String>) -> Self {
        Self::Missing { what: what.into(), install: install.into() }
    }
}

impl From<String> for Trouble {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The surroundings of a step.
#[derive(Debug, Clone)]
pub struct Step {
    /// The workspace's root.
    pub root: PathBuf,
    /// The folder that cargo builds into.
    pub target: PathBuf,
    /// This program's file. The run asks for the path at its start, because a step's build may
    /// replace the file, and the system then reports the running file as deleted.
    pub program: PathBuf,
    /// The test results so far.
    pub tally: Tally,
}

impl Step {
    /// Runs `call` at the workspace's root.
    pub fn run(&mut self, call: &Call) -> Result<(), Trouble> {
        self.run_within(limit(stated()), call)
    }

    /// Runs `call` at the workspace's root. Each of its tests may take as long as [`SLOW_TEST`].
    pub fn run_slow(&mut self, call: &Call) -> Result<(), Trouble> {
        self.run_within(limit(stated().max(SLOW_TEST)), call)
    }

    fn run_within(&mut self, limit: Duration, call: &Call) -> Result<(), Trouble> {
        Ok(call.run(&self.root, limit, &mut self.tally)?)
    }

    /// Fails if no test has run, because a filter that fits nothing is a mistake.
    pub fn some_tests(&self) -> Result<(), Trouble> {
        if self.tally.passed > 0 {
            Ok(())
        } else {
            Err(Trouble::Failed("no test ran: the filter fits none".to_owned()))
        }
    }

    /// Returns the folder `name` below the target folder, which only this step uses.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.target.join(name)
    }
}

/// Returns the time that a caller's `SLIPRING_TEST_LIMIT` gives a single test; none by default.
fn stated() -> Duration {
    let seconds = env::var("SLIPRING_TEST_LIMIT").ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(Duration::ZERO, Duration::from_secs)
}

/// Returns how long a call may make no progress. The limit is longer than `test`, the time after
/// which the watchdog ends a test: the watchdog must act first, because it knows the test's name.
fn limit(test: Duration) -> Duration {
    if test < LIMIT { LIMIT } else { test + LIMIT }
}

/// A step that has ended.
struct Done {
    name: String,
    took: Duration,
    tally: Tally,
    trouble: Option<Trouble>,
}

/// The treatment of missing tools and failures.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy {
    /// Whether a missing tool is a warning.
    pub allow_missing: bool,
    /// Whether the first failure ends the run.
    pub fail_fast: bool,
}

/// Several steps in sequence.
pub struct CheckRun {
    root: PathBuf,
    target: PathBuf,
    program: PathBuf,
    policy: Policy,
    started: Instant,
    done: Vec<Done>,
}

impl CheckRun {
    /// Begins a run.
    pub fn new(policy: Policy) -> Self {
        let (root, target) = (workspace::root(), workspace::target());
        let program = env::current_exe().unwrap_or_default();
        Self { root, target, program, policy, started: Instant::now(), done: Vec::new() }
    }

    /// Returns the workspace's root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Runs one step, unless an earlier failure has ended the run.
    pub fn step(
        &mut self,
        name: impl Into<String>,
        check: impl FnOnce(&mut Step) -> Result<(), Trouble>,
    ) {
        if self.policy.fail_fast && self.failures() > 0 {
            return;
        }
        let name = name.into();
        say!("\n==> {name}");
        let started = Instant::now();
        let mut step = Step {
            root: self.root.clone(),
            target: self.target.clone(),
            program: self.program.clone(),
            tally: Tally::default(),
        };
        let trouble = check(&mut step).err();
        let took = started.elapsed();
        match &trouble {
            None => say!("<== {name}: ok in {took:.1?}"),
            Some(Trouble::Failed(why)) => say!("<== {name}: FAILED in {took:.1?}\n{why}"),
            Some(trouble @ Trouble::Missing { .. }) => loudly(&name, trouble),
        }
        let done = Done { name, took, tally: step.tally, trouble };
        self.done.push(done);
    }

    /// Returns the number of failed steps.
    fn failures(&self) -> usize {
        let fatal = |done: &&Done| match done.trouble {
            None => false,
            Some(Trouble::Failed(_)) => true,
            Some(Trouble::Missing { .. }) => !self.policy.allow_missing,
        };
        self.done.iter().filter(fatal).count()
    }

    /// Prints a summary with the time of each step, and then a closing line like that of a test
    /// harness.
    pub fn finish(self) -> ExitCode {
        say!("\n==> summary");
        let width = self.done.iter().map(|done| done.name.len()).max().unwrap_or(0).max(10);
        for Done { name, took, tally, trouble } in &self.done {
            let verdict = match trouble {
                None => "ok",
                Some(Trouble::Failed(_)) => "FAILED",
                Some(Trouble::Missing { .. }) => "MISSING",
            };
            let tests = if *tally == Tally::default() {
                String::new()
            } else {
                format!("  {} tests in {:.2} s", tally.passed, tally.took.as_secs_f64())
            };
            say!("{name:<width$} {verdict:<8} {:>8.1} s{tests}", took.as_secs_f64());
        }
        for Done { name, trouble, .. } in &self.done {
            match trouble {
                None => {}
                Some(Trouble::Failed(why)) => say!("\n{name} FAILED: {}", shortened(why)),
                Some(trouble @ Trouble::Missing { .. }) => loudly(name, trouble),
            }
        }
        say!("\n{}; finished in {:.2}s", self.total(), self.started.elapsed().as_secs_f64());
        if self.failures() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Returns the sum of all tests. A step without tests counts as one; a failed step counts as
    /// one failure at least.
    fn total(&self) -> Tally {
        let mut total = Tally::default();
        for Done { tally, trouble, .. } in &self.done {
            total.add(*tally);
            match trouble {
                None => total.passed += u64::from(tally.passed == 0),
                Some(Trouble::Failed(_)) => total.failed += u64::from(tally.failed == 0),
                Some(Trouble::Missing { .. }) if self.policy.allow_missing => total.ignored += 1,
                Some(Trouble::Missing { .. }) => total.failed += 1,
            }
        }
        total
    }
}

/// Warns of a missing tool between two bars.
fn loudly(name: &str, trouble: &Trouble) {
    let Trouble::Missing { what, install } = trouble else { return };
    let bar = "!".repeat(78);
    say!(
        "\n{bar}\n!! {name} was NOT CHECKED: {what} is missing\n!! to install it: {install}\n{bar}"
    );
}

/// Returns the first lines of a long message.
fn shortened(message: &str) -> String {
    const LINES: usize = 40;
    let mut lines = message.lines();
    let mut short: Vec<&str> = lines.by_ref().take(LINES).collect();
    if lines.next().is_some() {
        short.push("... (more above)");
    }
    short.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: Policy, steps: Vec<Result<(), Trouble>>) -> (Tally, usize) {
        let mut run = CheckRun::new(policy);
        for result in steps {
            run.step("a step", |_| result);
        }
        (run.total(), run.failures())
    }

    #[test]
    fn the_watchdog_of_a_test_comes_before_the_limit_of_a_call() {
        assert_eq!(limit(Duration::from_secs(5 * 60)), LIMIT);
        assert!(limit(LIMIT) > LIMIT && limit(SLOW_TEST) > SLOW_TEST);
    }

    #[test]
    fn failures_and_missing_tools_are_counted() {
        let steps = || {
            vec![
                Ok(()),
                Err(Trouble::missing("a tool", "get it")),
                Err("broken".to_owned().into()),
                Ok(()),
            ]
        };
        let (total, failures) = run(Policy::default(), steps());
        assert_eq!((total.passed, total.failed, total.ignored, failures), (2, 2, 0, 2));
        let (total, failures) = run(Policy { allow_missing: true, fail_fast: false }, steps());
        assert_eq!((total.passed, total.failed, total.ignored, failures), (2, 1, 1, 1));
        let (total, failures) = run(Policy { allow_missing: true, fail_fast: true }, steps());
        assert_eq!((total.passed, total.failed, total.ignored, failures), (1, 1, 1, 1));
    }
}
