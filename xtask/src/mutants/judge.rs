//! Builds the library with one mutant, and runs the tests that judge it.
//!
//! Each test runs in a process of its own, so that the first failure settles the verdict. The tests
//! that killed a mutant of the same file come first, then the quick ones.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use super::sites::{Asked, Mutant};
use crate::{
    assembly, checks,
    command::{Call, Line, Running, cores},
    layout::{self, LIBRARY},
    progress::Progress,
    say::say,
    steps, workspace,
};

/// Time limit for a mutant's test, as a multiple of the test's usual time; never below [`LEAST`]. A
/// mutant may make a model explore without end, so the limit is on the total, not on progress.
const PATIENCE: u32 = 5;
/// Shortest time limit for a mutant's test.
const LEAST: Duration = Duration::from_secs(60);
/// The interval at which a running test learns that another one has failed.
const TURN: Duration = Duration::from_millis(100);

/// The verdict on a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A test failed.
    Killed {
        /// The judge and the first test that failed: `models: gating::loom_lap`.
        by: String,
    },
    /// All tests passed.
    Survived,
    /// No test failed, and one exceeded its time limit.
    Timeout,
    /// The compiler refused the mutant.
    DoesNotBuild {
        /// The first error.
        error: String,
    },
}

impl Verdict {
    /// Returns whether a test failed.
    pub fn is_killed(&self) -> bool {
        matches!(self, Self::Killed { .. })
    }

    /// Returns the name in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Killed { .. } => "killed",
            Self::Survived => "survived",
            Self::Timeout => "timeout",
            Self::DoesNotBuild { .. } => "does-not-build",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { by } => write!(f, "killed by {by}"),
            Self::DoesNotBuild { error } => write!(f, "does not build: {error}"),
            _ => f.write_str(self.name()),
        }
    }
}

impl Asked {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Queue => "queue",
            Self::Assembly => "asm",
        }
    }

    /// Returns the filters of the tests. Tests of twins expect a failure, so they cannot judge a
    /// mutant.
    fn filters(self) -> &'static [&'static str] {
        match self {
            Self::Models => &[checks::MODELS, "--skip", "twin"],
            _ => layout::WAIT_QUEUE_TESTS,
        }
    }

    /// Returns the environment variables of the tests.
    fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // With this variable, models assert no minimum of executions.
            Self::Models => &[("SLIPRING_MUTANT", "1")],
            _ => &[("SLIPRING_TEST_LIMIT", "300")],
        }
    }

    /// Returns the number of tests that run at once. A race needs all cores.
    fn at_once(self) -> usize {
        match self {
            Self::Models => cores(),
            _ => 1,
        }
    }
}

/// One test.
struct Test {
    /// Index of the test's program among the built programs.
    program: usize,
    name: String,
    /// Time that the test takes on the unchanged library.
    took: Duration,
    /// The number of killed mutants, by their file.
    kills: BTreeMap<PathBuf, usize>,
}

/// The end of a test.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    OutOfTime,
    /// Another test failed first.
    Stopped,
}

/// The limit of a test.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// The limit applies to the time that the test takes.
    Total(Duration),
    /// The limit is on the time without progress.
    Quiet(Duration),
}

/// A copy of the workspace for one mutant at a time, with the tests that judge it.
pub struct Judge {
    tree: PathBuf,
    scratch: PathBuf,
    tests: BTreeMap<Asked, Vec<Test>>,
    /// Copies of the test programs, built with the unchanged library.
    unchanged: BTreeMap<Asked, Vec<PathBuf>>,
    /// Time limit of each test. If it is `None`, a multiple of the usual time of the test is the
    /// limit.
    limit: Option<Duration>,
}

impl Judge {
    /// Copies the workspace at `root` to a folder below `scratch`, and runs `asked` on the
    /// unchanged library. Returns `Err` if a test fails there, because then no verdict would mean
    /// anything.
    pub fn new(
        root: &Path,
        scratch: &Path,
        asked: &[Asked],
        limit: Option<Duration>,
    ) -> Result<Self, String> {
        let tree = scratch.join("tree");
        workspace::copy(root, &tree)
            .map_err(|error| format!("cannot copy the workspace: {error}"))?;
        let scratch = scratch.to_owned();
        let (tests, unchanged) = (BTreeMap::new(), BTreeMap::new());
        let mut judge = Self { tree, scratch, tests, unchanged, limit };
        for &asked in asked {
            let tests = judge.baseline(asked)?;
            say!(
                "{}: {} tests pass, in {:.1?} one after the other",
                asked.name(),
                tests.len(),
                tests.iter().map(|test| test.took).sum::<Duration>()
            );
            judge.tests.insert(asked, tests);
        }
        Ok(judge)
    }

