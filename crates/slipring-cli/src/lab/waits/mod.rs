//! `slipring lab waits`: latency and processor time of each wait strategy.
//!
//! Every strategy meets the same schedule of events. A round runs every strategy once, in an order
//! that is random for each round. So no strategy always runs after the same other one, and a
//! disturbance of the machine hits all strategies alike.

mod arrivals;
pub mod bystander;
mod figures;
mod picture;
mod report;
mod run;
mod wake;

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use fastrand::Rng;
use indicatif::{ProgressBar, ProgressStyle};
use slipring::Wait;
use slipring_machine::CorePair;
use slipring_support::streams::stdout_width;

use super::files::{self, ABOUT_FILES, Files};
use super::machine::MeasuredMachine;
use super::size::{Size, Sizes};
use crate::console;
use arrivals::{Arrival, Pattern};
use bystander::Bystander;
use report::{ArrivalResult, Record, Run, Series};
use run::{Outcome, Pace, Setup};
use wake::Wake;

/// Seed of all schedules and orders, the same in every measurement.
const SEED: u64 = 2013;

/// Measures the wait strategies on this machine
///
/// One thread publishes events at scheduled times and another thread waits for
/// them, each on its own core if there are two. Prints a table for each arrival
/// pattern: the latency of events and the processor time of the waiter. In the
/// pattern `bystander`, a second process works on the same cores and measures
/// how much of its work the strategy costs it.
///
/// --quick takes about four minutes, --full less than twenty. Run nothing else
/// on the machine meanwhile.
#[derive(Debug, Parser)]
#[command(after_long_help = ABOUT_FILES, verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    size: Sizes,

    /// Write the figures of every run, and their medians, to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw latency against processor time to FILE (SVG), a panel per pattern
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,

    /// Measure these strategies, such as `adaptive:25%` [default: each kind]
    #[arg(long, value_name = "ALIAS,...")]
    only: Vec<WaitList>,

    /// Measure these patterns [default: all; quiet-20s only with --full]
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',')]
    arrivals: Vec<Arrival>,
}

/// A list of strategies in one argument.
#[derive(Clone, Debug)]
struct WaitList(Vec<Wait>);

impl FromStr for WaitList {
    type Err = <Wait as FromStr>::Err;

    /// Parses strategies that are separated by commas. Some strategies contain commas, so at each
    /// place the longest text that is a strategy counts as one. Texts of up to [`MAX_PIECES`]
    /// pieces are tried, so the time is linear in the length of the list.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut waits = Vec::new();
        let mut left = Some(text);
        while let Some(rest) = left {
            let commas = rest.match_indices(',').map(|(at, _)| at);
            let ends: Vec<usize> = commas.chain([rest.len()]).take(MAX_PIECES).collect();
            let longest = ends.iter().rev().find_map(|&end| Some((end, rest[..end].parse().ok()?)));
            let (end, wait) =
                longest.map_or_else(|| rest[..ends[0]].parse().map(|wait| (ends[0], wait)), Ok)?;
            waits.push(wait);
            left = rest.get(end + 1..);
        }
        Ok(Self(waits))
    }
}

/// Maximum number of comma-separated pieces of one strategy: five nested strategies of three
/// pieces, each of which is the last piece of the one around it.
const MAX_PIECES: usize = 11;

/// Returns the strategies that are measured unless the user names some: one of each kind, and
/// variants whose parameters change the result much.
fn default_waits() -> Vec<Wait> {
    const VARIANTS: [&str; 1] = ["adaptive:25%"];
    let variants = VARIANTS.iter().filter_map(|alias| alias.parse().ok());
    Wait::all().into_iter().chain(variants).collect()
}

/// Removes each item that has the name of an earlier one.
fn distinct<T>(mut all: Vec<T>, name: impl Fn(&T) -> String) -> Vec<T> {
    let mut seen = HashSet::new();
    all.retain(|item| seen.insert(name(item)));
    all
}

