//! The bystander: a second process that does fixed work on the same cores, and tells how much of it was done.
//!
//! It is this program, started again. What a strategy takes from it is what it takes from everybody who shares the machine.

use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::machine::{self, Pair};

/// Works until its input ends, and prints what was done; part of `waits`.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// A thread on each of these cores; without any, as many threads as there are cores.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
}

/// What it says when all threads are at work, so that nobody measures how it starts.
const READY: &str = "ready";
/// Steps of a unit: about 10 µs.
const STEPS: u64 = 4_000;

/// What it prints at the end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Done {
    units: u64,
    seconds: f64,
}

/// The process itself.
pub fn work(args: &Args) -> Result<()> {
    let cores: Vec<Option<usize>> = match args.cores.as_slice() {
        [] => vec![None; machine::cores()],
        cores => cores.iter().copied().map(Some).collect(),
    };
    let (stop, gate) = (AtomicBool::new(false), Barrier::new(cores.len() + 1));
    let done = thread::scope(|scope| {
        let (stop, gate) = (&stop, &gate);
        let workers: Vec<_> = (cores.into_iter())
            .map(|core| {
                scope.spawn(move || {
                    core.inspect(|&core| machine::pin(core));
                    gate.wait();
                    let mut units = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        unit();
                        units += 1;
                    }
                    units
                })
            })
            .collect();
        gate.wait();
        let begin = Instant::now();
        let told = tell(READY).and_then(|()| io::stdin().lock().read_to_end(&mut Vec::new()));
        // Whatever became of the other end, the threads come to theirs.
        stop.store(true, Ordering::Relaxed);
        let seconds = begin.elapsed().as_secs_f64();
        let units = workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum();
        told.map(|_| Done { units, seconds })
    })?;
    Ok(tell(&serde_json::to_string(&done)?)?)
}

fn tell(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Fixed work that touches no memory, each step after the one before (xorshift): what it loses is time.
fn unit() {
    let mut state = black_box(1u64);
    for _ in 0..STEPS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// One that runs. It ends with this handle, in any case.
pub struct Bystander {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Bystander {
    /// Starts it, and waits until it is at work.
    pub fn start(pair: Option<Pair>) -> Result<Self> {
        let program = std::env::current_exe().context("the bystander is this program, which is not to be found")?;
        let mut command = Command::new(program);
        command.args(["lab", "bystander"]);
        if let Some(Pair { producer, waiter }) = pair {
            command.arg("--cores").arg(format!("{producer},{waiter}"));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("the bystander does not start")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = BufReader::new(stdout.ok_or_else(|| anyhow!("the bystander has no output"))?);
        let mut bystander = Self { child, stdin, stdout };
        match bystander.line()?.as_str() {
            READY => Ok(bystander),
            other => Err(anyhow!("the bystander said `{other}` instead of `{READY}`")),
        }
    }

    /// Ends it; so many units a second were done.
    pub fn finish(mut self) -> Result<f64> {
        drop(self.stdin.take());
        let line = self.line()?;
        let Done { units, seconds } = serde_json::from_str(&line).with_context(|| format!("the bystander said `{line}`"))?;
        let status = self.child.wait().context("the bystander")?;
        anyhow::ensure!(status.success(), "the bystander failed: {status}");
        Ok(units as f64 / seconds)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).context("the bystander says nothing")?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // After a wait that succeeded this does nothing: the handle knows that the process has gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
