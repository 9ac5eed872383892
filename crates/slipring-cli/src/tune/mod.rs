//! `slipring tune`: measures settings for the user's work on this machine, and recommends one.
//!
//! 1. Demands that no setting can meet are refused before the measurement.
//! 2. The settings are chosen one after the other (`search.rs`), each by a measurement of all its
//!    alternatives.
//! 3. The chosen candidate and the default one are measured once more, in turns. The recommendation
//!    is refused if the candidate misses a limit, or if the noise leaves that open.

mod candidate;
mod code;
mod demand;
mod measure;
mod place;
mod report;
mod search;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use indicatif::ProgressBar;
use slipring_machine::Machine;

use crate::base::console;
use crate::base::destination::Destination;
use crate::lab::noise;
use crate::lab::progress;
use crate::lab::size::{Size, Sizes};
use candidate::{Alternatives, Candidate, Setting};
use demand::{Cores, Demand, LatencyLimit, Rate, Time};
use measure::{Bench, RunFigures};
use search::Measured;
use work::Work;

/// Recommends settings for your work on this machine
///
/// A pipeline of equal stages gets events at random times, at the rate that you
/// state. Waits, threads, placement, capacity, layout and batches are measured one
/// after the other. If you set no latency limit, the command looks for the least
/// latency (p99). If you set one, it looks for the least processor time that keeps
/// the limit.
///
/// Prints what was chosen, what the next best choice costs, and a program to
/// paste. Run nothing else on the machine meanwhile.
///
/// Exit code: 0 with a recommendation; 1 if no setting meets the demand, or the
/// machine is too noisy to tell; 2 for wrong arguments.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    size: Sizes,

    /// Size of an event, in bytes
    #[arg(long, value_name = "N", default_value = "64", value_parser = event_bytes)]
    event_bytes: usize,

    /// Mean number of events per second, such as 200k
    #[arg(long, value_name = "RATE", default_value = "100k")]
    rate: Rate,

    /// Work of one stage on one event, such as 300ns
    #[arg(long, value_name = "TIME", default_value = "0ns")]
    work: Time,

    /// Number of stages, one after the other
    #[arg(long, value_name = "N", default_value = "1", value_parser = stages)]
    stages: usize,

    /// Processor time that all stages may take, such as 1.5 (cores) or 30%
    #[arg(long, value_name = "CORES")]
    cpu_budget: Option<Cores>,

    /// Limit of a percentile of the latency, such as p99:50us
    #[arg(long, value_name = "pN:TIME")]
    latency: Option<LatencyLimit>,

    /// Write the program to FILE
    #[arg(long, value_name = "FILE.rs")]
    output: Option<PathBuf>,

    /// Write every run's figures to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn event_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
    bytes.filter(|bytes| measure::measured_size(*bytes).is_some()).ok_or_else(|| {
        "events of 1 to 4096 bytes can be measured; put larger data behind a `Box` or a `Vec`"
            .into()
    })
}

fn stages(text: &str) -> Result<usize, String> {
    let stages = text.parse().ok();
    stages.filter(|stages| (1..=64).contains(stages)).ok_or_else(|| "state 1 to 64 stages".into())
}

impl Args {
    fn demand(&self) -> Demand {
        Demand {
            event_bytes: self.event_bytes,
            rate: self.rate,
            work: self.work.0,
            stages: self.stages,
            budget: self.cpu_budget,
            latency: self.latency,
        }
    }
}

/// Returns the numbers of runs of each alternative, and of the final comparison.
fn rounds(size: Size) -> (u32, u32) {
    (size.pick(1, 3, 5), size.pick(2, 7, 11))
}

/// Returns the length of one run: long enough for ten events beyond the percentile, within limits.
fn length(demand: &Demand, size: Size) -> Duration {
    let events = 10.0 / (1.0 - demand.percentile() / 100.0);
    let (least, most) = size.pick((10, 20), (250, 1_500), (500, 5_000));
    let needed = Duration::from_secs_f64(events / demand.rate.0);
    needed.clamp(Duration::from_millis(least), Duration::from_millis(most))
}

/// Noise floor beyond which no recommendation is made.
const TOO_NOISY: f64 = 0.5;

