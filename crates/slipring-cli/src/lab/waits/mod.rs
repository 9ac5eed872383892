//! `slipring lab waits`: what each way to wait costs, and how soon it answers.
//!
//! Every strategy meets the same arrivals: same seed, same schedule. Within a round the strategies
//! follow each other in an order that is drawn anew for each round, so that none always runs behind
//! the same neighbour, and what disturbs the machine disturbs all of them alike.

mod arrivals;
pub mod bystander;
mod figures;
mod files;
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

use crate::console;
use crate::machine::{Machine, Pair};
use arrivals::{Arrival, Pattern, Size};
use bystander::Bystander;
use files::Files;
use report::{Record, Run, Scene, Series};
use run::{Outcome, Pace, Setup};
use wake::Wake;

/// What schedules and orders are drawn from. Anybody's measurement has the same ones.
const SEED: u64 = 2013;

/// What the help says of files and of how the program ends.
const ABOUT_FILES: &str = "\
Files: a FILE is tried before anything is measured, and saved before the tables are printed. A regular file is replaced as a whole, so
that a failure leaves the old one; one that cannot be replaced (it has a second name or another owner) is written over. A pipe or device is written as it is. If FILE is standard output (/dev/stdout), the tables go to
standard error. Where no FILE is named, each table is printed as soon as it is measured. If a measurement fails, what was measured
before it is saved and printed, and the record says why it stopped. What cannot be saved is kept in the folder for temporary files.

Exit code: 0 if everything was measured and saved, also where the reader of standard output closes its pipe early (`| head`); without a
FILE the measurement then stops. 1 if something failed, 2 if the arguments are wrong.";

/// Measures the ways to wait on this machine.
///
/// One thread publishes at moments that are fixed beforehand, another one waits for it, each on a
/// core of its own where there are two. Prints a table for each arrival pattern: how late events
/// were handled, and what the waiter took of its core. What a strategy costs others is measured by
/// a second process that works on the same cores.
///
/// --quick takes about four minutes, --full less than twenty. Let nothing else run meanwhile.
#[derive(Debug, Parser)]
#[command(after_long_help = ABOUT_FILES)]
pub struct Args {
    #[command(flatten)]
    size: Sizes,

    /// Write every round's figures, and their medians, to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw latency against the share of a core that was used, a panel for each arrival pattern, to
    /// FILE (SVG)
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,

    /// Measure these strategies, parameters and all (`adaptive:25%`) [default: one of each kind]
    #[arg(long, value_name = "ALIAS,...")]
    only: Vec<Waits>,

    /// Measure these arrival patterns [default: all but quiet-20s, which is for --full]
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',')]
    arrivals: Vec<Arrival>,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Sizes {
    /// A few seconds: checks that everything works, and says nothing about speed
    #[arg(long)]
    smoke: bool,
    /// A few minutes (the default)
    #[arg(long)]
    quick: bool,
    /// What records are made with
    #[arg(long)]
    full: bool,
}

impl Sizes {
    fn size(&self) -> Size {
        match self {
            Self { smoke: true, .. } => Size::Smoke,
            Self { full: true, .. } => Size::Full,
            _ => Size::Quick,
        }
    }
}

/// Strategies in one argument.
#[derive(Clone, Debug)]
struct Waits(Vec<Wait>);

impl FromStr for Waits {
    type Err = <Wait as FromStr>::Err;

    /// Commas stand between strategies, and within some: the longest text that is a strategy counts
    /// as one. Only texts of up to [`PIECES`] pieces are tried, so the time is linear in the number
    /// of names.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut waits = Vec::new();
        let mut left = Some(text);
        while let Some(rest) = left {
            let ends = rest.match_indices(',').map(|(at, _)| at).chain([rest.len()]).take(PIECES);
            let ends: Vec<usize> = ends.collect();
            let longest = ends.iter().rev().find_map(|&end| Some((end, rest[..end].parse().ok()?)));
            let (end, wait) =
                longest.map_or_else(|| rest[..ends[0]].parse().map(|wait| (ends[0], wait)), Ok)?;
            waits.push(wait);
            left = rest.get(end + 1..);
        }
        Ok(Self(waits))
    }
}