    /// Returns the number of tests.
    pub fn tests(&self) -> usize {
        self.tests.values().map(Vec::len).sum()
    }

    fn baseline(&mut self, asked: Asked) -> Result<Vec<Test>, String> {
        if asked == Asked::Assembly {
            let code = self
                .code()
                .map_err(|error| format!("the unchanged library does not build:\n{error}"))?;
            assembly::judge(&code)?;
            return Ok(Vec::new());
        }
        let programs = self
            .build(asked)
            .map_err(|error| format!("the unchanged library does not build:\n{error}"))?;
        let mut tests = Vec::new();
        for (program, path) in programs.iter().enumerate() {
            let listed = Command::new(path)
                .args(asked.filters())
                .arg("--list")
                .output()
                .map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&listed.stdout).into_owned();
            let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
            tests.extend(names.map(|name| Test {
                program,
                name: name.to_owned(),
                took: Duration::ZERO,
                kills: BTreeMap::new(),
            }));
        }
        if tests.is_empty() {
            return Err(format!("{}: there is no test", asked.name()));
        }
        let took = Mutex::new(vec![Duration::ZERO; tests.len()]);
        let all: Vec<usize> = (0..tests.len()).collect();
        let (failed, late) = in_turn(asked.at_once(), &all, |at, stop| {
            let began = Instant::now();
            let ended = self.ask(asked, &programs, &tests[at], Limit::Quiet(steps::LIMIT), stop);
            took.lock().expect("no test panics here")[at] = began.elapsed();
            ended
        });
        if let Some(at) = failed {
            return Err(format!(
                "{}: {} does not pass on the unchanged library",
                asked.name(),
                tests[at].name
            ));
        }
        if late {
            return Err(format!(
                "{}: a test of the unchanged library hangs: no progress for {:?}",
                asked.name(),
                steps::LIMIT
            ));
        }
        let took = took.into_inner().expect("no test panics here");
        tests.iter_mut().zip(took).for_each(|(test, took)| test.took = took);
        let mut kept = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            let copy = self.scratch.join(format!("unchanged-{}-{index}", asked.name()));
            fs::copy(program, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
            kept.push(copy);
        }
        self.unchanged.insert(asked, kept);
        Ok(tests)
    }

    /// Judges one mutant, and restores the copy.
    pub fn judge(&mut self, mutant: &Mutant) -> Result<Verdict, String> {
        let path = self.tree.join(layout::SOURCE).join(&mutant.file);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let original = fs::read_to_string(&path).map_err(failed)?;
        fs::write(&path, mutant.apply(&original)).map_err(failed)?;
        let mut verdict = Verdict::Survived;
        for &asked in mutant.asked {
            match self.verdict(asked, mutant) {
                Verdict::Survived => {}
                Verdict::Timeout => verdict = Verdict::Timeout,
                last => {
                    verdict = last;
                    break;
                }
            }
        }
        fs::write(&path, original).map_err(failed)?;
        Ok(verdict)
    }

    fn verdict(&mut self, asked: Asked, mutant: &Mutant) -> Verdict {
        if asked == Asked::Assembly {
            return match self.code() {
                Err(error) => Verdict::DoesNotBuild { error: first_error(&error) },
                Ok(code) => assembly::judge(&code).map_or_else(
                    |why| Verdict::Killed { by: format!("{}: {why}", asked.name()) },
                    |()| Verdict::Survived,
                ),
            };
        }
        let programs = match self.build(asked) {
            Err(error) => return Verdict::DoesNotBuild { error: first_error(&error) },
            Ok(programs) => programs,
        };
        let tests = &self.tests[&asked];
        let order = likely_first(tests, &mutant.file);
        let (failed, late) = in_turn(asked.at_once(), &order, |at, stop| {
            let ask =
                |programs: &[PathBuf], limit| self.ask(asked, programs, &tests[at], limit, stop);
            if let Some(limit) = self.limit {
                return ask(&programs, Limit::Total(limit));
            }
            let limit = (tests[at].took * PATIENCE).max(LEAST);
            within(
                limit,
                |limit| ask(&programs, Limit::Total(limit)),
                || {
                    let began = Instant::now();
                    let ended = ask(&self.unchanged[&asked], Limit::Quiet(steps::LIMIT));
                    (ended == Ended::Passed).then(|| began.elapsed())
                },
            )
        });
        let Some(at) = failed else {
            return if late { Verdict::Timeout } else { Verdict::Survived };
        };
        let by = format!("{}: {}", asked.name(), tests[at].name);
        if let Some(test) = self.tests.get_mut(&asked).and_then(|tests| tests.get_mut(at)) {
            *test.kills.entry(mutant.file.clone()).or_default() += 1;
        }
        Verdict::Killed { by }
    }

    /// Returns the machine code of a publication of the copy; `Err` has the messages of the
    /// compiler.
    fn code(&self) -> Result<String, String> {
        let folder = self.scratch.join("asm");
        assembly::forget(&folder).map_err(|error| error.to_string())?;
        let built = assembly::call(&folder)
            .command(&self.tree)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
        assembly::read(&folder)
    }

    /// Builds the copy's tests; returns the programs, or the messages of the compiler.
    fn build(&self, asked: Asked) -> Result<Vec<PathBuf>, String> {
        let cfg = if asked == Asked::Models { checks::LOOM } else { "" };
        let call = Call::cargo("test --release -p slipring --lib --no-run --color never")
            .target_dir(&self.scratch.join(if asked == Asked::Models { "build" } else { "queue" }))
            .env("RUSTFLAGS", format!("{cfg} --cap-lints warn").trim())
            // Mutants differ only in the crate itself, so an incremental build is quick.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false");
        let built = call
            .command(&self.tree)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        if !built.status.success() {
            return Err(said);
        }
        // "  Executable unittests src/lib.rs (/.../slipring-0123456789abcdef)"
        let lines = said.lines().filter(|line| line.trim_start().starts_with("Executable"));
        let paths = lines
            .filter_map(|line| line.rsplit_once('('))
            .map(|(_, path)| self.tree.join(path.trim_end_matches(')')));
        let programs: Vec<PathBuf> = paths.collect();
        if programs.is_empty() { Err(said) } else { Ok(programs) }
    }

    /// Runs one test until it ends, reaches its time limit, or `stop` is set.
    fn ask(
        &self,
        asked: Asked,
        programs: &[PathBuf],
        test: &Test,
        limit: Limit,
        stop: &AtomicBool,
    ) -> Ended {
        let Some(program) = programs.get(test.program) else { return Ended::Failed };
        let mut command = Command::new(program);
        command
            .args(["--exact", &test.name, "--include-ignored", "--nocapture", "--test-threads=1"])
            .current_dir(self.tree.join(LIBRARY));
        command.envs(asked.variables().iter().copied()).env("RUST_BACKTRACE", "0");
        let Ok(mut running) = Running::start(command) else { return Ended::Failed };
        let (Limit::Total(time) | Limit::Quiet(time)) = limit;
        let (mut progress, mut panicked) = (Progress::new(time), false);
        loop {
            let began = Instant::now();
            let line = running.line(Some(began + TURN));
            progress.pass(began.elapsed());
            match line {
                Line::Text(line) => {
                    panicked |= line.contains("panicked at");
                    if matches!(limit, Limit::Quiet(_)) {
                        progress.read(&line);
                    }
                }
                Line::Late => {}
                Line::End => break,
            }
            if stop.load(Relaxed) {
                return Ended::Stopped;
            }
            if progress.is_stuck() {
                // A model that has panicked may hang while it unwinds.
                return if panicked { Ended::Failed } else { Ended::OutOfTime };
            }
        }
        if running.status().is_ok_and(|status| status.success()) {
            Ended::Passed
        } else {
            Ended::Failed
        }
    }
}

