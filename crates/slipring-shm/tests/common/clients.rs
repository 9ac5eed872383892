//! Starts the programs in `clients`, which are written from SEGMENT.md alone.
//!
//! A test that needs Python or a C compiler, and finds none, prints that it did not run.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::skip;

/// Returns the path of a program in `clients`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

/// Returns the word with which the clients and their tests fill the event at `seq`.
pub fn word_of(seq: u64) -> u64 {
    seq.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1)
}

/// Returns the interpreter that `SLIPRING_PYTHON` names, or `python3`. If there is none, prints
/// that the test is skipped, and returns `None`.
pub fn python() -> Option<Python> {
    let program = std::env::var_os("SLIPRING_PYTHON").unwrap_or("python3".into());
    // `python3` may be a script that searches for the interpreter. The interpreter itself starts
    // faster.
    let code = "import sys; sys.exit(1) if sys.version_info < (3, 8) else print(sys.executable)";
    let output = Command::new(&program).args(["-c", code]).stderr(Stdio::null()).output();
    if let Some(output) = output.ok().filter(|output| output.status.success()) {
        return Some(Python(String::from_utf8(output.stdout).unwrap().trim_end().into()));
    }
    let name = thread::current().name().unwrap_or("a test").to_owned();
    skip(format_args!(
        "{name} needs Python 3.8 or later, and {program:?} is none: install it, or name another one \
         with SLIPRING_PYTHON"
    ));
    None
}

/// The interpreter of `segment.py`.
pub struct Python(OsString);

impl Python {
    /// Returns a command for the interpreter without the user's packages, which the program does
    /// not need.
    pub fn bare(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["-B", "-I", "-S"]);
        command
    }

    /// Returns a command for the program `segment.py`.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare();
        command.arg(source("segment.py")).args(arguments);
        command
    }
}

/// Returns the path of the program built from `client.c`. The first call builds it. If there is no
/// compiler, the call prints that the test is skipped, and returns `None`.
pub fn client_in_c() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let compiler = std::env::var_os("CC").unwrap_or("cc".into());
        let works = Command::new(&compiler).arg("--version").stdout(Stdio::null()).status();
        if !works.is_ok_and(|status| status.success()) {
            return None;
        }
        // Another test program may build or run the client at the same time. So this one builds it
        // under another name, and then renames it.
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client");
        let built = program.with_extension(std::process::id().to_string());
        let mut command = Command::new(compiler);
        command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
        assert!(command.arg(&built).arg(source("client.c")).status().unwrap().success());
        std::fs::rename(built, &program).unwrap();
        Some(program)
    });
    if built.is_none() {
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let compiler: OsString = std::env::var_os("CC").unwrap_or("cc".into());
        skip(format_args!(
            "{name} needs a C compiler, and {compiler:?} is none: install one, or name it with CC"
        ));
    }
    built.as_deref()
}

/// A running client. Dropping the value kills it.
pub struct Running {
    pub child: Child,
    out: BufReader<ChildStdout>,
    errors: ChildStderr,
}

impl Running {
    pub fn start(program: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The client is killed if the thread that started it ends. That thread waits for the client
        // unless the test fails.
        let dies = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: the closure makes one system call, and touches no memory of the parent.
        unsafe { command.pre_exec(dies) };
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let errors = child.stderr.take().unwrap();
        Running { child, out, errors }
    }

    /// Asserts that the client prints the events at `seqs`.
    pub fn sees(&mut self, seqs: impl Iterator<Item = u64>) {
        for seq in seqs {
            let line = self.line();
            if line.is_none() {
                panic!("instead of {seq}: {}", self.complaint());
            }
            assert_eq!(line, Some(format!("{seq} {}", word_of(seq))));
        }
    }

    /// Waits for the next line, or returns `None` at the end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let bytes = self.out.read_line(&mut line).unwrap();
        (bytes != 0).then(|| line.trim_end_matches('\n').to_owned())
    }

    /// Asserts that the client prints the events at `seqs`, and ends.
    pub fn ends_after(mut self, seqs: impl Iterator<Item = u64>) {
        self.sees(seqs);
        self.ends();
    }

    /// Waits until the client ends with an error. Returns its message.
    pub fn complaint(&mut self) -> String {
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(1), "{said}");
        said
    }

    /// Reads what the client prints until it ends.
    pub fn rest(&mut self, rest: &mut String) {
        self.out.read_to_string(rest).unwrap();
    }

    /// Asserts that the client prints nothing more, and exits with success.
    pub fn ends(mut self) {
        assert_eq!(self.line(), None);
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
