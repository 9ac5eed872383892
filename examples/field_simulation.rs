//! A simulation that hands each time step to an analysis in another process, without a copy. Its
//! partner is `field_analysis`. Each of the two can be killed and started again at any time.
//!
//! ```text
//!   field_simulation ── segment `field` ──┬── newest      the simulation's own: what the next step
//!                       8 slots of 1 MiB  │               is computed from, also after a kill
//!                                         └── analysis    field_analysis, another process
//! ```
//!
//! Each step is computed in its slot, from the previous step in the neighbouring slot. So no field
//! is ever copied, and a simulation that takes over finds the newest field in the ring. The
//! simulation notices the analysis only when the ring is full: then it waits, however long that
//! takes.
//!
//! Run the two programs in two terminals. The first simulation makes the segment; after that,
//! either may start first. `-- --help` describes the arguments.
//!
//! ```text
//! cargo run --release --example field_simulation
//! cargo run --release --example field_analysis
//! ```

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod linux {
    use std::io::{self, StdoutLock, Write as _};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, Result, bail, ensure};
    use clap::Parser;
    use indicatif::BinaryBytes;
    use slipring::errors::{BatchError, ClaimError};
    use slipring_examples::field::{
        ANALYSIS, Block, NAME, NEWEST, SmokeName, TURN, interruption, make, pause,
    };
    use slipring_shm::{Attached, Producer, Segment, errors::Problem};

    /// A simulation that hands each time step to an analysis in another process
    #[derive(Parser)]
    struct Args {
        /// Name of the segment
        #[arg(default_value = NAME)]
        name: String,
        /// End the run after N steps, those of earlier simulations included
        #[arg(long, value_name = "N", default_value_t = 200)]
        steps: u64,
        /// Number of slots of a new segment, a power of two; more let the analysis be away for
        /// longer
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..))]
        capacity: u64,
        /// Time between two steps, in milliseconds
        #[arg(long, value_name = "MS", default_value_t = 100)]
        every: u64,
        /// Remove a segment of this name first, with all that the analysis has not read
        #[arg(long)]
        anew: bool,
        /// Compute 8 steps only, without an analysis, to check that it works
        #[arg(long)]
        smoke: bool,
    }

    /// How long the ring must have been full before the simulation says so.
    const PATIENCE: Duration = Duration::from_millis(500);

    /// How often and how long this simulation has waited for the analysis.
    #[derive(Default)]
    struct Waits {
        count: u64,
        time: Duration,
        longest: Duration,
    }

    /// Attaches to the segment, and makes it first if it does not exist.
    fn attach(args: &Args, out: &mut StdoutLock<'_>) -> Result<Attached<Block>> {
        loop {
            let (segment, made) = match Segment::<Block>::open(&args.name) {
                Ok(segment) => (segment, false),
                Err(error) if matches!(error.problem(), Problem::Missing) => {
                    match make(&args.name, args.capacity) {
                        Ok(segment) => (segment, true),
                        // Another process was faster.
                        Err(error) if matches!(error.problem(), Problem::Exists) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            };
            let verb = if made { "made" } else { "found" };
            let bytes = BinaryBytes(size_of::<Block>() as u64);
            let slots = segment.capacity();
            writeln!(out, "{verb} segment `{}`: {slots} slots of {bytes}", args.name)?;
            // SAFETY: only this pair of programs writes to the segment.
            return Ok(unsafe { segment.attach_as("field_simulation") }?);
        }
    }

    /// Publishes the step after `before`, or the first step. Returns `None` if the simulation was
    /// interrupted.
    fn publish(
        tx: &mut Producer<Block>,
        before: Option<&Block>,
        waits: &mut Waits,
        interrupted: &AtomicBool,
        out: &mut StdoutLock<'_>,
    ) -> Result<Option<u64>> {
        let fill = |block: &mut Block| match before {
            Some(before) => block.advance(before),
            None => block.begin(),
        };
        let step = before.map_or(0, |before| before.step + 1);
        let (stage, lag) = match tx.try_publish(fill) {
            Err(ClaimError::Gated { stage, lag }) => (stage, lag),
            published => return Ok(Some(published?)),
        };
        let (began, mut said) = (Instant::now(), false);
        let seq = loop {
            match tx.publish_by(Instant::now() + TURN, fill) {
                Ok(seq) => break Some(seq),
                Err(ClaimError::TimedOut(_)) if interrupted.load(Relaxed) => break None,
                Err(ClaimError::TimedOut(_)) => {}
                Err(other) => return Err(other.into()),
            }
            if !said && began.elapsed() >= PATIENCE {
                said = true;
                let why = "the ring is full and nothing is lost";
                writeln!(out, "step {step}: waiting for `{stage}`, {lag} steps behind; {why}")?;
            }
        };
        let waited = began.elapsed();
        waits.count += 1;
        waits.time += waited;
        waits.longest = waits.longest.max(waited);
        if said && seq.is_some() {
            writeln!(out, "step {step}: going on after {waited:.1?}")?;
        }
        Ok(seq)
    }

    /// Runs the simulation to its last step, or until it is interrupted.
    fn simulate(args: &Args, out: &mut StdoutLock<'_>) -> Result<()> {
        let interrupted = interruption().context("cannot watch for Ctrl-C")?;
        let attached = attach(args, out)?;
        let mut tx = attached.producer()?;
        // This process has taken the producer's place. So the place at `NEWEST` is free, too, or
        // the process that had it is dead.
        let mut own = attached.reader(NEWEST)?;
        let mut waits = Waits::default();
        let mut first = None;
        let next = loop {
            let mut newest = match own.try_batch(attached.capacity() as usize) {
                Ok(batch) => Some(batch),
                Err(BatchError::Unavailable) => None,
                Err(other) => return Err(other.into()),
            };
            if let Some(batch) = &mut newest {
                // A simulation that was killed may have left several blocks.
                batch.release_front(batch.len() - 1);
            }
            let before = newest.as_ref().map(|batch| &batch[0]);
            let step = before.map_or(0, |before| before.step + 1);
            if first.is_none() && step > 0 {
                writeln!(
                    out,
                    "took over: step {step} follows from step {}, which is still in its slot",
                    step - 1
                )?;
            }
            first.get_or_insert(step);
            if step >= args.steps || interrupted.load(Relaxed) {
                break step;
            }
            match publish(&mut tx, before, &mut waits, &interrupted, out)? {
                Some(seq) => ensure!(
                    seq == step,
                    "step {step} came to position {seq}: the newest block was not the newest"
                ),
                None => break step,
            }
            if let Some(batch) = newest {
                batch.release();
            }
            pause(Duration::from_millis(args.every), &interrupted);
        };
        // No step follows, so the newest block is not needed any more.
        if let Ok(batch) = own.try_batch(1) {
            batch.release();
        }
        tx.close();
        let Waits { count, time, longest } = waits;
        let steps = next - first.unwrap_or(next);
        let why = if next < args.steps { "interrupted" } else { "done" };
        writeln!(out, "{why}: published {steps} steps, {next} in all, and closed the ring")?;
        match count {
            0 => writeln!(out, "waited for no stage")?,
            _ => writeln!(
                out,
                "waited {time:.1?} for `{ANALYSIS}`, {count} times, {longest:.1?} at most"
            )?,
        }
        Ok(())
    }

    /// Fails with an error that says how to continue after a run that has ended.
    fn explain(args: &Args) -> Result<()> {
        let segment = Segment::<Block>::open(&args.name)?;
        // SAFETY: only this pair of programs writes to the segment.
        let report = unsafe { segment.attach() }?.report().context("the segment has no ring")?;
        let left = report.stage(ANALYSIS).map_or(0, |stage| stage.lag);
        bail!(
            "the run in segment `{}` has ended, and `{ANALYSIS}` has {left} steps left: let field_analysis read them, which then removes the segment; or begin anew by --anew",
            args.name
        )
    }

    pub fn run() -> Result<()> {
        let mut args = Args::parse();
        // `println!` would panic where the reader has closed the pipe (`| head`).
        let mut out = io::stdout().lock();
        let _removed = args.smoke.then(|| {
            let name = SmokeName::new();
            args = Args {
                name: name.0.clone(),
                steps: 8,
                capacity: 8,
                every: 0,
                anew: false,
                smoke: true,
            };
            name
        });
        if args.anew {
            match slipring_shm::remove(&args.name) {
                Err(error) if !matches!(error.problem(), Problem::Missing) => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        match simulate(&args, &mut out) {
            Err(error)
                if error
                    .downcast_ref::<slipring_shm::SegmentError>()
                    .is_some_and(|error| matches!(error.problem(), Problem::Over)) =>
            {
                explain(&args)
            }
            other => other,
        }
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn main() -> anyhow::Result<()> {
    linux::run()
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn main() -> std::io::Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "field_simulation needs segments, which only 64-bit Linux has")
}
