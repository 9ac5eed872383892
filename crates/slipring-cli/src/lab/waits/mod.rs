//! `slipring lab waits`: latency and processor time of each wait strategy.
//!
//! Every strategy meets the same schedule of events. A round runs every strategy once, in an order
//! that is random for each round. So no strategy always follows the same other strategy, and a
//! disturbance of the machine hits all strategies alike.

mod arrivals;
pub mod bystander;
mod convert;
mod experiment;
mod figures;
mod measured;
mod one_run;
mod picture;
mod plan;
mod record;
mod report;
mod rounds;
mod wake;

use std::collections::HashSet;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use clap::Parser;
use indicatif::ProgressBar;
use slipring::Wait;
use slipring_support::streams::stdout_width;

pub use experiment::Waits;

use super::files::{self, ABOUT_FILES, Files};
use super::machine::MeasuredMachine;
use super::record::Record as CommonRecord;
use super::size::Sizes;
use super::{interrupt, noise, progress};
use crate::base::{console, exit};
use arrivals::Arrival;
use measured::{ArrivalResult, Measured};
use plan::Plan;
use record::Record;
use rounds::SEED;

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

    /// Parses strategies that are separated by commas. Some strategies contain commas themselves,
    /// so the longest text that is a strategy is taken at each place. Texts of up to [`MAX_PIECES`]
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

/// Maximum number of comma-separated pieces in one strategy. That suffices for a strategy of five
/// levels: each level has three pieces, and the last piece of a level is the whole next level.
const MAX_PIECES: usize = 11;

/// Returns the strategies that are measured unless the user names some: one of each kind, and
/// variants whose parameters matter for the result.
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
    // The files are opened before the measurement, so that a wrong path does not waste a
    // measurement.
    let files = Files::open(args.json.as_deref(), args.picture.as_deref())?;

    // The library warns of strategies that do not suit the machine. This program measures these on
    // purpose.
    slipring::waiting::on_warning(|_| ());
    interrupt::watch()?;
    let plan = Plan { waits, arrivals, size, rounds: None };
    let expected = plan.expected() + noise::expected(size) / 2;
    let bar = progress::bar(expected.as_millis() as u64);
    bar.set_message("noise floor");
    let noise = noise::measure(size)?;
    bar.inc(noise::expected(size).as_millis() as u64 / 2);
    let head = CommonRecord::begin(size, SEED, MeasuredMachine::this(), noise);
    let mut record = Record { measured: Measured::begin(size)?, head };
    if files.is_empty() {
        return measure(&mut record, &plan, &bar, console::print);
    }
    let measured = measure(&mut record, &plan, &bar, |_| Ok(()));
    if let Err(error) = &measured {
        record.head.stopped = Some(format!("{error:#}"));
    }
    if record.measured.arrivals.is_empty() {
        measured?;
        return Err(exit::interrupted("interrupted: nothing was saved"));
    }
    files::all_errors([files.save_and_print(&record), measured])
}

/// Measures one arrival pattern after the other and adds the results to the record. Each part of
/// the report goes to `print` as soon as it is complete.
fn measure(
    record: &mut Record,
    plan: &Plan,
    bar: &ProgressBar,
    print: impl Fn(&str) -> Result<()>,
) -> Result<()> {
    bar.suspend(|| print(&record.heading()))?;
    let table = |result: &ArrivalResult| bar.suspend(|| print(&result.table(stdout_width())));
    let is_complete = plan.run(&mut record.measured, bar, table)?;
    bar.finish_and_clear();
    if !is_complete {
        record.head.stopped = Some("interrupted during `waits`".to_owned());
        print(&record.closing())?;
        return Err(exit::interrupted("interrupted during `waits`"));
    }
    print(&record.closing())
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
        // This is the deepest nesting that the library accepts, with the most commas on each level.
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
