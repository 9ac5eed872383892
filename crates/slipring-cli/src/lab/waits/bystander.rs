//! The bystander: a second process that works on the same cores and reports how much work it did.
//!
//! The bystander is this program, started again. The work that it loses is the price that every
//! other process on the machine pays for a strategy.

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
use slipring_machine::{self as machine, CorePair};

use crate::base::{console, exit};

/// Works until standard input ends, then prints the amount of work; used by `waits`
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// Run a thread on each of these cores [default: as many threads as cores, not pinned]
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
}

/// The line that the process prints when all threads work, so that its start is not measured.
const READY: &str = "ready";
/// Steps in a unit of work, which takes about 10 µs.
const STEPS: u64 = 4_000;
/// Time limit for each line that the process prints. A process that exceeds the limit counts as
/// broken.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// The amount of work, printed at the end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Done {
    units: u64,
    seconds: f64,
}

/// Runs the bystander's process.
pub fn work(args: &Args) -> Result<()> {
    let cores: Vec<Option<usize>> = match args.cores.as_slice() {
        [] => vec![None; machine::usable_cores()],
        cores => {
            check(cores, &machine::allowed_cpus()).map_err(exit::usage)?;
            cores.iter().copied().map(Some).collect()
        }
    };
    let stop = AtomicBool::new(false);
    // This lock is a start gate: all workers begin when the write lock is released, so none works
    // while others still start.
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
        // The count ends when all senders are dropped. A worker that panics drops its sender, too.
        let arrived = arrived.iter().count();
        let begin = Instant::now();
        drop(closed);
        let reported = match &workers {
            Ok(workers) if arrived < workers.len() => {
                Err(anyhow!("a thread of the bystander died before it started to work"))
            }
            Ok(_) => print_line(READY)
                .and_then(|()| Ok(io::stdin().lock().read_to_end(&mut Vec::new()).map(drop)?)),
            Err(_) => Ok(()),
        };
        // The threads must end after a failure too, because the scope waits for them.
        stop.store(true, Ordering::Relaxed);
        let seconds = begin.elapsed().as_secs_f64();
        let workers = workers.context("cannot start a thread of the bystander")?;
        let units = workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum();
        reported.map(|()| Done { units, seconds })
    })?;
    print_line(&serde_json::to_string(&done)?)
}

/// Fails on cores that this process may not use, and on a core that is named twice.
fn check(cores: &[usize], allowed: &[usize]) -> Result<()> {
    for (i, core) in cores.iter().enumerate() {
        ensure!(
            allowed.contains(core),
            "--cores: core {core} is not among the cores that this process may use: {}",
            match allowed {
                [] => "the system names none".to_owned(),
                allowed => allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
            }
        );
        ensure!(!cores[..i].contains(core), "--cores: core {core} is named twice");
    }
    Ok(())
}

fn print_line(line: &str) -> Result<()> {
    console::print(&format!("{line}\n"))
}

