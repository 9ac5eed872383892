//! Running other programs: shown as a person would type them, their test results counted on the
//! way.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, fs,
    io::{self, BufRead, BufReader, IsTerminal, Write, stdout},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

/// Settings of the caller that would change what a check checks.
const CLEARED: [&str; 8] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTDOCFLAGS",
    "MIRIFLAGS",
    // Every model states its own bounds.
    "LOOM_MAX_PREEMPTIONS",
    "LOOM_MAX_BRANCHES",
    "LOOM_MAX_PERMUTATIONS",
    "LOOM_MAX_DURATION",
];

/// What the test harnesses said, added up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were not run.
    pub ignored: u64,
    /// Benchmarks that were measured.
    pub measured: u64,
    /// Tests that a filter left out.
    pub filtered: u64,
}

impl Tally {
    /// Adds what `line` says, if it is a harness's closing line.
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
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.measured += other.measured;
        self.filtered += other.filtered;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, ignored, measured, filtered } = self;
        let verdict = if *failed == 0 { "ok" } else { "FAILED" };
        write!(f, "test result: {verdict}. {passed} passed; {failed} failed; ")?;
        write!(f, "{ignored} ignored; {measured} measured; {filtered} filtered out")
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
    /// Cargo as this program was called by.
    pub fn cargo(args: &str) -> Self {
        Self {
            toolchain: None,
            args: args.split_whitespace().map(OsString::from).collect(),
            env: Vec::new(),
        }
    }

    /// Cargo of another toolchain.
    pub fn cargo_of(toolchain: &str, args: &str) -> Self {
        Self { toolchain: Some(toolchain.to_owned()), ..Self::cargo(args) }
    }

    /// Adds arguments as they are.
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Makes cargo build into `folder`.
    pub fn target_dir(self, folder: &Path) -> Self {
        self.args([OsStr::new("--target-dir"), folder.as_os_str()])
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// The call, ready to be spawned in `folder`.
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

    /// Runs the call to its end, in `folder`; passes its output through and counts the test results
    /// in it. What takes longer than `limit` is ended, with everything it has started.
    pub fn run(&self, folder: &Path, limit: Duration, tally: &mut Tally) -> Result<(), String> {
        say!("$ {self}");
        let colour = stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
        let mut command = self.command(folder);
        if colour && env::var_os("CARGO_TERM_COLOR").is_none() {
            command.env("CARGO_TERM_COLOR", "always"); // it writes to a pipe, but a person reads it
        }
        let mut running =
            Running::start(command).map_err(|error| format!("cannot start `{self}`: {error}"))?;
        let deadline = Some(Instant::now() + limit);
        loop {
            match running.line(deadline) {
                Line::Said(line) => {
                    // A reader that has gone away is no reason to leave the checks undone.
                    let _ = stdout().write_all(line.as_bytes()).and_then(|()| stdout().flush());
                    tally.read(&line);
                }
                Line::Late => return Err(format!("`{self}` did not end within {limit:?}")),
                Line::End => break,
            }
        }
        let status = running.status().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("`{self}` failed: {status}")) }
    }

    /// Whether the call succeeds, its output thrown away.
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

/// A program at work, and what it says, line by line, in the order it says it. It is ended when
/// this is dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
}

/// What comes next from a running program.
pub enum Line {
    /// A line of output or of errors.
    Said(String),
    /// Nothing until the deadline.
    Late,
    /// Nothing any more.
    End,
}

impl Running {
    /// Starts a program.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let (said, output) = io::pipe()?;
        let child =
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?;
        drop(command); // and with it our own end of the pipe
        let (sender, lines) = channel();
        thread::spawn(move || {
            let (mut said, mut line) = (BufReader::new(said), Vec::new());
            while said.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Ok(Self { child, lines })
    }

    /// The next line, waited for until `deadline`.
    pub fn line(&self, deadline: Option<Instant>) -> Line {
        let line = match deadline {
            None => self.lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => {
                self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            }
        };
        match line {
            Ok(line) => Line::Said(line),
            Err(RecvTimeoutError::Timeout) => Line::Late,
            Err(RecvTimeoutError::Disconnected) => Line::End,
        }
    }

    /// How the program ended; waits for that.
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let family: String =
                descendants(self.child.id()).iter().map(|id| format!(" {id}")).collect();
            if !family.is_empty() {
                let _ = Command::new("sh")
                    .args(["-c", &format!("kill -KILL{family}")])
                    .stderr(Stdio::null())
                    .status();
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The processes that `ancestor` has started, and those that they have; none where the system does
/// not tell.
fn descendants(ancestor: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // "id (name) state parent ...", and the name may contain anything
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
    family.split_off(1)
}

/// `text` as a shell takes it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=./,:+@".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{text}'") }
}

/// What `program` prints when called with `args`, if it succeeds.
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
        assert_eq!(tally, Tally { passed: 4, failed: 2, ignored: 1, measured: 0, filtered: 2 });
        assert_eq!(
            tally.to_string(),
            "test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 2 filtered out"
        );
        let mut again = Tally::default();
        again.read(&tally.to_string());
        assert_eq!(again, tally);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_takes_too_long_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; echo oops >&2; wait"]);
        let running = Running::start(command).unwrap();
        let Line::Said(id) = running.line(None) else { panic!("the child names its child") };
        assert!(matches!(running.line(None), Line::Said(line) if line == "oops\n"));
        assert!(matches!(running.line(Some(Instant::now())), Line::Late));
        drop(running);
        let gone = || {
            let about = fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
            about.is_empty() || about.contains(") Z ")
        };
        while !gone() {
            thread::yield_now(); // killed, but not dead yet
        }
    }

    #[test]
    fn calls_are_shown_as_typed() {
        let call =
            Call::cargo_of("nightly", "miri test").args(["--bench", "*"]).env("MIRIFLAGS", "-a -b");
        assert_eq!(call.to_string(), "MIRIFLAGS='-a -b' cargo +nightly miri test --bench '*'");
    }
}
