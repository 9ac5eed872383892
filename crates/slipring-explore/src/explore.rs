//! Running seed after seed, and saying what came of it.
//!
//! - I1: A defect is planted for a system thread, so each thread that runs programs plants it.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use slipring_coherence::Planted;

use crate::case::Case;
use crate::generate::{self, Shape};
use crate::play::{Broken, play};
use crate::shrink::shrink;

/// How long a failing case is made smaller.
const SHRINKING: Duration = Duration::from_secs(20);
/// Number of accesses that are shown of a failing case.
const SHOWN: usize = 40;

/// Which programs to run.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The family of the programs; `None`: all, in turn.
    pub shape: Option<Shape>,
    /// The planted defect.
    pub twin: Option<&'static str>,
    /// The first seed.
    pub first: u64,
    /// Largest number of programs.
    pub programs: u64,
    /// Longest time.
    pub time: Duration,
    /// Number of programs at a time.
    pub threads: usize,
}

/// The counts of all threads.
#[derive(Default)]
struct Totals {
    begun: AtomicU64,
    programs: AtomicU64,
    accesses: AtomicU64,
    switches: AtomicU64,
    sleeps: AtomicU64,
    deaths: AtomicU64,
    stop: AtomicBool,
}

impl Search {
    fn plant(&self) -> Option<Planted> {
        self.twin.map(slipring_coherence::plant)
    }

    fn shape_of(&self, seed: u64) -> Shape {
        let all = Shape::ALL;
        self.shape.unwrap_or(all[(seed % all.len() as u64) as usize])
    }

    fn case(&self, seed: u64) -> Case {
        let program = generate::program(self.shape_of(seed), seed);
        let (twin, found) = (self.twin.map(str::to_owned), String::new());
        Case { twin, found, schedule: generate::schedule(&program, seed), program }
    }

    /// Runs one seed, and says all about it. Returns whether it holds.
    pub fn replay(&self, seed: u64, out: &mut dyn Write) -> bool {
        let _planted = self.plant();
        let case = self.case(seed);
        let _ = writeln!(out, "{} {}", self.shape_of(seed).name(), case.schedule);
        let _ = writeln!(out, "{}", case.program);
        match play(&case.program, &case.schedule) {
            Ok(report) => {
                let (accesses, switches, deaths) =
                    (report.accesses, report.switches, report.deaths);
                let _ = writeln!(
                    out,
                    "holds: {accesses} accesses, {switches} switches, {deaths} deaths"
                );
                true
            }
            Err(broken) => {
                tell(&case, &broken, out);
                false
            }
        }
    }

    /// Runs seed after seed on several threads, until one fails. Returns a smaller case of it.
    pub fn run(&self, out: &mut dyn Write) -> Option<Case> {
        let began = Instant::now();
        let totals = Totals::default();
        let failed = Mutex::new(None);
        let bar = ProgressBar::new(self.time.as_secs());
        let style = "{elapsed_precise} of {len} s, {msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is constant"));
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    let _planted = self.plant();
                    while let Some(seed) = self.next_seed(&totals, began, &bar) {
                        let case = self.case(seed);
                        match play(&case.program, &case.schedule) {
                            Ok(report) => totals.add(&report),
                            Err(broken) => {
                                totals.stop.store(true, Relaxed);
                                let mut failed = failed.lock().expect("no thread panics with it");
                                failed.get_or_insert((seed, case, broken));
                            }
                        }
                    }
                });
            }
        });
        bar.finish_and_clear();
        let seconds = began.elapsed().as_secs_f64();
        let _ = writeln!(out, "seeds from {} on, {seconds:.1} s: {}", self.first, totals.text());
        let failed: Option<(u64, Case, Broken)> =
            failed.into_inner().expect("no thread panics with it");
        let (seed, case, broken) = failed?;
        let _planted = self.plant();
        let _ = writeln!(out, "seed {seed} fails ({})", self.shape_of(seed).name());
        Some(tell(&case, &broken, out))
    }

    fn next_seed(&self, totals: &Totals, began: Instant, bar: &ProgressBar) -> Option<u64> {
        let number = totals.begun.fetch_add(1, Relaxed);
        if number.is_multiple_of(1024) {
            bar.set_position(began.elapsed().as_secs());
            bar.set_message(totals.text());
        }
        let over = began.elapsed() >= self.time || number >= self.programs;
        (!over && !totals.stop.load(Relaxed)).then(|| self.first.wrapping_add(number))
    }
}

/// Says how a case fails: what was found, the last accesses, and a smaller case, which it returns.
/// The case's defect is planted.
pub fn tell(case: &Case, broken: &Broken, out: &mut dyn Write) -> Case {
    let _ = write!(out, "{broken}");
    let case = Case { found: broken.first_line().to_owned(), ..case.clone() };
    let small = shrink(case, SHRINKING);
    slipring_coherence::record_accesses(SHOWN);
    let again = play(&small.program, &small.schedule);
    let _ = writeln!(out, "\na smaller one:\n{}\n{}", small.schedule, small.program);
    if let Err(broken) = again {
        let _ = writeln!(out, "{broken}\nthe last accesses:");
    }
    for access in slipring_coherence::last_accesses() {
        let _ = writeln!(out, "{access}");
    }
    slipring_coherence::record_accesses(0);
    let _ = writeln!(out, "\nas a line of a file of cases:\n{small}");
    small
}

impl Totals {
    fn add(&self, report: &slipring_coherence::Report) {
        self.programs.fetch_add(1, Relaxed);
        self.accesses.fetch_add(report.accesses, Relaxed);
        self.switches.fetch_add(report.switches, Relaxed);
        self.sleeps.fetch_add(report.counts().sleeps, Relaxed);
        self.deaths.fetch_add(report.deaths, Relaxed);
    }

    fn text(&self) -> String {
        let Totals { programs, accesses, switches, sleeps, deaths, .. } = self;
        let [programs, accesses, switches, sleeps, deaths] =
            [programs, accesses, switches, sleeps, deaths].map(|count| count.load(Relaxed));
        let begin = format!("{programs} programs, {accesses} accesses, {switches} switches");
        format!("{begin}, {sleeps} sleeps, {deaths} deaths")
    }
}