/// Does one unit of work: a chain of dependent steps (xorshift) that touches no memory, so that
/// only lost processor time slows it down.
fn unit() {
    let mut state = black_box(1u64);
    for _ in 0..STEPS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// A running bystander. Dropping the handle kills the process.
#[derive(Debug)]
pub struct Bystander {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Lines of the process's output. A thread reads them, so that waiting for one can time out.
    lines: Receiver<io::Result<String>>,
    line_timeout: Duration,
}

impl Bystander {
    /// Starts the process and waits until all its threads work.
    pub fn start(pair: Option<CorePair>) -> Result<Self> {
        let program = std::env::current_exe()
            .context("cannot find this program's file, to start it as the bystander")?;
        let mut command = Command::new(program);
        command.args(["lab", "bystander"]);
        if let Some(CorePair { producer, waiter }) = pair {
            command.arg("--cores").arg(format!("{producer},{waiter}"));
        }
        Self::launch(command, LINE_TIMEOUT)
    }

    /// Starts a program that prints the bystander's lines. Waiting for a line fails after
    /// `line_timeout`.
    fn launch(mut command: Command, line_timeout: Duration) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the bystander does not start")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = channel();
        // From here on, any failure drops the handle, and the drop kills the process.
        let mut bystander = Self { child, stdin, lines, line_timeout };
        let stdout = BufReader::new(stdout.context("the bystander has no output")?);
        let read = move || _ = stdout.lines().try_for_each(|line| sender.send(line));
        thread::Builder::new()
            .spawn(read)
            .context("cannot start a thread that reads the bystander's output")?;
        match bystander.line()?.as_str() {
            READY => Ok(bystander),
            other => Err(anyhow!("the bystander printed `{other}` instead of `{READY}`")),
        }
    }

    /// Ends the process. Returns its units of work per second.
    pub fn finish(mut self) -> Result<f64> {
        drop(self.stdin.take());
        let line = self.line()?;
        let Done { units, seconds } = serde_json::from_str(&line)
            .with_context(|| format!("the bystander printed `{line}`"))?;
        let status = self.exit_status()?;
        ensure!(status.success(), "the bystander failed: {status}");
        Ok(units as f64 / seconds)
    }

    /// Returns the next line of the process's output.
    fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(self.line_timeout) {
            Ok(line) => line.context("cannot read the bystander's output"),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the bystander has printed nothing for {:?}", self.line_timeout)
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the bystander ended too early: {}", self.exit_status()?)
            }
        }
    }

    /// Waits for the end of the process, after its output has ended.
    fn exit_status(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + self.line_timeout;
        loop {
            if let Some(status) = self.child.try_wait().context("the bystander")? {
                return Ok(status);
            }
            ensure!(
                Instant::now() < deadline,
                "the bystander has not ended within {:?}",
                self.line_timeout
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // Both calls do nothing for a process whose exit status was read before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_core_that_is_not_allowed() {
        assert!(check(&[3, 1], &[1, 2, 3]).is_ok());
        let message =
            |cores: &[usize], allowed: &[usize]| check(cores, allowed).unwrap_err().to_string();
        assert_eq!(
            message(&[1, 7], &[0, 1]),
            "--cores: core 7 is not among the cores that this process may use: 0, 1"
        );
        assert!(message(&[0], &[]).contains("names none"));
        assert!(message(&[0, 1, 0], &[0, 1]).contains("core 0 is named twice"));
    }

    #[cfg(unix)]
    #[test]
    fn a_bystander_that_dies_or_is_silent_is_an_error() {
        let launch = |script: &str, line_timeout| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            Bystander::launch(shell, line_timeout)
        };
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(100));
        for (script, line_timeout, reason) in [
            ("exit 3", long, "ended too early: exit status: 3"),
            ("kill -9 $$", long, "ended too early: signal: 9"),
            ("echo steady", long, "`steady` instead of `ready`"),
            ("exec sleep 1000", short, "printed nothing for 100ms"),
            ("exec sleep 1000 >&-", short, "100ms"),
            ("printf '\\377\\n'", long, "cannot read the bystander's output"),
        ] {
            let error = format!("{:#}", launch(script, line_timeout).unwrap_err());
            assert!(error.contains(reason), "{script}: {error}");
        }
        for (script, line_timeout, reason) in [
            ("echo ready; read end; exit 4", long, "ended too early: exit status: 4"),
            ("echo ready; exec sleep 1000", short, "printed nothing for 100ms"),
            ("echo ready; read end; echo '{}'", long, "the bystander printed `{}`"),
            (
                "echo ready; read end; echo '{\"units\":1,\"seconds\":2}'; exit 5",
                long,
                "failed: exit status: 5",
            ),
        ] {
            // A slow machine may delay the start, so only the end has the short limit.
            let mut bystander = launch(script, long).unwrap();
            bystander.line_timeout = line_timeout;
            let error = format!("{:#}", bystander.finish().unwrap_err());
            assert!(error.contains(reason), "{script}: {error}");
        }
        let done =
            launch("echo ready; read end; echo '{\"units\":10,\"seconds\":2}'", long).unwrap();
        assert_eq!(done.finish().unwrap(), 5.0);
    }
}
