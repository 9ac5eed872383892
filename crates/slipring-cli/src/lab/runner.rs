//! Runs experiments: rounds of all cases in random order, with one progress bar, until all rounds
//! are done or Ctrl-C ends them.
//!
//! A round runs every case once. The order is random for each round, so that no case always follows
//! the same other case, and a disturbance of the machine hits all cases alike.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use fastrand::Rng;
use indicatif::ProgressBar;
use slipring_machine::MachineUsage;

use super::experiment::{Case, CaseResult, Experiment, Measurement, Repetition, Unsuitable};
use super::files::{self, Files};
use super::interrupt;
use super::machine::{MeasuredMachine, Model};
use super::noise;
use super::progress;
use super::record::{self, Curves, Record, Results, Series, Values};
use super::size::{Size, Sizes};
use super::statistics::Noise;
use super::table;
use crate::base::{console, exit};

/// Seed of all orders and of generated work, the same in every measurement.
const SEED: u64 = 2013;

/// The help's paragraphs on interruptions and exit codes.
const ABOUT_RUNS: &str = "\
Ctrl-C ends the measurement after the current repetition: the finished rounds are
saved and printed. A second Ctrl-C ends the program at once. (On Windows, the
first one does.)

FILE is checked before the measurement, and replaced as a whole. `-` is standard
output; the tables then go to standard error.

Exit code:
    0  everything was measured and saved
    1  something failed; the results before the failure are saved and printed
    2  wrong arguments, or output that cannot be written
  130  ended by Ctrl-C";

/// The arguments that most experiments have.
#[derive(Debug, clap::Args)]
#[command(after_long_help = ABOUT_RUNS)]
pub struct Args {
    #[command(flatten)]
    pub size: Sizes,

    /// Write every repetition's figures to FILE, for `lab report` and `lab compare`
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Measure these contenders [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Repeat each measurement N times [default: as the amount says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
}

/// An experiment that is about to run.
struct Planned<'a> {
    experiment: &'a dyn Experiment,
    work: Work,
}

/// The work of one experiment: its cases, or a measurement of its own.
enum Work {
    Rounds { cases: Vec<Case>, rounds: u32 },
    Own(Box<dyn Measurement>),
}

impl Work {
    fn contenders(&self) -> Vec<String> {
        match self {
            Work::Rounds { cases, .. } => cases.iter().map(|case| case.contender.clone()).collect(),
            Work::Own(measurement) => measurement.contenders(),
        }
    }

    fn keep(&mut self, only: &[String]) {
        match self {
            Work::Rounds { cases, .. } => cases.retain(|case| only.contains(&case.contender)),
            Work::Own(measurement) => measurement.keep(only),
        }
    }

    fn repeat(&mut self, asked: u32) {
        match self {
            Work::Rounds { rounds, .. } => *rounds = asked,
            Work::Own(measurement) => measurement.repeat(asked),
        }
    }