/// Runs the measurement and reports its results.
pub fn run(args: &Args) -> Result<()> {
    let size = args.size.size();
    let named: Vec<Wait> = args.only.iter().flat_map(|waits| waits.0.iter().cloned()).collect();
    let waits = distinct(if named.is_empty() { default_waits() } else { named }, Wait::to_string);
    let arrivals = if args.arrivals.is_empty() {
        Arrival::defaults(size).collect()
    } else {
        distinct(args.arrivals.clone(), |arrival| arrival.name())
    };
    // Opened before the measurement, so that a wrong path costs no measurement.
    let files = Files::open(args.json.as_deref(), args.picture.as_deref())?;

    // The library warns of strategies that do not suit the machine. This program measures these on
    // purpose.
    slipring::on_warning(|_| ());
    let (machine, pinned) = (MeasuredMachine::this(), CorePair::choose());
    let mut record = Record {
        slipring: env!("CARGO_PKG_VERSION"),
        date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        size: size.to_string(),
        seed: SEED,
        oversubscribed: machine.cores < 2,
        machine,
        pinned,
        wake: Wake::measure(size.pick(20, 400, 400), pinned)?,
        stopped: None,
        arrivals: Vec::new(),
    };
    if files.is_empty() {
        return measure(&mut record, arrivals, size, &waits, console::print);
    }
    let measured = measure(&mut record, arrivals, size, &waits, |_| Ok(()));
    record.stopped = measured.as_ref().err().map(|error| format!("{error:#}"));
    if record.arrivals.is_empty() {
        return measured;
    }
    files::all_errors([files.save_and_print(&record), measured])
}

/// Measures one arrival pattern after the other and adds the results to the record. Each part of
/// the report goes to `print` as soon as it is complete.
fn measure(
    record: &mut Record,
    arrivals: Vec<Arrival>,
    size: Size,
    waits: &[Wait],
    print: impl Fn(&str) -> Result<()>,
) -> Result<()> {
    print(&record.heading())?;
    let bar = progress(&arrivals, size, waits.len());
    for arrival in arrivals {
        let (pinned, cores) = (record.pinned, record.machine.cores);
        let result = Experiment { arrival, size, pinned, cores, bar: &bar }.measure(waits)?;
        bar.suspend(|| print(&result.table(stdout_width())))?;
        record.arrivals.push(result);
    }
    bar.finish_and_clear();
    print(&record.closing())
}

/// Makes a progress bar, which is visible on a terminal only. It moves between runs: a bar that
/// ticks on its own thread would disturb the measurement.
fn progress(arrivals: &[Arrival], size: Size, strategies: usize) -> ProgressBar {
    let turns =
        |arrival: &Arrival| strategies + if arrival.has_bystander() { ALONE_TURNS } else { 0 };
    let total: u64 = arrivals
        .iter()
        .map(|&arrival| {
            turns(&arrival) as u64 * u64::from(arrival.rounds(size)) * expected_ms(arrival, size)
        })
        .sum();
    let style = ProgressStyle::with_template("{bar:24} {percent:>3} %, {eta} left: {wide_msg}");
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Estimates the length of a run, in milliseconds.
fn expected_ms(arrival: Arrival, size: Size) -> u64 {
    let time = match arrival.pattern(size) {
        // The mean of a few strategies that spin, and of many that take a hundredth of their time.
        _ if arrival == Arrival::Oversubscribed => Duration::from_millis(size.pick(20, 500, 500)),
        Pattern::AtOnce { events } => Duration::from_nanos(30 * events),
        _ => arrival.length(size),
    };
    time.as_millis() as u64 + 5
}

/// Number of runs in a round in which the bystander works alone. The best one counts, because a
/// disturbance only makes it slower.
const ALONE_TURNS: usize = 2;

/// The measurement of one arrival pattern.
struct Experiment<'a> {
    arrival: Arrival,
    size: Size,
    pinned: Option<CorePair>,
    cores: usize,
    bar: &'a ProgressBar,
}

/// One run in a round.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// A run of the strategy with this index.
    Strategy(usize),
    /// A run of the bystander without a ring.
    BystanderAlone,
}

