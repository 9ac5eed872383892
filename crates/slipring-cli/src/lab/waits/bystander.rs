//! The bystander: a second process that does fixed work on the same cores, and tells how much of it
//! was done.
//!
//! It is this program, started again. What a strategy takes from it is what it takes from everybody
//! who shares the machine.

use std::hint::black_box;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::console;
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
/// How long the bystander may take to say what is due. Past it, it counts as broken.
const PATIENCE: Duration = Duration::from_secs(60);

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
        cores => {
            check(cores, &machine::allowed())?;
            cores.iter().copied().map(Some).collect()
        }
    };
    let stop = AtomicBool::new(false);
    // The workers pass it when it is unlocked, all at once: none of them works while others start.
    let gate = RwLock::new(());
    let done = thread::scope(|scope| {
        let (stop, gate) = (&stop, &gate);
        let closed = gate.write();
        let (ready, arrived) = channel();
        let spawn = |core: Option<usize>| {
            let ready = ready.clone();
            thread::Builder::new().spawn_scoped(scope, move || {
                core.inspect(|&core| machine::pin(core));
                let _ = ready.send(());
                drop(ready);
                drop(gate.read());
                let mut units = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    unit();
                    units += 1;
                }
                units
            })
        };
        let workers: io::Result<Vec<_>> = cores.into_iter().map(spawn).collect();
        drop(ready);
        // A worker that died before it arrived has dropped its sender, so this ends in any case.
        let arrived = arrived.iter().count();
        let begin = Instant::now();
        drop(closed);
        let told = match &workers {
            Ok(workers) if arrived < workers.len() => {
                Err(anyhow!("a thread of the bystander died before it was at work"))
            }
            Ok(_) => tell(READY)
                .and_then(|()| Ok(io::stdin().lock().read_to_end(&mut Vec::new()).map(drop)?)),
            Err(_) => Ok(()),
        };
        // Whatever failed, the threads come to their end: the scope waits for them.
        stop.store(true, Ordering::Relaxed);
        let seconds = begin.elapsed().as_secs_f64();
        let workers = workers.context("cannot start a thread of the bystander")?;
        let units = workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum();
        told.map(|()| Done { units, seconds })
    })?;
    tell(&serde_json::to_string(&done)?)
}

/// Refuses cores that no thread of this process could be bound to.
fn check(cores: &[usize], allowed: &[usize]) -> Result<()> {
    for (i, core) in cores.iter().enumerate() {
        ensure!(
            allowed.contains(core),
            "--cores: core {core} is not among those that this process may use: {}",
            match allowed {
                [] => "this system names none".to_owned(),
                allowed => allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
            }
        );
        ensure!(!cores[..i].contains(core), "--cores: core {core} is named twice");
    }
    Ok(())
}

fn tell(line: &str) -> Result<()> {
    console::print(&format!("{line}\n"))
}

/// Fixed work that touches no memory, each step after the one before (xorshift): what it loses is
/// time.
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
#[derive(Debug)]
pub struct Bystander {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Lines of its output. A thread reads them, so that a wait for one has an end.
    lines: Receiver<io::Result<String>>,
    patience: Duration,
}

impl Bystander {
    /// Starts it, and waits until it is at work.
    pub fn start(pair: Option<Pair>) -> Result<Self> {
        let program = std::env::current_exe()
            .context("the bystander is this program, which is not to be found")?;
        let mut command = Command::new(program);
        command.args(["lab", "bystander"]);
        if let Some(Pair { producer, waiter }) = pair {
            command.arg("--cores").arg(format!("{producer},{waiter}"));
        }
        Self::launch(command, PATIENCE)
    }

    /// Starts a program that speaks as the bystander does. Every wait for it ends after `patience`.
    fn launch(mut command: Command, patience: Duration) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the bystander does not start")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = channel();
        // From here on the handle ends the process, whatever fails.
        let mut bystander = Self { child, stdin, lines, patience };
        let stdout = BufReader::new(stdout.context("the bystander has no output")?);
        let read = move || _ = stdout.lines().try_for_each(|line| sender.send(line));
        thread::Builder::new()
            .spawn(read)
            .context("cannot start a thread that listens to the bystander")?;
        match bystander.line()?.as_str() {
            READY => Ok(bystander),
            other => Err(anyhow!("the bystander said `{other}` instead of `{READY}`")),
        }
    }

    /// Ends it; so many units a second were done.
    pub fn finish(mut self) -> Result<f64> {
        drop(self.stdin.take());
        let line = self.line()?;
        let Done { units, seconds } =
            serde_json::from_str(&line).with_context(|| format!("the bystander said `{line}`"))?;
        let status = self.ended()?;
        ensure!(status.success(), "the bystander failed: {status}");
        Ok(units as f64 / seconds)
    }

    /// The next line that it says.
    fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(self.patience) {
            Ok(line) => line.context("the bystander cannot be heard"),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the bystander has said nothing for {:?}", self.patience)
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the bystander ended too early: {}", self.ended()?)
            }
        }
    }

    /// How it ended, after its last word.
    fn ended(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + self.patience;
        loop {
            if let Some(status) = self.child.try_wait().context("the bystander")? {
                return Ok(status);
            }
            ensure!(
                Instant::now() < deadline,
                "the bystander has not ended within {:?}",
                self.patience
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // After a wait that succeeded this does nothing: the handle knows that the process has
        // gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_cannot_be_had_are_named() {
        assert!(check(&[3, 1], &[1, 2, 3]).is_ok());
        let said =
            |cores: &[usize], allowed: &[usize]| check(cores, allowed).unwrap_err().to_string();
        assert_eq!(
            said(&[1, 7], &[0, 1]),
            "--cores: core 7 is not among those that this process may use: 0, 1"
        );
        assert!(said(&[0], &[]).contains("names none"));
        assert!(said(&[0, 1, 0], &[0, 1]).contains("core 0 is named twice"));
    }

    #[cfg(unix)]
    #[test]
    fn a_bystander_that_dies_or_says_nothing_is_an_error() {
        let launch = |script: &str, patience| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            Bystander::launch(shell, patience)
        };
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(100));
        for (script, patience, reason) in [
            ("exit 3", long, "ended too early: exit status: 3"),
            ("kill -9 $$", long, "ended too early: signal: 9"),
            ("echo steady", long, "`steady` instead of `ready`"),
            ("exec sleep 1000", short, "said nothing for 100ms"),
            ("exec sleep 1000 >&-", short, "100ms"),
            ("printf '\\377\\n'", long, "cannot be heard"),
        ] {
            let error = format!("{:#}", launch(script, patience).unwrap_err());
            assert!(error.contains(reason), "{script}: {error}");
        }
        for (script, patience, reason) in [
            ("echo ready; read end; exit 4", long, "ended too early: exit status: 4"),
            ("echo ready; exec sleep 1000", short, "said nothing for 100ms"),
            ("echo ready; read end; echo '{}'", long, "the bystander said `{}`"),
            (
                "echo ready; read end; echo '{\"units\":1,\"seconds\":2}'; exit 5",
                long,
                "failed: exit status: 5",
            ),
        ] {
            // What it is slow to say before counts as the machine's slowness, so only the end is
            // impatient.
            let mut bystander = launch(script, long).unwrap();
            bystander.patience = patience;
            let error = format!("{:#}", bystander.finish().unwrap_err());
            assert!(error.contains(reason), "{script}: {error}");
        }
        let done =
            launch("echo ready; read end; echo '{\"units\":10,\"seconds\":2}'", long).unwrap();
        assert_eq!(done.finish().unwrap(), 5.0);
    }
}
