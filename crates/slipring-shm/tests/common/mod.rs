//! Parts that the tests share: events, names whose files are removed at the end, and child
//! processes that play roles.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use slipring_shm::parts::{File, lock, on_each_step};
use slipring_shm::{Attached, Event, Segment, SegmentError, errors::Problem};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub mod clients;
pub mod items;
pub mod observed;
pub mod oracle;
pub mod trace;

#[path = "../../../slipring/tests/common/tasks.rs"]
mod tasks;
#[allow(unused_imports, reason = "each test file uses a part")]
pub use tasks::{Unpark, block_on, block_on_counting};

#[path = "../../../slipring/tests/common/watchdog.rs"]
mod watchdog;
pub use watchdog::watched;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Block {
    pub seq: u64,
    pub value: [u64; 3],
}

impl Event for Block {
    const NAME: &'static str = "test/Block";
    const VERSION: u32 = 3;
}

pub type Test = Segment<Block>;

/// A name that no other test has. When the value is dropped, the segment of that name is removed.
pub struct Name(pub String);

impl Name {
    pub fn new() -> Name {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // A killed test with the same pid may have left files. So if a name's file exists, the name
        // is not used: it is dropped, which removes the file.
        let mut names = std::iter::repeat_with(|| {
            Name(format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)))
        });
        names.find(|name| std::fs::symlink_metadata(name.path()).is_err()).unwrap()
    }

    pub fn path(&self) -> PathBuf {
        Path::new("/dev/shm").join(format!("{}.slipring", self.0))
    }

    pub fn make(&self) -> Test {
        Test::create(&self.0).capacity(4).without_ring().participants(8).build().unwrap()
    }

    pub fn attach(&self) -> Attached<Block> {
        attach(&Test::open(&self.0).unwrap())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path());
        let _ = std::fs::remove_dir(self.path());
    }
}

pub fn attach(segment: &Test) -> Attached<Block> {
    try_attach(segment).unwrap()
}

pub fn try_attach(segment: &Test) -> Result<Attached<Block>, SegmentError> {
    // SAFETY: only these tests know the segment, and no test reads events.
    unsafe { segment.attach() }
}

/// Returns the problem of a call that must fail, and checks that its message says what to do next.
#[track_caller]
pub fn problem<T>(result: Result<T, SegmentError>) -> Failed {
    let error = result.err().expect("the call must fail");
    let message = error.to_string();
    assert!(message.contains(": "), "{message}");
    Failed { message, error }
}

/// An error with its message.
pub struct Failed {
    pub message: String,
    error: SegmentError,
}

impl Failed {
    pub fn of(&self) -> &Problem {
        self.error.problem()
    }
}

/// Asserts that a call fails with a problem that matches a pattern.
#[macro_export]
macro_rules! assert_problem {
    ($result:expr, $pattern:pat) => {{
        let problem = $crate::common::problem($result);
        assert!(matches!(problem.of(), $pattern), "{} ({:?})", problem.message, problem.of());
    }};
}

/// Reports that a test could not run. The report goes to stderr, which the harness does not
/// capture.
pub fn skip(why: impl Display) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
}

