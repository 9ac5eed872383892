//! Child processes that run a sink or a source, and that are killed or stopped.

use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process, set_parent_process_death_signal};
use slipring_nats::{Decoding, OpenSink, Server as At, Sink, Source, on_each_step};
use slipring_shm::Producer;
use slipring_shm::{Attached, Segment, SegmentError, errors::Problem};

use crate::common::*;
use crate::singles;

const ROLE: &str = "SLIPRING_NATS_TEST_ROLE";
const STEP: &str = "SLIPRING_NATS_TEST_STEP";
/// Number of slots of each ring of processes.
pub const CAPACITY: u64 = 64;

/// A segment with a ring. Its name is removed when the value is dropped.
pub struct Ring {
    pub name: String,
    pub me: Attached<u64>,
}

impl Ring {
    /// Makes a ring with the stage `stage`, which begins at position `first`.
    pub fn new(stage: &str, first: u64) -> Ring {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-nats-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let builder = Segment::<u64>::create(&name).capacity(CAPACITY).first_seq(first);
        let segment = builder.notice(Duration::from_millis(2)).reader(stage).build().unwrap();
        Ring { me: join(&segment), name }
    }

    pub fn producer(&self) -> Producer<u64> {
        retry(|| self.me.producer())
    }

    fn path(&self) -> PathBuf {
        Path::new("/dev/shm").join(format!("{}.slipring", self.name))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path());
    }
}

fn join(segment: &Segment<u64>) -> Attached<u64> {
    // SAFETY: only these tests know the segment.
    unsafe { segment.attach() }.unwrap()
}

/// Repeats a call as long as the place that it wants is taken. A killed process holds its places
/// until the kernel has unmapped its memory.
fn retry<T>(mut take: impl FnMut() -> Result<T, SegmentError>) -> T {
    loop {
        match take() {
            Err(error) if matches!(error.problem(), Problem::Taken { .. } | Problem::Busy) => {
                std::thread::sleep(Duration::from_micros(200));
            }
            result => return result.unwrap(),
        }
    }
}

/// A child process that plays a role of this test binary.
pub struct Role {
    child: Child,
    from: BufReader<ChildStdout>,
}

impl Role {
    /// Starts the role `name` with values that the role reads by [`value`]. `step` names the step
    /// at which the role is killed, and says at which of the role's passages of this step.
    pub fn start(name: &str, values: &[(&str, &str)], step: Option<(&str, u32)>) -> Role {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["plays_a_role", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, name).stdin(Stdio::null()).stdout(Stdio::piped());
        command.envs(values.iter().copied());
        if let Some((step, time)) = step {
            command.env(STEP, format!("{step} {time}"));
        }
        let mut child = command.spawn().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Role { child, from }
    }

    /// Waits for the role's next line.
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

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the role's end by SIGKILL.
    #[track_caller]
    pub fn assert_killed(mut self, why: impl Display) {
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{why}: {status}");
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a value that the role was started with.
fn value(key: &str) -> String {
    std::env::var(key).unwrap()
}

/// Prints a line for the parent.
fn say(said: impl Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@{said}").unwrap();
    out.flush().unwrap();
}

/// Plays the role that the environment names, if any.
pub fn play() {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    let Ok(name) = std::env::var(ROLE) else { return };
    // The kernel kills this process if the thread that started it ends. That thread waits for this
    // process anyway, or kills it by dropping its handle.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    on_each_step(|step| {
        let Ok(wanted) = std::env::var(STEP) else { return };
        let (name, time) = wanted.split_once(' ').unwrap();
        if name == step && TIMES.fetch_add(1, Relaxed) + 1 == time.parse::<u32>().unwrap() {
            let _ = kill_process(getpid(), Signal::KILL);
            // Until the signal arrives, other threads may run, but this one must not.
            loop {
                std::thread::park();
            }
        }
    });
    match name.as_str() {
        "sink" => sink_of_processes(),
        "sink-of-threads" => sink_of_threads(own_sink().open(numbers()).unwrap()),
        "sink-of-singles" => sink_of_threads(singles::open(&value("URL"))),
        "source" => source(),
        name => panic!("no role {name}"),
    }
}

fn own_sink() -> Sink {
    let events = std::env::var("FRAME").map_or(4, |events| events.parse().unwrap());
    let sink = sink(&value("URL")).max_frame(HEADER + 8 * events);
    match std::env::var("ACK_MICROS") {
        Ok(micros) => sink.ack_timeout(Duration::from_micros(micros.parse().unwrap())),
        Err(_) => sink,
    }
}

/// Publishes a ring of processes until it ends.
fn sink_of_processes() {
    let me = join(&Segment::open(value("NAME")).unwrap());
    let journal = retry(|| me.reader("journal"));
    let running = match own_sink().attach(numbers(), journal, me.id()) {
        Ok(running) => running,
        Err(error) => return say(format!("refused: {error}")),
    };
    say("runs");
    match running.join() {
        Ok(counters) => say(format!("ended {}", counters.acknowledged)),
        Err(error) => say(format!("failed: {error}")),
    }
}

/// Publishes a ring of threads, which this process feeds up to position `END`.
fn sink_of_threads(open: OpenSink<u64>) {
    say(open.next_seq());
    let (mut tx, running) = start(open, 64);
    let fed = feed(&mut tx, value("END").parse().unwrap());
    tx.close();
    match (fed, running.join()) {
        (Ok(()), Ok(counters)) => say(format!("ended {}", counters.acknowledged)),
        (_, error) => say(format!("failed: {}", error.unwrap_err())),
    }
}

/// Fills a ring of processes.
fn source() {
    let me = join(&Segment::open(value("NAME")).unwrap());
    let tx = retry(|| me.producer());
    let open = Source::of(At::at(value("URL")), STREAM).open().unwrap();
    let running = open.start(Decoding::plain("number", 1), tx).unwrap();
    say("runs");
    match running.join() {
        Ok(progress) => say(format!("ended {}", progress.next)),
        Err(error) => say(format!("failed: {error}")),
    }
}
