//! Runs other programs. Each call is printed in the syntax of a shell, and its test results are
//! counted.
//!
//! A program that hangs is ended together with all of its descendants. The standard library cannot
//! do that, so this module starts and ends programs with code of its own.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, fs,
    io::{self, BufRead, BufReader, IsTerminal, Write, stdout},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    progress::{Progress, TURN},
    say::say,
};

/// The caller's settings that would change the meaning of a check.
const CLEARED: [&str; 8] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTDOCFLAGS",
    "MIRIFLAGS",
    // Every model states its own bounds, so the caller's are cleared.
    "LOOM_MAX_PREEMPTIONS",
    "LOOM_MAX_BRANCHES",
    "LOOM_MAX_PERMUTATIONS",
    "LOOM_MAX_DURATION",
];

/// Returns how many threads can run at once.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The sum of the results of test harnesses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that the harness skipped.
    pub ignored: u64,
    /// Measured benchmarks.
    pub measured: u64,
    /// Tests that a filter excluded.
    pub filtered: u64,
    /// Time that the harnesses report, without building.
    pub took: Duration,
}

impl Tally {
    /// Adds the counts of `line`, if it is a harness's closing line.
    pub fn read(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        for part in counts.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let Some(count) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
                continue;
            };
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                Some("ignored") => self.ignored += count,
                Some("measured") => self.measured += count,
                Some("filtered") => self.filtered += count,
                _ => {}
            }
        }
        let took = counts.rsplit_once("finished in ").and_then(|(_, took)| {
            Duration::try_from_secs_f64(took.trim().trim_end_matches('s').parse().ok()?).ok()
        });
        self.took += took.unwrap_or_default();
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.measured += other.measured;
        self.filtered += other.filtered;
        self.took += other.took;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, ignored, measured, filtered, .. } = self;
        let verdict = if *failed == 0 { "ok" } else { "FAILED" };
        write!(f, "test result: {verdict}. {passed} passed; {failed} failed; ")?;
        write!(f, "{ignored} ignored; {measured} measured; {filtered} filtered out")
    }
}

/// The failures that a program's output reports, for the summary at the end of all output: the
/// names of tests, the first words of their panics, the tests that hung, and the programs that
/// failed.
#[derive(Debug, Default)]
struct Blame {
    lines: Vec<String>,
    /// Whether the last line announced a panic's words.
    words_follow: bool,
}

impl Blame {
    /// Keeps `line`, if it says that a test or a test program failed.
    fn read(&mut self, line: &str) {
        let line = line.trim_end();
        let failed = line.starts_with("test ") && line.contains("... FAILED");
        let hangs = line.starts_with("test ") && line.contains(" hangs: ");
        // The harness does not show the panics of tests that passed.
        let panicked = line.starts_with("thread '") && line.contains(" panicked at ");
        let target = line.starts_with("    `-p ") || line.contains("process didn't exit success");
        if failed || hangs || panicked || target || self.words_follow {
            self.lines.push(line.to_owned());
        }
        self.words_follow = panicked;
    }

    /// Adds the kept lines to `error`.
    fn told(&self, mut error: String) -> String {
        self.lines.iter().for_each(|line| error.extend(["\n", line]));
        error
    }
}

/// A call of another program.
#[derive(Debug, Clone)]
pub struct Call {
    toolchain: Option<String>,
    args: Vec<OsString>,
    env: Vec<(String, String)>,
}

impl Call {
    /// Calls the cargo that started this program.
    pub fn cargo(args: &str) -> Self {
        Self {
            toolchain: None,
            args: args.split_whitespace().map(OsString::from).collect(),
            env: Vec::new(),
        }
    }

    /// Calls the cargo of another toolchain.
    pub fn cargo_of(toolchain: &str, args: &str) -> Self {
        Self { toolchain: Some(toolchain.to_owned()), ..Self::cargo(args) }
    }