impl Experiment<'_> {
    fn measure(&self, waits: &[Wait]) -> Result<ArrivalResult> {
        let Self { arrival, size, .. } = *self;
        let mut runs = vec![Vec::new(); waits.len()];
        let mut alone = Vec::new();
        let mut random = Rng::with_seed(SEED);
        for round in 0..arrival.rounds(size) {
            let mut turns: Vec<Turn> = (0..waits.len()).map(Turn::Strategy).collect();
            if arrival.has_bystander() {
                turns.extend([Turn::BystanderAlone; ALONE_TURNS]);
            }
            random.shuffle(&mut turns);
            let (mut work_beside, mut best) = (Vec::new(), 0f64);
            for turn in turns {
                match turn {
                    Turn::BystanderAlone => {
                        self.show_progress("bystander alone", round);
                        best = best.max(self.bystander_alone()?);
                    }
                    Turn::Strategy(which) => {
                        let wait = &waits[which];
                        self.show_progress(wait, round);
                        let at = || format!("{wait} under {}", arrival.name());
                        let (outcome, work) = self.run_once(wait, round).with_context(at)?;
                        runs[which].push(Run {
                            round,
                            events: outcome.events,
                            figures: outcome.figures,
                        });
                        work_beside.extend(work.map(|work| (which, work)));
                    }
                }
                self.bar.inc(expected_ms(arrival, size));
            }
            // The loss needs the bystander's best run alone, which may come last in the round.
            for (which, work) in work_beside {
                if let Some(run) = runs[which].last_mut() {
                    run.figures.bystander_loss = Some(1.0 - work / best);
                }
            }
            alone.extend(arrival.has_bystander().then_some(best));
        }
        Ok(ArrivalResult {
            arrival: arrival.name(),
            about: self.about(),
            seconds: arrival.length(size).as_secs_f64(),
            bystander_alone: arrival.has_bystander().then_some(alone),
            strategies: waits
                .iter()
                .zip(runs)
                .map(|(wait, runs)| Series::new(wait.to_string(), runs))
                .collect(),
        })
    }

    /// Runs one strategy once. Returns its outcome and, if there is a bystander, the bystander's
    /// units of work per second.
    fn run_once(&self, wait: &Wait, round: u32) -> Result<(Outcome, Option<f64>)> {
        let Self { arrival, size, .. } = *self;
        // Where threads outnumber cores, the system places them.
        let pair = self.pinned.filter(|_| arrival != Arrival::Oversubscribed);
        let pace = if arrival.has_bystander() { Pace::Sleep } else { Pace::Spin };
        let seed = SEED + u64::from(round);
        let setup = Setup {
            wait: wait.clone(),
            pattern: arrival.pattern(size),
            seed,
            length: arrival.length(size),
            pace,
            stages: arrival.stages(self.cores),
            pair,
        };
        let bystander = arrival.has_bystander().then(|| Bystander::start(pair)).transpose()?;
        let mut outcome = run::run_once(&setup)?;
        let work = bystander.map(Bystander::finish).transpose()?;
        if work.is_some() {
            outcome.figures.others_cores = None;
        }
        Ok((outcome, work))
    }

    fn bystander_alone(&self) -> Result<f64> {
        let bystander = Bystander::start(self.pinned)?;
        std::thread::sleep(self.arrival.length(self.size));
        bystander.finish()
    }

    fn about(&self) -> String {
        let pattern = self.arrival.pattern(self.size);
        if self.arrival.has_bystander() {
            return format!("{pattern}, beside a second process");
        }
        match self.arrival.stages(self.cores) {
            1 => pattern.to_string(),
            stages => format!("{pattern}, through {stages} stages on {} cores", self.cores),
        }
    }

    fn show_progress(&self, turn: impl fmt::Display, round: u32) {
        self.bar.set_message(format!("{}, round {}: {turn}", self.arrival.name(), round + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Result<Vec<String>, String> {
        text.parse::<WaitList>()
            .map(|waits| waits.0.iter().map(Wait::to_string).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn commas_separate_strategies_but_not_parameters() {
        assert_eq!(named("blocking").unwrap(), ["blocking"]);
        assert_eq!(named("blocking,busy-spin").unwrap(), ["blocking", "busy-spin"]);
        let all: Vec<String> = Wait::all().iter().map(Wait::to_string).collect();
        assert_eq!(
            named(&all.join(",")).unwrap(),
            all,
            "some of these have parameters with commas"
        );
        let message = named("blocking,sleepy,yielding").unwrap_err();
        assert!(
            message.contains("sleepy")
                && !message.contains("sleepy,")
                && message.contains("busy-spin"),
            "{message}"
        );
        assert!(named("").is_err());
    }

    #[test]
    fn no_strategy_is_measured_twice() {
        assert_eq!(distinct(vec![1, 2, 1, 3, 2], i32::to_string), [1, 2, 3]);
        let all = default_waits();
        assert_eq!(distinct(all.clone(), Wait::to_string).len(), all.len());
    }

    #[test]
    fn the_strategy_with_the_most_commas_is_parsed_as_one() {
        // The deepest nesting that the library accepts, with the most commas on each level.
        let within = |depth: usize| "phased-backoff:1us,5us,".repeat(depth) + "sleeping:1,2,3us";
        let deepest = (0..20).filter(|&depth| within(depth).parse::<Wait>().is_ok()).max().unwrap();
        let name = within(deepest);
        assert_eq!(
            name.split(',').count(),
            MAX_PIECES,
            "the limit is exactly the number of pieces of {name}"
        );
        assert_eq!(
            named(&format!("blocking,{name},{name},yielding:7")).unwrap(),
            ["blocking", &name, &name, "yielding:7"]
        );
    }
}
