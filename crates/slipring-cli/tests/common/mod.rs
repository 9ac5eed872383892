//! Segments for tests of the commands, and processes that have places in them.
#![allow(dead_code, reason = "each test file uses a part")]

#[path = "../../../slipring/tests/common/watchdog.rs"]
mod watchdog;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use slipring::handles::StartAt;
use slipring_shm::Segment;

pub use watchdog::watched;

const ROLE: &str = "SLIPRING_CLI_TEST_ROLE";

/// The name of a segment. When the value is dropped, the segment's file is removed.
pub struct Name(pub String);

impl Name {
    pub fn new(test: &str) -> Name {
        Name(format!("test-cli-{test}-{}", std::process::id()))
    }

    pub fn path(&self) -> PathBuf {
        format!("/dev/shm/{}.slipring", self.0).into()
    }

    /// Makes a segment of four slots, with a stage `scale` that writes and a stage `store` behind
    /// it.
    pub fn make(&self) -> Segment<u64> {
        let segment = Segment::create(&self.0).capacity(4).updater("scale");
        segment.reader("store").after(["scale"]).build().unwrap()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path());
    }
}

/// Returns a command of the program.
pub fn command(command: &str, arguments: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_slipring"));
    program.arg(command).args(arguments).stdin(Stdio::null());
    program
}

/// Runs a command of the program. Returns exit code, standard output and standard error.
pub fn run(name: &str, arguments: &[&str]) -> (i32, String, String) {
    let output = command(name, arguments).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().unwrap(), out, err)
}

/// A process that has a place in a segment, and calls itself `holder`.
pub struct Process(Child, BufReader<ChildStdout>);

impl Process {
    /// Starts a process that takes a place in one of these roles:
    ///
    /// - `reader` reads an event of a stage, and keeps the next one;
    /// - `worker` takes an event of a pool;
    /// - `viewer` joins a tap, and reads nothing;
    /// - `producer`, one of several, claims two positions;
    /// - `all` has the places `store` and `a b`, and reads nothing.
    pub fn start(name: &Name, role: &str, stage: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["plays_a_role", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, format!("{} {role} {stage}", name.0));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let held = out.by_ref().lines().any(|line| line.unwrap() == "holds");
        assert!(held, "the child ended");
        Process(child, out)
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: &str) {
        let mut kill = Command::new("kill");
        assert!(kill.args([signal, &self.id().to_string()]).status().unwrap().success());
    }

    fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        stat.rsplit(')').next().unwrap().trim().starts_with('T')
    }

    /// Stops the process.
    pub fn stop(&self) {
        self.signal("-STOP");
        while !self.is_stopped() {
            std::thread::yield_now();
        }
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.end();
    }

    /// Waits until the process has ended.
    pub fn end(&mut self) {
        self.0.wait().unwrap();
    }

    /// Makes the process drop its handle, so that it leaves its place, and waits for the process to
    /// end.
    pub fn leave(&mut self) {
        drop(self.0.stdin.take());
        self.end();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Plays the role that a [`Process`] asks for; does nothing in a test.
pub fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [name, role, stage] = words[..] else { panic!("{role}") };
    // SAFETY: only these tests open the segment.
    let attached = unsafe { Segment::<u64>::open(name).unwrap().attach_as("holder").unwrap() };
    match role {
        "reader" => {
            let mut reader = attached.reader(stage).unwrap();
            reader.batch(1).unwrap().release();
            let _kept = reader.batch(1).unwrap();
            hold();
        }
        "worker" => {
            let mut worker = attached.pool_reader(stage).unwrap();
            let _kept = worker.batch(1).unwrap();
            hold();
        }
        "viewer" => {
            let _viewer = attached.subscribe(stage, StartAt::Now).unwrap();
            hold();
        }
        "producer" => {
            let mut producer = attached.shared_producer().unwrap();
            let _claim = producer.claim_n(2).unwrap();
            hold();
        }
        "all" => {
            let _readers = ["store", "a b"].map(|stage| attached.reader(stage).unwrap());
            hold();
        }
        _ => panic!("{role}"),
    }
}

/// Reports that the place is taken, and waits until the parent ends or closes the pipe.
fn hold() {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nholds").unwrap();
    out.flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}
