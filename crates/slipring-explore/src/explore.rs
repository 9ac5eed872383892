//! Running seed after seed, and saying what came of it.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::generate;
use crate::play::Broken;
use crate::shape::Shape;
use crate::shrink::shrink;
use crate::twins::Twin;
use indicatif::{ProgressBar, ProgressStyle};
use slipring_coherence::Dice;

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
    pub twin: Option<Twin>,
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
    /// How often the step of the planted defect was reached.
    reached: AtomicU64,
    stop: AtomicBool,
}

impl Search {
    fn shape_of(&self, seed: u64) -> Shape {
        self.shape.unwrap_or_else(|| Shape::of(seed))
    }

    fn case(&self, seed: u64) -> Case {
        let program = generate::program(self.shape_of(seed), seed);
        let mut schedule = generate::schedule(&program, seed);
        if let Some(twin) = self.twin
            && Dice::new(seed ^ 0x3C1A_55E7).one_in(2)
        {
            // The thread that makes the step has to be held there, or its process to die.
            schedule.holds = schedule.holds.clamp(1, 4);
            schedule.class = slipring_coherence::class(twin.name);
        }
        Case { twin: self.twin, found: String::new(), schedule, program }
    }

    /// Runs one seed, and says all about it. Returns whether it holds.
    pub fn replay(&self, seed: u64, out: &mut dyn Write) -> bool {
        let case = self.case(seed);
        let _ = writeln!(out, "{} {}", self.shape_of(seed).name(), case.schedule);
        let _ = writeln!(out, "{}", case.program);
        match case.play().0 {
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
                    while let Some(seed) = self.next_seed(&totals, began, &bar) {
                        let case = self.case(seed);
                        let (run, reached) = case.play();
                        totals.reached.fetch_add(reached, Relaxed);
                        match run {
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
        if let Some(twin) = self.twin {
            let reached = totals.reached.load(Relaxed);
            let _ = writeln!(out, "the step of {twin} was reached {reached} times");
        }
        let failed: Option<(u64, Case, Broken)> =
            failed.into_inner().expect("no thread panics with it");
        let (seed, case, broken) = failed?;
        let _ = writeln!(out, "seed {seed} fails ({})", self.shape_of(seed).name());
        Some(match case.twin.and_then(|_| case.sound().play().0.err()) {
            None => tell(&case, &broken, out),
            Some(broken) => {
                let _ = writeln!(out, "it fails without the twin, too:");
                tell(&case.sound(), &broken, out)
            }
        })
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
pub fn tell(case: &Case, broken: &Broken, out: &mut dyn Write) -> Case {
    let _ = write!(out, "{broken}");
    let case = Case { found: broken.first_line().to_owned(), ..case.clone() };
    let small = shrink(case, SHRINKING);
    slipring_coherence::record_accesses(SHOWN);
    let again = small.play().0;
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