/// Measures, and prints the recommendation.
pub fn run(args: &Args) -> Result<()> {
    let size = args.size.size();
    let demand = args.demand();
    let output = args.output.as_deref().map(|path| Destination::open("--output", path));
    let json = args.json.as_deref().map(|path| Destination::open("--json", path));
    let (output, json) = (output.transpose()?, json.transpose()?);
    if let (Some(output), Some(json)) = (&output, &json) {
        output.refuse_same(json)?;
    }
    let machine = Machine::this()?;
    if let Some(reason) = demand.impossible(machine.usable_cores()) {
        bail!("no setting can meet this demand: {reason}");
    }
    let length = length(&demand, size);
    let beyond = demand.rate.0 * length.as_secs_f64() * (1.0 - demand.percentile() / 100.0);
    if size != Size::Smoke && beyond < 5.0 {
        bail!(
            "a run of {length:?} has {beyond:.1} events beyond p{}, too few to know it: state a \
             higher rate or a lower percentile, or measure with --full",
            demand.percentile()
        );
    }
    slipring::waiting::on_warning(|_| ());
    let places = |threads| place::allowed(&machine, threads, demand.stages);
    let alternatives = Alternatives::new(demand.stages, machine.usable_cores(), places);
    let bench = Bench { length, work: Work::of(demand.work), demand };
    let bar = progress_bar(&alternatives, size);
    bar.set_message("noise floor");
    let noise = noise::measure(size)?.floor();
    if noise > TOO_NOISY && size != Size::Smoke {
        bail!(
            "equal measurements differ by {:.0} % on this machine now, which is too much for a \
             recommendation: stop what else runs, and try again",
            noise * 100.0
        );
    }
    let (rounds, final_rounds) = rounds(size);
    let run = |candidate: &Candidate, round: u32| -> Result<RunFigures> {
        bar.set_message(describe(candidate));
        let outcome = bench.run(candidate, u64::from(round) + 1)?;
        bar.inc(1);
        Ok(outcome)
    };
    let choices = search::search(&bench.demand, &alternatives, rounds, noise, run)?;
    let default = alternatives.default_candidate();
    let chosen = choices.last().map_or(default.clone(), |last| last.chosen.candidate.clone());
    let [mut best, mut usual] =
        [&chosen, &default].map(|of| Measured { candidate: of.clone(), outcomes: Vec::new() });
    for round in 0..final_rounds {
        // The two candidates take turns: the order changes from round to round.
        for which in [round % 2, (round + 1) % 2] {
            let measured = if which == 0 { &mut best } else { &mut usual };
            measured.outcomes.push(run(&measured.candidate, rounds + round)?);
        }
    }
    bar.finish_and_clear();
    // A candidate that is no better than the defaults does not justify other settings.
    if best.candidate != usual.candidate && !search::is_better(&best, &usual, &bench.demand, noise)
    {
        best = usual.clone();
    }
    let report =
        report::Report { machine: &machine, bench: &bench, size, noise, choices, best, usual };
    let record = report.json()?;
    let saved = json.map_or(Ok(()), |json| json.save(&record));
    let refusal = if size == Size::Smoke { None } else { report.refusal() };
    if let Some(refusal) = refusal {
        console::print(&report.tables())?;
        saved?;
        bail!("no recommendation: {refusal}");
    }
    let program = code::program(&report.best.candidate, &bench.demand);
    let saved = saved.and(output.map_or(Ok(()), |output| output.save(&program)));
    console::print(&format!("{}\n{}", report.tables(), report.program(&program)))?;
    saved
}

fn describe(candidate: &Candidate) -> String {
    Setting::ALL.map(|setting| setting.of(candidate)).join("; ")
}

/// Makes the progress bar of all runs.
fn progress_bar(alternatives: &Alternatives, size: Size) -> ProgressBar {
    let (rounds, final_rounds) = rounds(size);
    let default = alternatives.default_candidate();
    let variants = Setting::ALL.map(|of| alternatives.variants(of, &default).len());
    let searched: usize = variants.into_iter().filter(|count| *count > 1).sum();
    let total = searched as u64 * u64::from(rounds) + 2 * u64::from(final_rounds);
    progress::bar(total)
}
