//! An analysis of the fields that `field_simulation` publishes, in a process of its own. It reads
//! each block where it lies, prints a line, and releases the block.
//!
//! The analysis can be killed and started again at any time. It then continues at the first block
//! that was not released, and marks the blocks that may have been printed already. The simulation
//! waits only when its ring is full.
//!
//! Each block is checked against theory: insulated edges keep the total heat, and no cell leaves
//! the range of the first field.
//!
//! `cargo run --release --example field_analysis` runs it, beside `field_simulation`; `-- --help`
//! describes its arguments.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod linux {
    use std::io::{self, StdoutLock, Write as _};
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, Result, bail, ensure};
    use clap::Parser;
    use indicatif::HumanFloatCount;
    use slipring::errors::{BatchError, WaitError};
    use slipring_examples::field::{
        ANALYSIS, Block, COLD, HOT, NAME, NEWEST, SmokeName, TURN, interruption, make, pause,
        theory,
    };
    use slipring_shm::{Segment, errors::Problem};

    /// An analysis of the fields that `field_simulation` publishes
    #[derive(Parser)]
    struct Args {
        /// Name of the segment
        #[arg(default_value = NAME)]
        name: String,
        /// Leave after N blocks; the next analysis continues behind them
        #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
        limit: u64,
        /// Keep each block for MS milliseconds after its line, as a slower analysis would
        #[arg(long, value_name = "MS", default_value_t = 0)]
        hold: u64,
        /// Read 8 blocks of a segment of its own, to check that it works
        #[arg(long)]
        smoke: bool,
    }

    /// Why the analysis ends.
    #[derive(PartialEq)]
    enum End {
        Closed,
        Limit,
        Interrupted,
    }

    fn analyse(args: &Args, out: &mut StdoutLock<'_>) -> Result<End> {
        let interrupted = interruption().context("cannot watch for Ctrl-C")?;
        let segment = Segment::<Block>::open(&args.name)?;
        // SAFETY: only this pair of programs writes to the segment.
        let attached = unsafe { segment.attach_as("field_analysis") }?;
        let mut blocks = attached.reader(ANALYSIS)?;
        let theory = theory();
        let [heat, cold, hot] = [theory, COLD, HOT].map(HumanFloatCount);
        writeln!(
            out,
            "theory: the total heat stays {heat}, and all cells stay within {cold} to {hot}"
        )?;
        let again = blocks.redelivered();
        let next = blocks.next_seq();
        match again.len() {
            0 => writeln!(out, "going on at step {next}; none comes again")?,
            1 => writeln!(out, "going on at step {next}, which may have been printed before")?,
            _ => writeln!(
                out,
                "going on at step {next}; steps {next} to {} may have been printed before",
                again.last_seq()
            )?,
        }
        let picture = format!("middle row, ▁ {cold} to █ {hot}");
        writeln!(out, "  step      min      max     mean  heat error  {picture}")?;

        let (mut count, mut worst) = (0, 0.0_f64);
        let end = loop {
            if count == args.limit {
                break End::Limit;
            }
            if interrupted.load(Relaxed) {
                break End::Interrupted;
            }
            let batch = match blocks.batch_by(1, Instant::now() + TURN) {
                Ok(batch) => batch,
                Err(BatchError::TimedOut(_)) => continue,
                Err(BatchError::Wait(WaitError::Closed)) => break End::Closed,
                Err(other) => return Err(other.into()),
            };
            let (seq, block) = (batch.first_seq(), &batch[0]);
            ensure!(block.step == seq, "position {seq} has step {}", block.step);
            let measures = block.measure();
            let error = measures.error(theory);
            let mark = if again.contains(seq) { "  again" } else { "" };
            writeln!(
                out,
                "{seq:>6}  {:>7.3}  {:>7.3}  {:>7.3}  {error:>10.1e}  {}{mark}",
                measures.minimum,
                measures.maximum,
                measures.mean(),
                block.profile()
            )?;
            if !measures.agrees(theory) {
                bail!("step {seq} is against theory: {measures:?}");
            }
            pause(Duration::from_millis(args.hold), &interrupted);
            // If the process is killed before this line, the block comes again.
            batch.release();
            count += 1;
            worst = worst.max(error.abs());
        };
        let at = blocks.next_seq();
        let why = match end {
            End::Closed => "the simulation has ended".to_owned(),
            End::Limit | End::Interrupted => format!("the next analysis goes on at step {at}"),
        };
        writeln!(
            out,
            "{count} blocks agree with theory, the total heat within {worst:.0e} of it; {why}"
        )?;
        Ok(end)
    }

    /// Makes a segment with eight steps and a closed ring.
    fn simulate(name: &str) -> Result<()> {
        // SAFETY: only this process knows the segment.
        let attached = unsafe { make(name, 8)?.attach() }?;
        let (mut tx, mut own) = (attached.producer()?, attached.reader(NEWEST)?);
        tx.publish(Block::begin)?;
        for _ in 1..8 {
            let newest = own.batch(1)?;
            tx.publish(|block| block.advance(&newest[0]))?;
            newest.release();
        }
        Ok(())
    }

    pub fn run() -> Result<()> {
        let mut args = Args::parse();
        // `println!` would panic where the reader has closed the pipe (`| head`).
        let mut out = io::stdout().lock();
        let _removed = match args.smoke {
            true => {
                let name = SmokeName::new();
                args.name.clone_from(&name.0);
                simulate(&name.0)?;
                Some(name)
            }
            false => None,
        };
        let end = analyse(&args, &mut out)?;
        // The run is over and all blocks are read, so the segment is no longer needed. The
        // simulation has closed it and is about to leave.
        for _ in 0..if end == End::Closed { 100 } else { 0 } {
            match slipring_shm::remove(&args.name) {
                Ok(()) => {
                    writeln!(out, "removed segment `{}`", args.name)?;
                    break;
                }
                Err(error) if matches!(error.problem(), Problem::InUse { .. }) => {
                    thread::sleep(TURN);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn main() -> anyhow::Result<()> {
    linux::run()
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn main() -> std::io::Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "field_analysis needs segments, which only 64-bit Linux has")
}