/// Runs a mutant's test within `limit`. If the test exceeds the limit, the machine may be busier
/// than at the start. So `unchanged` returns how long the test takes now without the mutant, and
/// the mutant gets another try if that time asks for a longer limit.
fn within(
    limit: Duration,
    mutant: impl Fn(Duration) -> Ended,
    unchanged: impl FnOnce() -> Option<Duration>,
) -> Ended {
    let ended = mutant(limit);
    if ended != Ended::OutOfTime {
        return ended;
    }
    match unchanged().map(|took| took * PATIENCE) {
        Some(now) if now > limit => mutant(now),
        _ => ended,
    }
}

/// Runs the tests of `order` by calls of `ask`, `at_once` tests at a time, until one fails. Returns
/// that test, and whether a test exceeded its time limit.
fn in_turn(
    at_once: usize,
    order: &[usize],
    ask: impl Fn(usize, &AtomicBool) -> Ended + Sync,
) -> (Option<usize>, bool) {
    let (next, stop, late, failed) =
        (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false), Mutex::new(None));
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while !stop.load(Relaxed)
                    && let Some(&at) = order.get(next.fetch_add(1, Relaxed))
                {
                    match ask(at, &stop) {
                        Ended::Passed | Ended::Stopped => {}
                        Ended::OutOfTime => late.store(true, Relaxed),
                        Ended::Failed => {
                            failed.lock().expect("no test panics here").get_or_insert(at);
                            stop.store(true, Relaxed);
                        }
                    }
                }
            });
        }
    });
    (failed.into_inner().expect("no test panics here"), late.into_inner())
}