/// The most pieces between commas that one strategy has: five within each other, of three pieces
/// each, share one.
const PIECES: usize = 11;

/// What is measured unless some are named: one of each kind, and those that are worth a second look
/// with other parameters.
fn usual() -> Vec<Wait> {
    const VARIANTS: [&str; 1] = ["adaptive:25%"];
    let variants = VARIANTS.iter().filter_map(|alias| alias.parse().ok());
    Wait::all().into_iter().chain(variants).collect()
}

/// The items without those whose name was there already.
fn distinct<T>(mut all: Vec<T>, name: impl Fn(&T) -> String) -> Vec<T> {
    let mut seen = HashSet::new();
    all.retain(|item| seen.insert(name(item)));
    all
}

/// Measures, and reports.
pub fn run(args: &Args) -> Result<()> {
    let size = args.size.size();
    let named: Vec<Wait> = args.only.iter().flat_map(|waits| waits.0.iter().cloned()).collect();
    let waits = distinct(if named.is_empty() { usual() } else { named }, Wait::to_string);
    let arrivals = if args.arrivals.is_empty() {
        Arrival::usual(size).collect()
    } else {
        distinct(args.arrivals.clone(), |arrival| arrival.name())
    };
    // Before anything is measured, so that a bad name costs no measurement.
    let files = Files::open(args.json.as_deref(), args.picture.as_deref())?;

    // That strategies are used where they should not be is what is measured.
    slipring::on_warning(|_| ());
    let (machine, pinned) = (Machine::look(), Pair::choose());
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
    files::all([files.save_and_print(&record), measured])
}

/// Measures one arrival pattern after the other into the record. Each text of the tables goes to
/// `print` when it is known.
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
        let scene =
            Lab { arrival, size, pinned: record.pinned, cores: record.machine.cores, bar: &bar }
                .measure(waits)?;
        bar.suspend(|| print(&scene.table()))?;
        record.arrivals.push(scene);
    }
    bar.finish_and_clear();
    print(&record.closing())
}

/// How far it is and how long it will take, on a terminal. It moves between runs only: a bar with a
/// thread of its own would be measured too.
fn progress(arrivals: &[Arrival], size: Size, strategies: usize) -> ProgressBar {
    let turns = |arrival: &Arrival| strategies + if arrival.in_company() { ALONE } else { 0 };
    let total: u64 = arrivals
        .iter()
        .map(|&arrival| {
            turns(&arrival) as u64 * u64::from(arrival.rounds(size)) * expected_ms(arrival, size)
        })
        .sum();
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %, {eta} left: {wide_msg}");
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What a run takes, about.
fn expected_ms(arrival: Arrival, size: Size) -> u64 {
    let time = match arrival.pattern(size) {
        // Most take a hundredth of it, and whoever spins takes it all.
        _ if arrival == Arrival::Crowd => Duration::from_millis(size.pick(20, 500, 500)),
        Pattern::AtOnce { events } => Duration::from_nanos(30 * events),
        _ => arrival.length(size),
    };
    time.as_millis() as u64 + 5
}

/// How often in a round the bystander works alone. What disturbs it makes it slower only, so the
/// best of these is what it can do.
const ALONE: usize = 2;

/// One arrival pattern, ready to be measured.
struct Lab<'a> {
    arrival: Arrival,
    size: Size,
    pinned: Option<Pair>,
    cores: usize,
    bar: &'a ProgressBar,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// This strategy's.
    Strategy(usize),
    /// The bystander's, who works alone.
    Alone,
}