    fn expected(&self) -> Duration {
        match self {
            Work::Rounds { cases, rounds } => {
                cases.iter().map(|case| case.expected * *rounds).sum()
            }
            Work::Own(measurement) => measurement.expected(),
        }
    }
}

/// Runs experiments one after the other, and reports and saves their results.
pub fn run(experiments: &[&dyn Experiment], args: &Args) -> Result<()> {
    let size = args.size.size();
    // The files are opened before the measurement, so that a wrong path does not waste a
    // measurement.
    let files = Files::open(args.json.as_deref(), None)?;
    let machine = MeasuredMachine::this();
    let planned = plan(experiments, size, &machine, args)?;
    // The library warns of strategies that do not suit the machine. The lab measures these on
    // purpose.
    slipring::waiting::on_warning(|_| ());
    interrupt::watch()?;
    let bar = progress_bar(&planned, size);
    let usage = MachineUsage::now();
    let mut rounds = noise::Rounds::default();
    let mut measure_noise = || {
        bar.set_message("noise floor");
        rounds.measure_half(size)?;
        bar.inc(noise::expected(size).as_millis() as u64 / 2);
        Ok::<_, Error>(rounds.noise(size))
    };
    let noise = measure_noise()?;
    let mut record = Record::begin(size, SEED, machine, noise);
    let mut failed = Ok(());
    for planned in planned {
        match measure_into(&mut record, planned, size, &bar) {
            Ok(()) => {}
            Err(error) if exit::code(&error) == exit::INTERRUPTED => {
                failed = Err(error);
                break;
            }
            // After a failed experiment, the others are still measured.
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    if record.stopped.is_none() {
        // A signal that comes now costs only the second half of the noise measurement.
        match measure_noise() {
            Ok(noise) => record.noise = noise,
            Err(_) if interrupt::requested() => {}
            Err(error) => failed = Err(error),
        }
    }
    record.others = usage.and_then(MachineUsage::others_since);
    bar.finish_and_clear();
    conclude(&record, files, failed)
}

/// Runs an experiment on a simulated machine, and reports and saves its results. A simulation is
/// disturbed by nothing, so no noise is measured.
pub fn simulate(experiment: &dyn Experiment, model: Model, args: &Args) -> Result<()> {
    let size = args.size.size();
    let files = Files::open(args.json.as_deref(), None)?;
    let machine = MeasuredMachine::simulated(&model);
    let planned = plan(&[experiment], size, &machine, args)?;
    interrupt::watch()?;
    let expected = planned.iter().map(|planned| planned.work.expected()).sum::<Duration>();
    let bar = progress::bar(expected.as_millis() as u64);
    let noise = Noise { computing: 0.0, handover: 0.0, repetitions: 0 };
    let mut record = Record::begin(size, SEED, machine, noise);
    record.simulated = Some(model);
    let mut failed = Ok(());
    for planned in planned {
        failed = failed.and(measure_into(&mut record, planned, size, &bar));
    }
    bar.finish_and_clear();
    conclude(&record, files, failed)
}

/// Measures an experiment and adds its results to the record. On a failure and after an
/// interruption, these are the complete rounds.
fn measure_into(
    record: &mut Record,
    planned: Planned<'_>,
    size: Size,
    bar: &ProgressBar,
) -> Result<()> {
    let name = planned.experiment.about().name;
    let (results, end) = measure(planned, size, &record.machine, bar);
    record.experiments.extend(results.filter(|results| results.rounds > 0));
    match end {
        Ok(true) => Ok(()),
        Ok(false) => {
            let stopped = format!("interrupted during `{name}`");
            let error = exit::interrupted(format!("{stopped}: finished rounds are kept"));
            record.stopped = Some(stopped);
            Err(error)
        }
        Err(error) => {
            record.stopped.get_or_insert_with(|| format!("{name}: {error:#}"));
            Err(error.context(name))
        }
    }
}

/// Saves and prints the results, unless there are none. `failed` is the result of the measurement.
fn conclude(record: &Record, files: Files, failed: Result<()>) -> Result<()> {
    if record.experiments.is_empty() {
        // An interruption before the first complete round leaves nothing to keep.
        interrupt::check()?;
        return failed;
    }
    files::all_errors([files.save_and_print(record), failed])
}

/// Returns the work of an experiment on this machine.
fn work_of(experiment: &dyn Experiment, size: Size, machine: &MeasuredMachine) -> Result<Work> {
    match experiment.measurement(size)? {
        Some(measurement) => Ok(Work::Own(measurement)),
        None => {
            let cases = experiment.cases(size, machine)?;
            Ok(Work::Rounds { cases, rounds: experiment.rounds(size) })
        }
    }
}

/// Collects the cases of all experiments.
fn plan<'a>(
    experiments: &[&'a dyn Experiment],
    size: Size,
    machine: &MeasuredMachine,
    args: &Args,
) -> Result<Vec<Planned<'a>>> {
    let only = &args.only;
    let mut all: Vec<String> = Vec::new();
    let mut planned = Vec::new();
    let mut left_out = None;
    for experiment in experiments {
        let name = experiment.about().name;
        let mut work = match work_of(*experiment, size, machine) {
            Err(error) if error.is::<Unsuitable>() && experiments.len() > 1 => {
                console::print_error(&format!("slipring: `{name}` is left out: {error:#}\n"));
                left_out = Some(format!("{name}: {error:#}"));
                continue;
            }
            work => work.map_err(|error| exit::usage(format!("{name}: {error:#}")))?,
        };
        for contender in work.contenders() {
            if !all.contains(&contender) {
                all.push(contender);
            }
        }
        if !only.is_empty() {
            work.keep(only);
        }
        if let Some(rounds) = args.rounds {
            work.repeat(rounds);
        }
        planned.push(Planned { experiment: *experiment, work });
    }
    if let Some(unknown) = only.iter().find(|name| !all.contains(name)) {
        let message =
            format!("--only: no contender is called `{unknown}`: take some of {}", all.join(", "));
        return Err(exit::usage(message));
    }
    planned.retain(|planned| !planned.work.contenders().is_empty());
    match left_out {
        Some(reason) if planned.is_empty() => Err(exit::usage(reason)),
        _ => Ok(planned),
    }
}

/// Makes the progress bar of all experiments, in milliseconds.
fn progress_bar(planned: &[Planned<'_>], size: Size) -> ProgressBar {
    let all = planned.iter().map(|planned| planned.work.expected());
    let total = noise::expected(size) + all.sum::<Duration>();
    progress::bar(total.as_millis() as u64)
}

/// Runs an experiment. The result is `false` if the user has ended the measurement. In that case,
/// and after a failure, the results cover the complete rounds.
fn measure(
    planned: Planned<'_>,
    size: Size,
    machine: &MeasuredMachine,
    bar: &ProgressBar,
) -> (Option<Results>, Result<bool>) {
    let Planned { experiment, work } = planned;
    let missing = experiment.missing(size, machine);
    let (cases, rounds) = match work {
        Work::Rounds { cases, rounds } => (cases, rounds),
        Work::Own(mut measurement) => {
            return match measurement.measure(bar) {
                Ok((mut results, is_complete)) if results.is_finite() => {
                    results.notes.splice(0..0, missing);
                    (Some(results), Ok(is_complete))
                }
                Ok(_) => (None, Err(anyhow!("a value is not a number"))),
                Err(error) => (None, Err(error)),
            };
        }
    };
    let name = experiment.about().name;
    let began = Instant::now();
    let mut results = Results {
        experiment: name.to_owned(),
        rounds: 0,
        seconds: 0.0,
        notes: missing,
        series: cases.iter().map(|case| series(case, machine)).collect(),
    };
    let end = repeat(&mut results, cases, rounds, bar);
    if !matches!(end, Ok(true)) {
        results.notes.push(format!("ended after {} of {rounds} rounds", results.rounds));
    }
    results.seconds = began.elapsed().as_secs_f64();
    (Some(results), end)
}

/// Runs all rounds of an experiment, and adds each complete one to the results. Returns `false` if
/// the user has ended the measurement.
fn repeat(
    results: &mut Results,
    mut cases: Vec<Case>,
    rounds: u32,
    bar: &ProgressBar,
) -> Result<bool> {
    let name = results.experiment.clone();
    let mut order = Rng::with_seed(SEED);
    for round in 0..rounds {
        let mut turns: Vec<usize> = (0..cases.len()).collect();
        order.shuffle(&mut turns);
        let mut outcomes = Vec::new();
        for which in turns {
            if interrupt::requested() {
                return Ok(false);
            }
            let case = &mut cases[which];
            let shown = label(case);
            bar.set_message(format!("{name}, round {} of {rounds}: {shown}", round + 1));
            let run = Repetition { seed: SEED.wrapping_add(u64::from(round)) };
            let outcome = (case.run)(run).with_context(|| shown.clone())?;
            ensure!(outcome.is_finite(), "{shown}: a value is not a number");
            bar.inc(case.expected.as_millis() as u64);
            outcomes.push((which, outcome));
        }
        // Only complete rounds count, so that all cases have the same number of repetitions.
        outcomes.into_iter().for_each(|(which, outcome)| add(&mut results.series[which], outcome));
        results.rounds += 1;
    }
    Ok(true)
}

fn label(case: &Case) -> String {
    let point: Vec<String> =
        case.point.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if point.is_empty() {
        case.contender.clone()
    } else {
        format!("{}, {}", case.contender, point.join(", "))
    }
}

fn series(case: &Case, machine: &MeasuredMachine) -> Series {
    Series {
        threads: case.threads,
        cpus: case.cpus.clone(),
        oversubscribed: record::is_oversubscribed(case.threads, &case.cpus, machine.cores),
        ..Series::new(&case.contender, &case.point)
    }
}

fn add(series: &mut Series, outcome: CaseResult) {
    for (metric, value) in outcome.values {
        let values = series.metrics.entry(metric.name.to_owned()).or_insert_with(|| Values {
            unit: metric.unit.to_owned(),
            better: metric.better,
            values: Vec::new(),
        });
        values.values.push(value);
    }
    for (metric, points) in outcome.curves {
        let curves = series.curves.entry(metric.name.to_owned());
        let unit = || Curves { unit: metric.unit.to_owned(), rounds: Vec::new() };
        curves.or_insert_with(unit).rounds.push(points);
    }
}

impl files::Results for Record {
    fn tables(&self, width: Option<usize>) -> String {
        table::all(self, width)
    }

    fn picture(&self) -> Result<String> {
        bail!("pictures of these experiments are drawn by `slipring lab report`")
    }
}
