//! The reading end: a thread of this program, or a second process of it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use slipring_exchange::{Reader, Way};
use slipring_machine as machine;

use crate::base::console;

/// Reads blocks that `exchange` writes, then prints the times; used by `exchange`
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// The way of the exchange
    #[arg(long)]
    way: Way,
    /// The folder that both processes use
    #[arg(long)]
    folder: PathBuf,
    #[command(flatten)]
    task: Task,
}

/// The task of a reader.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Task {
    /// Size of a block, in words
    #[arg(long)]
    pub words: usize,
    /// Number of blocks
    #[arg(long)]
    pub blocks: usize,
    /// Size of the memory to work through after each block, in bytes
    #[arg(long)]
    pub cold: Option<usize>,
    /// The core to run on
    #[arg(long)]
    pub core: Option<usize>,
}

/// The line that the process prints when it can read, and when it waits with cold caches.
pub const READY: &str = "ready";

/// Times at which the reading of each block began and ended, in nanoseconds of the monotonic clock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    pub began: Vec<u64>,
    pub ended: Vec<u64>,
}

/// Runs the reader's process.
pub fn work(args: &Args) -> Result<()> {
    let mut reader = args.way.reader(&args.folder, args.task.words).context("the reader's end")?;
    print_line(READY)?;
    let times = read(&mut *reader, &args.task, &mut || print_line(READY))?;
    print_line(&serde_json::to_string(&times)?)
}

/// Reads all blocks on the task's core. Calls `ready` when it waits for the next block with cold
/// caches.
pub fn read(
    reader: &mut dyn Reader,
    task: &Task,
    ready: &mut dyn FnMut() -> Result<()>,
) -> Result<Times> {
    task.core.inspect(|&core| machine::pin(core));
    let mut cold = Cold::new(task.cold);
    let mut times = Times::default();
    for number in 0..task.blocks {
        read_one(reader, number, task.words, &mut times)?;
        if task.cold.is_some() && number + 1 < task.blocks {
            cold.work();
            ready()?;
        }
    }
    Ok(times)
}

/// Reads the block of this number, and checks it.
pub fn read_one(
    reader: &mut dyn Reader,
    number: usize,
    words: usize,
    times: &mut Times,
) -> Result<()> {
    let mut sum = 0;
    let (began, ended) = reader.read(&mut |block| sum = block.iter().sum::<u64>())?;
    let expected = expected_sum(number, words);
    ensure!(sum == expected, "block {number} was read as {sum} instead of {expected}");
    times.began.push(began);
    times.ended.push(ended);
    Ok(())
}

/// Fills a block with ones. The first word holds the block's number plus one, so that the reader
/// does not take an old block for a new one.
pub fn fill(block: &mut [u64], number: usize) {
    block.fill(1);
    block[0] = number as u64 + 1;
}

fn expected_sum(number: usize, words: usize) -> u64 {
    (words + number) as u64
}

/// Memory that an end works through between two blocks, so that the caches forget the blocks.
pub struct Cold(Vec<u64>);

impl Cold {
    pub fn new(bytes: Option<usize>) -> Cold {
        Cold(vec![0; bytes.unwrap_or(0) / 8])
    }

    /// Changes a word of each cache line.
    pub fn work(&mut self) {
        self.0.iter_mut().step_by(8).for_each(|word| *word = std::hint::black_box(*word + 1));
    }
}

/// Prints a line for the process that has started this one.
fn print_line(line: &str) -> Result<()> {
    console::print(&format!("{line}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_distinct_sums() {
        for number in 0..3 {
            let mut block = vec![7; 512];
            fill(&mut block, number);
            assert_eq!(block.iter().sum::<u64>(), expected_sum(number, 512));
        }
        assert_ne!(expected_sum(0, 512), expected_sum(1, 512));
    }

    #[test]
    fn a_block_that_was_not_written_is_an_error() {
        let (mut writer, mut reader) = Way::OneThread.within(512).unwrap();
        writer.write(&mut |block| fill(block, 1)).unwrap();
        let error = read_one(&mut *reader, 0, 512, &mut Times::default()).unwrap_err();
        assert!(error.to_string().contains("read as 513 instead of 512"), "{error}");
    }
}