/// Returns the order in which tests judge a mutant of `file`.
fn likely_first(tests: &[Test], file: &Path) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tests.len()).collect();
    order.sort_by_key(|&at| {
        (std::cmp::Reverse(tests[at].kills.get(file).copied().unwrap_or_default()), tests[at].took)
    });
    order
}

/// Returns the first error among the messages of the compiler.
fn first_error(said: &str) -> String {
    said.lines().find(|line| line.starts_with("error")).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_ends_the_verdict() {
        let seen = AtomicUsize::new(0);
        let (failed, late) = in_turn(1, &[3, 2, 1, 0], |at, _| {
            seen.fetch_add(1, Relaxed);
            if at == 1 { Ended::Failed } else { Ended::OutOfTime }
        });
        assert_eq!((failed, late, seen.into_inner()), (Some(1), true, 3));
        assert_eq!(in_turn(2, &[0, 1], |_, _| Ended::Passed), (None, false));
    }

    #[test]
    fn a_timeout_is_judged_by_the_present_speed_of_the_machine() {
        let second = Duration::from_secs(1);
        // The mutant's test takes 100 s now.
        let mutant = |limit| if limit < 100 * second { Ended::OutOfTime } else { Ended::Passed };
        let judged = |took| within(60 * second, mutant, || took);
        assert_eq!(judged(Some(30 * second)), Ended::Passed, "a busy machine");
        assert_eq!(judged(Some(15 * second)), Ended::OutOfTime, "not busy enough");
        assert_eq!(judged(Some(second)), Ended::OutOfTime, "as at the start");
        assert_eq!(judged(None), Ended::OutOfTime, "the unchanged test does not pass");
        let idle = || panic!("the first try was enough");
        assert_eq!(within(100 * second, mutant, idle), Ended::Passed);
    }

    #[test]
    fn a_failure_stops_the_other_tests() {
        let (failed, _) = in_turn(2, &[0, 1], |at, stop| {
            if at == 1 {
                return Ended::Failed;
            }
            while !stop.load(Relaxed) {
                thread::yield_now();
            }
            Ended::Stopped
        });
        assert_eq!(failed, Some(1));
    }

    #[test]
    fn killers_come_first_and_then_quick_tests() {
        let test = |seconds, kills: &[(&str, usize)]| Test {
            program: 0,
            name: String::new(),
            took: Duration::from_secs(seconds),
            kills: kills.iter().map(|&(file, kills)| (PathBuf::from(file), kills)).collect(),
        };
        let tests = [
            test(9, &[]),
            test(1, &[]),
            test(30, &[("a.rs", 1)]),
            test(20, &[("a.rs", 2), ("b.rs", 1)]),
        ];
        assert_eq!(likely_first(&tests, Path::new("a.rs")), [3, 2, 1, 0]);
        assert_eq!(likely_first(&tests, Path::new("b.rs")), [3, 1, 0, 2]);
        assert_eq!(likely_first(&tests, Path::new("c.rs")), [1, 0, 3, 2]);
    }

    #[test]
    fn the_first_error_is_quoted() {
        assert_eq!(
            first_error("warning: a\nerror[E0425]: no `x`\nerror: b"),
            "error[E0425]: no `x`"
        );
    }
}