    /// Adds arguments unchanged.
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the folder that cargo builds into.
    pub fn target_dir(self, folder: &Path) -> Self {
        self.args([OsStr::new("--target-dir"), folder.as_os_str()])
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Makes the command that runs in `folder`.
    pub fn command(&self, folder: &Path) -> Command {
        let mut command = match &self.toolchain {
            None => Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))),
            Some(toolchain) => {
                let mut rustup = Command::new("rustup");
                rustup.args(["run", toolchain, "cargo"]).env_remove("CARGO");
                rustup
            }
        };
        for name in CLEARED {
            command.env_remove(name);
        }
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(folder);
        command
    }

    /// Runs the call in `folder`, passes its output through and counts its test results. Ends the
    /// program and all of its descendants after `limit` without progress.
    pub fn run(&self, folder: &Path, limit: Duration, tally: &mut Tally) -> Result<(), String> {
        say!("$ {self}");
        let colour = stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
        let mut command = self.command(folder);
        if colour && env::var_os("CARGO_TERM_COLOR").is_none() {
            command.env("CARGO_TERM_COLOR", "always"); // It writes to a pipe that leads to a terminal.
        }
        let mut running =
            Running::start(command).map_err(|error| format!("cannot start `{self}`: {error}"))?;
        let (mut progress, mut blame) = (Progress::new(limit), Blame::default());
        let followed = running.follow(&mut progress, |line| {
            // The checks continue when standard output is closed.
            let _ = stdout().write_all(line.as_bytes()).and_then(|()| stdout().flush());
            tally.read(line);
            blame.read(line);
        });
        followed.map_err(|why| blame.told(format!("`{self}` {why}")))?;
        let status = running.status().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        Err(blame.told(format!("`{self}` failed: {status}")))
    }

    /// Returns whether the call succeeds; its output is discarded.
    pub fn succeeds(&self, folder: &Path) -> bool {
        let quiet = self
            .command(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok_and(|status| status.success())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "cargo")?;
        if let Some(toolchain) = &self.toolchain {
            write!(f, " +{toolchain}")?;
        }
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(&arg.to_string_lossy())))
    }
}

/// A running program with its output, line by line. Dropping it ends the program.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    /// The bytes of a line that the program has not finished.
    unfinished: Arc<Mutex<Vec<u8>>>,
}

/// The next event of a running program.
pub enum Line {
    /// A line of standard output or standard error.
    Text(String),
    /// The deadline passed without a line.
    Late,
    /// The output has ended.
    End,
}

impl Running {
    /// Starts a program.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let (said, output) = io::pipe()?;
        let child =
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?;
        drop(command); // It holds this process's end of the pipe.
        let ((sender, lines), unfinished) = (channel(), Arc::<Mutex<Vec<u8>>>::default());
        let shared = unfinished.clone();
        let send = move |line: &mut Vec<u8>| {
            let text = String::from_utf8_lossy(line).into_owned();
            line.clear();
            sender.send(text).is_ok()
        };
        thread::spawn(move || {
            let mut said = BufReader::new(said);
            while let Ok(chunk) = said.fill_buf()
                && !chunk.is_empty()
            {
                let length = chunk.len();
                let mut line = shared.lock().unwrap_or_else(PoisonError::into_inner);
                for part in chunk.split_inclusive(|byte| *byte == b'\n') {
                    line.extend_from_slice(part);
                    if part.ends_with(b"\n") && !send(&mut line) {
                        return;
                    }
                }
                drop(line);
                said.consume(length);
            }
            let mut line = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if !line.is_empty() {
                send(&mut line);
            }
        });
        Ok(Self { child, lines, unfinished })
    }

    /// Passes each line to `read` until the output ends; `Err` says why the program hangs.
    fn follow(
        &mut self,
        progress: &mut Progress,
        mut read: impl FnMut(&str),
    ) -> Result<(), String> {
        loop {
            let began = Instant::now();
            let line = self.line(Some(began + TURN));
            progress.pass(began.elapsed());
            match line {
                Line::Text(line) => {
                    progress.read(&line);
                    read(&line);
                }
                Line::Late => {}
                Line::End => return Ok(()),
            }
            if progress.is_stuck() {
                if let Ok(Some(status)) = self.child.try_wait() {
                    let holder = "a process that it had started holds its output open";
                    return Err(format!("has ended ({status}), but {holder}"));
                }
                let line = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
                return Err(progress.report(&String::from_utf8_lossy(&line)));
            }
        }
    }

    /// Waits for the next line until `deadline`.
    pub fn line(&self, deadline: Option<Instant>) -> Line {
        let line = match deadline {
            None => self.lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => {
                self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            }
        };
        match line {
            Ok(line) => Line::Text(line),
            Err(RecvTimeoutError::Timeout) => Line::Late,
            Err(RecvTimeoutError::Disconnected) => Line::End,
        }
    }

    /// Waits for the end of the program.
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // A stopped process starts no more children, so the last list is complete.
            let mut family = Vec::new();
            loop {
                let now = family_of(self.child.id());
                if now.iter().all(|id| family.contains(id)) {
                    break;
                }
                family = now;
                signal("STOP", &family);
            }
            signal("KILL", &family);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends the signal `name` to the processes `ids`. std has no call for it.