/// Polls until `reached` returns `true`. The watchdog ends a wait that is too long.
pub fn until(mut reached: impl FnMut() -> bool) {
    while !reached() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Opens the file again, and returns whether another description holds a lock on byte `number`.
pub fn held(path: &Path, number: u32) -> bool {
    let file = std::fs::File::open(path).unwrap();
    let file = File::unchecked(file.into()).unwrap();
    use std::os::fd::AsFd;
    lock::probe(file.as_fd(), lock::byte(number)).unwrap().is_some()
}

/// A child process that plays a role of this test binary.
pub struct Role {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

const ROLE: &str = "SLIPRING_SHM_TEST_ROLE";
const STEP: &str = "SLIPRING_SHM_TEST_STEP";

/// Makes this process die when it reaches `step`. The caller is a forked child of a role, and has a
/// single thread.
pub fn kill_at(step: &str) {
    // SAFETY: no other thread of the child reads its environment.
    unsafe { std::env::set_var(STEP, format!("kill {step}")) };
}

/// A command (a program and its arguments) that starts the test binary.
pub type Wrapper<'a> = &'a [&'a str];

impl Role {
    /// Starts the role `name` with values that the role gets by [`value`].
    pub fn start(name: &str, values: &[(&str, &str)]) -> Role {
        Role::start_in(&[], name, values)
    }

    /// Starts the role through a command such as `unshare`.
    pub fn start_in(wrapper: Wrapper<'_>, name: &str, values: &[(&str, &str)]) -> Role {
        let own = std::env::current_exe().unwrap();
        let mut command = match wrapper.split_first() {
            None => Command::new(own),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(own);
                command
            }
        };
        command.args(["plays_a_role", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, name).stdin(Stdio::piped()).stdout(Stdio::piped());
        for (key, value) in values {
            command.env(key, value);
        }
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take(), child.stdout.take().unwrap());
        Role { child, to, from: BufReader::new(from) }
    }

    /// Starts the role, and waits until it has stopped at `step`.
    pub fn stopping(name: &str, step: &str, values: &[(&str, &str)]) -> Role {
        let step = format!("stop {step}");
        let mut role = Role::start(name, &[values, &[(STEP, step.as_str())]].concat());
        assert_eq!(role.hear(), "stopped");
        role
    }

    /// Runs the role, and asserts that it was killed at `step`.
    pub fn killed_at(name: &str, step: &str, values: &[(&str, &str)]) {
        let step = format!("kill {step}");
        let role = Role::start(name, &[values, &[(STEP, step.as_str())]].concat());
        use std::os::unix::process::ExitStatusExt;
        let status = role.end();
        assert_eq!(status.signal(), Some(9), "{name} never came to `{step}`: {status}");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line of the role.
    pub fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.from.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the role ended instead of saying something");
            if let Some((_, said)) = line.split_once('@') {
                return said.trim().to_owned();
            }
        }
    }

    /// Sends a line to the role.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends a line to the role, which may be dead already.
    pub fn try_tell(&mut self, line: &str) {
        let _ = writeln!(self.to.as_mut().unwrap(), "{line}");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid() as i32).unwrap(), signal).unwrap();
    }

    /// Closes the role's input, so that the role runs to its end, and waits for the end.
    pub fn end(mut self) -> ExitStatus {
        self.to = None;
        self.child.wait().unwrap()
    }

    /// Kills the role and waits for it.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the role's end, but does not close its input.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns one of the values that the role was started with.
pub fn value(key: &str) -> String {
    std::env::var(key).unwrap()
}

/// Sends a line to the parent.
pub fn say(said: impl Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@{said}").unwrap();
    out.flush().unwrap();
}

/// Waits for a line of the parent. The role ends if the parent sends no more.
pub fn listen() -> String {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
    line.trim().to_owned()
}

/// Whether this process has stopped at its step. It stops only once.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Plays the role that the environment names, if it names one. The test `plays_a_role` of each file
/// calls this.
pub fn play(roles: &[(&str, fn())]) {
    let Ok(name) = std::env::var(ROLE) else { return };
    // This process dies with the thread that started it. That thread waits for this process, or
    // drops its handle, which kills it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    on_each_step(|step| {
        let Ok(wanted) = std::env::var(STEP) else { return };
        match wanted.split_once(' ') {
            Some(("kill", name)) if name == step => {
                let _ = kill_process(rustix::process::getpid(), Signal::KILL);
            }
            Some(("stop", name)) if name == step && !STOPPED.swap(true, Relaxed) => {
                say("stopped");
                listen();
            }
            _ => {}
        }
    });
    let roles: HashMap<_, _> = roles.iter().copied().collect();
    roles[name.as_str()]();
}

/// Returns a wrapper that gives a role its own mounts, or `None` where that is not permitted.
pub fn own_mounts() -> Option<Wrapper<'static>> {
    const ROOT: Wrapper<'static> = &["unshare", "--mount", "--propagation", "private"];
    const USER: Wrapper<'static> = &["unshare", "--map-root-user", "--mount"];
    [ROOT, USER].into_iter().find(|wrapper| permits(wrapper))
}

/// Returns whether this system permits a wrapper.
pub fn permits(wrapper: Wrapper<'_>) -> bool {
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg("true").stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A folder, which is removed when the value is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        let path = std::env::temp_dir().join(Name::new().0.clone());
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
