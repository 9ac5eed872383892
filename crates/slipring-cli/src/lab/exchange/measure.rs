//! One execution: a writer and a reader exchange blocks.

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use indicatif::BinaryBytes;
use slipring_exchange::{Way, Writer, now};
use slipring_machine as machine;

use super::about::WORD;
use super::figures::Figures;
use super::placement::Placement;
use super::reader::{self, Cold, READY, Task, Times};

/// Number of blocks that the ends exchange before the measured blocks.
const WARM_UP: usize = 3;

/// One combination that is measured: a way to exchange, two cores, and a block size.
#[derive(Clone, Debug)]
pub struct Setup {
    pub way: Way,
    pub placement: Placement,
    /// Size of a block, in words.
    pub words: usize,
    /// Size of the memory that each end works through between two blocks, in bytes; `None` if the
    /// caches stay warm.
    pub cold: Option<usize>,
}

/// The figures of one execution.
#[derive(Clone, Debug)]
pub struct Execution {
    /// Number of blocks.
    pub blocks: usize,
    /// Time that reading a block takes.
    pub read: Figures,
    /// Time from the end of writing to the start of reading.
    pub latency: Figures,
}

impl Setup {
    pub fn new(way: &Way, placement: Placement, words: usize, cold: Option<usize>) -> Setup {
        Setup { way: way.clone(), placement, words, cold }
    }

    /// Exchanges some blocks, and returns the figures.
    pub fn execute(&self, blocks: usize) -> Result<Execution> {
        let blocks = blocks + WARM_UP;
        let Setup { words, cold, .. } = *self;
        let task = Task { words, blocks, cold, core: self.placement.reader };
        let (written, times) = match &self.way {
            Way::OneThread => self.in_one_thread(&task)?,
            way if way.has_two_processes() => self.between_processes(&task)?,
            _ => self.between_threads(&task)?,
        };
        ensure!(
            [written.len(), times.began.len(), times.ended.len()] == [blocks; 3],
            "not every block was exchanged"
        );
        let between = |from: &[u64], to: &[u64]| -> Vec<f64> {
            let pairs = from.iter().zip(to).skip(WARM_UP);
            pairs.map(|(from, to)| to.saturating_sub(*from) as f64).collect()
        };
        Ok(Execution {
            blocks: blocks - WARM_UP,
            read: Figures::of(between(&times.began, &times.ended)),
            latency: Figures::of(between(&written, &times.began)),
        })
    }

    fn in_one_thread(&self, task: &Task) -> Result<(Vec<u64>, Times)> {
        let (mut writer, mut reader) = self.way.within(task.words)?;
        self.on_own_thread(|| {
            let (mut written, mut times) = (Vec::new(), Times::default());
            let mut cold = Cold::new(task.cold);
            for number in 0..task.blocks {
                let at = writer.write(&mut |block| reader::fill(block, number))?;
                // With one thread, the caches are made cold between writing and reading. The time
                // for that is not counted.
                cold.work();
                written.push(if task.cold.is_some() { now() } else { at });
                reader::read_one(&mut *reader, number, task.words, &mut times)?;
            }
            Ok((written, times))
        })
    }

    fn between_threads(&self, task: &Task) -> Result<(Vec<u64>, Times)> {
        let (mut writer, mut reader) = self.way.within(task.words)?;
        let (is_ready, ready) = mpsc::channel();
        thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let mut tell = || {
                    // If the writer is gone, its failure is reported below.
                    let _ = is_ready.send(());
                    Ok(())
                };
                reader::read(&mut *reader, task, &mut tell)
            });
            let mut await_reader = move || ready.recv().context("the reader ended too early");
            let written = self.on_own_thread(|| write(&mut *writer, task, &mut await_reader));
            // Dropping the writer ends the reader's wait.
            drop(writer);
            let times = reading.join().map_err(|_| anyhow!("the reader panicked"))?;
            Ok((written?, times?))
        })
    }

    fn between_processes(&self, task: &Task) -> Result<(Vec<u64>, Times)> {
        let prefix = format!("slipring-exchange-{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in("/dev/shm");
        let folder = folder.context("a folder in /dev/shm for the shared memory")?;
        let mut writer = self.way.writer(folder.path(), task.words)?;
        let mut command = Command::new(std::env::current_exe().context("this program's path")?);
        command.args(["lab", "exchange-reader", "--way", &self.way.to_string()]);
        command.arg("--folder").arg(folder.path());
        command.args(["--words", &task.words.to_string(), "--blocks", &task.blocks.to_string()]);
        let mut option = |name: &str, value: Option<usize>| {
            if let Some(value) = value {
                command.args([name, &value.to_string()]);
            }
        };
        option("--cold", task.cold);
        option("--core", task.core);
        // Ctrl-C in a terminal ends only this process's group. The reader has a group of its own,
        // so the exchange continues to its end.
        command.process_group(0);
        let child = command.stdout(Stdio::piped()).spawn().context("the reader's process")?;
        let mut process = Process(child);
        let output = process.0.stdout.take().context("the reader's output")?;
        let mut lines = BufReader::new(output).lines();
        let mut line = || {
            let line = lines.next().context("the reader's process ended too early")?;
            line.context("the reader's output")
        };
        is_ready(&line()?)?;
        let mut await_reader = || is_ready(&line()?);
        let written = self.on_own_thread(|| write(&mut *writer, task, &mut await_reader));
        // If the writer has failed, the reader's process ends once its time limit is over.
        let written = written?;
        let times = serde_json::from_str(&line()?).context("the reader's times")?;
        let status = process.0.wait().context("the reader's process")?;
        ensure!(status.success(), "the reader's process failed: {status}");
        Ok((written, times))
    }

    /// Runs a task on a new thread that is bound to the writer's core, so that the calling thread
    /// stays unbound.
    fn on_own_thread<T: Send>(&self, task: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let running = scope.spawn(|| {
                self.placement.writer.inspect(|&core| machine::pin(core));
                task()
            });
            running.join().map_err(|_| anyhow!("the writer panicked"))?
        })
    }
}

fn is_ready(line: &str) -> Result<()> {
    ensure!(line == READY, "the reader's process printed `{line}`");
    Ok(())
}

/// Writes all blocks, and returns the times at which they were written.
///
/// Where caches are made cold, `await_reader` is called before each block but the first. Otherwise
/// the reader could still be making its caches cold when the block is written, and the measured
/// latency would only be the rest of that work.
fn write(
    writer: &mut dyn Writer,
    task: &Task,
    await_reader: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<u64>> {
    let mut cold = Cold::new(task.cold);
    let mut written = Vec::with_capacity(task.blocks);
    for number in 0..task.blocks {
        if task.cold.is_some() && number != 0 {
            cold.work();
            await_reader()?;
        }
        written.push(writer.write(&mut |block| reader::fill(block, number))?);
    }
    Ok(written)
}

/// A process that ends when this value is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls do nothing for a process whose exit status was read before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = BinaryBytes((self.words * WORD) as u64);
        let caches = if self.cold.is_some() { "cold" } else { "warm" };
        write!(f, "{}, {}, {bytes}, {caches}", self.way, self.placement.relation.name())
    }
}