fn signal(name: &str, ids: &[u32]) {
    let ids: String = ids.iter().map(|id| format!(" {id}")).collect();
    let mut shell = Command::new("sh");
    let kill = shell.args(["-c", &format!("kill -{name}{ids}")]);
    let _ = kill.stderr(Stdio::null()).status();
}

/// Returns the process `ancestor` and its descendants; none of these where the system has no
/// `/proc`.
fn family_of(ancestor: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // The file has "id (name) state parent ...", where the name may contain spaces and
        // brackets.
        let about = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = about
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        parents.extend(parent.map(|parent| (id, parent)));
    }
    let mut family = vec![ancestor];
    let mut next = 0;
    while next < family.len() {
        let parent = family[next];
        family.extend(
            parents.iter().filter(|(id, of)| *of == parent && *id != ancestor).map(|(id, _)| *id),
        );
        next += 1;
    }
    family
}

/// Quotes `text` for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=./,:+@".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{text}'") }
}

/// Returns the standard output of a call, if it succeeds.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let said = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_added_up() {
        let mut tally = Tally::default();
        tally.read("running 5 tests");
        tally.read("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s");
        tally.read("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        let took = Duration::from_millis(20);
        let sum = Tally { passed: 4, failed: 2, ignored: 1, measured: 0, filtered: 2, took };
        assert_eq!(tally, sum);
        assert_eq!(
            tally.to_string(),
            "test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 2 filtered out"
        );
        let mut again = Tally::default();
        again.read(&tally.to_string());
        assert_eq!(again, Tally { took: Duration::ZERO, ..tally });
    }

    #[test]
    fn failed_tests_are_named() {
        let mut blame = Blame::default();
        let output = "\
running 3 tests
test fine ... ok
test wrong ... FAILED

test stuck (tests/a.rs:3:4) hangs: it did not end within 300s

failures:

---- wrong stdout ----

thread 'wrong' (7) panicked at tests/a.rs:7:5:
left is not right
note: run with a backtrace

error: test failed, to rerun pass `-p a --test a`

Caused by:
  process didn't exit successfully: `a` (signal: 6, SIGABRT: process abort signal)
error: 1 target failed:
    `-p a --test a`
";
        output.split_inclusive('\n').for_each(|line| blame.read(line));
        let expected = [
            "test wrong ... FAILED",
            "test stuck (tests/a.rs:3:4) hangs: it did not end within 300s",
            "thread 'wrong' (7) panicked at tests/a.rs:7:5:",
            "left is not right",
            "  process didn't exit successfully: `a` (signal: 6, SIGABRT: process abort signal)",
            "    `-p a --test a`",
        ];
        assert_eq!(blame.lines, expected);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_late_program_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; echo oops >&2; wait"]);
        let running = Running::start(command).unwrap();
        let Line::Text(id) = running.line(None) else { panic!("no id of the grandchild") };
        assert!(matches!(running.line(None), Line::Text(line) if line == "oops\n"));
        assert!(matches!(running.line(Some(Instant::now())), Line::Late));
        drop(running);
        let gone = || {
            let about = fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
            about.is_empty() || about.contains(") Z ")
        };
        while !gone() {
            thread::yield_now(); // The kill takes effect later.
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_program_without_progress_is_reported_with_its_running_test() {
        let mut command = Command::new("sh");
        command.args(["-c", "printf 'running 1 test\ntest a::b ... '; exec sleep 1000"]);
        let mut running = Running::start(command).unwrap();
        let mut progress = Progress::new(Duration::from_millis(1));
        // One write brings both lines, so the second has come when the first has been read.
        let Line::Text(line) = running.line(None) else { panic!("no line") };
        progress.read(&line);
        let report = running.follow(&mut progress, |line| panic!("{line}")).unwrap_err();
        assert!(report.contains("no test ended"), "{report}");
        assert!(report.contains("still running: a::b\n"), "{report}");
    }

    #[test]
    #[cfg(unix)]
    fn a_program_that_ends_in_time_does_not_hang() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo a; printf b"]);
        let (mut running, mut lines) = (Running::start(command).unwrap(), Vec::new());
        let mut progress = Progress::new(Duration::MAX);
        running.follow(&mut progress, |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["a\n", "b"]);
    }

    #[test]
    fn calls_are_shown_as_a_shell_takes_them() {
        let call =
            Call::cargo_of("nightly", "miri test").args(["--bench", "*"]).env("MIRIFLAGS", "-a -b");
        assert_eq!(call.to_string(), "MIRIFLAGS='-a -b' cargo +nightly miri test --bench '*'");
    }
}