impl Lab<'_> {
    fn measure(&self, waits: &[Wait]) -> Result<Scene> {
        let Self { arrival, size, .. } = *self;
        let mut runs = vec![Vec::new(); waits.len()];
        let mut alone = Vec::new();
        let mut random = Rng::with_seed(SEED);
        for round in 0..arrival.rounds(size) {
            let mut turns: Vec<Turn> = (0..waits.len()).map(Turn::Strategy).collect();
            if arrival.in_company() {
                turns.extend([Turn::Alone; ALONE]);
            }
            random.shuffle(&mut turns);
            let (mut beside, mut best) = (Vec::new(), 0f64);
            for turn in turns {
                match turn {
                    Turn::Alone => {
                        self.tell("nobody", round);
                        best = best.max(self.bystander_alone()?);
                    }
                    Turn::Strategy(which) => {
                        let wait = &waits[which];
                        self.tell(wait, round);
                        let told = || format!("{wait} under {}", arrival.name());
                        let (outcome, work) = self.once(wait, round).with_context(told)?;
                        runs[which].push(Run {
                            round,
                            events: outcome.events,
                            figures: outcome.figures,
                        });
                        beside.extend(work.map(|work| (which, work)));
                    }
                }
                self.bar.inc(expected_ms(arrival, size));
            }
            // What was lost is known when the bystander has had its turns alone.
            for (which, work) in beside {
                if let Some(run) = runs[which].last_mut() {
                    run.figures.bystander_loss = Some(1.0 - work / best);
                }
            }
            alone.extend(arrival.in_company().then_some(best));
        }
        Ok(Scene {
            arrival: arrival.name(),
            about: self.about(),
            seconds: arrival.length(size).as_secs_f64(),
            bystander_alone: arrival.in_company().then_some(alone),
            strategies: waits
                .iter()
                .zip(runs)
                .map(|(wait, runs)| Series::new(wait.to_string(), runs))
                .collect(),
        })
    }

    /// One strategy's turn, and what the bystander did per second meanwhile, if there is one.
    fn once(&self, wait: &Wait, round: u32) -> Result<(Outcome, Option<f64>)> {
        let Self { arrival, size, .. } = *self;
        // A crowd runs where it can.
        let pair = self.pinned.filter(|_| arrival != Arrival::Crowd);
        let pace = if arrival.in_company() { Pace::Sleep } else { Pace::Spin };
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
        let bystander = arrival.in_company().then(|| Bystander::start(pair)).transpose()?;
        let mut outcome = run::once(&setup)?;
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
        if self.arrival.in_company() {
            return format!(
                "{pattern}, the producer asleep between them, beside a process that works on the same cores"
            );
        }
        match self.arrival.stages(self.cores) {
            1 => pattern.to_string(),
            stages => format!("{pattern}, through {stages} stages on {} cores", self.cores),
        }
    }

    fn tell(&self, who: impl fmt::Display, round: u32) {
        self.bar.set_message(format!("{}, round {}: {who}", self.arrival.name(), round + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Result<Vec<String>, String> {
        text.parse::<Waits>()
            .map(|waits| waits.0.iter().map(Wait::to_string).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn strategies_are_told_apart_by_commas() {
        assert_eq!(named("blocking").unwrap(), ["blocking"]);
        assert_eq!(named("blocking,busy-spin").unwrap(), ["blocking", "busy-spin"]);
        let all: Vec<String> = Wait::all().iter().map(Wait::to_string).collect();
        assert_eq!(named(&all.join(",")).unwrap(), all, "parameters with commas are no strategies");
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
    fn nobody_is_measured_twice() {
        assert_eq!(distinct(vec![1, 2, 1, 3, 2], i32::to_string), [1, 2, 3]);
        let all = usual();
        assert_eq!(distinct(all.clone(), Wait::to_string).len(), all.len());
    }

    #[test]
    fn the_strategy_with_the_most_commas_is_read_as_one() {
        // As deep as they go, and each level with as many commas as there can be.
        let within = |depth: usize| "phased-backoff:1us,5us,".repeat(depth) + "sleeping:1,2,3us";
        let deepest = (0..20).filter(|&depth| within(depth).parse::<Wait>().is_ok()).max().unwrap();
        let name = within(deepest);
        assert_eq!(
            name.split(',').count(),
            PIECES,
            "no more pieces are tried, and no fewer will do: {name}"
        );
        assert_eq!(
            named(&format!("blocking,{name},{name},yielding:7")).unwrap(),
            ["blocking", &name, &name, "yielding:7"]
        );
    }
}
